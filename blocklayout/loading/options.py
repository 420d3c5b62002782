"""Rules of options, which are refused where they are given, also where plans are made later."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from blocklayout.errors import BlockLayoutError, InputError, PlanError, did_you_mean


def positive(name: str, value: Any) -> int:
    """An integer of at least 1.

    Raises:
        InputError: It is none.
    """
    if type(value) is not int or value < 1:
        raise InputError(f"{name}={value!r}: give a positive number, or nothing for the default")
    return value


def batching(value: Any) -> tuple[int, float]:
    """The largest batch, and how many milliseconds to wait for others.

    Raises:
        InputError: It is none of that.
    """
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    if not is_pair or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        raise InputError(f"batching={value!r}: give the largest batch and milliseconds to wait, such as (8, 2.0)")
    if not isinstance(value[0], int) or value[0] < 1 or not 0 <= value[1] < inf:
        raise InputError(f"batching={value!r}: the largest batch is a positive number, the delay 0 ms or more")
    return value[0], float(value[1])


def seconds(name: str, value: Any) -> None:
    """Refuse what is no time to spend.

    Raises:
        PlanError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise PlanError(f"{name}={value!r}: give a positive number of seconds")


def one_of(name: str, value: Any, known: Sequence[str], error: type[BlockLayoutError] = InputError) -> None:
    """Refuse other words than these.

    Raises:
        InputError: It is none of them; or ``error``, if that is another.
    """
    if not isinstance(value, str) or value not in known:
        close = did_you_mean(value, known) if isinstance(value, str) else ""
        raise error(f"{name}={value!r}: give {' or '.join(map(repr, known))}{close}")


def flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False.

    Raises:
        InputError: It is neither.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r}: give True or False")


def function(name: str, value: Any) -> None:
    """Refuse what cannot be called.

    Raises:
        InputError: It cannot.
    """
    if value is not None and not callable(value):
        raise InputError(f"{name}={value!r}: give a function of one string, such as print")


def by_name(name: str, value: Any, example: str) -> None:
    """Refuse what is no mapping from names.

    Raises:
        InputError: It is none.
    """
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name}={value!r}: give a mapping by name, such as {example}")
    for key in value or ():
        if not isinstance(key, str):
            raise InputError(f"{name}: {key!r} is no name; give a mapping by name, such as {example}")


def has_ranges(shapes: Mapping[str, Any]) -> bool:
    """Whether an extent of these is a range."""
    listed = (shape for shape in shapes.values() if isinstance(shape, list | tuple))
    return any(isinstance(extent, list | tuple) for shape in listed for extent in shape)


def ranges_of(name: str, shape: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The least and the most of each extent of an input; of a number it is both.

    Raises:
        InputError: One is neither, negative, or has the most below the least.
    """
    rule = "give numbers, and the least and the most of ranges, such as (1, 3, (32, 640), (32, 640))"
    ranges = []
    try:
        for extent in shape:
            least, most = map(operator.index, extent if isinstance(extent, list | tuple) else (extent, extent))
            ranges.append((least, most))
    except (TypeError, ValueError):
        raise InputError(f"the shape of input {name!r} is {shape!r:.80}; {rule}") from None
    for axis, (least, most) in enumerate(ranges):
        if least < 0 or most < least:
            why = "no extent can be negative" if least < 0 else "the least comes first"
            raise InputError(f"the shape of input {name!r} is {shape!r:.80}: axis {axis} is {(least, most)}, and {why}")
    return tuple(ranges)
