"""Check what a caller feeds against what the model declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import InputError
from blocklayout.runtime.context import Feed
from blocklayout.tensor import Tensor, as_array, as_memory


@dataclass(frozen=True)
class InputInfo:
    """What the model declares of an input.

    Attributes:
        name: Its name.
        shape: Extents; a name or ``None`` where any is welcome. ``None`` altogether: not declared.
        dtype: oneDNN's name of the data type.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        """What the elements of an array must be, in this machine's byte order."""
        return to_numpy(self.dtype)

    @property
    def type(self) -> str:
        """The type in onnxruntime's spelling, such as ``tensor(float)``."""
        names = {"float32": "float", "float64": "double", "bfloat16": "bfloat16"}
        numpy_name = self.numpy_dtype.name
        return f"tensor({names.get(numpy_name, numpy_name)})"


@dataclass(frozen=True)
class OutputInfo(InputInfo):
    """What the model declares of an output."""


def check_feeds(inputs: Sequence[InputInfo], feed: Mapping[str, Any]) -> dict[str, Feed]:
    """Every input as memory with a descriptor.

    Raises:
        InputError: A name, type, rank or extent that does not fit; the message says what would.
    """
    names = [info.name for info in inputs]
    for name in feed:
        if name not in names:
            raise InputError(f"the model has no input {name!r}; its inputs are {', '.join(names)}")
    missing = [name for name in names if name not in feed]
    if missing:
        raise InputError(f"missing input {', '.join(missing)}; the model's inputs are {', '.join(names)}")
    return {info.name: _check(info, feed[info.name]) for info in inputs}


def _check(info: InputInfo, source: Any) -> Feed:
    if isinstance(source, Tensor):
        if source.dtype != info.dtype:
            raise _wrong_dtype(info, f"a Tensor of {source.dtype}")
        _check_shape(info, source.shape)
        return Feed(*as_memory(source))
    try:
        array = as_array(source)
    except InputError as error:
        raise InputError(f"input {info.name!r}: {error}") from None
    if array.dtype != info.numpy_dtype:
        raise _wrong_dtype(info, array.dtype.name)
    _check_shape(info, array.shape)
    return Feed(*as_memory(array))


def _wrong_dtype(info: InputInfo, given: str) -> InputError:
    wanted = info.numpy_dtype.name
    return InputError(f"input {info.name!r} is {wanted}, got {given}: convert it with .astype({wanted!r})")


def _check_shape(info: InputInfo, shape: tuple[int, ...]) -> None:
    if info.shape is None or shape == info.shape:
        return
    declared = "x".join("?" if extent is None else str(extent) for extent in info.shape)
    got = "x".join(map(str, shape))
    if len(shape) != len(info.shape):
        raise InputError(f"input {info.name!r} has rank {len(info.shape)} ({declared}), got rank {len(shape)} ({got})")
    for axis, (wanted, extent) in enumerate(zip(info.shape, shape, strict=True)):
        if isinstance(wanted, int) and wanted != extent:
            raise InputError(f"input {info.name!r} is {declared}, got {got}: axis {axis} must be {wanted}")
