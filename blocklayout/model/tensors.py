"""Tensors stored in ONNX files as arrays: of large ones, views of the file's bytes, or of a file beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import ModelError
from blocklayout.model.types import from_elem_type

if TYPE_CHECKING:
    from onnx import TensorProto


MIN_MAPPED_NBYTES = 1 << 20
"""Smaller tensors are copied: a mapping is a page at least, and a process may have few."""

FORMAT_KEY = "blocklayout.format"
"""Key of an initializer's metadata: the memory format that it was given in."""


def to_array(
    tensor: TensorProto,
    model_path: Path | None,
    default_name: str = "",
    raw_data: memoryview | None = None,
    *,
    unpacks: bool = False,
) -> np.ndarray:
    """The contents of a stored tensor, which may lie in a file beside the model's, or be the bytes ``raw_data``.

    With ``unpacks`` they are integers of four bits, two in a byte, and take one each.

    Raises:
        ModelError: The data are missing, too short, or somewhere they must not be.
        UnsupportedError: Strings, complex numbers and types below one byte, unless it ``unpacks``.
    """
    from onnx import TensorProto, numpy_helper

    name = tensor.name or default_name
    dtype = "u8" if unpacks else from_elem_type(tensor.data_type, f"the constant {name!r}")
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError(f"the constant {name!r} has the extents {tuple(tensor.dims)}; the file is damaged")
    if tensor.data_location == TensorProto.EXTERNAL and not unpacks:
        return _read_external(tensor, name, to_numpy(dtype), model_path)
    try:
        if unpacks:
            return _unpacked(tensor, model_path, raw_data)
        if raw_data is not None:
            return np.frombuffer(raw_data, to_numpy(dtype)).reshape(tuple(tensor.dims))
        return np.asarray(numpy_helper.to_array(tensor)).astype(to_numpy(dtype), copy=False)
    except ModelError:
        raise
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"the constant {name!r} has not the data its extents ask for: {error}") from error


def _unpacked(tensor: TensorProto, model_path: Path | None, raw_data: memoryview | None) -> np.ndarray:
    """Integers of four bits, the first of two in the lower half of a byte."""
    from onnx import TensorProto

    count, in_pairs = prod(tensor.dims), TensorProto()
    in_pairs.CopyFrom(tensor)
    in_pairs.data_type, in_pairs.dims[:] = TensorProto.UINT8, [-(-count // 2)]
    packed = to_array(in_pairs, model_path, raw_data=raw_data)
    integers = np.stack([packed & 15, packed >> 4], -1).reshape(-1)[:count]
    if tensor.data_type == TensorProto.INT4:
        integers = (integers ^ 8).view(np.int8) - np.int8(8)
    return integers.reshape(tuple(tensor.dims))


def _read_external(tensor: TensorProto, name: str, dtype: np.dtype, model_path: Path | None) -> np.ndarray:
    """The contents of a tensor in another file; large ones are mapped, so that only pages in use are ever read."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if model_path is None:
        what = f"the constant {name!r} lies in another file, {location!r}"
        raise ModelError(f"{what}; give the model's path instead of its contents")
    path = _beside(model_path, location, name)
    shape = tuple(tensor.dims)
    count = int(np.prod(shape, dtype=object))
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", count * dtype.itemsize))
    except ValueError as error:
        what = f"the constant {name!r} has an offset or length that is no number"
        raise ModelError(f"{what}; the file is damaged") from error
    if offset < 0 or length != count * dtype.itemsize:
        raise ModelError(f"the constant {name!r} needs {count * dtype.itemsize} bytes, but {length} are declared")
    try:
        n_available = path.stat().st_size - offset
        if not path.is_file() or n_available < count * dtype.itemsize:
            raise ModelError(f"the constant {name!r} needs {count * dtype.itemsize} bytes of {path}, which ends before")
        if count * dtype.itemsize < MIN_MAPPED_NBYTES or offset % dtype.itemsize:
            return np.fromfile(path, dtype, count, offset=offset).reshape(shape)
        return np.asarray(np.memmap(path, dtype, "r", offset, (count,))).reshape(shape)
    except FileNotFoundError as error:
        raise ModelError(f"the constant {name!r} lies in {path}, and there is no such file") from error
    except OSError as error:
        raise ModelError(f"the constant {name!r} cannot be read from {path}: {error}") from error


def _beside(model_path: Path, location: str, name: str) -> Path:
    """The file of an external tensor; one outside of the model's directory, links followed, is refused."""
    relative = PurePosixPath(location)
    refusal = ModelError(f"the constant {name!r} lies in {location!r}; it must be a file beside the model")
    if not location or relative.is_absolute() or ".." in relative.parts or "\0" in location:
        raise refusal
    path = model_path.parent / relative
    try:
        homes = (model_path.parent.resolve(), model_path.resolve().parent)
        if not any(path.resolve().is_relative_to(home) for home in homes):
            raise refusal
    except (OSError, RuntimeError) as error:  # links in a circle
        raise ModelError(f"the constant {name!r} cannot be read from {path}: {error}") from error
    return path


# --- weights where they lie in the file's bytes; protobuf would copy each of them, twice

MIN_NBYTES = 4096
"""Smaller contents are left to protobuf."""

# Numbers of fields in onnx.proto, and of the kinds of fields in protobuf's encoding.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


class _NotWellFormedError(Exception):
    """The bytes are no message."""


def split_raw_data(contents: memoryview) -> tuple[bytes | memoryview, dict[int, memoryview]]:
    """A ``ModelProto`` without its initializers' large raw data, and those by number; as it is where damaged."""
    found: dict[int, memoryview] = {}
    try:
        rest = b"".join(_parts(contents, (_GRAPH, _INITIALIZER, _RAW_DATA), found))
    except _NotWellFormedError:
        return contents, {}
    return (rest, found) if found else (contents, {})


def _parts(
    message: memoryview, path: Sequence[int], found: dict[int, memoryview], place: int = 0
) -> Iterator[bytes | memoryview]:
    """The message of this place without the large contents that lie at ``path``, numbers of fields in one another."""
    wanted, *inner = path
    n_messages = 0
    for number, field, value in _fields(message):
        if number != wanted or value is None or not (inner or len(value) >= MIN_NBYTES):
            yield field
        elif not inner:
            found[place] = value
        elif wanted == _GRAPH and n_messages:
            raise _NotWellFormedError  # protobuf merges several, which no exporter writes
        else:
            yield _message(number, _parts(value, inner, found, n_messages))
            n_messages += 1


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
