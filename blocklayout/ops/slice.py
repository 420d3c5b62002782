"""Slice: a box inside a tensor, over the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from blocklayout.errors import LayoutError
from blocklayout.kernels import BaseOperator, Lowered, NodeInfo, Role
from blocklayout.layout import MemoryDesc
from blocklayout.ops._reading import bound, constant, optional, required, result, unsupported, wrong

_FIRST_OPSET_OF_INPUTS = 10
_INPUTS = {"starts": 1, "ends": 2, "axes": 3, "steps": 4}


@dataclass(frozen=True)
class Slice(BaseOperator):
    """Neighbouring elements along some dimensions, all along the others.

    Attributes:
        shape: The result's extents.
        offsets: Where it begins, along every dimension.
    """

    op_types: ClassVar[tuple[str, ...]] = ("Slice",)
    role: ClassVar[Role] = Role.VIEW

    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src, dst = required(node, 0, "data"), result(node)
        starts, ends = _bounds(node, "starts"), _bounds(node, "ends")
        if starts is None or ends is None:
            raise wrong(node, "starts or ends are missing", "both are required")
        axes = _bounds(node, "axes") or tuple(range(len(starts)))
        steps = _bounds(node, "steps") or ()
        if any(step != 1 for step in steps):
            raise unsupported(node, f"steps are {list(steps)}", "only neighbouring elements are a view: steps of 1")
        shape, offsets = _box(node, src.shape, axes, starts, ends)
        if dst.shape != shape:
            raise wrong(node, f"output {dst.name} has extents {list(dst.shape)}", f"the bounds give {list(shape)}")
        return bound(cls(shape, offsets), {"src": src})

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        try:
            return desc.submemory(self.shape, self.offsets)
        except LayoutError:
            return None


def _bounds(node: NodeInfo, name: str) -> tuple[int, ...] | None:
    """One of Slice's lists: attributes before opset 10, constant inputs since."""
    if node.opset < _FIRST_OPSET_OF_INPUTS:
        given = node.attrs.get(name)
        return None if given is None else tuple(int(number) for number in given)
    value = optional(node, _INPUTS[name])
    return None if value is None else tuple(int(number) for number in constant(node, value, name).reshape(-1))


def _box(
    node: NodeInfo, dims: tuple[int, ...], axes: tuple[int, ...], starts: tuple[int, ...], ends: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and beginnings along every dimension; bounds count from the end where negative, and are clamped."""
    if not len(axes) == len(starts) == len(ends):
        raise wrong(node, f"{len(starts)} starts, {len(ends)} ends and {len(axes)} axes", "each needs as many")
    if any(not -len(dims) <= axis < len(dims) for axis in axes):
        raise wrong(node, f"axes are {list(axes)}", f"rank {len(dims)} allows {-len(dims)} to {len(dims) - 1}")
    shape, offsets = list(dims), [0] * len(dims)
    for axis, first, last in zip(axes, starts, ends, strict=True):
        begin, end, _ = slice(first, last).indices(dims[axis])
        shape[axis], offsets[axis] = max(end - begin, 0), begin
    return tuple(shape), tuple(offsets)
