"""Locks are free in a child, whoever held them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from blocklayout.runtime.forking import Lock

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


def test_a_child_that_was_forked_inside_goes_on() -> None:
    lock = Lock()
    child = -1
    with lock:
        child = os.fork()
    if child == 0:
        os._exit(0 if can_take(lock) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert can_take(lock)
