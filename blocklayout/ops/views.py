"""Views: operators that give other extents or another order to the same bytes."""

from __future__ import annotations

import math
from typing import ClassVar

from blocklayout.errors import LayoutError
from blocklayout.kernels import BaseOperator, Lowered, NodeInfo, Refusal, Role, Value
from blocklayout.layout import MemoryDesc
from blocklayout.ops._reading import bound, has_one_output, ints_attr, optional, refused, required, result, wrong


class Reshape(BaseOperator, frozen=True):
    """The same elements in the same logical order, with other extents.

    Attributes:
        shape: The result's extents.
        source: The source's; empty where nobody asks for the way back.
    """

    op_types: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
    role: ClassVar[Role] = Role.VIEW

    shape: tuple[int, ...]
    source: tuple[int, ...] = ()

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src, dst = required(node, 0, "data"), result(node)
        if math.prod(src.shape) != math.prod(dst.shape):
            rule = f"output {dst.name} has {list(dst.shape)}, another number of elements"
            raise wrong(node, f"{src.name} has extents {list(src.shape)}", rule)
        return reshaping(src, dst)

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return _reshaped(desc, self.shape)

    def back(self, desc: MemoryDesc) -> MemoryDesc | None:
        return _reshaped(desc, self.source) if self.source else None


def reshaping(src: Value, dst: Value) -> Lowered:
    """``dst`` as a view of ``src``; a scalar is one element of rank 1."""
    return bound(Reshape(dst.dims, src.dims), {"src": src})


def _reshaped(desc: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc | None:
    try:
        return desc.reshaped(dims)
    except LayoutError:
        return None


class Transpose(BaseOperator, frozen=True):
    """The dimensions in another logical order.

    Attributes:
        perm: For each dimension of the result, the source's that it is.
    """

    op_types: ClassVar[tuple[str, ...]] = ("Transpose",)
    role: ClassVar[Role] = Role.VIEW

    perm: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src = required(node, 0, "data")
        ndims = len(src.shape)
        perm = tuple(range(ndims))[::-1]
        if node.attrs.get("perm"):
            perm = ints_attr(node, "perm", ndims, 0, at_least=0)
        if sorted(perm) != list(range(ndims)):
            raise wrong(node, f"attribute perm is {list(perm)}", f"it must order the dimensions 0 to {ndims - 1}")
        if result(node).shape != tuple(src.shape[axis] for axis in perm):
            rule = f"perm {list(perm)} of {list(src.shape)} gives other extents"
            raise wrong(node, f"output {result(node).name} has extents {list(result(node).shape)}", rule)
        return bound(cls(perm), {"src": src})

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc.permuted(self.perm)

    def back(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc.permuted(self.perm.index(axis) for axis in range(len(self.perm)))


_FIRST_OPSET_OF_TRAINING_INPUT = 12


def _is_inference(node: NodeInfo) -> Refusal | None:
    training = optional(node, 2) if node.opset >= _FIRST_OPSET_OF_TRAINING_INPUT else None
    if training is None or (training.data is not None and not training.data.any()):
        return None
    return refused(node, "training_mode is true or computed at run time", "only inference is computed: false")


class Identity(BaseOperator, frozen=True):
    """The same tensor; Dropout is one once training is over."""

    op_types: ClassVar[tuple[str, ...]] = ("Identity", "Dropout")
    role: ClassVar[Role] = Role.VIEW
    needs = (has_one_output("the mask"), _is_inference)

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src = required(node, 0, "input")
        if result(node).shape != src.shape:
            rule = f"{src.name} has {list(src.shape)}"
            raise wrong(node, f"output {result(node).name} has extents {list(result(node).shape)}", rule)
        return bound(cls(), {"src": src})

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc

    def back(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc
