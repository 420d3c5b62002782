"""In a child that was forked, locks are free, whoever held them, and sessions have streams of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from blocklayout.forking import Lock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # forking beside threads is the point
]


def in_child(check: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def can_take(lock: Lock) -> bool:
    """Whether it is free: whoever finds it taken would wait for ever."""
    taken = threading.Thread(target=lock.__enter__, daemon=True)
    taken.start()
    taken.join(timeout=5)
    return not taken.is_alive()


def test_a_lock_that_another_thread_holds_is_free_in_a_child() -> None:
    lock, is_held, may_end = Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_end.wait(timeout=30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(timeout=30)
    assert in_child(lambda: can_take(lock)) == 0
    may_end.set()
    holder.join(timeout=30)
    assert can_take(lock)


def test_an_interrupt_at_any_moment_leaves_a_lock_free() -> None:
    """Ctrl-C, at each event in turn of what Python runs to take the lock and to release it."""
    lock, n_survived, is_interrupted = Lock(), 0, True
    while is_interrupted:
        left, is_interrupted = n_survived, False

        def interrupt(*_: object) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            with lock:
                pass
        except KeyboardInterrupt:
            n_survived, is_interrupted = n_survived + 1, True
        finally:
            sys.settrace(None)
        assert can_take(lock)
        lock.renew()
    assert n_survived > 0


def test_a_child_that_was_forked_inside_goes_on() -> None:
    lock = Lock()
    child = -1
    with lock:
        child = os.fork()
    if child == 0:
        os._exit(0 if can_take(lock) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert can_take(lock)


FORK = """
import os, time
import numpy as np
import blocklayout as bl
from tests import nets
from tests.forking import in_child

for streams, threads in ((1, 2), (2, 2), (2, 4)):
    session = bl.load(nets.chain(), streams=streams, threads=threads, layout="nhwc")
    feed = {"x": nets.random_input((1, 17, 12, 12))}
    expected = session.submit(feed).result()[0]
    def check():
        again = [session.submit(feed).result(10)[0] for _ in range(3)] + [session.run(None, feed)[0]]
        session.close()
        return all(np.array_equal(each, expected) for each in again)
    told = [in_child(check)]
    for _ in range(2):
        futures = [session.submit(feed) for _ in range(10)]  # in the middle of something
        told.append(in_child(check))
        assert all(np.array_equal(each.result()[0], expected) for each in futures)
    told.append(session._book.streams.submit(lambda: in_child(check)).result())  # by a stream's own thread
    session.close()
    print(streams, threads, set(told))
"""


def test_a_child_has_streams_of_its_own(tree_environ: dict[str, str]) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, env=tree_environ, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "1 2 {0}\n2 2 {0}\n2 4 {0}\n"
