"""Which values the buffers of a plan hold, and in which layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blocklayout.kernels import Role

if TYPE_CHECKING:
    from blocklayout.kernels import Kernel, Program
    from blocklayout.layout import MemoryDesc


class Holdings:
    """Values by buffer. What a view shows of a value is held wherever the value is."""

    def __init__(self, program: Program) -> None:
        """Nothing is held.

        Args:
            program: Whose views are seen through.
        """
        views = [kernel for kernel in program.kernels if kernel.operator.role is Role.VIEW and kernel.sources]
        self._views = {kernel.dst.name: kernel for kernel in views}
        self._views_of: dict[str, list[str]] = {}
        for kernel in views:
            self._views_of.setdefault(_seen(kernel), []).append(kernel.dst.name)
        self._held: dict[int, dict[str, list[MemoryDesc]]] = {}

    def put(self, buffer: int, value: str, desc: MemoryDesc) -> None:
        """A buffer holds a value, beside what it held before."""
        self._held.setdefault(buffer, {}).setdefault(value, []).append(desc)

    def clear(self, buffer: int) -> None:
        """A buffer holds nothing."""
        self._held.pop(buffer, None)

    def holds(self, buffer: int, value: str, desc: MemoryDesc) -> bool:
        """Whether a value can be read from a buffer as ``desc``, through views as well."""
        if not desc.n_elements or any(found.readable_as(desc) for found in self._descs(buffer, value)):
            return True
        view = self._views.get(value)
        if view is None or view.dst.dims != desc.dims:
            return False
        source = view.operator.back(desc)
        return source is not None and self.holds(buffer, _seen(view), source)

    def values_in(self, buffer: int, desc: MemoryDesc) -> list[str]:
        """The values that a buffer holds such that they can be read as ``desc``."""
        return [value for value in self._names(buffer) if self.holds(buffer, value, desc)]

    def descs_in(self, buffer: int) -> list[MemoryDesc]:
        """The layouts of all that a buffer holds."""
        return [desc for value in self._names(buffer) for desc in self._descs(buffer, value)]

    def _names(self, buffer: int) -> list[str]:
        found: dict[str, None] = {}
        pending = list(self._held.get(buffer, {}))
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = None
                pending += self._views_of.get(name, [])
        return list(found)

    def _descs(self, buffer: int, value: str) -> Iterator[MemoryDesc]:
        yield from self._held.get(buffer, {}).get(value, ())
        view = self._views.get(value)
        if view is None:
            return
        for desc in self._descs(buffer, _seen(view)):
            through = view.operator.through(desc)
            if through is not None:
                yield through


def _seen(view: Kernel) -> str:
    [(_, value)] = view.sources
    return value.name
