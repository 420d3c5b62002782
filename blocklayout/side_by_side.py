"""The same done for many things, in several threads at once."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Item = TypeVar("_Item")


def _called(work: Callable[[], None]) -> None:
    work()


@contextmanager
def side_by_side(
    do: Callable[[_Item], object],
    items: Iterable[_Item],
    n_threads: int,
    within: Callable[[Callable[[], None]], None] = _called,
) -> Iterator[None]:
    """Call ``do`` for each item: in threads while the block runs, in the calling one as well when that has ended.

    An error ends it, that of the block or the first of a call, and is raised. ``n_threads`` includes the calling one;
    they are fewer where the system has no more. ``within`` calls the work of each thread.
    """
    waiting, errors = deque(items), list[BaseException]()

    def work() -> None:
        while not errors:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            try:
                do(item)
            except BaseException as error:  # noqa: BLE001 - raised again in the caller
                errors.append(error)

    threads = list[Thread]()
    with suppress(RuntimeError):  # the system has no more of them: these do
        for _ in range(min(n_threads, len(waiting)) - 1):
            thread = Thread(target=copy_context().run, args=(within, work), name="blocklayout-helper")
            thread.start()
            threads.append(thread)
    try:
        yield
        within(work)
    except BaseException as error:
        errors.insert(0, error)
        raise
    finally:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
