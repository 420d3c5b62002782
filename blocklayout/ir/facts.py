"""Facts about operators: the answers to the questions that rewriting passes ask.

They hold for every node of an operator, whether or not a primitive computes it.
"""

# ruff: noqa: ARG003 - defaults answer nothing

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from msgspec import Struct, field

from blocklayout.ir.node import NodeInfo
from blocklayout.ir.result_format import Followed, keep, pointwise
from blocklayout.ir.value import Quantization
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm

NumpyFunction = Callable[..., object]
"""Computes a node: ``function(*sources, out=result)``, as numpy's own.

Arrays of the node's inputs, ``None`` for an absent one; where it has several outputs ``out`` is a tuple, with ``None``
for an unread one.
"""

Given: TypeAlias = "np.ndarray | None"
"""An optional input of such a function."""

ArraysFunction = Callable[..., Any]
"""Computes a node apart from any plan: ``function(*inputs)`` returns the result, or a tuple of several.

Inputs are arrays in any strides, lists of arrays where the node reads a sequence, and ``None`` for an absent input or
an empty optional; results likewise.
"""


class Called(Struct, frozen=True, eq=False):
    """An operator that was called on Tensors.

    Attributes:
        node: The operator; or a function that is named after it, with that one's arguments.
        bl: Functions on Tensors, by name; ``bl.signs(y)`` is a function that returns a Tensor of the signs of ``y``.
        sources: For each input its Tensor; an array where it is constant, ``None`` where it is absent.
        results: The Tensors that were computed.
    """

    node: NodeInfo
    bl: Any
    sources: Sequence[Any]
    results: Sequence[Any]


class Transposed(Struct, frozen=True, eq=False):
    """A node rewritten to read a source from before a Transpose.

    Where the original reads ``x = u.transpose(source)``, the rewritten node reads ``u``, and the original's results are
    the rewritten node's after ``.transpose(result)``.

    Attributes:
        result: The permutation of all results.
        attrs: The rewritten node's.
        constants: New contents of constant inputs, by index.
        sources: Indices of the inputs that it reads from before a Transpose. Those of lower rank get extents of 1 in
            front before they are permuted.
        source: The permutation of these, if it is another than the one asked for.
        op_type: The rewritten node's, if it is another operator.
        order: For each element along dimension 1 of the rewritten node's result, its index in the original's; ``None``
            where they are in the same order. The reader of the result has to make up for it.
    """

    result: Perm
    attrs: Mapping[str, Any]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    sources: tuple[int, ...] = (0,)
    source: Perm | None = None
    op_type: str = ""
    order: np.ndarray | None = None


