"""Answers of several operators: the needs of their primitives, and how they name rows and dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from blocklayout import ir
from blocklayout.dtypes import PRIMITIVE_FLOATS
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


def are_floats(node: ir.NodeInfo) -> ir.Refusal | None:
    """All inputs are of floats."""
    refusals = (node.of_other_dtype(value) for value in node.inputs if value is not None)
    return next(filter(None, refusals), None)


def are_moved(node: ir.NodeInfo) -> ir.Refusal | None:
    """All inputs are of a type that primitives move."""
    refusals = (node.of_other_dtype(value, MOVED) for value in node.inputs if value is not None)
    return next(filter(None, refusals), None)


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


FIRST_OPSET_OF_NUMPY_RULES = 7
"""Before it, the second operand was aligned at the attribute ``axis``, if ``broadcast`` was set."""


def bind_broadcast(operator: ir.BaseOperator, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
    """``operator`` with its inputs as ``src_0`` and so on; constants get the result's rank, others must have it."""
    srcs = [node.required(index, f"input {index}") for index in range(len(node.inputs))]
    dst = node.result
    refusal = are_floats(node) or node.of_other_rank(dst, 1, 12) or _of_lower_rank(node, srcs, dst)
    if refusal:
        return refusal
    shapes = [_full_shape(node, src, dst, is_second=index == 1) for index, src in enumerate(srcs)]
    _check(node, shapes, dst)
    arguments = {f"src_{index}": src for index, src in enumerate(srcs)}
    arrays = {
        name: src.data.reshape(shape)
        for (name, src), shape in zip(arguments.items(), shapes, strict=True)
        if src.data is not None
    }
    return operator.bind(arguments, arrays)


def broadcasts_as_numpy(node: ir.NodeInfo) -> bool:
    """Whether operands are aligned at their last dimensions, as in all but the oldest operator sets."""
    return node.opset >= FIRST_OPSET_OF_NUMPY_RULES or len({node.shape(i) for i in range(len(node.inputs))}) == 1


def broadcast_dims(dims: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """Extents with ones in front, as many as ``whole`` has; ``None`` where they do not broadcast to that.

    Example:
        >>> broadcast_dims((5, 1), (2, 5, 4)), broadcast_dims((2, 1), (2, 5, 4))
        ((1, 5, 1), None)
    """
    full = (1,) * (len(whole) - len(dims)) + dims
    fits = len(full) == len(whole) and all(extent in (1, n) for extent, n in zip(full, whole, strict=True))
    return full if fits else None


def _of_lower_rank(node: ir.NodeInfo, srcs: Sequence[ir.Value], dst: ir.Value) -> ir.Refusal | None:
    for src in srcs:
        if src.data is None and len(src.shape) < len(dst.shape):
            what = f"{src.name} is computed at run time and has rank {len(src.shape)}"
            return node.refused(what, f"unsqueeze it to the output's rank {len(dst.shape)}")
    return None


def _full_shape(node: ir.NodeInfo, src: ir.Value, dst: ir.Value, *, is_second: bool) -> tuple[int, ...]:
    n_missing = len(dst.shape) - len(src.shape)
    if n_missing < 0:
        raise node.wrong(f"{src.name} has rank {len(src.shape)}", f"the output has rank {len(dst.shape)}")
    n_behind = 0
    if n_missing and is_second and node.opset < FIRST_OPSET_OF_NUMPY_RULES and "axis" in node.attrs:
        n_behind = n_missing - node.int_attr("axis", 0) % max(len(dst.shape), 1)
        if n_behind < 0:
            raise node.wrong(f"attribute axis is {node.attrs['axis']}", f"at most {n_missing} fits {src.name}")
    return (1,) * (n_missing - n_behind) + src.shape + (1,) * n_behind


def _check(node: ir.NodeInfo, shapes: list[tuple[int, ...]], dst: ir.Value) -> None:
    try:
        extents = np.broadcast_shapes(*shapes)
    except ValueError:
        extents = ()
    if extents != dst.shape:
        given = ", ".join(str(list(shape)) for shape in shapes)
        raise node.wrong(f"inputs of extents {given}", f"they must broadcast to the output's {list(dst.shape)}")


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
