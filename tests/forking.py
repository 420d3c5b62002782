"""Children of the process that tests fork, which must not hang."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

PATIENCE_S = 20.0


def in_child(check: Callable[[], object]) -> int | str:
    """0 where ``check`` holds in a forked child, 1 where not, 2 where it raises; ``hangs`` where it does not end."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(code)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"
