"""Operators as the planner sees them: bound to their arguments, and asked for recipes instead of names."""

# ruff: noqa: ARG002 - defaults answer nothing

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import gcd
from typing import ClassVar

import numpy as np
from msgspec import Struct, field

from blocklayout.dnnl import AnyDesc, Attr, DepthwiseConv, Desc, PostOp
from blocklayout.ir.facts import Facts
from blocklayout.ir.node import Need, NodeInfo, Refusal
from blocklayout.ir.recipe import MadeWeights, Recipe
from blocklayout.ir.value import Value
from blocklayout.layout import MemoryDesc


class Role(StrEnum):
    """How an operator relates to the layouts around it."""

    CHOOSER = "chooser"
    """Has a favourite layout and is worth a reorder: convolution, matmul, inner product."""
    FOLLOWER = "follower"
    """Takes the layout that comes: eltwise, binary, pooling, concat."""
    VIEW = "view"
    """Moves no byte: new metadata over the same buffer."""
    PLAIN = "plain"
    """Computed on row-major arrays by numpy or ``onnx.reference``: no primitive does the same."""


class Lowered(Struct, frozen=True):
    """An operator bound to its arguments.

    Attributes:
        operator: Its attributes, validated.
        sources: Values computed at run time, by argument (``src``; ``src_0``, ``src_1`` ...).
        constants: Arrays known now, by argument (``weights``, ``bias`` ...); any strides.
        others: Results beside ``dst``, the node's first output, by argument.
    """

    operator: BaseOperator
    sources: Mapping[str, Value]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    others: Mapping[str, Value] = field(default_factory=dict)


_BLOCK = 16
"""Channels of the largest block."""


class TensorInfo(Struct, frozen=True):
    """Extents and data type of one argument, before it has a layout."""

    dims: tuple[int, ...]
    dtype: str


class Problem(Struct, frozen=True):
    """One kernel's arguments by name as the planner computes them: internal data types, no layouts.

    Attributes:
        constants: Weights have the sources' data type; vectors (bias, mean, variance, scale, shift) are always f32.
    """

    sources: Mapping[str, TensorInfo]
    constants: Mapping[str, TensorInfo]
    dst: TensorInfo
    n_threads: int

    @property
    def arguments(self) -> tuple[tuple[str, TensorInfo], ...]:
        """All arguments by name, the result last."""
        return *self.sources.items(), *self.constants.items(), ("dst", self.dst)


def in_blocks(dims: tuple[int, ...]) -> tuple[int, ...]:
    """How extents divide into blocks, as negative numbers; those below a block as they are.

    Example:
        >>> in_blocks((3, 24, 960))
        (3, -8, -16)
    """
    return tuple(extent if extent < _BLOCK else -gcd(extent, _BLOCK) for extent in dims)


LAYOUT_NAMES = ("any", "plain", "channels_last", "blocked8", "blocked16")


class Wish(Struct, frozen=True):
    """Layouts wished for a kernel.

    Attributes:
        src: One of ``LAYOUT_NAMES``, a oneDNN tag of the argument's rank, or an exact descriptor; ``dst`` likewise.
        prop_kind: The propagation that ``any`` asks the library for.
        others: Exact layouts of sources beside the first, by argument; those left out are the operator's choice.
    """

    src: str | MemoryDesc
    dst: str | MemoryDesc
    prop_kind: str = "forward_inference"
    others: tuple[tuple[str, MemoryDesc], ...] = ()

    def src_desc(self, info: TensorInfo) -> Desc:
        """The descriptor wished for a source of these extents."""
        return wished_desc(self.src, info)

    def dst_desc(self, info: TensorInfo) -> Desc:
        """The descriptor wished for a destination of these extents."""
        return wished_desc(self.dst, info)


def wished_desc(layout: str | MemoryDesc, info: TensorInfo) -> Desc:
    """The descriptor that a name, a tag or another descriptor means for these extents.

    A name whose format does not exist at this rank (channels-last of a matrix) means plain. A descriptor of other
    extents (a broadcast operand, an image before pooling) lends its order of dimensions and its blocks.
    """
    if layout == "any":
        return AnyDesc(info.dims, info.dtype)
    if isinstance(layout, MemoryDesc):
        if layout.dims == info.dims and layout.dtype == info.dtype:
            return layout
        return layout.resized(info.dims, info.dtype)
    return MemoryDesc(info.dims, info.dtype, _tag_of_name(layout, len(info.dims)))


def _tag_of_name(layout: str, ndims: int) -> str:
    letters = "abcdefghijkl"[:ndims]
    if layout not in LAYOUT_NAMES:
        return layout
    if layout == "plain" or not 3 <= ndims <= 5:
        return letters
    if layout == "channels_last":
        return letters[0] + letters[2:] + "b"
    return "aB" + letters[2:] + layout.removeprefix("blocked") + "b"


BYTES = "bytes"
"""In place of the data type of activations: sources are read as the bytes that stand for them."""


class PostOpUse(Struct, frozen=True):
    """How an operator joins the primitive that computes one of its sources.

    Attributes:
        post_op: Applied to the primitive's destination; for a binary its ``src1`` is
            filled in where the destination's layout is known. ``None``: nothing but ``writes_bytes``.
        operand: The operator's argument that the post-op reads (a binary's other source).
        is_sum: The post-op adds ``operand`` and may do so in place, onto the destination.
        writes_bytes: The result is written as bytes, by the operator's ``zero_point``, and without a post-op by its
            ``scale``.
    """

    post_op: PostOp | None
    operand: str | None = None
    is_sum: bool = False
    writes_bytes: bool = False


