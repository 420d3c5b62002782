"""Inputs: as the model declares them, and as a caller feeds them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dtypes import has_reorder, to_numpy
from blocklayout.errors import InputError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.ordering import named_format
from blocklayout.layout_events import is_watched
from blocklayout.plan.plan import FREE
from blocklayout.show.events import report_unpacked
from blocklayout.tensor import Tensor, as_array, as_memory


class InputInfo(Struct, frozen=True, dict=True):
    """An input as the model declares it.

    Attributes:
        name: Its name.
        shape: Extents of the caller's array; a name or ``None`` where any is welcome. ``None`` altogether:
            not declared.
        dtype: oneDNN's name of the data type.
        layout: The format in which it crosses the border; row-major if ``None``. One without blocks is an
            order of axes: ``shape`` and arrays are in that order. In one with blocks it is a Tensor.
        is_free: Whether the plan chooses the format. An input may then come in any; an output is a Tensor.
        container: Empty for a tensor; ``sequence`` for a list of arrays, ``optional`` where it may be ``None``.
        ranges: The least and the most of each extent, in the order of ``shape``, where the session was loaded for
            ranges; others are refused. Empty where it was not.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str
    layout: FormatTag | None = None
    is_free: bool = False
    container: str = ""
    ranges: tuple[tuple[int, int], ...] = ()

    @cached_property
    def extents(self) -> str:
        """The extents of the caller's array as text, such as ``1x3x32..640x?``."""
        if self.ranges:
            return "x".join(str(least) if least == most else f"{least}..{most}" for least, most in self.ranges)
        return "any shape" if self.shape is None else shape_text(self.shape)

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        """The type of an array's elements, in this machine's byte order."""
        return to_numpy(self.dtype)

    @property
    def type(self) -> str:
        """The type in onnxruntime's spelling, such as ``tensor(float)``."""
        names = {"float32": "float", "float64": "double", "bfloat16": "bfloat16"}
        numpy_name = self.numpy_dtype.name
        return f"tensor({names.get(numpy_name, numpy_name)})"

    @property
    def border(self) -> str | None:
        """The format as a plan is asked for it: ``any`` where the plan chooses, ``None`` for row-major."""
        if self.is_free:
            return FREE
        return None if self.layout is None else self.layout.text

    @property
    def text(self) -> str:
        """Name, data type, extents and format, such as ``x f32 1x3x8x8 nhwc``."""
        return " ".join(filter(None, (self.name, self.dtype, self.extents, self.border)))

    @cached_property
    def is_blocked(self) -> bool:
        """Whether it crosses the border as a Tensor in blocks."""
        return self.layout is not None and bool(self.layout.inner_blks)

    @cached_property
    def order(self) -> tuple[int, ...] | None:
        """The logical axis that each axis of the caller's array is; ``None`` where they are the same."""
        if self.layout is None or self.is_blocked or self.layout.order == tuple(range(self.layout.ndims)):
            return None
        return self.layout.order

    @cached_property
    def inverse_order(self) -> tuple[int, ...] | None:
        """The axis of the caller's array that each logical axis is."""
        return None if self.order is None else tuple(self.order.index(axis) for axis in range(len(self.order)))

    def logical(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The caller's extents in the model's order."""
        if self.inverse_order is None or len(shape) != len(self.inverse_order):
            return tuple(shape)
        return tuple(shape[axis] for axis in self.inverse_order)


class OutputInfo(InputInfo, frozen=True):
    """An output as the model declares it."""


def shape_text(shape: Sequence[object]) -> str:
    """Extents as ``1x3x?``, with question marks for nameless free ones."""
    return "x".join("?" if extent is None else str(extent) for extent in shape)


class Feed(Struct, frozen=True):
    """One input as memory, found to be of the model's type and extents.

    Attributes:
        desc: Its layout.
        buffer: An array that begins with its first element, or the bytes of a Tensor.
        shape: Its logical extents; none for a scalar, which is one element of rank 1 to the library.
    """

    desc: MemoryDesc
    buffer: np.ndarray
    shape: tuple[int, ...]

    def contents(self) -> np.ndarray:
        """Its elements as an array in logical order; a view where the caller holds one."""
        dtype = to_numpy(self.desc.dtype)
        if self.buffer.shape == self.desc.dims and self.buffer.dtype == dtype:
            return self.buffer.reshape(self.shape)
        return self.desc.unpack(self.buffer.view(dtype)).reshape(self.shape)


def check_mapping(name: str, given: object, example: str) -> None:
    """Refuse all but mappings by name, such as ``example``."""
    if not isinstance(given, Mapping):
        raise InputError(f"{name} is a {type(given).__name__}; give a mapping by name, such as {example}")


def check_feeds(
    inputs: Sequence[InputInfo], feed: Mapping[str, Any], defaults: Sequence[InputInfo] = ()
) -> dict[str, Feed]:
    """Every input as memory with a descriptor, then those of ``defaults`` that are fed."""
    names = [info.name for info in inputs]
    check_mapping("feed", feed, f"{{{', '.join(f'{name!r}: array' for name in names)}}}, or call session(*arrays)")
    fed = [info for info in defaults if info.name in feed]
    for name in feed:
        if name not in names and all(name != info.name for info in fed):
            raise InputError(f"the model has no input {name!r}; its inputs are {', '.join(names)}")
    missing = [name for name in names if name not in feed]
    if missing:
        raise InputError(f"missing input {', '.join(missing)}; the model's inputs are {', '.join(names)}")
    return {info.name: check_feed(info, feed[info.name]) for info in (*inputs, *fed)}


def check_feed(info: InputInfo, source: Any) -> Feed:
    """One input as memory with a descriptor; the caller's own wherever its strides allow."""
    if isinstance(source, Tensor):
        return _check_tensor(info, source)
    try:
        array = as_array(source, f"input {info.name}")
    except InputError as error:
        raise InputError(f"input {info.name!r}: {error}") from None
    if array.dtype != info.numpy_dtype:
        raise _wrong_dtype(info, array.dtype.name)
    _check_shape(info, info.shape, array.shape, "array.transpose")
    check_ranges(info, array.shape)
    if info.inverse_order is not None:
        if array.ndim != len(info.inverse_order):
            raise InputError(
                f"input {info.name!r} is given in {info.layout}, which has rank {len(info.inverse_order)}; "
                f"got rank {array.ndim} ({'x'.join(map(str, array.shape))})"
            )
        array = array.transpose(info.inverse_order)
    return Feed(*as_memory(array), array.shape)


def check_held(info: InputInfo, source: Any) -> Any:
    """A value for an input that is no tensor: a list of arrays, an array, or ``None``."""
    if source is None and info.container == "optional":
        return None
    if isinstance(source, list | tuple):
        return [check_held(replace(info, container="optional"), each) for each in source]
    if info.container == "sequence":
        given = "None" if source is None else f"a {type(source).__name__}"
        raise InputError(f"input {info.name!r} is a sequence, got {given}: give a list of arrays")
    array = as_array(source, f"input {info.name}")
    if info.dtype and array.dtype != info.numpy_dtype:
        raise _wrong_dtype(info, array.dtype.name)
    return array


def _check_tensor(info: InputInfo, tensor: Tensor) -> Feed:
    if tensor.dtype != info.dtype:
        raise _wrong_dtype(info, f"a Tensor of {tensor.dtype}")
    declared = None if info.shape is None else info.logical(info.shape)
    _check_shape(info, declared, tensor.shape, "Tensor.permute")
    check_ranges(info, tensor.shape if info.order is None else tuple(tensor.shape[axis] for axis in info.order))
    if tensor.desc.inner_blks and not has_reorder(tensor.dtype):
        start = time.monotonic_ns()
        array = tensor.desc.unpack(tensor.physical())
        if is_watched():
            report_unpacked(info.name, tensor.desc, array, time.monotonic_ns() - start)
        return Feed(*as_memory(array), tensor.shape)
    return Feed(*as_memory(tensor), tensor.shape)


def _wrong_dtype(info: InputInfo, given: str) -> InputError:
    wanted = info.numpy_dtype.name
    return InputError(f"input {info.name!r} is {wanted}, got {given}: convert it with .astype({wanted!r})")


def _check_shape(
    info: InputInfo, declared: tuple[int | str | None, ...] | None, shape: tuple[int, ...], turning: str
) -> None:
    """Refuse another rank or extents than declared in their order; ``turning`` is the method that permutes them."""
    if declared is None or shape == declared:
        return
    shown = shape_text(declared)
    if info.order is not None and declared == info.shape:
        shown += f" in {info.layout}"
    got = "x".join(map(str, shape))
    if len(shape) != len(declared):
        raise InputError(f"input {info.name!r} has rank {len(declared)} ({shown}), got rank {len(shape)} ({got})")
    for axis, (wanted, extent) in enumerate(zip(declared, shape, strict=True)):
        if isinstance(wanted, int) and wanted != extent:
            text = f"input {info.name!r} is {shown}, got {got}: axis {axis} must be {wanted}"
            raise InputError(text + _moved_channels(info, declared, shape, turning))


def check_ranges(info: InputInfo, shape: Sequence[int]) -> None:
    """Refuse extents of the caller's array outside of the ranges that the session was loaded for."""
    if not info.ranges:
        return
    text = f"input {info.name!r} is {info.extents}, as the session was loaded, got {shape_text(shape)}"
    if len(shape) != len(info.ranges):
        raise InputError(f"{text}: it must have rank {len(info.ranges)}")
    for axis, (extent, (least, most)) in enumerate(zip(shape, info.ranges, strict=True)):
        if not least <= extent <= most:
            raise InputError(f"{text}: axis {axis} must be {least if least == most else f'{least} to {most}'}")


def _moved_channels(
    info: InputInfo, declared: tuple[int | str | None, ...], shape: tuple[int, ...], turning: str
) -> str:
    """The end of a message about extents that would fit if channels were elsewhere."""
    n = len(shape)
    if not 3 <= n <= 5:
        return ""
    last = named_format("channels_last", n)
    for where, order in (("last", (0, n - 1, *range(1, n - 1))), ("first", (0, *range(2, n), 1))):
        moved = [shape[axis] for axis in order]
        if all(not isinstance(wanted, int) or wanted == extent for wanted, extent in zip(declared, moved, strict=True)):
            loading = ""
            if turning == "array.transpose" and info.order is not None:
                loading = ", or load without io_layout for it"
            elif turning == "array.transpose" and where == "last":
                loading = f", or load with io_layout={{{info.name!r}: '{last}'}}"
            return f"; its channels are {where}: give {turning}{order}{loading}"
    return ""
