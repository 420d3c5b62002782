"""Other extents and orders of the same elements, parts of tensors, and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.errors import UnsupportedError
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import Writer, lowers

# The same elements.

lowers("view", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int")(lambda w, x, *_: w.reshape(x, w.shape))
lowers("clone", "alias", "detach", "detach_", "lift_fresh_copy", "contiguous")(lambda _, x, *__: x)
lowers("expand")(lambda w, x, *_, **__: _expanded(w, x))
lowers("copy")(lambda w, _, src, *__: _expanded(w, w.cast(src, w.dtype)))
lowers("permute")(lambda w, x, dims: w.transpose(x, [dim % len(x.shape) for dim in dims]))
lowers("unsqueeze")(lambda w, x, dim: x.unsqueeze(dim % len(w.shape)))


def _expanded(w: Writer, x: BuildValue) -> BuildValue:
    return x if x.shape == w.shape else x.expand(w.shape)


@lowers("dropout", "native_dropout")
def _dropout(w: Writer, x: BuildValue, p: float, train: bool | None) -> Any:
    if train and p:
        raise UnsupportedError("dropout in training; inference mode only")
    return x if w.packet == "dropout" else (x, w.array(np.ones(x.shape, np.bool_)))


@lowers("squeeze.dim", "squeeze.dims", "squeeze")
def _squeeze(_: Writer, x: BuildValue, dim: int | Sequence[int] | None = None) -> BuildValue:
    given = range(len(x.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [each % len(x.shape) for each in given if x.shape[each] == 1] if x.shape else []
    return x.squeeze(axes) if axes else x


@lowers("transpose.int", "t")
def _transpose(w: Writer, x: BuildValue, dim0: int = 0, dim1: int = 1) -> BuildValue:
    if len(x.shape) < 2:
        return x
    perm = list(range(len(x.shape)))
    perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return w.transpose(x, perm)


@lowers("flip")
def _flip(_: Writer, x: BuildValue, dims: Sequence[int]) -> BuildValue:
    axes = [dim % len(x.shape) for dim in dims] if x.shape else []
    backwards, to_the_start = [-1] * len(axes), [1 - 2**63] * len(axes)
    return x.slice(backwards, to_the_start, axes, backwards) if axes else x


@lowers("repeat")
def _repeat(w: Writer, x: BuildValue, repeats: Sequence[int]) -> Any:
    ranked = w.reshape(x, (*(1,) * (len(repeats) - len(x.shape)), *x.shape))
    return w.op("Tile", ranked, repeats) if repeats else x


# Parts.


def _part(x: BuildValue, axis: int, start: int, end: int, step: int = 1) -> BuildValue:
    """Elements along one dimension."""
    is_whole = step == 1 and start <= 0 and end >= x.shape[axis]
    return x if is_whole else x.slice([start], [end], [axis], [step])


@lowers("slice.Tensor")
def _slice(_: Writer, x: BuildValue, dim: int, start: int | None, end: int | None, step: int) -> BuildValue:
    axis = dim % len(x.shape)
    return _part(x, axis, *_bounds(x.shape[axis], start, end), step)


def _bounds(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, end).indices(extent)
    return first, max(first, last)


@lowers("select.int")
def _select(_: Writer, x: BuildValue, dim: int, index: int) -> BuildValue:
    axis = dim % len(x.shape)
    at = index % x.shape[axis]
    return _part(x, axis, at, at + 1).squeeze(axis)


lowers("unbind.int")(lambda w, x, dim: tuple(_select(w, x, dim, index) for index in range(x.shape[dim])))


@lowers("split_with_sizes", "split.Tensor", "chunk")
def _split(w: Writer, x: BuildValue, _: int | Sequence[int], dim: int) -> tuple[BuildValue, ...]:
    sizes = [each.shape[dim] for each in w.results]
    return (x,) if len(sizes) == 1 else x.split(sizes, dim % len(x.shape))


@lowers("cat")
def _cat(w: Writer, tensors: Sequence[BuildValue], dim: int) -> Any:
    parts = [w.cast(each, w.dtype) for each in tensors if each.shape != (0,) or len(w.shape) == 1]
    return parts[0] if len(parts) == 1 else w.concat(parts, dim % len(w.shape))


@lowers("stack")
def _stack(w: Writer, tensors: Sequence[BuildValue], dim: int) -> Any:
    axis = dim % len(w.shape)
    return w.concat([w.cast(each, w.dtype).unsqueeze(axis) for each in tensors], axis)


@lowers("slice_scatter")
def _slice_scatter(w: Writer, x: BuildValue, src: BuildValue, *args: Any) -> Any:
    dim, start, end, step = args
    axis = dim % len(x.shape)
    first, last = _bounds(x.shape[axis], start, end)
    whole = w.cast(src, w.dtype)
    if step == 1:
        parts = [_part(x, axis, 0, first), whole, _part(x, axis, last, x.shape[axis])]
        filled = [each for each in parts if each.shape[axis]]
        return w.concat(filled, axis) if len(filled) > 1 else filled[0]
    index = np.arange(first, last, step).reshape([-1 if each == axis else 1 for each in range(len(x.shape))])
    return w.op("ScatterElements", x, np.broadcast_to(index, src.shape).astype(np.int64), whole, axis=axis)


@lowers("diagonal", "as_strided")
def _numbered(w: Writer, x: BuildValue, *args: Any) -> Any:
    """The elements whose numbers, in row-major order, PyTorch gives in their place."""
    source = w.node.all_input_nodes[0].meta["val"]
    if w.packet == "as_strided" and (not source.is_contiguous() or source.storage_offset()):
        raise UnsupportedError("addresses in a tensor that is not contiguous")
    try:
        numbers = w.node.target(torch.arange(source.numel()).reshape(source.shape), *args)
    except RuntimeError as error:
        raise UnsupportedError(f"addresses beyond the tensor's elements: {error}") from None
    return w.op("Gather", w.flat(x), numbers.numpy(), axis=0)


@lowers("unfold")
def _unfold(w: Writer, x: BuildValue, dimension: int, size: int, step: int) -> Any:
    if not x.shape:
        return w.reshape(x, w.shape)
    axis = dimension % len(x.shape)
    at = np.arange(w.shape[axis])[:, None] * step + np.arange(size)
    windows = w.op("Gather", x, at.astype(np.int64), axis=axis)
    return w.transpose(windows, [*(each for each in range(len(w.shape)) if each != axis + 1), axis + 1])


# By indices.


lowers("embedding")(lambda w, weight, indices, *_: w.op("Gather", weight, indices, axis=0))
lowers("index_select")(
    lambda w, x, dim, index: w.op("Gather", x, w.flat(index), axis=dim % len(x.shape)) if x.shape else x
)


@lowers("gather")
def _gather(w: Writer, x: BuildValue, dim: int, index: BuildValue, **__: Any) -> Any:
    x, index, axis = _with_rank(w, x, index, dim)
    return w.reshape(w.op("GatherElements", _cut(x, index.shape, axis), index, axis=axis), w.shape)


def _with_rank(w: Writer, x: BuildValue, index: BuildValue, dim: int) -> tuple[BuildValue, BuildValue, int]:
    x, index = w.ranked(x), w.cast(w.ranked(index), "s64")
    if not math.prod(index.shape):
        raise UnsupportedError("an index without elements")
    return x, index, dim % len(x.shape)


def _cut(x: BuildValue, shape: Sequence[int], but: int | None = None) -> BuildValue:
    """The first elements along each dimension but one."""
    for axis, extent in enumerate(shape):
        x = x if axis == but else _part(x, axis, 0, extent)
    return x


@lowers("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def _scatter(
    w: Writer,
    x: BuildValue,
    dim: int,
    index: BuildValue,
    src: Any,
    reduce: str | None = None,
    *,
    include_self: bool = True,
) -> Any:
    if w.dtype == "bool" and reduce is not None:
        raise UnsupportedError("reductions of truth")
    reduce = "sum" if w.packet == "scatter_add" else reduce
    x, index, axis = _with_rank(w, x, index, dim)
    updates = _cut(w.ranked(src), index.shape) if isinstance(src, BuildValue) else w.full(index.shape, src)

    def scattered(into: BuildValue, values: Any, by: str | None) -> Any:
        return w.op("ScatterElements", into, index, values, axis=axis, reduction=by)

    if reduce is not None and not include_self:
        x = scattered(x, w.full(index.shape, _neutral(w.dtype, reduce)), None)
    y = scattered(x, updates, {None: None, "prod": "mul", "amax": "max", "amin": "min"}.get(reduce, "add"))
    if reduce == "mean":
        if w.dtype not in FLOATS:
            raise UnsupportedError("means of integers")
        counts = scattered(w.full(x.shape, int(include_self)), w.full(index.shape, 1), "add")
        y = y / w.op("Max", counts, 1)
    return w.reshape(y, w.shape)


def _neutral(dtype: str, reduce: str) -> Any:
    """The number that changes no result of a reduction."""
    if reduce not in ("amax", "amin"):
        return 1 if reduce == "prod" else 0
    limits: Any = (-math.inf, math.inf)
    if dtype not in FLOATS:
        limits = np.iinfo(to_numpy(dtype)).min, np.iinfo(to_numpy(dtype)).max
    return limits[reduce == "amin"]


@lowers("masked_scatter")
def _masked_scatter(w: Writer, x: BuildValue, mask: BuildValue, source: BuildValue) -> Any:
    counts = w.op("CumSum", w.flat(_expanded(w, w.cast(mask, "s64"))), 0)
    at = w.op("Clip", counts - 1, 0, math.prod(source.shape) - 1)
    return w.where(mask, w.reshape(w.op("Gather", w.flat(source), at, axis=0), w.shape), _expanded(w, x))


@lowers("index.Tensor")
def _index(w: Writer, x: BuildValue, indices: Sequence[BuildValue | None]) -> Any:
    axes, perm, at = _gathered(w, x, indices)
    if len(axes) == 1:
        return w.op("Gather", x, indices[axes[0]], axis=axes[0])
    n_index = len(at.shape) - 1
    y = w.op("GatherND", w.transpose(x, perm), at)
    first = _first(axes)
    order = [*range(n_index, n_index + first), *range(n_index), *range(n_index + first, len(y.shape))]
    return w.transpose(y, order)


@lowers("index_put")
def _index_put(
    w: Writer, x: BuildValue, indices: Sequence[BuildValue | None], values: BuildValue, accumulate: bool
) -> Any:
    mask = indices[0]
    if mask is not None and mask.dtype == "bool" and len(indices) == 1 and math.prod(values.shape) == 1:
        spread = w.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
        value = w.reshape(values, ())
        return w.where(spread, x + value if accumulate else value, x)
    axes, perm, at = _gathered(w, x, indices)
    n_index, first = len(at.shape) - 1, _first(axes)
    moved = w.transpose(x, perm)
    rest = moved.shape[len(axes) :]
    as_read = (*rest[:first], *at.shape[:-1], *rest[first:])
    order = [*range(first, first + n_index), *range(first), *range(first + n_index, len(as_read))]
    spread = w.transpose(values.expand(as_read), order)
    y = w.op("ScatterND", moved, at, spread, reduction="add" if accumulate else None)
    return w.transpose(y, [perm.index(axis) for axis in range(len(perm))])


def _first(axes: Sequence[int]) -> int:
    """Where the dimensions of indices go: to those that are indexed, where these lie side by side."""
    return axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0


def _gathered(
    w: Writer, x: BuildValue, indices: Sequence[BuildValue | None]
) -> tuple[list[int], list[int], BuildValue]:
    """The dimensions that are indexed, a permutation that has them first, and their indices side by side."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not axes or any(index.dtype in ("bool", "u8") for index in given):
        raise UnsupportedError("indexing by a mask, whose result's extents depend on data")
    shape = np.broadcast_shapes(*(index.shape for index in given))
    columns = [w.cast(index, "s64").expand(shape).unsqueeze(-1) for index in given]
    perm = [*axes, *(axis for axis in range(len(x.shape)) if axis not in axes)]
    return axes, perm, w.concat(columns, -1) if len(columns) > 1 else columns[0]


