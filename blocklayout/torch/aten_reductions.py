"""Reductions, and what runs along a dimension: softmax, sums so far, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, filled, integers, lowers

Dims = int | Sequence[int] | None


def _axes(x: BuildValue, dim: Dims) -> list[int]:
    """The dimensions, counted from the first; all where there are none."""
    given = [dim] if isinstance(dim, int) else dim or []
    return sorted(each % len(x.shape) for each in given) or list(range(len(x.shape)))


def _reduce(w: NodeWriter, op_type: str, x: BuildValue, dim: Dims, shape: Sequence[int]) -> BuildValue:
    """A reduction to the extents ``shape``, which has the dimensions that are reduced, or not."""
    x = w.ranked(x)
    axes = _axes(x, dim)
    kept = len(shape) == len(x.shape)
    return w.reshape(w.op(op_type, x, integers(axes), keepdims=int(kept)), shape)


@lowers("aten.sum.dim_IntList", "aten.sum.default", "aten.mean.dim", "aten.mean.default")
def _sum(w: NodeWriter, x: BuildValue, dim: Dims = None, *_: Any, **__: Any) -> Any:
    op_type = "ReduceSum" if ".sum." in w.overload else "ReduceMean"
    return _whole(w, op_type, x, dim)


@lowers("aten.prod.default", "aten.prod.dim_int")
def _prod(w: NodeWriter, x: BuildValue, dim: Dims = None, *_: Any, **__: Any) -> Any:
    return _whole(w, "ReduceProd", x, dim)


def _whole(w: NodeWriter, op_type: str, x: BuildValue, dim: Dims) -> Any:
    computed = w.dtype if w.dtype in (*FLOATS, "s32", "s64") else "s64"
    return w.cast(_reduce(w, op_type, w.cast(w.cast(x, w.dtype), computed), dim, w.shape), w.dtype)


@lowers("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def _extreme(w: NodeWriter, x: BuildValue, dim: Dims = (), *_: Any) -> Any:
    return _largest(w, "ReduceMax" if "max" in w.overload else "ReduceMin", x, dim)


def _largest(w: NodeWriter, op_type: str, x: BuildValue, dim: Dims) -> BuildValue:
    """The largest or smallest; ONNX has no order of 16 bits and of truth."""
    computed = {"s16": "s32", "u16": "s32", "bool": "u8"}.get(x.dtype, x.dtype)
    return w.cast(_reduce(w, op_type, w.cast(x, computed), dim, w.shape), x.dtype)


@lowers("aten.any.default", "aten.any.dim", "aten.any.dims")
def _any(w: NodeWriter, x: BuildValue, dim: Dims = None, *_: Any) -> Any:
    if 0 in x.shape:
        return w.constant(np.zeros(w.shape, np.bool_))
    if dim is not None and not isinstance(dim, int) and not dim and w.overload.endswith("dims"):
        return w.cast(x, "bool")
    return w.cast(_largest(w, "ReduceMax", w.cast(x, "bool"), dim), w.dtype)


@lowers("aten.argmax.default", "aten.argmin.default")
def _argmax(w: NodeWriter, x: BuildValue, dim: int | None = None, *_: Any) -> Any:
    return _index_of(w, "ArgMax" if "argmax" in w.overload else "ArgMin", x, dim, w.shape)


def _index_of(w: NodeWriter, op_type: str, x: BuildValue, dim: int | None, shape: Sequence[int]) -> BuildValue:
    computed = {"s16": "s32", "bool": "u8"}.get(x.dtype, x.dtype)
    flat = w.ranked(x if dim is not None else w.reshape(x, (math.prod(x.shape),)))
    axis = 0 if dim is None else dim % len(flat.shape)
    return w.reshape(w.op(op_type, w.cast(flat, computed), axis=axis, keepdims=1), shape)


@lowers("aten.max.dim", "aten.min.dim")
def _max_and_index(w: NodeWriter, x: BuildValue, dim: int, *_: Any) -> Any:
    kind = "Max" if ".max." in w.overload else "Min"
    index = _index_of(w, f"Arg{kind}", x, dim, w.shape) if 1 in w.read else None
    return _largest(w, f"Reduce{kind}", x, dim), index


@lowers("aten.var.correction", "aten.var.dim", "aten.var_mean.correction")
def _var(w: NodeWriter, x: BuildValue, *args: Any, correction: float | None = None, **__: Any) -> Any:
    dim, unbiased, *_ = filled(args, None, True)
    less = int(unbiased) if correction is None else correction
    x = w.ranked(x)
    axes = _axes(x, dim)
    n = math.prod(x.shape[axis] for axis in axes)
    mean = w.op("ReduceMean", x, integers(axes), keepdims=1)
    difference = w.op("Sub", x, mean)
    squares = _reduce(w, "ReduceSumSquare", difference, axes, w.shape)
    var = w.op("Div", squares, w.constant(max(n - less, 0), w.dtype))
    return (var, w.reshape(mean, w.shape)) if "mean" in w.overload else var


@lowers("aten.linalg_vector_norm.default")
def _vector_norm(w: NodeWriter, x: BuildValue, *args: Any, **__: Any) -> Any:
    p, dim, *_ = filled(args, 2, None)
    return norm(w, w.cast(x, w.dtype), p, dim)


def norm(w: NodeWriter, x: BuildValue, p: float, dim: Dims) -> Any:
    """The ``p``-norm, in the result's extents."""
    if p in (1, 2):
        return _reduce(w, f"ReduceL{p:.0f}", x, dim, w.shape)
    if math.isinf(p):
        return _reduce(w, "ReduceMax" if p > 0 else "ReduceMin", w.op("Abs", x), dim, w.shape)
    if p == 0:
        is_zero = w.op("Equal", x, w.constant(0, x.dtype))
        return _reduce(w, "ReduceSum", w.cast(w.op("Not", is_zero), x.dtype), dim, w.shape)
    powers = w.op("Pow", w.op("Abs", x), w.constant(p, x.dtype))
    return w.op("Pow", _reduce(w, "ReduceSum", powers, dim, w.shape), w.constant(1 / p, x.dtype))


