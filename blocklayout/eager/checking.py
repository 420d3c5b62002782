"""Arguments of a call against what their annotations say of them, before it is planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blocklayout.eager.operands import refused
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.eager.planning import Problem

_IMAGES = range(3, 6)
"""Ranks of tensors with spatial dimensions."""

_TOO_LARGE = 1 << 63


def check(problem: Problem) -> None:
    """Refuse arguments that are out of range, each by what its annotation in :class:`Operators` says.

    Raises:
        InputError: One is; the message names it, the rule and what would be right.
    """
    x = next(iter(problem.operands.values()), None)
    if not isinstance(x, MemoryDesc):
        return
    given = {**problem.operands, **problem.attrs}
    for name, value in problem.attrs.items():
        if any(isinstance(number, int) and abs(number) >= _TOO_LARGE for number in _each(value)):
            raise refused(value, f"{problem.name}: {name}", "numbers that 64 bits can hold")
    for name, kind in problem.kinds.items():
        value = given.get(name)
        if value is None or kind not in _RULES:
            continue
        if kind in ("Extents", "Pads") and x.ndims not in _IMAGES:
            raise InputError(f"{problem.name}: x has shape {x.dims}; give one of rank 3 to 5, for {name} to go over")
        right = _RULES[kind](value, x)
        if right:
            raise refused(value.dims if isinstance(value, MemoryDesc) else value, f"{problem.name}: {name}", right)


def shown(problem: Problem) -> str:
    """The arguments of a call as they were given."""
    given = {**problem.operands, **problem.attrs, "memory_format": problem.memory_format}
    texts = {name: str(each) if isinstance(each, MemoryDesc) else f"{each!r:.60}" for name, each in given.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items() if given[name] is not None)


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _extents(value: Any, x: MemoryDesc) -> str:
    return _window(value, x, 1, (x.ndims - 2,))


def _pads(value: Any, x: MemoryDesc) -> str:
    return _window(value, x, 0, (x.ndims - 2, 2 * (x.ndims - 2)))


def _window(value: Any, x: MemoryDesc, least: int, lengths: tuple[int, ...]) -> str:
    each = value if isinstance(value, tuple) else (value,) * lengths[0]
    if len(each) in lengths and min(each) >= least:
        return ""
    return f"one number, or {' or '.join(map(str, lengths))} of them for x of shape {x.dims}, each at least {least}"


def _axes(value: Any, x: MemoryDesc) -> str:
    each = _each(value)
    if len({axis % x.ndims for axis in each}) == len(each) and all(-x.ndims <= axis < x.ndims for axis in each):
        return ""
    which = "a dimension" if isinstance(value, int) else "each dimension at most once"
    return f"{which} of x of shape {x.dims}: {-x.ndims} to {x.ndims - 1}"


def _count(value: Any, x: MemoryDesc) -> str:
    del x
    return "" if value >= 1 else "1 or more"


def _not_negative(value: Any, x: MemoryDesc) -> str:
    del x
    return "" if value >= 0 else "a number of at least 0"


def _vector(value: Any, x: MemoryDesc) -> str:
    n_channels = x.dims[1] if x.ndims > 1 else 0
    return "" if value.dims == (n_channels,) else f"one number for each channel of x of shape {x.dims}: ({n_channels},)"


_RULES: dict[str, Callable[[Any, MemoryDesc], str]] = {
    "Extents": _extents,
    "Pads": _pads,
    "Axes": _axes,
    "Axis": _axes,
    "Count": _count,
    "NotNegative": _not_negative,
    "Vector": _vector,
}
