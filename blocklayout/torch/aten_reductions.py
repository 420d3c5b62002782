"""Reductions, and what runs along a dimension: softmax, sums so far, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers

Dims = int | Sequence[int] | None


def _axes(x: BuildValue, dim: Dims) -> list[int]:
    """The dimensions, counted from the first; all where there are none."""
    given = [dim] if isinstance(dim, int) else dim or []
    return sorted(each % len(x.shape) for each in given) or list(range(len(x.shape)))


def _reduce(w: NodeWriter, op_type: str, x: BuildValue, dim: Dims) -> BuildValue:
    """A reduction to the result's extents, which have the dimensions that are reduced, or not."""
    x = w.ranked(x)
    kept = len(w.shape) == len(x.shape)
    return w.reshape(w.op(op_type, x, _axes(x, dim), keepdims=int(kept)), w.shape)


def _summable(w: NodeWriter) -> str:
    """The type in which ONNX adds up what comes in the result's."""
    return w.dtype if w.dtype in (*FLOATS, "s32", "s64") else "s64"


@lowers("sum.dim_IntList", "sum", "mean.dim", "mean", "prod", "prod.dim_int")
def _sum(w: NodeWriter, x: BuildValue, dim: Dims = None, *_: Any, **__: Any) -> Any:
    terms = w.cast(w.cast(x, w.dtype), _summable(w))
    return w.cast(_reduce(w, f"Reduce{w.name.title()}", terms, dim), w.dtype)


@lowers("cumsum")
def _cumsum(w: NodeWriter, x: BuildValue, dim: int, **__: Any) -> Any:
    ranked = w.cast(w.cast(w.ranked(x), w.dtype), _summable(w))
    return w.cast(w.reshape(w.op("CumSum", ranked, dim % len(ranked.shape)), w.shape), w.dtype)


_ORDERED = {"s16": "s32", "u16": "s32", "bool": "u8"}
"""The types in which ONNX orders numbers of 16 bits, and truth."""


@lowers("amax", "amin", "max", "min")
def _extreme(w: NodeWriter, x: BuildValue, dim: Dims = (), *_: Any) -> Any:
    op_type = "ReduceMin" if "min" in w.name else "ReduceMax"
    return w.cast(_reduce(w, op_type, w.cast(x, _ORDERED.get(x.dtype, x.dtype)), dim), x.dtype)


@lowers("any", "any.dim", "any.dims")
def _any(w: NodeWriter, x: BuildValue, dim: Dims = None, *_: Any) -> Any:
    if 0 in x.shape:
        return w.constant(np.zeros(w.shape, np.bool_))
    truth = w.cast(x, "bool")
    is_of_none = w.overload.endswith("dims") and dim is not None and not dim
    return truth if is_of_none else w.cast(_extreme(w, truth, dim), w.dtype)


@lowers("argmax", "argmin")
def _argmax(w: NodeWriter, x: BuildValue, dim: int | None, *_: Any) -> Any:
    flat = w.ranked(x if dim is not None else w.flat(x))
    axis = 0 if dim is None else dim % len(flat.shape)
    op_type = "ArgMin" if "min" in w.name else "ArgMax"
    return w.reshape(w.op(op_type, w.cast(flat, _ORDERED.get(x.dtype, x.dtype)), axis=axis, keepdims=1), w.shape)


@lowers("max.dim", "min.dim")
def _max_and_index(w: NodeWriter, x: BuildValue, dim: int, *_: Any) -> Any:
    return _extreme(w, x, dim), _argmax(w, x, dim) if w.is_read(1) else None


@lowers("var.correction", "var.dim", "var_mean.correction")
def _var(
    w: NodeWriter, x: BuildValue, dim: Dims, unbiased: bool = True, *_: Any, correction: float | None = None, **__: Any
) -> Any:
    less = int(unbiased) if correction is None else correction
    x = w.ranked(x)
    axes = _axes(x, dim)
    mean = w.op("ReduceMean", x, axes, keepdims=1)
    squares = _reduce(w, "ReduceSumSquare", w.op("Sub", x, mean), axes)
    n = math.prod(x.shape[axis] for axis in axes)
    var = w.op("Div", squares, max(n - less, 0))
    return (var, w.reshape(mean, w.shape)) if "mean" in w.name else var


def _norm(w: NodeWriter, x: BuildValue, p: float, dim: Dims) -> Any:
    """The ``p``-norm, in the result's extents."""
    if p in (1, 2):
        return _reduce(w, f"ReduceL{p:.0f}", x, dim)
    if math.isinf(p):
        return _reduce(w, "ReduceMax" if p > 0 else "ReduceMin", w.op("Abs", x), dim)
    if p == 0:
        return _reduce(w, "ReduceSum", w.cast(w.op("Not", w.op("Equal", x, 0)), x.dtype), dim)
    return w.op("Pow", _reduce(w, "ReduceSum", w.op("Pow", w.op("Abs", x), p), dim), 1 / p)


@lowers("_cdist_forward")
def _cdist(w: NodeWriter, a: BuildValue, b: BuildValue, p: float, *_: Any) -> Any:
    return _norm(w, w.op("Sub", w.op("Unsqueeze", a, [-2]), w.op("Unsqueeze", b, [-3])), p, -1)


@lowers("_pdist_forward")
def _pdist(w: NodeWriter, x: BuildValue, p: float) -> Any:
    first, second = (w.op("Gather", x, index.astype(np.int64), axis=0) for index in np.triu_indices(x.shape[0], 1))
    return _norm(w, w.op("Sub", first, second), p, 1)


@lowers("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def _softmax(w: NodeWriter, x: BuildValue, dim: int, *_: Any, **__: Any) -> Any:
    ranked = w.cast(w.ranked(x), w.dtype)
    y = w.op("LogSoftmax" if "log" in w.name else "Softmax", ranked, axis=dim % len(ranked.shape))
    return w.reshape(y, w.shape)


def _ordered(w: NodeWriter, x: BuildValue, k: int | None, dim: int, *, descending: bool) -> tuple[Any, ...]:
    ranked = w.ranked(w.cast(x, {"bool": "u8", "bf16": "f32"}.get(x.dtype, x.dtype)))
    axis = dim % len(ranked.shape)
    count = ranked.shape[axis] if k is None else k
    values, index = w.op("TopK", ranked, [count], axis=axis, largest=int(descending), n_outputs=2)
    return w.cast(w.reshape(values, w.shape), w.dtype), w.reshape(index, w.shape)


lowers("linalg_vector_norm")(lambda w, x, p, dim, *_, **__: _norm(w, w.cast(x, w.dtype), p, dim))
lowers("topk")(lambda w, x, k, dim, largest, _: _ordered(w, x, k, dim, descending=largest))
lowers("sort")(lambda w, x, dim, descending: _ordered(w, x, None, dim, descending=descending))
lowers("sort.stable")(lambda w, x, dim=-1, descending=False, **_: _ordered(w, x, None, dim, descending=descending))
