"""The same done for many things, in several threads at once."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Item = TypeVar("_Item")


@contextmanager
def side_by_side(do: Callable[[_Item], object], items: Iterable[_Item], n_threads: int) -> Iterator[None]:
    """Call ``do`` for each item: in threads while the block runs, in the calling one as well when that has ended.

    An error ends it, that of the block or the first of a call, and is raised.

    Args:
        do: Called by several threads at once.
        items: Taken in their order.
        n_threads: The calling one included; fewer where the system gives no more.
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
    with suppress(RuntimeError):  # the system gives no more of them: these do
        for _ in range(min(n_threads, len(waiting)) - 1):
            thread = Thread(target=work, name="blocklayout-helper")
            thread.start()
            threads.append(thread)
    try:
        yield
        work()
    except BaseException as error:
        errors.insert(0, error)
        raise
    finally:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
