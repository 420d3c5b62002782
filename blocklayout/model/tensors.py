"""Tensors stored in ONNX files, inside of them or beside them, as arrays."""

from __future__ import annotations

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
    tensor: TensorProto, model_path: Path | None, default_name: str = "", raw_data: memoryview | None = None
) -> np.ndarray:
    """The contents of a stored tensor, which may lie in a file beside the model's, or be the bytes ``raw_data``.

    Raises:
        ModelError: The data are missing, too short, or somewhere they must not be.
        UnsupportedError: Strings, complex numbers and types below one byte.
    """
    from onnx import TensorProto, numpy_helper

    name = tensor.name or default_name
    dtype = from_elem_type(tensor.data_type, f"the constant {name!r}")
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError(f"the constant {name!r} has the extents {tuple(tensor.dims)}; the file is damaged")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _read_external(tensor, name, to_numpy(dtype), model_path)
    try:
        if raw_data is not None:
            return np.frombuffer(raw_data, to_numpy(dtype)).reshape(tuple(tensor.dims))
        return np.asarray(numpy_helper.to_array(tensor)).astype(to_numpy(dtype), copy=False)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"the constant {name!r} has not the data its extents ask for: {error}") from error


def _read_external(tensor: TensorProto, name: str, dtype: np.dtype, model_path: Path | None) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if model_path is None:
        raise ModelError(
            f"the constant {name!r} lies in another file, {location!r}; give the model's path instead of its contents"
        )
    path = _beside(model_path, location, name)
    shape = tuple(tensor.dims)
    count = int(np.prod(shape, dtype=object))
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", count * dtype.itemsize))
    except ValueError as error:
        raise ModelError(
            f"the constant {name!r} has an offset or length that is no number; the file is damaged"
        ) from error
    if offset < 0 or length != count * dtype.itemsize:
        raise ModelError(f"the constant {name!r} needs {count * dtype.itemsize} bytes, but {length} are declared")
    return _read_file(path, dtype, count, offset, name).reshape(shape)


def _beside(model_path: Path, location: str, name: str) -> Path:
    """The file of an external tensor, which a foreign model must not place outside of its own directory.

    Links count as what they lead to. A model may be a link itself, into a store that has its data as well.
    """
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


def _read_file(path: Path, dtype: np.dtype, count: int, offset: int, name: str) -> np.ndarray:
    """Elements of a file; large ones are mapped, so that only what is looked at is ever read."""
    try:
        n_available = path.stat().st_size - offset
        if not path.is_file() or n_available < count * dtype.itemsize:
            raise ModelError(f"the constant {name!r} needs {count * dtype.itemsize} bytes of {path}, which ends before")
        if count * dtype.itemsize < MIN_MAPPED_NBYTES or offset % dtype.itemsize:
            return np.fromfile(path, dtype, count, offset=offset)
        return np.asarray(np.memmap(path, dtype, "r", offset, (count,)))
    except FileNotFoundError as error:
        raise ModelError(f"the constant {name!r} lies in {path}, and there is no such file") from error
    except OSError as error:
        raise ModelError(f"the constant {name!r} cannot be read from {path}: {error}") from error
