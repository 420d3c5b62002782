"""Weights of an ONNX file where they lie in its bytes; protobuf would copy each of them, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_NBYTES = 4096
"""Smaller contents are left to protobuf."""

# Numbers of fields in onnx.proto, and of the kinds of fields in protobuf's encoding.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


class _NotWellFormedError(Exception):
    """The bytes are no message."""


def split_raw_data(contents: memoryview) -> tuple[bytes | memoryview, dict[int, memoryview]]:
    """The bytes of a ``ModelProto`` without the large raw data of its initializers, and these by initializer.

    What is not well-formed stays as it is: protobuf says what is wrong with it.
    """
    found: dict[int, memoryview] = {}
    try:
        rest = b"".join(_model_parts(contents, found))
    except _NotWellFormedError:
        return contents, {}
    return (rest, found) if found else (contents, {})


def _model_parts(contents: memoryview, found: dict[int, memoryview]) -> Iterator[bytes | memoryview]:
    has_graph = False
    for number, field, value in _fields(contents):
        if number == _GRAPH and value is not None:
            if has_graph:
                raise _NotWellFormedError  # protobuf merges several; nobody writes that
            has_graph = True
            yield _message(_GRAPH, _graph_parts(value, found))
        else:
            yield field


def _graph_parts(graph: memoryview, found: dict[int, memoryview]) -> Iterator[bytes | memoryview]:
    n_initializers = 0
    for number, field, value in _fields(graph):
        if number != _INITIALIZER or value is None:
            yield field
            continue
        yield _message(_INITIALIZER, _tensor_parts(value, n_initializers, found))
        n_initializers += 1


def _tensor_parts(tensor: memoryview, index: int, found: dict[int, memoryview]) -> Iterator[memoryview]:
    for number, field, value in _fields(tensor):
        if number == _RAW_DATA and value is not None and len(value) >= MIN_NBYTES:
            found[index] = value
        else:
            yield field


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview | None]]:
    """The fields of a message: number, all its bytes, and its contents where these are bytes or a message."""
    at = 0
    while at < len(message):
        tag, value_at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            _, end = _varint(message, value_at)
        elif kind == _BYTES:
            size, value_at = _varint(message, value_at)
            end = value_at + size
        elif kind in _SIZES:
            end = value_at + _SIZES[kind]
        else:
            raise _NotWellFormedError
        if end > len(message):
            raise _NotWellFormedError
        yield tag >> 3, message[at:end], message[value_at:end] if kind == _BYTES else None
        at = end


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    number = 0
    for place, byte in enumerate(message[at : at + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise _NotWellFormedError


def _message(number: int, parts: Iterable[bytes | memoryview]) -> bytes:
    body = b"".join(parts)
    return _encoded(number << 3 | _BYTES) + _encoded(len(body)) + body


def _encoded(number: int) -> bytes:
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
