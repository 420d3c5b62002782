"""Processes that measure at the same time disturb each other; here they wait for each other."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_ASK_EVERY_S = 0.02


@contextlib.contextmanager
def one_at_a_time(path: Path, go_on: Callable[[], bool]) -> Iterator[None]:
    """Let one process at a time measure, of those that keep their times in the same file; the lock lies beside it.

    Where the file's folder takes no lock, nobody waits; the wait is over when ``go_on`` says no.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f"{path.name}.lock").open("ab")
    except OSError:
        yield
        return
    with lock:
        while not is_taken(lock) and go_on():
            time.sleep(_ASK_EVERY_S)
        yield


def is_taken(lock: IO[bytes]) -> bool:
    """Whether the lock is ours now; closing the file gives it back, and so does the end of the process."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
