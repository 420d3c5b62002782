"""Rules of options, which are refused where they are given, also where plans are made later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
