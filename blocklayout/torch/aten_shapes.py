"""Other extents and orders of the same elements, parts of tensors, and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from blocklayout.dtypes import FLOATS
from blocklayout.errors import UnsupportedError
from blocklayout.layout.permutation import inverse
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import Writer, lowers

# The same elements.

lowers("clone", "alias", "detach", "detach_", "lift_fresh_copy", "contiguous")(lambda _, x: x)
lowers("expand")(lambda w, x, **_: _expanded(w, x))
lowers("copy")(lambda w, _, src: _expanded(w, w.cast(src, w.dtype)))
lowers("permute")(lambda w, x, dims: w.transpose(x, dims))
lowers("transpose.int")(lambda w, x, dim0, dim1: w.swap(x, dim0, dim1) if x.shape else x)
lowers("t")(lambda w, x: w.swap(x, 0, -1) if x.shape else x)
lowers("view", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int")(
    lambda w, x, **_: w.reshape(x, w.shape)
)
lowers("squeeze.dim", "squeeze.dims", "squeeze", "unsqueeze")(lambda w, x, **_: w.reshape(x, w.shape))


def _expanded(w: Writer, x: BuildValue) -> BuildValue:
    return x if x.shape == w.shape else x.expand(w.shape)


@lowers("dropout", "native_dropout")
def _dropout(w: Writer, x: BuildValue, p: float, train: bool | None) -> Any:
    if train and p:
        raise UnsupportedError("dropout in training; inference mode only")
    return x if w.packet == "dropout" else (x, w.array(np.ones(x.shape, np.bool_)))


@lowers("flip")
def _flip(_: Writer, x: BuildValue, dims: Sequence[int]) -> BuildValue:
    backwards, to_the_start = [-1] * len(dims), [1 - 2**63] * len(dims)
    return x.slice(backwards, to_the_start, dims, backwards) if dims and x.shape else x


@lowers("repeat")
def _repeat(w: Writer, x: BuildValue, repeats: Sequence[int]) -> Any:
    ranked = w.reshape(x, (*(1,) * (len(repeats) - len(x.shape)), *x.shape))
    return w.op("Tile", ranked, repeats) if repeats else x


# Parts.


def _part(x: BuildValue, dim: int, start: int | None, end: int | None, step: int = 1) -> BuildValue:
    """Elements along one dimension."""
    places = range(x.shape[dim])[start:end:step]
    return x if len(places) == x.shape[dim] else x.slice([places.start], [places.stop], [dim], [step])


def _select(x: BuildValue, dim: int, index: int) -> BuildValue:
    at = index % x.shape[dim]
    return _part(x, dim, at, at + 1)


lowers("slice.Tensor")(lambda _, x, **where: _part(x, **where))
lowers("select.int")(lambda _, x, **where: _select(x, **where))
lowers("unbind.int")(lambda _, x, dim: tuple(_select(x, dim, index) for index in range(x.shape[dim])))


@lowers("split_with_sizes", "split.Tensor", "chunk")
def _split(w: Writer, x: BuildValue, dim: int, **_: Any) -> tuple[BuildValue, ...]:
    sizes = [each.shape[dim] for each in w.results]
    return (x,) if len(sizes) == 1 else x.split(sizes, dim)


@lowers("cat")
def _cat(w: Writer, tensors: Sequence[BuildValue], dim: int) -> Any:
    parts = [w.cast(each, w.dtype) for each in tensors if each.shape != (0,) or len(w.shape) == 1]
    return parts[0] if len(parts) == 1 else w.concat(parts, dim)


lowers("stack")(lambda w, tensors, dim: w.concat([w.cast(each, w.dtype).unsqueeze(dim) for each in tensors], dim))


@lowers("slice_scatter")
def _slice_scatter(w: Writer, x: BuildValue, src: BuildValue, dim: int, step: int, **bounds: int | None) -> Any:
    places = range(x.shape[dim])[bounds["start"] : bounds["end"] : step]
    src = w.cast(src, w.dtype)
    if step == 1:
        parts = _part(x, dim, 0, places.start), src, _part(x, dim, places.start + len(places), None)
        filled = [each for each in parts if each.shape[dim]]
        return w.concat(filled, dim) if len(filled) > 1 else filled[0]
    column = np.reshape(places, (-1, *(1,) * (len(x.shape) - 1 - dim % len(x.shape))))
    return w.op("ScatterElements", x, np.broadcast_to(column, src.shape), src, axis=dim)


@lowers("diagonal", "as_strided")
def _numbered(w: Writer, x: BuildValue, **where: Any) -> Any:
    """The elements whose numbers, in row-major order, PyTorch gives in their place."""
    source = w.node.all_input_nodes[0].meta["val"]
    if w.packet == "as_strided" and (not source.is_contiguous() or source.storage_offset()):
        raise UnsupportedError("addresses in a tensor that is not contiguous")
    try:
        numbers = w.node.target(torch.arange(source.numel()).reshape(source.shape), **where)
    except RuntimeError as error:
        raise UnsupportedError(f"addresses beyond the tensor's elements: {error}") from None
    return w.op("Gather", w.flat(x), numbers.numpy(), axis=0)


@lowers("unfold")
def _unfold(w: Writer, x: BuildValue, dimension: int, size: int, step: int) -> Any:
    x = w.ranked(x)
    axis = dimension % len(x.shape)
    starts = np.arange(0, x.shape[axis] - size + 1, step)
    windows = w.op("Gather", x, starts[:, None] + np.arange(size), axis=axis)
    return w.transpose(windows, [*range(axis + 1), *range(axis + 2, len(windows.shape)), axis + 1])


# By indices.


lowers("embedding")(lambda w, weight, indices, **_: w.op("Gather", weight, indices, axis=0))
lowers("index_select")(lambda w, x, index, dim: w.op("Gather", w.ranked(x), w.flat(index), axis=dim))


@lowers("gather")
def _gather(w: Writer, x: BuildValue, index: BuildValue, dim: int, **_: Any) -> Any:
    x, index = _with_rank(w, x, index)
    extents = list(index.shape)
    extents[dim] = x.shape[dim]
    return w.op("GatherElements", _cut(x, extents), index, axis=dim)


def _with_rank(w: Writer, x: BuildValue, index: BuildValue) -> tuple[BuildValue, BuildValue]:
    if 0 in index.shape:
        raise UnsupportedError("an index without elements")
    return w.ranked(x), w.cast(w.ranked(index), "s64")


def _cut(x: BuildValue, shape: Sequence[int]) -> BuildValue:
    """The first elements along each dimension."""
    return x if x.shape == tuple(shape) else x.slice([0] * len(shape), shape, range(len(shape)))


_REDUCTIONS = {"prod": "mul", "amax": "max", "amin": "min", "sum": "add", "mean": "add"}


@lowers("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def _scatter(
    w: Writer, x: BuildValue, index: BuildValue, src: Any, dim: int, reduce: str = "", include_self: bool = True
) -> Any:
    if w.dtype == "bool" and reduce:
        raise UnsupportedError("reductions of truth")
    if w.dtype not in FLOATS and reduce == "mean":
        raise UnsupportedError("means of integers")
    x, index = _with_rank(w, x, index)
    updates = _cut(w.ranked(src), index.shape) if isinstance(src, BuildValue) else w.full(index.shape, src)

    def scattered(into: BuildValue, values: BuildValue, by: str | None) -> Any:
        return w.op("ScatterElements", into, index, values, axis=dim, reduction=by)

    if not include_self:  # any update may be there before the largest or smallest of all
        x = scattered(x, updates if reduce in ("amax", "amin") else w.full(index.shape, reduce == "prod"), None)
    y = scattered(x, updates, "add" if w.packet == "scatter_add" else _REDUCTIONS.get(reduce))
    if reduce != "mean":
        return y
    counts = scattered(w.full(x.shape, include_self), w.full(index.shape, 1), "add")
    return y / w.op("Max", counts, 1)


@lowers("masked_scatter")
def _masked_scatter(w: Writer, x: BuildValue, mask: BuildValue, source: BuildValue) -> Any:
    counts = w.op("CumSum", w.flat(_expanded(w, w.cast(mask, "s64"))), 0)
    at = w.op("Clip", counts - 1, 0, math.prod(source.shape) - 1)
    return w.where(mask, w.reshape(w.op("Gather", w.flat(source), at, axis=0), w.shape), _expanded(w, x))


@lowers("index.Tensor")
def _index(w: Writer, x: BuildValue, indices: Sequence[BuildValue | None]) -> Any:
    perm, at, order = _gathered(w, x, indices)
    if at.shape[-1] == 1:
        return w.op("Gather", x, indices[perm[0]], axis=perm[0])
    return w.transpose(w.op("GatherND", w.transpose(x, perm), at), order)


@lowers("index_put")
def _index_put(
    w: Writer, x: BuildValue, indices: Sequence[BuildValue | None], values: BuildValue, accumulate: bool
) -> Any:
    mask = indices[0]
    if mask is not None and mask.dtype == "bool" and len(indices) == 1 and math.prod(values.shape) == 1:
        spread = w.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
        value = w.reshape(values, ())
        return w.where(spread, x + value if accumulate else value, x)
    perm, at, order = _gathered(w, x, indices)
    moved = w.transpose(x, perm)
    extents = (*at.shape[:-1], *moved.shape[at.shape[-1] :])
    spread = w.transpose(values.expand([extents[axis] for axis in order]), inverse(order))
    y = w.op("ScatterND", moved, at, spread, reduction="add" if accumulate else None)
    return w.transpose(y, inverse(perm))


def _gathered(
    w: Writer, x: BuildValue, indices: Sequence[BuildValue | None]
) -> tuple[tuple[int, ...], BuildValue, tuple[int, ...]]:
    """A permutation that has the indexed dimensions first, their indices side by side, and the order of the result's.

    Dimensions of indices come first there, or in the place of those that are indexed, where these lie side by side.
    """
    given = {axis: index for axis, index in enumerate(indices) if index is not None}
    if not given or any(index.dtype in ("bool", "u8") for index in given.values()):
        raise UnsupportedError("indexing by a mask, whose result's extents depend on data")
    shape = np.broadcast_shapes(*(index.shape for index in given.values()))
    columns = [w.cast(index, "s64").expand(shape).unsqueeze(-1) for index in given.values()]
    perm = (*given, *(axis for axis in range(len(x.shape)) if axis not in given))
    first = perm[0] if perm[len(given) - 1] - perm[0] == len(given) - 1 else 0
    n = len(shape)
    order = (*range(n, n + first), *range(n), *range(n + first, n + len(x.shape) - len(given)))
    return perm, w.concat(columns, -1) if len(columns) > 1 else columns[0], order


# Padding.

_MODES = {"reflection": "reflect", "replication": "edge"}


@lowers("constant_pad_nd")
@lowers(*(f"{mode}_pad{rank}d" for mode in _MODES for rank in (1, 2, 3)))
def _pad(w: Writer, x: BuildValue, value: float | None = None, **pads: Sequence[int]) -> Any:
    [pad] = pads.values()  # its name differs
    if not any(pad):
        return x
    begins, ends = ([*(0,) * (len(x.shape) - len(pad) // 2), *pad[side::2][::-1]] for side in (0, 1))
    mode = _MODES.get(w.packet.partition("_")[0])
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):  # below 0 they take elements away
        n_before, n_after = max(-begin, 0), max(-end, 0)
        if mode == "edge" and n_before + n_after >= x.shape[axis]:
            raise UnsupportedError("edges of what is taken away")
        x = _part(x, axis, n_before, x.shape[axis] - n_after)
    return w.op("Pad", x, [max(each, 0) for each in begins + ends], value, mode=mode)


# Constants.

lowers("full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")(
    lambda w, *operands, **_: _expanded(w, w.cast(operands[-1], w.dtype))
)
lowers("zeros", "zeros_like", "new_zeros", "empty_like", "empty.memory_format")(lambda w, *_, **__: w.full(w.shape, 0))
lowers("new_empty", "new_empty_strided", "empty_strided", "empty_permuted")(lambda w, *_, **__: w.full(w.shape, 0))
lowers("ones", "ones_like", "new_ones")(lambda w, *_, **__: w.full(w.shape, 1))
lowers("scalar_tensor")(lambda w, s: w.array(s, w.dtype))


@lowers("arange.start_step", "arange.start", "arange")
def _arange(w: Writer, *numbers: float) -> BuildValue:
    bounds = slice(*numbers)  # which takes them as PyTorch does
    return w.array((bounds.start or 0) + np.arange(w.shape[0]) * (bounds.step or 1), w.dtype)
