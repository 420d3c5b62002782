"""Steps that numpy computes on this side of the library; they can be printed and priced like a Spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from msgspec import Struct

from blocklayout.dnnl import Attr, reorder, resolve
from blocklayout.dtypes import has_reorder
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.ir.operator import BaseOperator, Problem, Role, Wish
from blocklayout.ir.recipe import Recipe, RecipeStep
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.dnnl import Spec

Compute = Callable[[Sequence["np.ndarray"]], "list[np.ndarray]"]
"""Runs a plain step: arrays of its sources to arrays of its results."""

ComputeInPlace = Callable[[Mapping[str, Any]], None]
"""Runs a registered step on Tensors, by argument."""

HostKind = Literal["plain", "registered", "copy", "zero_padding"]
_IMPLEMENTATIONS = {"plain": "onnx.reference", "registered": "python", "copy": "numpy", "zero_padding": "numpy"}


class HostSpec(Struct, frozen=True):
    """A step that no primitive computes.

    Attributes:
        kind: ``plain``, a node of the model computed by ``onnx.reference`` on row-major arrays; ``registered``, one
            computed by a class of the caller's; ``copy``, a change of layout that the library does not
            offer; ``zero_padding``, zeros to the padded lanes.
        descs: By argument, as a Spec's; a node's are ``src_0`` ... and ``dst``, ``dst_1`` ...
        label: The node's op type.
        node: A plain step's node: an ONNX model of one node, serialised and in base64. A registered one's attributes,
            as JSON.
    """

    kind: HostKind
    descs: tuple[tuple[str, MemoryDesc], ...]
    label: str = ""
    node: str = ""

    @property
    def impl(self) -> str:
        """Name of the implementation."""
        return _IMPLEMENTATIONS[self.kind]

    @property
    def attr(self) -> Attr:
        """No attributes: there is nothing to fuse."""
        return Attr()

    @property
    def nbytes_moved(self) -> int:
        """Bytes read and written."""
        if self.kind == "zero_padding":
            [(_, desc)] = self.descs
            return desc.n_padding * desc.itemsize
        return sum(prod(desc.dims) * desc.itemsize for _, desc in self.descs)

    def memory_desc(self, name: str) -> MemoryDesc:
        """The descriptor of an argument.

        Raises:
            InvalidArgumentsError: It has no such argument.
        """
        for arg, desc in self.descs:
            if arg == name:
                return desc
        raise InvalidArgumentsError(f"{self.kind} has no argument {name!r}; it has {[arg for arg, _ in self.descs]}")

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold, the same for equal ones."""
        descs = {arg: desc.canonical.to_dict() for arg, desc in self.descs}
        return {"host": self.kind, "descs": descs, "label": self.label, "node": self.node}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HostSpec:
        """The HostSpec that :meth:`to_dict` wrote.

        Raises:
            InvalidArgumentsError: A field is missing, unknown, or of another type.
        """
        texts = (data.get("host"), data.get("label"), data.get("node"))
        descs = data.get("descs")
        is_whole = set(data) == {"host", "descs", "label", "node"} and isinstance(descs, Mapping)
        if not is_whole or not all(isinstance(text, str) for text in texts) or texts[0] not in get_args(HostKind):
            raise InvalidArgumentsError(
                f"a host step has host (one of {', '.join(get_args(HostKind))}), descs, label and node, not {data!r}"
            )
        found = tuple((str(arg), MemoryDesc.from_dict(desc)) for arg, desc in dict(data["descs"]).items())
        return cls(data["host"], found, data["label"], data["node"])


def zero_padding_step(desc: MemoryDesc, operand: str = "dst") -> RecipeStep:
    """Zeros to the padded lanes of an operand that a primitive has written in all its lanes.

    For functions that do not keep zero: they run over the padded extents, and the padding is restored after.
    """
    return RecipeStep(HostSpec("zero_padding", (("dst", desc),)), (("dst", operand),))


def copy_spec(src: MemoryDesc, dst: MemoryDesc) -> HostSpec:
    """A change of layout, and of data type, that no reorder does."""
    return HostSpec("copy", (("dst", dst), ("src", src)))


def mover(src: MemoryDesc, dst: MemoryDesc, n_threads: int) -> tuple[Spec | HostSpec, int]:
    """The step that brings a tensor from one layout to another, and its scratchpad size: by numpy where need be."""
    with suppress(UnimplementedError):
        if has_reorder(src.dtype):
            resolved = resolve(reorder(src, dst, n_threads=n_threads))
            return resolved.spec, resolved.scratchpad_nbytes
    return copy_spec(src, dst), 0


class Plain(BaseOperator, frozen=True):
    """The operator of last resort: a node as a whole, on row-major arrays in the data types the model declares.

    Attributes:
        spec: The node with the descriptors of its arguments.
    """

    role: ClassVar[Role] = Role.PLAIN

    spec: HostSpec

    def lower(self, problem: Problem, wish: Wish, attr: Attr) -> Recipe | None:
        del problem, wish
        if attr.post_ops:
            return None
        return Recipe((RecipeStep(self.spec, tuple((arg, arg) for arg, _ in self.spec.descs)),))
