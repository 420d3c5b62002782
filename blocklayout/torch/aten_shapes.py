"""Other extents and orders of the same elements, parts of tensors, and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers

_TO_THE_END = 2**63 - 1

# The same elements.

lowers("view", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int")(lambda w, x, *_: w.reshape(x, w.shape))
lowers("clone", "alias", "detach", "detach_", "lift_fresh_copy", "contiguous")(lambda _, x, *__: x)
lowers("expand")(lambda w, x, *_, **__: _expanded(w, x))
lowers("copy")(lambda w, _, src, *__: _expanded(w, w.cast(src, w.dtype)))
lowers("permute")(lambda w, x, dims: w.transpose(x, [dim % len(x.shape) for dim in dims]))
lowers("unsqueeze")(lambda w, x, dim: w.op("Unsqueeze", x, [dim % len(w.shape)]))


def _expanded(w: NodeWriter, x: BuildValue) -> Any:
    return x if x.shape == w.shape else w.op("Expand", x, w.shape)


@lowers("dropout", "native_dropout")
def _dropout(w: NodeWriter, x: BuildValue, p: float, train: bool | None) -> Any:
    if train and p:
        raise w.refuse("dropout in training; inference mode only")
    return x if w.name == "dropout" else (x, w.constant(np.ones(x.shape, np.bool_)))


@lowers("squeeze.dim", "squeeze.dims", "squeeze")
def _squeeze(w: NodeWriter, x: BuildValue, dim: int | Sequence[int] | None = None) -> Any:
    given = range(len(x.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [each % len(x.shape) for each in given if x.shape[each] == 1] if x.shape else []
    return w.op("Squeeze", x, axes) if axes else x


@lowers("transpose.int", "t")
def _transpose(w: NodeWriter, x: BuildValue, dim0: int = 0, dim1: int = 1) -> BuildValue:
    if len(x.shape) < 2:
        return x
    perm = list(range(len(x.shape)))
    perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return w.transpose(x, perm)


@lowers("flip")
def _flip(w: NodeWriter, x: BuildValue, dims: Sequence[int]) -> Any:
    axes = [dim % len(x.shape) for dim in dims] if x.shape else []
    backwards, ends = np.full(len(axes), -1), np.full(len(axes), -_TO_THE_END)
    return w.op("Slice", x, backwards, ends, np.array(axes), backwards) if axes else x


@lowers("repeat")
def _repeat(w: NodeWriter, x: BuildValue, repeats: Sequence[int]) -> Any:
    ranked = w.reshape(x, (*(1,) * (len(repeats) - len(x.shape)), *x.shape))
    return w.op("Tile", ranked, repeats) if repeats else x


# Parts.


def part(w: NodeWriter, x: BuildValue, axis: int, start: int, end: int, step: int = 1) -> BuildValue:
    """Elements along one dimension."""
    if step == 1 and start <= 0 and end >= x.shape[axis]:
        return x
    sliced: BuildValue = w.op("Slice", x, [start], [end], [axis], [step])
    return sliced


@lowers("slice.Tensor")
def _slice(w: NodeWriter, x: BuildValue, dim: int, start: int | None, end: int | None, step: int) -> BuildValue:
    axis = dim % len(x.shape)
    return part(w, x, axis, *_bounds(x.shape[axis], start, end), step)


def _bounds(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, end).indices(extent)
    return first, max(first, last)


@lowers("select.int")
def _select(w: NodeWriter, x: BuildValue, dim: int, index: int) -> Any:
    axis = dim % len(x.shape)
    at = index % x.shape[axis]
    return w.op("Squeeze", part(w, x, axis, at, at + 1), [axis])


lowers("unbind.int")(lambda w, x, dim: tuple(_select(w, x, dim, index) for index in range(x.shape[dim])))


@lowers("split_with_sizes", "split.Tensor", "chunk")
def _split(w: NodeWriter, x: BuildValue, _: int | Sequence[int], dim: int) -> Any:
    if len(w.results) == 1:
        return (x,)
    extents = [each.shape[dim] for each in w.results]
    return w.op("Split", x, extents, axis=dim % len(x.shape), n_outputs=len(extents))


@lowers("cat")
def _cat(w: NodeWriter, tensors: Sequence[BuildValue], dim: int) -> Any:
    parts = [w.cast(each, w.dtype) for each in tensors if each.shape != (0,) or len(w.shape) == 1]
    return parts[0] if len(parts) == 1 else w.op("Concat", *parts, axis=dim % len(w.shape))


@lowers("stack")
def _stack(w: NodeWriter, tensors: Sequence[BuildValue], dim: int) -> Any:
    axis = dim % len(w.shape)
    return w.op("Concat", *(w.op("Unsqueeze", w.cast(each, w.dtype), [axis]) for each in tensors), axis=axis)


@lowers("slice_scatter")
def _slice_scatter(w: NodeWriter, x: BuildValue, src: BuildValue, *args: Any) -> Any:
    dim, start, end, step = args
    axis = dim % len(x.shape)
    first, last = _bounds(x.shape[axis], start, end)
    whole = w.op("Expand", w.cast(src, w.dtype), src.shape)
    if step == 1:
        sides = ((0, first), (last, x.shape[axis]))
        before, after = ([part(w, x, axis, *side)] if side[0] < side[1] else [] for side in sides)
        parts = [*before, *([whole] if src.shape[axis] else []), *after]
        return w.op("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    index = np.arange(first, last, step).reshape([-1 if each == axis else 1 for each in range(len(x.shape))])
    return w.op("ScatterElements", x, np.broadcast_to(index, src.shape).astype(np.int64), whole, axis=axis)


@lowers("diagonal", "as_strided")
def _numbered(w: NodeWriter, x: BuildValue, *args: Any) -> Any:
    """The elements whose numbers, in row-major order, PyTorch gives in their place."""
    import torch

    source = w.args[0].meta["val"]
    if w.name == "as_strided" and (not source.is_contiguous() or source.storage_offset()):
        raise w.refuse("addresses in a tensor that is not contiguous")
    try:
        numbers = w.node.target(torch.arange(source.numel()).reshape(source.shape), *args)
    except RuntimeError as error:
        raise w.refuse(f"addresses beyond the tensor's elements: {error}") from None
    return w.op("Gather", w.flat(x), numbers.numpy(), axis=0)


@lowers("unfold")
def _unfold(w: NodeWriter, x: BuildValue, dimension: int, size: int, step: int) -> Any:
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
def _gather(w: NodeWriter, x: BuildValue, dim: int, index: BuildValue, **__: Any) -> Any:
    x, index, axis = _with_rank(w, x, index, dim)
    return w.reshape(w.op("GatherElements", _cut(w, x, index.shape, axis), index, axis=axis), w.shape)


def _with_rank(w: NodeWriter, x: BuildValue, index: BuildValue, dim: int) -> tuple[BuildValue, BuildValue, int]:
    x, index = w.ranked(x), w.cast(w.ranked(index), "s64")
    if not math.prod(index.shape):
        raise w.refuse("an index without elements")
    return x, index, dim % len(x.shape)


def _cut(w: NodeWriter, x: BuildValue, shape: Sequence[int], but: int | None = None) -> BuildValue:
    """The first elements along each dimension but one."""
    for axis, extent in enumerate(shape):
        x = x if axis == but else part(w, x, axis, 0, extent)
    return x


@lowers("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def _scatter(
    w: NodeWriter,
    x: BuildValue,
    dim: int,
    index: BuildValue,
    src: Any,
    reduce: str | None = None,
    *,
    include_self: bool = True,
) -> Any:
    if w.dtype == "bool" and reduce is not None:
        raise w.refuse("reductions of truth")
    reduce = "sum" if w.name == "scatter_add" else reduce
    x, index, axis = _with_rank(w, x, index, dim)
    if isinstance(src, BuildValue):
        updates = _cut(w, w.ranked(src), index.shape)
    else:
        updates = w.op("Expand", w.constant(src, w.dtype), index.shape)

    def scattered(into: BuildValue, values: Any, by: str | None) -> Any:
        return w.op("ScatterElements", into, index, values, axis=axis, reduction=by)

    if reduce is not None and not include_self:
        x = scattered(x, np.full(index.shape, _neutral(w, reduce), to_numpy(w.dtype)), None)
    y = scattered(x, updates, {None: None, "prod": "mul", "amax": "max", "amin": "min"}.get(reduce, "add"))
    if reduce == "mean":
        if w.dtype not in FLOATS:
            raise w.refuse("means of integers")
        ones = np.ones(index.shape, to_numpy(w.dtype))
        counts = scattered(w.constant(np.full(x.shape, int(include_self)), w.dtype), ones, "add")
        y = w.op("Div", y, w.op("Max", counts, 1))
    return w.reshape(y, w.shape)


def _neutral(w: NodeWriter, reduce: str) -> float:
    """The number that changes no result of a reduction."""
    if reduce not in ("amax", "amin"):
        return 1 if reduce == "prod" else 0
    if w.dtype in FLOATS:
        return -math.inf if reduce == "amax" else math.inf
    limits = np.iinfo(to_numpy(w.dtype))
    return int(limits.min if reduce == "amax" else limits.max)


@lowers("masked_scatter")
def _masked_scatter(w: NodeWriter, x: BuildValue, mask: BuildValue, source: BuildValue) -> Any:
    spread = w.op("Expand", w.cast(mask, "s64"), w.shape)
    counts = w.op("CumSum", w.flat(spread), 0)
    at = w.op("Clip", w.op("Sub", counts, 1), 0, math.prod(source.shape) - 1)
    taken = w.reshape(w.op("Gather", w.flat(source), at, axis=0), w.shape)
    return w.op("Where", mask, taken, w.op("Expand", x, w.shape))


@lowers("index.Tensor")
def _index(w: NodeWriter, x: BuildValue, indices: Sequence[BuildValue | None]) -> Any:
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
    w: NodeWriter, x: BuildValue, indices: Sequence[BuildValue | None], values: BuildValue, accumulate: bool
) -> Any:
    mask = indices[0]
    if mask is not None and mask.dtype == "bool" and len(indices) == 1 and math.prod(values.shape) == 1:
        spread = w.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
        value = w.reshape(values, ())
        return w.op("Where", spread, w.op("Add", x, value) if accumulate else value, x)
    axes, perm, at = _gathered(w, x, indices)
    n_index, first = len(at.shape) - 1, _first(axes)
    moved = w.transpose(x, perm)
    rest = moved.shape[len(axes) :]
    as_read = (*rest[:first], *at.shape[:-1], *rest[first:])
    order = [*range(first, first + n_index), *range(first), *range(first + n_index, len(as_read))]
    spread = w.transpose(w.op("Expand", values, as_read), order)
    y = w.op("ScatterND", moved, at, spread, reduction="add" if accumulate else None)
    return w.transpose(y, [perm.index(axis) for axis in range(len(perm))])


def _first(axes: Sequence[int]) -> int:
    """Where the dimensions of indices go: to those that are indexed, where these lie side by side."""
    return axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0


def _gathered(
    w: NodeWriter, x: BuildValue, indices: Sequence[BuildValue | None]
) -> tuple[list[int], list[int], BuildValue]:
    """The dimensions that are indexed, a permutation that has them first, and their indices side by side."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not axes or any(index.dtype in ("bool", "u8") for index in given):
        raise w.refuse("indexing by a mask, whose result's extents depend on data")
    shape = np.broadcast_shapes(*(index.shape for index in given))
    columns = [w.op("Unsqueeze", w.op("Expand", w.cast(index, "s64"), shape), [-1]) for index in given]
    perm = [*axes, *(axis for axis in range(len(x.shape)) if axis not in axes)]
    return axes, perm, w.op("Concat", *columns, axis=-1) if len(columns) > 1 else columns[0]