class Padding(Struct, frozen=True):
    """Elements of one value before and behind each dimension of a tensor; negative numbers cut off."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    value: float

    @property
    def is_spatial(self) -> bool:
        """Whether it adds to the dimensions behind batch and channels, and to no other."""
        return not any(self.begin[:2] + self.end[:2]) and min(self.begin + self.end, default=0) >= 0

    @property
    def pads(self) -> tuple[int, ...]:
        """As windows have them: beginnings of the spatial dimensions, then their ends."""
        return self.begin[2:] + self.end[2:]


class Window(Struct, frozen=True):
    """A window that slides over the spatial dimensions.

    Attributes:
        kernel: Extents, in elements of the source that are looked at.
        strides: Steps between two windows.
        pads_begin: Zeros before the source; ``pads_end`` are those behind it.
        dilations: Distance between two elements of a window; 1 is dense.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def pads(self) -> tuple[int, ...]:
        """Beginnings, then ends: how both ONNX and :mod:`blocklayout.dnnl` write them."""
        return self.pads_begin + self.pads_end

    @property
    def dnnl_dilations(self) -> tuple[int, ...]:
        """Elements skipped between two of a window; 0 is dense."""
        return tuple(dilation - 1 for dilation in self.dilations)

    @property
    def reach(self) -> tuple[int, ...]:
        """Extents of the window with skipped elements.

        Example:
            >>> Window((3,), (1,), (0,), (0,), (2,)).reach
            (5,)
        """
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def extents(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit into a source of these spatial extents.

        Example:
            >>> Window((3,), (2,), (1,), (1,), (1,)).extents((8,))
            (4,)
        """
        padded = (sum(ends) for ends in zip(spatial, self.pads_begin, self.pads_end, strict=True))
        return tuple((p - r) // s + 1 for p, r, s in zip(padded, self.reach, self.strides, strict=True))


class Affine(Struct, frozen=True, eq=False):
    """``source * scale + shift``, of an input's index and of float64 for each channel (dimension 1)."""

    source: int
    scale: np.ndarray
    shift: np.ndarray


def keeps_broadcast_rows(node: NodeInfo, rows: frozenset[int]) -> bool:
    """Whether dimension 0 of these inputs is that of the result, and the others are broadcast along it."""
    ndims, others = len(node.result.shape), {*range(len(node.inputs))} - rows
    are_for_all = all(len(node.shape(index)) < ndims or node.shape(index)[0] == 1 for index in others)
    return are_for_all and all(len(node.shape(index)) == ndims for index in rows)


class Facts(Struct, frozen=True):
    """An operator as passes see it. Derive from this an operator that no primitive computes.

    The defaults claim nothing: no pass rewrites a node of an operator that does not answer.
    """

    op_types: ClassVar[tuple[str, ...]] = ()

    is_elementwise: ClassVar[bool] = False
    """Each element of a result follows from the element of the first source in its place, and from scalars."""

    broadcasts_from: ClassVar[int | None] = None
    """Index of the first input that is broadcast to the result as in numpy, with all inputs behind it."""

    elements_read: ClassVar[tuple[int, ...] | None] = None
    """Indices of the inputs whose elements results follow from, if not from all: of others, extents and type do."""

    extents_read: ClassVar[tuple[int, ...]] = ()
    """Indices of the inputs whose elements say nothing but the result's extents."""

    channels_last: ClassVar[tuple[int, ...]] = ()
    """Indices of the inputs that come to the function in numpy with their channels innermost."""

    counts_elements: ClassVar[bool] = False
    """Extents of results follow from all elements of the inputs: plans are never made for contents of these."""

    is_quick_on_arrays: ClassVar[bool] = False
    """``onnx.reference`` computes it by a few calls of numpy, however large the extents."""

    is_random: ClassVar[bool] = False
    """Results are others in each run."""

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        """The function that computes the node where no primitive does; ``None`` where only ``onnx.reference`` does.

        A saved plan asks again: extents, data types and attributes decide, never the contents of inputs. Where the
        operator is elementwise or broadcasts, arrays have any strides, and blocks come as one row with their padding;
        everywhere else they are row-major, or channels last where the operator asks for that.
        """
        return None

    @classmethod
    def on_arrays(cls, node: NodeInfo) -> ArraysFunction | None:
        """The function that computes the node where a program is cut at it.

        That is where its results' extents depend on data, or where it reads or writes sequences, or runs a subgraph.
        The node has no inputs and outputs; subgraphs are functions: ``attrs["body"](*arguments)`` returns a list.
        """
        return None

    @classmethod
    def carried(cls, node: NodeInfo, inputs: Sequence[str], outputs: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Pairs of an argument of a node's subgraph, and the result that comes as it the next time.

        The node is that of :meth:`on_arrays`, without subgraphs; ``inputs`` and ``outputs`` are the subgraph's names.
        """
        return ()

    @classmethod
    def same_as(cls, node: NodeInfo) -> int | None:
        """Index of the input that the first result is equal to, in extents, type and elements."""
        return None

    @classmethod
    def rounds(cls, op_type: str) -> bool:
        """Whether it computes results that their data type rounds: others than elements of sources, and bounds."""
        del op_type
        return True

    @classmethod
    def selects(cls, node: NodeInfo) -> tuple[int, ...] | None:
        """Inputs, each element of all results being one of theirs, chosen by place or by order; an absent one is 0.

        So bytes in the place of numbers give the bytes for the results. ``None`` if results are others, or if the
        operator does not take bytes.
        """
        return None

    @classmethod
    def requantizes(cls, node: NodeInfo) -> bool:
        """Whether its primitive takes bytes of several scales, of which it makes bytes of one."""
        return False

    @classmethod
    def permutation(cls, node: NodeInfo) -> Perm | None:
        """The permutation of dimensions, where the node does nothing else."""
        return None

    @classmethod
    def transposed(cls, node: NodeInfo, perm: Perm) -> Transposed | None:
        """The node on sources from before a Transpose by ``perm``; ``None`` if it needs their order as it is."""
        if cls.broadcasts_from is not None:
            is_whole = None not in node.inputs and len(perm) == len(node.result.shape)
            return Transposed(perm, node.attrs, sources=tuple(range(len(node.inputs)))) if is_whole else None
        if not cls.is_elementwise or any(prod(node.shape(index)) != 1 for index in range(1, len(node.inputs))):
            return None
        return Transposed(perm, node.attrs)

    @classmethod
    def keeps_rows(cls, node: NodeInfo, rows: frozenset[int]) -> bool:
        """Whether each row of all results, an index of dimension 0, follows from the same row of the inputs ``rows``.

        Results then have as many rows as these, and follow from all of the other inputs, for any number of rows.
        """
        if cls.is_random:
            return False
        if cls.broadcasts_from is not None:
            return keeps_broadcast_rows(node, rows)
        if not cls.is_elementwise:
            return rows == {cls.same_as(node)}
        return rows == {0} and all(prod(node.shape(index)) == 1 for index in range(1, len(node.inputs)))

    @classmethod
    def reduced_axes(cls, node: NodeInfo) -> tuple[int, ...] | None:
        """The dimensions that a reduction reduces, ascending; ``None`` where they are known at run time only."""
        return None

    @classmethod
    def contracted(cls, node: NodeInfo) -> tuple[int, int] | None:
        """The input, and its dimension, that a product sums over together with dimension 1 of the first source."""
        return None

    @classmethod
    def not_negative_if(cls, node: NodeInfo) -> tuple[int, ...] | None:
        """Inputs without negative elements from which follows that the result has none; ``None`` if it does not."""
        return None

    @classmethod
    def padding(cls, node: NodeInfo) -> Padding | None:
        """The elements around its source, where the node does nothing but to add them."""
        return None

    @classmethod
    def padded(cls, node: NodeInfo, padding: Padding, *, is_lowest: bool) -> Mapping[str, Any] | None:
        """The attributes with which the node pads its source by itself, spatially; ``None`` if it cannot.

        ``is_lowest`` says that no element of the source is below the padding's value.
        """
        return None

    @classmethod
    def quantization(cls, node: NodeInfo) -> Quantization | None:
        """How bytes, its first input, stand for the first result, where known scales and zero points say so."""
        return None

    @classmethod
    def affine(cls, node: NodeInfo) -> Affine | None:
        """The scale and shift of channels by constants, where the node does nothing else."""
        return None

    @classmethod
    def aligned_scale(cls, node: NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        """A scale of the result's channels, or of all, in a shape that multiplies the weights, input 1.

        With it, and with input 2 as the bias that is shifted, the node also computes a scale and a shift behind it.
        ``None`` if scaled weights do not scale the result.
        """
        return None

    @classmethod
    def result_format(cls, operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
        """The format of an eager call's result of these extents and data type."""
        rule = keep if cls.broadcasts_from is None else pointwise
        return rule(operands, dims, dtype)

    @classmethod
    def inferred(cls, node: NodeInfo) -> Sequence[tuple[tuple[int, ...], str]] | None:
        """Extents and data types of all results, of an operator that is none of ONNX's: the node has no outputs yet."""
        return None

    @classmethod
    def backward(cls, call: Called) -> Any:
        """How the gradients of the sources follow from those of the results, by operators on Tensors.

        A function for each source; ``None``, or no function, where its gradient is zero. Each gets the gradients of all
        results, ``None`` where there is none, and returns a Tensor of the source's elements, or of those that it was
        broadcast to, in any layout and data type. Or one function for all sources, which gets before the gradients
        whether each source needs one, and may return fewer or more. Or, in words, why there are none.

        Functions are kept until gradients are taken, with the Tensors that they refer to.
        """
        return f"{'it' if '.' in call.node.op_type else call.node.op_type} has no gradient here"

    @classmethod
    def has_gradient(cls, op_type: str) -> bool:
        """Whether :meth:`gradient` answers."""
        del op_type
        return False

    @classmethod
    def gradient(cls, op_type: str, call: Any, grad: Any, x: Any, parameters: Mapping[str, Any]) -> Any:
        """The gradient of the source ``x``, in its format, of that of the result, as Tensors.

        ``call`` reads operands, and reports; ``parameters`` are those of the operator's function in Python.
        """
        raise NotImplementedError
