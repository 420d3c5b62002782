"""Answers of several operators: the needs of their primitives, and how they name rows and dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.dtypes import PRIMITIVE_FLOATS, from_numpy
from blocklayout.errors import DnnlError, LayoutError, UnsupportedError
from blocklayout.layout.permutation import Perm, without

_FLOAT = 1
"""ONNX's number of f32."""


def always(answer: Any) -> Callable[..., Any]:
    """A function that answers every node alike."""
    return lambda *_: answer


MOVED = (*PRIMITIVE_FLOATS, "s8", "u8")
"""Data types whose elements primitives move and compare."""


def is_source(lowest: int, highest: int, dtypes: Sequence[str] = PRIMITIVE_FLOATS) -> ir.Need:
    """The first input is of floats, or of other types, and its rank within bounds."""

    def need(node: ir.NodeInfo) -> ir.Refusal | None:
        src = node.input(0)
        return None if src is None else node.of_other_dtype(src, dtypes) or node.of_other_rank(src, lowest, highest)

    return need


def are_of(*dtypes: str) -> ir.Need:
    """All inputs are of one of these types."""

    def need(node: ir.NodeInfo) -> ir.Refusal | None:
        refusals = (node.of_other_dtype(value, dtypes) for value in node.inputs if value is not None)
        return next(filter(None, refusals), None)

    return need


are_floats, are_moved = are_of(*PRIMITIVE_FLOATS), are_of(*MOVED)


def is_known(index: int, name: str) -> ir.Need:
    """An input, where it is there, is a constant."""

    def need(node: ir.NodeInfo) -> ir.Refusal | None:
        value = node.input(index)
        if value is None or value.data is not None:
            return None
        return node.refused(f"{name} ({value.name}) is computed at run time", "it must be a constant")

    return need


def has_one_output(meaning: str) -> ir.Need:
    """Nothing but the first output is read; ``meaning`` names the content of the others."""

    def need(node: ir.NodeInfo) -> ir.Refusal | None:
        extra = [value.name for value in node.outputs[1:] if value is not None]
        if not extra:
            return None
        return node.refused(f"output {', '.join(extra)} ({meaning}) is read", "only the first output is computed")

    return need


def has_f32_statistics(node: ir.NodeInfo) -> ir.Refusal | None:
    """A normalisation's mean and variance are computed in f32."""
    if node.int_attr("stash_type", _FLOAT) == _FLOAT:
        return None
    return node.refused(f"stash_type is {node.attrs['stash_type']}", f"statistics are f32: {_FLOAT}")


def bind_broadcast(operator: ir.BaseOperator, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
    """``operator`` with its inputs as ``src_0`` and so on; constants get the result's rank, others must have it."""
    srcs = {f"src_{index}": node.required(index, f"input {index}") for index in range(len(node.inputs))}
    ndims = len(node.result.shape)
    refusal = are_floats(node) or node.of_other_rank(node.result, 1, 12)
    for src in srcs.values():
        if src.data is None and len(src.shape) < ndims:
            what = f"{src.name} is computed at run time and has rank {len(src.shape)}"
            refusal = refusal or node.refused(what, f"unsqueeze it to the output's rank {ndims}")
    return refusal or operator.bind(srcs, of_rank(srcs, ndims))


def of_rank(operands: Mapping[str, ir.Value], ndims: int) -> dict[str, np.ndarray]:
    """Those that are constants, with extents of 1 in front, up to a rank."""
    known = {name: value.data for name, value in operands.items() if value.data is not None}
    return {name: array.reshape((1,) * (ndims - array.ndim) + array.shape) for name, array in known.items()}


def broadcast_dims(dims: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """Extents with ones in front, as many as ``whole`` has; ``None`` where they do not broadcast to that.

    Example:
        >>> broadcast_dims((5, 1), (2, 5, 4)), broadcast_dims((2, 1), (2, 5, 4))
        ((1, 5, 1), None)
    """
    full = (1,) * (len(whole) - len(dims)) + dims
    fits = len(full) == len(whole) and all(extent in (1, n) for extent, n in zip(full, whole, strict=True))
    return full if fits else None


def of_source(node: ir.NodeInfo, rows: frozenset[int]) -> bool:
    """An operator whose only result follows, row by row, from the first source, and from all of the other inputs."""
    return rows == {0} and not any(node.outputs[1:])


def repeated(node: ir.NodeInfo, rows: frozenset[int]) -> bool:
    """An operator that repeats elements along dimensions."""
    before, after = node.shape(0), node.result.shape
    return rows == {0} and len(before) == len(after) and before[:1] == after[:1]


def beside_axis(node: ir.NodeInfo, rows: frozenset[int], default: int = -1) -> bool:
    """An operator that works along the dimension of its attribute ``axis``, or along all from that on."""
    return rows == {0} and int(node.attrs.get("axis", default)) % len(node.shape(0)) != 0


def along_axis(node: ir.NodeInfo, perm: Perm, default: int = 0, *, keeps_axis: bool = True) -> ir.Transposed:
    """An operator with the attribute ``axis``, of whose dimension nothing is left unless it keeps it."""
    axis = int(node.attrs.get("axis", default)) % len(perm)
    result = perm if keeps_axis else without(perm, {axis})
    return ir.Transposed(result, {**node.attrs, "axis": perm[axis]})


def per_channel(node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
    """An operator that treats all dimensions behind the channels alike."""
    if perm[:2] != (0, 1) or any(node.outputs[1:]):
        return None
    return ir.Transposed(perm, node.attrs)


def trailing(node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
    """An operator that treats all dimensions before the attribute ``axis``, by default the last, alike."""
    ndims = len(perm)
    axis = int(node.attrs.get("axis", -1)) % ndims
    has_wide_vector = any(len(node.shape(index)) > ndims - axis for index in range(1, len(node.inputs)))
    if perm[axis:] != tuple(range(axis, ndims)) or has_wide_vector:
        return None
    return ir.Transposed(perm, {**node.attrs, "axis": axis})


def with_axes(
    node: ir.NodeInfo, index: int, axes: tuple[int, ...], result: Perm, *, attribute: str = "axes"
) -> ir.Transposed:
    """A node that names other dimensions: in the attribute ``axes`` if it has ``attribute``, else in an input."""
    if attribute in node.attrs:
        return ir.Transposed(result, {**node.attrs, "axes": axes})
    return ir.Transposed(result, node.attrs, {index: np.array(axes, np.int64)})


def in_order(numbers: np.ndarray, order: Perm) -> np.ndarray:
    """One number, or several in turn, for each dimension, with the dimensions in another order."""
    if not numbers.size:
        return numbers
    return np.ascontiguousarray(numbers.reshape(-1, len(order))[:, list(order)].reshape(-1))


def optimised_impl(lowered: ir.Lowered, dst: ir.TensorInfo) -> str:
    """The implementation preferred for an operator's last primitive; empty where there are references alone."""
    sources = {arg: ir.TensorInfo(value.dims, value.dtype) for arg, value in lowered.sources.items()}
    arrays = lowered.constants.items()
    constants = {arg: ir.TensorInfo(array.shape, from_numpy(array.dtype)) for arg, array in arrays}
    problem = ir.Problem(sources, constants, dst, dnnl.default_threads())
    with suppress(DnnlError, LayoutError, UnsupportedError):
        recipe = lowered.operator.lower(problem, ir.Wish("any", "any"), dnnl.Attr())
        spec = recipe.steps[-1].spec if recipe else None
        found = dnnl.optimised(spec)[0] if isinstance(spec, dnnl.Spec) else None
        return "" if found is None or found.is_reference else found.spec.impl
    return ""
