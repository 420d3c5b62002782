"""Steps that numpy computes on this side of the library; they can be printed and priced like a Spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl import Attr, Spec, favourite, reorder, resolve
from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dtypes import has_reorder
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.ir.operator import BaseOperator, Problem, Role, TensorInfo, Wish
from blocklayout.ir.recipe import Recipe, RecipeStep
from blocklayout.ir.value import Value
from blocklayout.layout import MemoryDesc

Compute = Callable[[Mapping[str, Any]], None]
"""Runs a node, by argument: a registered operator's on Tensors, others on arrays."""

HostKind = Literal["plain", "numpy", "registered", "copy", "zero_padding"]
_IMPLEMENTATIONS = {"plain": "onnx.reference", "registered": "python"}


class HostSpec(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="by", tag="host"):
    """A step that no primitive computes.

    Attributes:
        kind: ``plain``, a node of the model computed by ``onnx.reference`` on row-major arrays; ``numpy``, one computed
            by its operator's own function; ``registered``, one computed by a class of the caller's; ``copy``, a change
            of layout that the library does not offer; ``zero_padding``, zeros to the padded lanes.
        descs: By argument, as a Spec's; a node's are ``src_0`` ... and ``dst``, ``dst_1`` ...
        label: The node's op type.
        node: A plain step's node: an ONNX model of one node, serialised and in base64. As JSON, a registered one's
            attributes, and all that numpy's function is chosen by.
    """

    kind: HostKind
    descs: tuple[tuple[str, MemoryDesc], ...]
    label: str = ""
    node: str = ""
    attr: ClassVar[Attr] = NO_ATTR  # there is nothing to fuse

    @property
    def impl(self) -> str:
        """Name of the implementation."""
        return _IMPLEMENTATIONS.get(self.kind, "numpy")

    @property
    def nbytes_moved(self) -> int:
        """Bytes read and written."""
        if self.kind == "zero_padding":
            [(_, desc)] = self.descs
            return desc.n_padding * desc.itemsize
        return sum(prod(desc.dims) * desc.itemsize for _, desc in self.descs)

    def memory_desc(self, name: str) -> MemoryDesc:
        """The descriptor of an argument; an InvalidArgumentsError where there is none."""
        for arg, desc in self.descs:
            if arg == name:
                return desc
        raise InvalidArgumentsError(f"{self.kind} has no argument {name!r}; it has {[arg for arg, _ in self.descs]}")


def zero_padding_step(desc: MemoryDesc) -> RecipeStep:
    """Zeros to the result's padded lanes, overwritten by a function that does not keep zero."""
    return RecipeStep(HostSpec("zero_padding", (("dst", desc),)), (("dst", "dst"),))


def copy_spec(src: MemoryDesc, dst: MemoryDesc) -> HostSpec:
    """A change of layout, and of data type, that no reorder does."""
    return HostSpec("copy", (("dst", dst), ("src", src)))


def arguments(inputs: Sequence[Value | None]) -> dict[str, Value]:
    """The arguments of a node that no primitive computes, ``src_0`` ...: each value once, however often it is read."""
    distinct = {value.name: value for value in inputs if value is not None}
    return {f"src_{index}": value for index, value in enumerate(distinct.values())}


def results(outputs: Sequence[Value | None]) -> dict[str, Value]:
    """Those of its outputs that are read: ``dst``, ``dst_1`` ..."""
    read = [value for value in outputs if value is not None]
    return {f"dst_{index}" if index else "dst": value for index, value in enumerate(read)}


def row_major_descs(
    inputs: Sequence[Value | None], outputs: Sequence[Value | None]
) -> tuple[tuple[str, MemoryDesc], ...]:
    """All of them as arrays in the data types the model declares; a scalar is one element of rank 1."""
    named = arguments(inputs) | results(outputs)
    return tuple((arg, MemoryDesc(value.dims, value.dtype)) for arg, value in named.items())


def mover(src: MemoryDesc, dst: MemoryDesc, n_threads: int, attr: Attr = NO_ATTR) -> tuple[Spec | HostSpec, int]:
    """The step that brings a tensor from one layout to another, and its scratchpad size: by numpy where need be."""
    with suppress(*(() if attr != NO_ATTR else (UnimplementedError,))):  # numpy's copy takes no attributes
        if has_reorder(src.dtype):
            asked = reorder(src, dst, attr=attr, n_threads=n_threads)
            is_open = attr.scales or {src.dtype, dst.dtype} != {"f32"}  # of f32 alone there are none of ours
            resolved = favourite(asked) if is_open else resolve(asked)
            return resolved.spec, resolved.scratchpad_nbytes
    return copy_spec(src, dst), 0


class Plain(BaseOperator, frozen=True):
    """The operator of last resort: a whole node, on row-major arrays in the data types the model declares."""

    role: ClassVar[Role] = Role.PLAIN

    spec: HostSpec

    def lower(self, problem: Problem, wish: Wish, attr: Attr) -> Recipe | None:
        del problem, wish
        if attr.post_ops:
            return None
        return Recipe((RecipeStep(self.spec, tuple((arg, arg) for arg, _ in self.spec.descs)),))


class Elementwise(Plain, frozen=True):
    """A node whose function in numpy looks at one element of each operand at a time, and so takes them as they lie.

    Strides in any order are numpy's own work. In blocks, the elements are one row with their padding, which is zeroed
    behind; operands of other extents are single numbers there.
    """

    role: ClassVar[Role] = Role.FOLLOWER

    def lower(self, problem: Problem, wish: Wish, attr: Attr) -> Recipe | None:
        del problem  # the model's data types, not the plan's
        declared = dict(self.spec.descs)
        dst = wish.dst_desc(TensorInfo(declared["dst"].dims, declared["dst"].dtype))
        if attr.post_ops or not isinstance(dst, MemoryDesc) or not dst.is_dense:
            return None
        if dst.inner_blks and any(desc.dims != dst.dims and desc.n_elements != 1 for desc in declared.values()):
            return None
        descs = {arg: _beside(dst, desc) for arg, desc in declared.items()}
        steps = [RecipeStep(replace(self.spec, descs=tuple(descs.items())), tuple((arg, arg) for arg in descs))]
        if dst.n_padding:
            steps.append(zero_padding_step(dst))
        return Recipe(tuple(steps))


def _beside(dst: MemoryDesc, declared: MemoryDesc) -> MemoryDesc:
    """An operand in the order of the result; one of another rank, or a number beside blocks, is row-major."""
    is_number = bool(dst.inner_blks) and declared.dims != dst.dims
    return declared if is_number or declared.ndims != dst.ndims else dst.resized(declared.dims, declared.dtype)
