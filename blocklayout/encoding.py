"""The one encoding of plans and of all that is kept with them: JSON for people, msgpack for this package's own files.

Values are Structs, which msgspec writes and reads by the types of their fields. Nothing else is ever made of a file.
Fields of three other types have a form of their own:

- a class with ``to_dict`` and ``from_dict``, such as MemoryDesc. Equal data become one object; in msgpack they are in a
  table in front, and by their number elsewhere;
- an array: its data type, its shape, and the name of the tensor with its bytes, which lies beside the text;
- :data:`PlainField`: a number, a text, or nested tuples of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Raw, Struct

from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import BlockLayoutError, ModelError

_Value = TypeVar("_Value")

_LOCATED = re.compile(r"(.*) - at `(?:key in )?\$(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_BEYOND = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # strict JSON has no such numbers


class MisfitError(ValueError):
    """Data that are not of their type; the message begins with the way to the field."""


_WITH_NUMBERS: set[type] = set()
"""Fields in which a number is itself, and not a descriptor's."""


class Either(type):
    """The type of a field for values of several classes; msgspec has no unions of Structs with others.

    Attributes:
        kinds: Structs, which their fields tell apart; one class with ``from_dict``; arrays; numbers and texts.
    """

    kinds: tuple[type, ...]

    @classmethod
    def of(cls, *kinds: type) -> Any:
        """The type for values of these."""
        found = cls("Either", (), {"kinds": kinds})
        if int in kinds:
            _WITH_NUMBERS.add(found)
        return found

    def take(cls, kind: type) -> None:
        """Have the field take values of another class."""
        cls.kinds += (kind,)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.kinds)


PLAIN: tuple[type, ...] = (int, float, str, bytes, tuple, type(None))
"""Numbers, texts, and tuples of them."""

if TYPE_CHECKING:
    PlainField = Any
    InfiniteField = float
else:
    PlainField = Either.of(*PLAIN)
    InfiniteField = float | Literal["inf", "-inf"]


class ArrayRecord(Struct, frozen=True):
    """An array, and the tensor that begins with its bytes."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]

    def array(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        """The array itself.

        Raises:
            ModelError: The tensor is not there, or too small.
            LayoutError: No such data type.
        """
        dtype = to_numpy(self.dtype)
        nbytes = dtype.itemsize * prod(self.shape)
        if self.tensor not in tensors:
            raise ModelError(f"there is no tensor {self.tensor}")
        if min(self.shape, default=0) < 0 or tensors[self.tensor].nbytes < nbytes:
            raise ModelError(f"tensor {self.tensor} does not hold {self.shape} of {self.dtype}")
        try:
            return tensors[self.tensor][:nbytes].view(dtype).reshape(self.shape)
        except ValueError as error:  # no elements, and extents beyond all bounds
            raise ModelError(f"tensor {self.tensor} cannot be {self.shape} of {self.dtype}: {error}") from None


def to_data(value: Any, keep: Callable[[np.ndarray], str] | None = None) -> Any:
    """A value as nested dicts and lists of numbers and texts, the same for equal ones.

    Args:
        value: The value.
        keep: Names the tensor with the bytes of an array.
    """
    known: dict[Any, Any] = {}

    def form(value: Any) -> Any:
        if isinstance(value, np.ndarray) and keep is not None:
            return ArrayRecord(keep(value), from_numpy(value.dtype), value.shape)
        if isinstance(value, np.generic):
            return value.item()
        if value not in known:
            known[value] = getattr(value, "canonical", value).to_dict()
        return known[value]

    return _strict(msgspec.to_builtins(value, enc_hook=form, str_keys=True))


def from_data(kind: type[_Value], data: Any, tensors: Mapping[str, np.ndarray] | None = None) -> _Value:
    """The value of :func:`to_data`.

    Raises:
        MisfitError: A field is missing or not of its type.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_Reader((), tensors))
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        raise MisfitError(_with_path_first(str(error))) from error


def to_json(value: Any, indent: int | None = None, keep: Callable[[np.ndarray], str] | None = None) -> str:
    """A value as JSON text; see :func:`to_data`."""
    separators = (",", ":") if indent is None else None
    return json.dumps(to_data(value, keep), indent=indent, separators=separators, ensure_ascii=False)


def from_json(kind: type[_Value], text: str | bytes, tensors: Mapping[str, np.ndarray] | None = None) -> _Value:
    """The value of :func:`to_json`; fields that it does not have are passed over.

    Raises:
        MisfitError: It is no JSON, or a field is missing or not of its type.
    """
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=_Reader((), tensors))
    except (msgspec.ValidationError, RecursionError) as error:
        raise MisfitError(_with_path_first(str(error))) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        try:
            data = json.loads(text, parse_constant=str)  # NaN, which Python writes: its field is named
        except (RecursionError, ValueError):
            raise MisfitError(f"the text: no JSON: {error}") from error
        return from_data(kind, data, tensors)