# Padding.

_MODES = {"reflection": "reflect", "replication": "edge"}


@lowers("constant_pad_nd")
@lowers(*(f"{mode}_pad{rank}d" for mode in _MODES for rank in (1, 2, 3)))
def _pad(w: NodeWriter, x: BuildValue, pad: Sequence[int], value: float | None = None) -> Any:
    n = len(pad) // 2
    begins, ends = ([*(0,) * (len(x.shape) - n), *pad[side::2][::-1]] for side in (0, 1))
    if not any(pad):
        return x
    mode = _MODES.get(w.name.partition("_")[0])
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):  # below 0 they take elements away
        n_before, n_after = max(-begin, 0), max(-end, 0)
        if mode == "edge" and n_before + n_after >= x.shape[axis]:
            raise w.refuse("edges of what is taken away")
        x = part(w, x, axis, n_before, x.shape[axis] - n_after)
    return w.op("Pad", x, [max(each, 0) for each in begins + ends], value, mode=mode)


# Constants.


@lowers("full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")
def _full(w: NodeWriter, *args: Any, **__: Any) -> Any:
    fill_value = args[-1]
    if isinstance(fill_value, BuildValue):
        return _expanded(w, w.cast(fill_value, w.dtype))
    return w.constant(np.full(w.shape, fill_value), w.dtype)


@lowers("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "empty_like", "empty.memory_format")
@lowers("new_empty", "new_empty_strided", "empty_strided", "empty_permuted")
def _filled(w: NodeWriter, *_: Any, **__: Any) -> BuildValue:
    return w.constant(np.full(w.shape, int("ones" in w.name)), w.dtype)


@lowers("arange.start_step", "arange.start", "arange")
def _arange(w: NodeWriter, *bounds: float, **__: Any) -> BuildValue:
    start, step = (bounds[0], (*bounds, 1, 1)[2]) if len(bounds) > 1 else (0, 1)
    return w.constant(start + np.arange(w.shape[0]) * step, w.dtype)


lowers("scalar_tensor")(lambda w, s, **_: w.constant(s, w.dtype))
