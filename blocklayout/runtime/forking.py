"""What begins anew in a forked child, where of all threads only the one that forked lives on."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something that a thread of the parent may have been in the middle of."""

    def renew(self) -> None:
        """Be as in the beginning."""


_alive: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(what: Renewable) -> None:
    """Renew it now, and in every child that is forked while it lives."""
    what.renew()
    _alive.add(what)


class Lock:
    """A lock that is free in a child, even if a thread held it that does not exist there."""

    def __init__(self) -> None:
        renew_in_children(self)

    def renew(self) -> None:
        """Be free."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self._lock.locked():  # not so where the child was forked inside
            self._lock.release()


def _after_fork_in_child() -> None:
    for what in _alive:
        what.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