# Padding.

_MODES = {"reflection": "reflect", "replication": "edge"}


@lowers("constant_pad_nd")
@lowers(*(f"{mode}_pad{rank}d" for mode in _MODES for rank in (1, 2, 3)))
def _pad(w: Writer, x: BuildValue, pad: Sequence[int], value: float | None = None) -> Any:
    n = len(pad) // 2
    begins, ends = ([*(0,) * (len(x.shape) - n), *pad[side::2][::-1]] for side in (0, 1))
    if not any(pad):
        return x
    mode = _MODES.get(w.packet.partition("_")[0])
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):  # below 0 they take elements away
        n_before, n_after = max(-begin, 0), max(-end, 0)
        if mode == "edge" and n_before + n_after >= x.shape[axis]:
            raise UnsupportedError("edges of what is taken away")
        x = _part(x, axis, n_before, x.shape[axis] - n_after)
    return w.op("Pad", x, [max(each, 0) for each in begins + ends], value, mode=mode)


# Constants.


@lowers("full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")
def _full(w: Writer, *args: Any, **__: Any) -> Any:
    fill_value = args[-1]
    if isinstance(fill_value, BuildValue):
        return _expanded(w, w.cast(fill_value, w.dtype))
    return w.full(w.shape, fill_value)


@lowers("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "empty_like", "empty.memory_format")
@lowers("new_empty", "new_empty_strided", "empty_strided", "empty_permuted")
def _filled(w: Writer, *_: Any, **__: Any) -> BuildValue:
    return w.full(w.shape, int("ones" in w.packet))


@lowers("arange.start_step", "arange.start", "arange")
def _arange(w: Writer, *bounds: float, **__: Any) -> BuildValue:
    start, step = (bounds[0], (*bounds, 1, 1)[2]) if len(bounds) > 1 else (0, 1)
    return w.array(start + np.arange(w.shape[0]) * step, w.dtype)


lowers("scalar_tensor")(lambda w, s, **_: w.array(s, w.dtype))
