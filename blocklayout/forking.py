"""State to renew in a forked child, where only the thread that forked lives on."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


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
    """A lock that is free in a child, even if a thread held it that does not exist there.

    A ``with`` statement calls these properties' values, the functions of the lock that it takes: of C, so that no
    signal comes between taking and releasing it, and of that lock even where the child has another.
    """

    def __init__(self) -> None:
        renew_in_children(self)

    def renew(self) -> None:
        """Make a free lock."""
        self._lock = threading.Lock()

    @property
    def __enter__(self) -> Callable[[], bool]:
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302, PYI036 - it is no method but returns one
        return self._lock.__exit__


def _after_fork_in_child() -> None:
    for owner in _alive:
        owner.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
