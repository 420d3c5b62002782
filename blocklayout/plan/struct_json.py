"""Structs to JSON and back, every field checked against its annotation."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import count, cycle
from math import isfinite
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from msgspec import Struct
from msgspec.structs import fields

from blocklayout.dnnl import Spec, validate
from blocklayout.errors import BlockLayoutError
from blocklayout.ir import HostSpec
from blocklayout.layout import MemoryDesc

_Read = Callable[[Any], Any]
_Record = TypeVar("_Record")

_MAX_SHOWN = 60


class MisfitError(ValueError):
    """A value is not of its field's type.

    Attributes:
        reason: What is wrong with it.
        where: Names and numbers that lead to the field, from the outside in.
    """

    def __init__(self, reason: str, where: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = where

    def __str__(self) -> str:
        return f"{'.'.join(self.where) or 'the text'}: {self.reason}"


class OwnDict:
    """Marks a field whose type has ``to_dict`` and ``from_dict`` of its own, and equal values for equal texts."""

    def reader(self, kind: Any) -> _Read:
        """Reads what ``to_dict`` wrote; what was read once is given again."""
        known: dict[str, Any] = {}

        def read(data: Any) -> Any:
            text = repr(data)
            if text not in known:
                if len(known) >= _MAX_KNOWN:
                    known.clear()
                known[text] = _by_own(kind.from_dict, data)
            return known[text]

        return read


class Finite:
    """Marks a number that is neither infinite nor NaN."""

    def reader(self, kind: Any) -> _Read:
        """Reads a float, which may be written as an integer."""
        del kind

        def read(data: Any) -> float:
            if type(data) not in (int, float):
                _refuse("a number is wanted", data)
            number = float(data) if abs(data) < 2**1000 else float("inf")
            if not isfinite(number):
                _refuse("a finite number is wanted", data)
            return number

        return read


class EitherSpec:
    """Marks a field that holds a Spec or a HostSpec; the latter's dictionary has the key ``host``."""

    def reader(self, kind: Any) -> _Read:
        """Reads either."""
        del kind
        return lambda data: _by_own(_spec_from_dict, data)


_MAX_KNOWN = 4096


def _spec_from_dict(data: Mapping[str, Any]) -> Spec | HostSpec:
    if "host" in data:
        return HostSpec.from_dict(data)
    return validate(Spec.from_dict(data))


def _by_own(from_dict: Callable[[Any], Any], data: Any) -> Any:
    if not isinstance(data, Mapping):
        _refuse("an object is wanted", data)
    try:
        return from_dict(data)
    except (BlockLayoutError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise MisfitError(str(error)) from error


def to_json(value: Any, indent: int | None = None) -> str:
    """A Struct as JSON text."""
    separators = (",", ":") if indent is None else None
    return json.dumps(_data(value), indent=indent, separators=separators, ensure_ascii=False)


def _data(value: Any) -> Any:
    """As what JSON has."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return [_data(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _data(item) for key, item in value.items()}
    if isinstance(value, MemoryDesc):
        value = value.canonical
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return {name: _data(getattr(value, name)) for name in value.__struct_fields__}


def from_json(kind: type[_Record], text: str | bytes) -> _Record:
    """The Struct that :func:`to_json` was given.

    Raises:
        MisfitError: It is no JSON, or a field is missing or not of its type; fields that nobody knows say nothing.
    """
    try:
        data = json.loads(text)
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        if rb"\ud" in raw.lower():
            json.dumps(data, ensure_ascii=False).encode()  # half a character can be escaped, but not written
    except (ValueError, RecursionError) as error:
        raise MisfitError(f"no JSON: {error}") from error
    reader: Any = _reader_of
    record: _Record = reader(kind)(data)
    return record


def _refuse(wanted: str, data: Any) -> NoReturn:
    shown = f"{data!r:.{_MAX_SHOWN}}" if not isinstance(data, int) or abs(data) < 2**64 else "a large number"
    raise MisfitError(f"{wanted}, not {shown}")


def _each(parts: Iterable[tuple[object, _Read, Any]]) -> Iterator[Any]:
    """The parts of a whole as they are read; what is refused is named."""
    name: object = ""
    try:
        for name, read, data in parts:  # noqa: B007 - the error names it
            yield read(data)
    except MisfitError as error:
        raise MisfitError(error.reason, (str(name), *error.where)) from error


@cache
def _reader_of(kind: Any) -> _Read:
    """Reads and checks values of a type."""
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _record_reader(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        read: _Read = arguments[1].reader(arguments[0])
        return read
    return _COMPOUND[origin](*arguments)


_SCALARS: dict[Any, str] = {str: "a text", int: "an integer", bool: "true or false", type(None): "null"}


def _scalar_reader(kind: Any) -> _Read:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            _refuse(f"{_SCALARS[kind]} is wanted", data)
        return data

    return read


def _record_reader(kind: Any) -> _Read:
    readers = {field.name: _reader_of(field.type) for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.required}

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            _refuse("an object is wanted", data)
        for name in needed:
            if name not in data:
                raise MisfitError("it is missing", (name,))
        known = [name for name in data if name in readers]
        values = _each((name, readers[name], data[name]) for name in known)
        return kind(**dict(zip(known, values, strict=True)))

    return read


def _tuple_reader(*kinds: Any) -> _Read:
    is_free = len(kinds) == 2 and kinds[1] is Ellipsis
    readers = [_reader_of(kind) for kind in kinds if kind is not Ellipsis]

    def read(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list) or not (is_free or len(data) == len(readers)):
            _refuse("an array is wanted" if is_free else f"an array of {len(readers)} is wanted", data)
        return tuple(_each(zip(count(), cycle(readers), data)))

    return read


def _dict_reader(key_kind: Any, kind: Any) -> _Read:
    read_value = _reader_of(kind)

    def read(data: Any) -> dict[Any, Any]:
        if not isinstance(data, dict):
            _refuse("an object is wanted", data)
        if key_kind is int and not all(key.isascii() and key.isdecimal() for key in data):
            _refuse("keys that are numbers are wanted", list(data))
        values = _each((key, read_value, value) for key, value in data.items())
        return dict(zip(map(key_kind, data), values, strict=True))

    return read


def _union_reader(*kinds: Any) -> _Read:
    readers = [_reader_of(kind) for kind in kinds]

    def read(data: Any) -> Any:
        errors = []
        for each in readers:
            try:
                return each(data)
            except MisfitError as error:
                errors.append(error)
        raise errors[0]

    return read


def _literal_reader(*allowed: Any) -> _Read:
    def read(data: Any) -> Any:
        if not any(type(data) is type(each) and data == each for each in allowed):
            _refuse(f"one of {', '.join(map(repr, allowed))} is wanted", data)
        return data

    return read


_COMPOUND: dict[Any, Callable[..., _Read]] = {
    tuple: _tuple_reader,
    dict: _dict_reader,
    Union: _union_reader,
    types.UnionType: _union_reader,
    Literal: _literal_reader,
}
