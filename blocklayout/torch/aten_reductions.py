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


def _reduce(w: Writer, op_type: str, x: BuildValue, dim: Dims) -> BuildValue:
    """A reduction to the result's extents, which have the dimensions that are reduced, or not."""
    x = w.ranked(x)
    kept = len(w.shape) == len(x.shape)
    return w.reshape(w.op(op_type, x, _axes(x, dim), keepdims=int(kept)), w.shape)


def _summable(w: Writer, x: BuildValue) -> BuildValue:
    """Terms in the type in which ONNX adds up what comes in theirs."""
    return x if x.dtype in (*FLOATS, "s32", "s64") else w.cast(x, "s64")


lowers_alike("sum.dim_IntList", "sum", "mean.dim", "mean", "prod", "prod.dim_int")(
    lambda w, x, dim=None, *_, **__: w.cast(_reduce(w, f"Reduce{w.packet.title()}", _summable(w, x), dim), w.dtype)
)


@lowers_alike("cumsum")
def _cumsum(w: Writer, x: BuildValue, dim: int, **__: Any) -> BuildValue:
    ranked = w.ranked(_summable(w, x))
    return w.cast(w.reshape(w.op("CumSum", ranked, dim % len(ranked.shape)), w.shape), w.dtype)


def _ordered(w: Writer, x: BuildValue) -> BuildValue:
    """Numbers of 16 bits, and truth, in the types in which ONNX orders them."""
    return w.cast(x, {"s16": "s32", "u16": "s32", "bool": "u8"}.get(x.dtype, x.dtype))


@lowers("amax", "amin", "max", "min")
def _extreme(w: Writer, x: BuildValue, dim: Dims = (), *_: Any) -> BuildValue:
    return w.cast(_reduce(w, "ReduceMin" if "min" in w.packet else "ReduceMax", _ordered(w, x), dim), x.dtype)


@lowers("any", "any.dim", "any.dims")
def _any(w: Writer, x: BuildValue, dim: Dims = None, *_: Any) -> BuildValue:
    if 0 in x.shape:
        return w.array(np.zeros(w.shape, np.bool_))
    truth = w.cast(x, "bool")
    is_of_none = w.overload.endswith("dims") and dim is not None and not dim
    return truth if is_of_none else w.cast(_extreme(w, truth, dim), w.dtype)


@lowers("argmax", "argmin")
def _argmax(w: Writer, x: BuildValue, dim: int | None, *_: Any) -> BuildValue:
    x = w.ranked(_ordered(w, x if dim is not None else w.flat(x)))
    op_type = "ArgMin" if "min" in w.packet else "ArgMax"
    return w.reshape(w.op(op_type, x, axis=(dim or 0) % len(x.shape), keepdims=1), w.shape)


lowers("max.dim", "min.dim")(lambda w, x, dim, *_: (_extreme(w, x, dim), _argmax(w, x, dim) if w.is_read(1) else None))


@lowers("var.correction", "var.dim", "var_mean.correction")
def _var(
    w: Writer, x: BuildValue, dim: Dims, unbiased: bool = True, *_: Any, correction: float | None = None, **__: Any
) -> Any:
    x = w.ranked(x)
    axes = _axes(x, dim)
    mean = x.reduce_mean(axes)
    n = math.prod(x.shape[axis] for axis in axes) - (int(unbiased) if correction is None else correction)
    var = _reduce(w, "ReduceSumSquare", x - mean, axes) / max(n, 0)
    return (var, w.reshape(mean, w.shape)) if "mean" in w.packet else var


def _norm(w: Writer, x: BuildValue, p: float, dim: Dims) -> BuildValue:
    """The ``p``-norm, in the result's extents."""
    if p in (1, 2):
        return _reduce(w, f"ReduceL{p:.0f}", x, dim)
    if math.isinf(p):
        return _reduce(w, "ReduceMax" if p > 0 else "ReduceMin", abs(x), dim)
    if p == 0:
        return _reduce(w, "ReduceSum", w.cast(x != 0, x.dtype), dim)
    return _reduce(w, "ReduceSum", abs(x) ** p, dim) ** (1 / p)


lowers("_cdist_forward")(lambda w, a, b, p, *_: _norm(w, a.unsqueeze(-2) - b.unsqueeze(-3), p, -1))


@lowers("_pdist_forward")
def _pdist(w: Writer, x: BuildValue, p: float) -> BuildValue:
    first, second = (w.op("Gather", x, index.astype(np.int64), axis=0) for index in np.triu_indices(x.shape[0], 1))
    return _norm(w, first - second, p, 1)


@lowers_alike("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def _softmax(w: Writer, x: BuildValue, dim: int, *_: Any, **__: Any) -> BuildValue:
    x = w.ranked(x)
    axis = dim % len(x.shape)
    return w.reshape(x.log_softmax(axis) if "log" in w.packet else x.softmax(axis), w.shape)


def _sorted(w: Writer, x: BuildValue, k: int | None, dim: int, *, descending: bool) -> tuple[BuildValue, BuildValue]:
    x = w.ranked(w.cast(x, {"bool": "u8", "bf16": "f32"}.get(x.dtype, x.dtype)))
    axis = dim % len(x.shape)
    count = x.shape[axis] if k is None else k
    values, index = w.op("TopK", x, [count], axis=axis, largest=int(descending), n_outputs=2)
    return w.cast(w.reshape(values, w.shape), w.dtype), w.reshape(index, w.shape)


lowers_alike("linalg_vector_norm")(lambda w, x, p, dim, *_, **__: _norm(w, x, p, dim))
lowers("topk")(lambda w, x, k, dim, largest, _: _sorted(w, x, k, dim, descending=largest))
lowers("sort")(lambda w, x, dim, descending: _sorted(w, x, None, dim, descending=descending))
lowers("sort.stable")(lambda w, x, dim=-1, descending=False, **_: _sorted(w, x, None, dim, descending=descending))
