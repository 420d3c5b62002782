"""Plans to and from what JSON can hold."""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any

from blocklayout.dnnl import Spec
from blocklayout.layout import MemoryDesc
from blocklayout.plan.plan import Plan

_OWN_CODEC = (MemoryDesc, Spec)


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """The plan as nested dicts, lists, strings and numbers."""
    encoded: dict[str, Any] = _encode(plan)
    return encoded


def plan_from_dict(data: dict[str, Any]) -> Plan:
    """The plan that :func:`plan_to_dict` was given.

    Raises:
        KeyError: A field is missing.
        TypeError: A field holds something of another type.
        BlockLayoutError: A descriptor or Spec that cannot exist.
    """
    plan: Plan = _decode(Plan, data)
    return plan


def _encode(value: Any) -> Any:
    if isinstance(value, _OWN_CODEC):
        return value.to_dict()
    if is_dataclass(value):
        return {f.name: _encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode(kind: Any, data: Any) -> Any:
    if kind in _OWN_CODEC:
        return kind.from_dict(data)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        decoded = {f.name: _decode(hints[f.name], data[f.name]) for f in fields(kind)}
        return kind(**decoded)  # type: ignore[operator]  # a dataclass type, as the guard says, yet not callable to mypy
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _decode_tuple(arguments, data)
    if origin is types.UnionType:
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if data is None else _decode(inner, data)
    return _checked_scalar(kind, data)


def _decode_tuple(arguments: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise TypeError(f"expected a list, got {data!r}")
    if arguments[-1] is Ellipsis:
        return tuple(_decode(arguments[0], item) for item in data)
    return tuple(_decode(kind, item) for kind, item in zip(arguments, data, strict=True))


def _checked_scalar(kind: Any, data: Any) -> Any:
    allowed = typing.get_args(kind)
    if allowed:
        if data not in allowed:
            raise TypeError(f"expected one of {allowed}, got {data!r}")
        return data
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"expected {kind.__name__}, got {data!r}")
    return data
