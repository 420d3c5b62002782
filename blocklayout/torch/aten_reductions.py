"""Reductions, and what runs along a dimension: softmax, sums so far, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import Writer, lowers, lowers_alike

Dims = int | Sequence[int] | None


def _axes(x: BuildValue, dim: Dims) -> list[int]:
    """The dimensions, counted from the first; all where there are none."""
    given = [dim] if isinstance(dim, int) else dim or []
    return sorted(each % len(x.shape) for each in given) or list(range(len(x.shape)))


def _reduce(w: Writer, op_type: str, x: BuildValue, dim: Dims) -> Any:
    """A reduction whose result has the dimensions that are reduced, or not."""
    x = w.ranked(x)
    return w.op(op_type, x, _axes(x, dim), keepdims=int(len(w.shape) == len(x.shape)))


def _summable(w: Writer, x: BuildValue) -> BuildValue:
    """Terms in the type in which ONNX adds up what comes in theirs."""
    return x if x.dtype in (*FLOATS, "s32", "s64") else w.cast(x, "s64")


lowers_alike("sum.dim_IntList", "sum", "mean.dim", "mean", "prod", "prod.dim_int")(
    lambda w, x, dim=None, **_: w.cast(_reduce(w, f"Reduce{w.packet.title()}", _summable(w, x), dim), w.dtype)
)
lowers_alike("cumsum")(lambda w, x, dim: w.cast(w.op("CumSum", w.ranked(_summable(w, x)), dim), w.dtype))


def _ordered(w: Writer, x: BuildValue) -> BuildValue:
    """Numbers of 16 bits, and truth, in the types in which ONNX orders them."""
    return w.cast(x, {"s16": "s32", "u16": "s32", "bool": "u8"}.get(x.dtype, x.dtype))


@lowers("amax", "amin", "max", "min")
def _extreme(w: Writer, x: BuildValue, dim: Dims = (), **_: Any) -> BuildValue:
    return w.cast(_reduce(w, "ReduceMin" if "min" in w.packet else "ReduceMax", _ordered(w, x), dim), x.dtype)


@lowers("any", "any.dim", "any.dims")
def _any(w: Writer, x: BuildValue, dim: Dims = None, **_: Any) -> BuildValue:
    if 0 in x.shape:
        return w.full(w.shape, 0)
    truth = w.cast(x, "bool")
    is_of_none = w.overload.endswith("dims") and dim is not None and not dim
    return truth if is_of_none else w.cast(_extreme(w, truth, dim), w.dtype)


@lowers("argmax", "argmin")
def _argmax(w: Writer, x: BuildValue, dim: int | None, **_: Any) -> Any:
    x = w.ranked(_ordered(w, x if dim is not None else w.flat(x)))
    return w.op("ArgMin" if "min" in w.packet else "ArgMax", x, axis=dim or 0, keepdims=1)


lowers("max.dim", "min.dim")(lambda w, x, dim, **_: (_extreme(w, x, dim), _argmax(w, x, dim) if w.is_read(1) else None))


@lowers("var.correction", "var.dim", "var_mean.correction")
def _var(w: Writer, x: BuildValue, dim: Dims, correction: float | None = None, unbiased: bool = True, **_: Any) -> Any:
    x = w.ranked(x)
    axes = _axes(x, dim)
    mean = x.reduce_mean(axes)
    n = math.prod(x.shape[axis] for axis in axes) - (int(unbiased) if correction is None else correction)
    var = _reduce(w, "ReduceSumSquare", x - mean, axes) / max(n, 0)
    return (var, mean) if "mean" in w.packet else var


def _norm(w: Writer, x: BuildValue, p: float, dim: Dims) -> Any:
    """The ``p``-norm."""
    if p in (1, 2):
        return _reduce(w, f"ReduceL{p:.0f}", x, dim)
    if math.isinf(p):
        return _reduce(w, "ReduceMax" if p > 0 else "ReduceMin", abs(x), dim)
    if p == 0:
        return _reduce(w, "ReduceSum", w.cast(x != 0, x.dtype), dim)
    return _reduce(w, "ReduceSum", abs(x) ** p, dim) ** (1 / p)


lowers_alike("linalg_vector_norm")(lambda w, x, p, dim, **_: _norm(w, x, p, dim))
lowers("_cdist_forward")(lambda w, a, b, p, **_: _norm(w, a.unsqueeze(-2) - b.unsqueeze(-3), p, -1))


@lowers("_pdist_forward")
def _pdist(w: Writer, x: BuildValue, p: float) -> Any:
    first, second = (w.op("Gather", x, index.astype(np.int64), axis=0) for index in np.triu_indices(x.shape[0], 1))
    return _norm(w, first - second, p, 1)


lowers_alike("_softmax", "softmax.int")(lambda w, x, dim, **_: w.ranked(x).softmax(dim))
lowers_alike("_log_softmax", "log_softmax.int")(lambda w, x, dim, **_: w.ranked(x).log_softmax(dim))


@lowers("topk", "sort", "sort.stable")
def _topk(
    w: Writer, x: BuildValue, dim: int, k: int | None = None, largest: bool = False, descending: bool = False, **_: Any
) -> Any:
    x = w.ranked(w.cast(x, {"bool": "u8", "bf16": "f32"}.get(x.dtype, x.dtype)))
    counts = [x.shape[dim] if k is None else k]
    values, index = w.op("TopK", x, counts, axis=dim, largest=int(largest or descending), n_outputs=2)
    return w.cast(values, w.dtype), index