class _Versioned(Struct, frozen=True):
    version: int | None = None


def version_of(text: str | bytes) -> int | None:
    """The version of a record in JSON; ``None`` where it has none."""
    try:
        return from_json(_Versioned, text).version
    except MisfitError:
        return None


def reason_against(text: str | bytes, error: Exception, wanted: int) -> str:
    """Why a record in JSON is refused: its version, where that is another than the one that is read, else the error."""
    version = version_of(text)
    is_other = version not in (None, wanted)
    return f"it is of version {version}, and {wanted} is read: save it again" if is_other else str(error)


def to_msgpack(value: Any) -> bytes:
    """A value without arrays as msgpack, its descriptors with the names that they have."""
    numbers: dict[int, int] = {}
    places: dict[str, int] = {}
    table: list[Any] = []

    def number(value: Any) -> int:
        if id(value) not in numbers:
            data = value.to_dict()
            numbers[id(value)] = place = places.setdefault(repr(data), len(table))
            if place == len(table):
                table.append(data)
        return numbers[id(value)]

    body = msgspec.msgpack.encode(value, enc_hook=number)
    return msgspec.msgpack.encode((table, Raw(body)))


def from_msgpack(kind: type[_Value], contents: bytes) -> _Value:
    """The value of :func:`to_msgpack`.

    Raises:
        MisfitError: It is no msgpack, or a field is missing or not of its type.
    """
    try:
        table, body = msgspec.msgpack.decode(contents, type=tuple[list[Any], Raw])
        return msgspec.msgpack.decode(body, type=kind, dec_hook=_Reader(table))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:  # of which a ValidationError is one
        raise MisfitError(_with_path_first(str(error))) from error


class _Reader:
    """Reads the fields that msgspec does not; the same data become one object."""

    def __init__(self, table: Sequence[Any] = (), tensors: Mapping[str, np.ndarray] | None = None) -> None:
        self.table = table
        self.tensors = tensors or {}
        self.known: dict[Any, Any] = {}

    def __call__(self, kind: Any, data: Any) -> Any:
        key: Any
        if type(data) is int:
            if kind in _WITH_NUMBERS:
                return data
            if data in self.known:
                return self.known[data]
            key = data
        elif type(data) is dict:
            key = (kind, repr(data))
        elif type(data) is list:
            return tuple([each if type(each) is int else self(kind, each) for each in data])
        else:
            return _BEYOND.get(data, data) if isinstance(data, str) else data
        if key not in self.known:
            try:
                self.known[key] = self._made(kind, data)
            except msgspec.ValidationError as error:
                raise ValueError(_with_path_first(str(error))) from error
            except (BlockLayoutError, KeyError, AttributeError, OverflowError, RecursionError) as error:
                raise ValueError(str(error)) from error
        return self.known[key]

    def _made(self, kind: Any, data: Any) -> Any:
        if type(data) is int:
            if not 0 <= data < len(self.table):
                raise ValueError(f"there is no descriptor {data}")
            data = self.table[data]
        kinds = getattr(kind, "kinds", (kind,))
        if np.ndarray in kinds and data.keys() == {*ArrayRecord.__struct_fields__}:
            return msgspec.convert(data, ArrayRecord).array(self.tensors)
        for each in kinds:
            if issubclass(each, Struct) and data.keys() == {*each.__struct_fields__}:
                return msgspec.convert(data, each, dec_hook=self)
        described = next((each for each in kinds if hasattr(each, "from_dict")), None)
        if described is None:
            raise TypeError(f"no such value: {data!r:.60}")
        return described.from_dict(data)


def _strict(data: Any) -> Any:
    """With lists in place of tuples, and texts in place of numbers that JSON has not."""
    if isinstance(data, dict):
        return {key: _strict(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [_strict(item) for item in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def _with_path_first(message: str) -> str:
    """``steps.0.kernel: Expected `str`, got `int``` of msgspec's message, which has the path behind it."""
    found = _LOCATED.fullmatch(message)
    reason, path = found.groups() if found else (message, "")
    missing = _MISSING.fullmatch(reason)
    if missing:
        reason, path = "it is missing", f"{path}.{missing[1]}"
    where = path.replace("[", ".").replace("]", "").strip(".")
    return f"{where or 'the text'}: {reason}"