class BaseOperator(Facts, frozen=True):
    """An operator that primitives compute, with its attributes: derive from this in ``ops/``.

    By default it is no post-op, no view, and has no primitive.

    Attributes:
        needs: Requirements of its primitives, checked in turn before a node is read.
        any_output: Whether the node's first output may be unread; its result is the first that is read.
        writes_weights: Whether its result are weights, on whose layout policies have no say.
    """

    role: ClassVar[Role] = Role.FOLLOWER
    needs: ClassVar[tuple[Need, ...]] = ()
    any_output: ClassVar[bool] = False
    writes_weights: ClassVar[bool] = False

    byte_operands: ClassVar[tuple[str, ...]] = ()
    """The arguments that its primitive takes as bytes with scales: the node's first inputs; empty if it takes none."""
    mixes_bytes: ClassVar[bool] = False
    """Whether that primitive takes constants in real numbers beside bytes."""

    @classmethod
    def accept(cls, node: NodeInfo) -> Lowered | Refusal:
        """The operator with its attributes and arguments, or why no primitive computes a valid node."""
        refusals = (need(node) for need in cls.needs)
        return next(filter(None, refusals), None) or cls.from_onnx(node)

    @classmethod
    def rounds(cls, op_type: str) -> bool:
        del op_type
        return cls.role is not Role.VIEW

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        """Validate a node that meets all ``needs``, and bind its arguments; may still refuse for something it reads."""
        raise NotImplementedError

    def lower(self, problem: Problem, wish: Wish, attr: Attr) -> Recipe | None:
        """The primitives that would compute ``problem`` as wished; ``None`` if there are none."""
        return None

    def alternatives(self, problem: Problem, wish: Wish, attr: Attr) -> Sequence[Recipe]:
        """Other primitives that would compute ``problem`` as wished; costs decide."""
        return ()

    def as_post_op(self, arg: str, problem: Problem) -> PostOpUse | None:
        """This operator as a post-op of the primitive that computes its source ``arg``."""
        return None

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        """A view's descriptor over the bytes of ``desc``; ``None`` where bytes would have to move."""
        return None

    def back(self, desc: MemoryDesc) -> MemoryDesc | None:
        """The source's descriptor over the bytes of a view's result ``desc``; ``None`` if there is none."""
        return None

    def as_depthwise(self, problem: Problem) -> DepthwiseConv | None:
        """This operator as a depthwise post-op of a convolution that computes its source."""
        return None

    def merged(
        self, problem: Problem, reader: BaseOperator, reading: Problem
    ) -> tuple[BaseOperator, Mapping[str, MadeWeights]] | None:
        """The operator that computes of this one's source the result of ``reader``, whose ``src`` is this one's result.

        Its other arguments are the reader's; with it, how its constants are made of the reader's that are not the same.
        ``None`` where there is no such operator.
        """
        return None

    def scale_mask(self, info: TensorInfo) -> int:
        """Bit i: of weights of these extents, with a scale for each output channel, there is one along dimension i."""
        raise NotImplementedError

    def post_ops_of_bytes(self, sources: Mapping[str, tuple[float, int]]) -> tuple[PostOp, ...] | None:
        """Post-ops before all others in place of zero points of sources, or of these and scales.

        Args:
            sources: Scale and zero point of each that is bytes, by argument.

        Returns:
            ``None`` where the primitive takes both itself, and those of a result of bytes, which are the last post-op
            otherwise. ``lower`` has them as attributes in any case, and leaves out those that post-ops stand for.

        Raises:
            UnsupportedError: No post-ops make up for them.
        """
        return None

    @classmethod
    def channel_axis(cls, node: NodeInfo) -> int | None:
        """The dimension of input 1, as the node has it, along which output channels lie."""
        del node
        return None

    @classmethod
    def sums_channels_apart(cls, node: NodeInfo) -> bool:
        """Whether each output channel is a sum over the channel of the same index of input 0, along its dimension 1.

        A scale for each channel of the source is then one of the weights as well.
        """
        del node
        return False

    def meant(self, wish: Wish) -> Wish:
        """The plainest wish that is answered alike: of wishes that mean the same one is asked."""
        return wish

    def likeness(self, problem: Problem) -> object:
        """All that decides between which layouts the library has more than references; equal for many problems."""
        return self, *((arg, info.dtype, in_blocks(info.dims)) for arg, info in problem.arguments)

    def slices(self, problem: Problem, dst: MemoryDesc) -> dict[str, tuple[MemoryDesc, int]] | None:
        """Places of the sources in a result of this layout, if that is nothing but them side by side.

        Each source as a dense descriptor, and the bytes before it; ``None`` where a slice is not dense.
        """
        return None

    def bind(
        self,
        arguments: Mapping[str, Value | None],
        arrays: Mapping[str, np.ndarray] | None = None,
        others: Mapping[str, Value] | None = None,
    ) -> Lowered:
        """This operator with its arguments by oneDNN's names; ``arrays`` are constants that are no input as it is.

        ``others`` are further results.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        sources = {name: value for name, value in given.items() if not value.is_constant}
        constants = {name: value.data for name, value in given.items() if value.data is not None}
        return Lowered(self, sources, constants | dict(arrays or {}), others or {})