@lowers("aten._cdist_forward.default")
def _cdist(w: NodeWriter, a: BuildValue, b: BuildValue, p: float, *_: Any) -> Any:
    first, second = (w.op("Unsqueeze", each, integers(axis)) for each, axis in ((a, -2), (b, -3)))
    return norm(w, w.op("Sub", first, second), p, -1)


@lowers("aten._pdist_forward.default")
def _pdist(w: NodeWriter, x: BuildValue, p: float = 2) -> Any:
    pairs = np.triu_indices(x.shape[0], 1)
    first, second = (w.op("Gather", x, index.astype(np.int64), axis=0) for index in pairs)
    return norm(w, w.op("Sub", first, second), p, 1)


@lowers("aten._softmax.default", "aten._log_softmax.default", "aten.softmax.int", "aten.log_softmax.int")
def _softmax(w: NodeWriter, x: BuildValue, dim: int, *_: Any, **__: Any) -> Any:
    ranked = w.cast(w.ranked(x), w.dtype)
    y = w.op("LogSoftmax" if "log" in w.overload else "Softmax", ranked, axis=dim % len(ranked.shape))
    return w.reshape(y, w.shape)


@lowers("aten.cumsum.default")
def _cumsum(w: NodeWriter, x: BuildValue, dim: int, **__: Any) -> Any:
    ranked = w.cast(w.ranked(x), w.dtype)
    computed = w.dtype if w.dtype in (*FLOATS, "s32", "s64") else "s64"
    y = w.op("CumSum", w.cast(ranked, computed), w.constant(dim % len(ranked.shape), "s64"))
    return w.cast(w.reshape(y, w.shape), w.dtype)


@lowers("aten.topk.default")
def _topk(w: NodeWriter, x: BuildValue, k: int, dim: int = -1, largest: bool = True, *_: Any) -> Any:
    return _ordered(w, x, k, dim, descending=largest)


@lowers("aten.sort.default")
def _sort(w: NodeWriter, x: BuildValue, dim: int = -1, descending: bool = False) -> Any:
    return _ordered(w, x, None, dim, descending=descending)


@lowers("aten.sort.stable")
def _sort_stable(w: NodeWriter, x: BuildValue, *, dim: int = -1, descending: bool = False, **__: Any) -> Any:
    return _ordered(w, x, None, dim, descending=descending)


def _ordered(w: NodeWriter, x: BuildValue, k: int | None, dim: int, *, descending: bool) -> tuple[Any, ...]:
    ranked = w.ranked(w.cast(x, {"bool": "u8", "bf16": "f32"}.get(x.dtype, x.dtype)))
    axis = dim % len(ranked.shape)
    count = integers(ranked.shape[axis] if k is None else k)
    values, index = w.op("TopK", ranked, count, axis=axis, largest=int(descending), n_outputs=2)
    return w.cast(w.reshape(values, w.shape), w.dtype), w.reshape(index, w.shape)
