"""State to renew in a forked child, where only the thread that forked lives on."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Has state that a thread of the parent may have been changing."""

    def renew(self) -> None:
        """Make the state anew."""


_alive: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(owner: Renewable) -> None:
    """Renew it now, and in every child that is forked while it lives."""
    owner.renew()
    _alive.add(owner)


class Lock:
    """A lock that is free in a child, even if a thread held it that does not exist there."""

    def __init__(self) -> None:
        renew_in_children(self)

    def renew(self) -> None:
        """Make a free lock."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self._lock.locked():  # not so where the child was forked inside
            self._lock.release()


def _after_fork_in_child() -> None:
    for owner in _alive:
        owner.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
