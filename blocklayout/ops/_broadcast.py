"""Binding the inputs of operators that broadcast as numpy does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Refusal, Value
from blocklayout.ops._needs import are_floats

_FIRST_OPSET_OF_NUMPY_RULES = 7
"""Before it, the second operand was aligned at the attribute ``axis``, if ``broadcast`` was set."""


def bind_broadcast(operator: BaseOperator, node: NodeInfo) -> Lowered | Refusal:
    """``operator`` with its inputs as ``src_0`` and so on; constants get the result's rank, other values must have it.

    Raises:
        ModelError: The inputs do not broadcast to the output.
    """
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


def broadcasts_as_numpy(node: NodeInfo) -> bool:
    """Whether operands are aligned at their last dimensions, as in all but the oldest operator sets."""
    return node.opset >= _FIRST_OPSET_OF_NUMPY_RULES or len({node.shape(i) for i in range(len(node.inputs))}) == 1


def broadcast_dims(dims: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """Extents with ones in front, as many as ``whole`` has; ``None`` where they do not broadcast to that.

    Example:
        >>> broadcast_dims((5, 1), (2, 5, 4)), broadcast_dims((2, 1), (2, 5, 4))
        ((1, 5, 1), None)
    """
    full = (1,) * (len(whole) - len(dims)) + dims
    fits = len(full) == len(whole) and all(extent in (1, n) for extent, n in zip(full, whole, strict=True))
    return full if fits else None


def _of_lower_rank(node: NodeInfo, srcs: Sequence[Value], dst: Value) -> Refusal | None:
    for src in srcs:
        if src.data is None and len(src.shape) < len(dst.shape):
            what = f"{src.name} is computed at run time and has rank {len(src.shape)}"
            return node.refused(what, f"unsqueeze it to the output's rank {len(dst.shape)}")
    return None


def _full_shape(node: NodeInfo, src: Value, dst: Value, *, is_second: bool) -> tuple[int, ...]:
    """The input's shape with extents of 1 up to the result's rank."""
    n_missing = len(dst.shape) - len(src.shape)
    if n_missing < 0:
        raise node.wrong(f"{src.name} has rank {len(src.shape)}", f"the output has rank {len(dst.shape)}")
    n_behind = 0
    if n_missing and is_second and node.opset < _FIRST_OPSET_OF_NUMPY_RULES and "axis" in node.attrs:
        n_behind = n_missing - node.int_attr("axis", 0) % max(len(dst.shape), 1)
        if n_behind < 0:
            raise node.wrong(f"attribute axis is {node.attrs['axis']}", f"at most {n_missing} fits {src.name}")
    return (1,) * (n_missing - n_behind) + src.shape + (1,) * n_behind


def _check(node: NodeInfo, shapes: list[tuple[int, ...]], dst: Value) -> None:
    try:
        extents = np.broadcast_shapes(*shapes)
    except ValueError:
        extents = ()
    if extents != dst.shape:
        given = ", ".join(str(list(shape)) for shape in shapes)
        raise node.wrong(f"inputs of extents {given}", f"they must broadcast to the output's {list(dst.shape)}")
