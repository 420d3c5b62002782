"""Spec: one primitive as pure data, without anything of C in it, and without the rules of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import count, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, PostOp
from blocklayout.encoding import MisfitError, PlainField, from_data, to_data
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc

MAX_THREADS = 4096
"""More than any machine has; the library would try to start as many."""

DIGEST_NBYTES = 16
"""Enough that no two of a billion Specs share a digest."""

_MAX_CACHED = 8192


class Spec(
    Struct,
    frozen=True,
    kw_only=True,
    cache_hash=True,
    dict=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="by",
    tag="library",
):
    """A primitive: its operation, descriptors, attributes and threads.

    Make one with the constructor of its kind (:func:`blocklayout.dnnl.convolution` and so on), which checks the
    arguments: its ``InvalidArgumentsError`` names the argument, the rule and a right value. Specs are hashable
    and keys of caches, and round-trip through JSON.

    Attributes:
        kind: ``convolution``, ``eltwise``, ...: the name of the constructor.
        descs: ``(argument, descriptor)`` pairs. Once resolved, every execution argument but the scratchpad.
        algorithm: In full, ``eltwise_relu``; empty where the kind has only one.
        prop_kind: ``forward_inference``, ``forward_training``, ...; empty where the kind has none.
        params: ``(name, value)`` pairs: strides, pads, axis, ...
        impl: Name of the implementation; empty before it is resolved.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.convolution(
        ...     dnnl.AnyDesc((1, 3, 8, 8), "f32"), dnnl.AnyDesc((16, 3, 3, 3), "f32"), pads=1, n_threads=1
        ... )
        >>> spec.desc("dst").dims, spec.param("pads"), spec.is_resolved
        ((1, 16, 8, 8), (1, 1, 1, 1), False)
        >>> Spec.from_dict(spec.to_dict()) == spec
        True
    """

    kind: str
    descs: tuple[tuple[str, Desc], ...]
    algorithm: str = ""
    prop_kind: str = ""
    params: tuple[tuple[str, PlainField], ...] = ()
    attr: Attr = NO_ATTR
    n_threads: int = 1
    impl: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.n_threads <= MAX_THREADS:
            raise InvalidArgumentsError(f"{self.kind}: n_threads is {self.n_threads}; give 1 to {MAX_THREADS}")

    def __str__(self) -> str:
        parts = [self.kind, self.algorithm, self.prop_kind]
        parts += [f"{name}: {_canonical(desc, name)}" for name, desc in self.descs]
        parts += [f"{name}={value}" for name, value in self.params]
        parts += [str(_canonical_post_op(post_op)) for post_op in self.attr.post_ops]
        parts += [self.impl and f"implementation {self.impl}", f"{self.n_threads} threads"]
        return ", ".join(part for part in parts if part)

    def desc(self, name: str) -> Desc:
        """The descriptor of an argument.

        Raises:
            InvalidArgumentsError: There is no such argument.
        """
        for argument, desc in self.descs:
            if argument == name:
                return desc
        names = ", ".join(argument for argument, _ in self.descs)
        raise InvalidArgumentsError(f"{self.kind}: no argument {name!r}; there are {names}")

    def memory_desc(self, name: str) -> MemoryDesc:
        """The descriptor of an argument that has a layout.

        Raises:
            InvalidArgumentsError: There is no such argument, or its layout is still left to the primitive.
        """
        desc = self.desc(name)
        if not isinstance(desc, MemoryDesc):
            raise InvalidArgumentsError(f"{self.kind}: {name} has no layout yet; resolve the Spec first")
        return desc

    def side(self, name: str) -> MemoryDesc:
        """The layout of an argument, or of its gradient, where that is computed or read in its place."""
        return self.memory_desc(name if self.has(name) else f"diff_{name}")

    def has(self, name: str) -> bool:
        """Whether there is an argument of this name."""
        return name in dict(self.descs)

    @property
    def counted_sources(self) -> tuple[str, ...]:
        """Names of the sources of a primitive that takes any number: ``src_0``, ``src_1``, ..."""
        return tuple(takewhile(dict(self.descs).__contains__, (f"src_{index}" for index in count())))

    def param(self, name: str) -> Any:
        """A parameter: ``strides``, ``axis``, ...

        Raises:
            InvalidArgumentsError: There is no such parameter.
        """
        for key, value in self.params:
            if key == name:
                return value
        names = ", ".join(key for key, _ in self.params) or "none"
        raise InvalidArgumentsError(f"{self.kind}: no parameter {name!r}; there are {names}")

    @property
    def is_resolved(self) -> bool:
        """Whether the implementation and every layout are settled."""
        return bool(self.impl) and all(isinstance(desc, MemoryDesc) for _, desc in self.descs)

    def replace(self, **changes: Any) -> Spec:
        """A copy with other fields."""
        return replace(self, **changes)

    @property
    def is_checked(self) -> bool:
        """Whether it is known to obey the rules of its kind, so that checking it again is free."""
        return "_is_checked" in self.__dict__

    def checked(self) -> Spec:
        """This Spec, noted to obey the rules of its kind; it is frozen, so it stays so."""
        self.__dict__["_is_checked"] = True
        return self

    def settled(self, **changes: Any) -> Spec:
        """A copy of this checked Spec with the library's answers in it, which needs no check."""
        return self.replace(**changes).checked()

    @property
    def nbytes_moved(self) -> int:
        """Bytes of all its arguments together, padding included, each counted once."""
        return sum(desc.nbytes for _, desc in self.descs)

    def to_dict(self) -> dict[str, Any]:
        """This Spec as JSON-able data, the same for equal Specs; fields at their defaults are left out."""
        data: dict[str, Any] = to_data(self)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spec:
        """The Spec that :meth:`to_dict` wrote, not yet checked: see :func:`blocklayout.dnnl.validate`.

        Raises:
            InvalidArgumentsError: The data is no Spec, or a descriptor in it cannot exist.
        """
        try:
            return from_data(cls, data)
        except MisfitError as error:
            raise InvalidArgumentsError(f"not a saved Spec: {error}; give the data of Spec.to_dict") from error


def _canonical(desc: Desc, role: str = "") -> Desc:
    """The descriptor under a name that equal ones share: by its role, else in letters."""
    if not isinstance(desc, MemoryDesc):
        return desc
    return desc.canonical.in_role(role) if role else desc.canonical


def _canonical_post_op(post_op: PostOp) -> PostOp:
    if not isinstance(post_op, Binary) or post_op.src1 is None:
        return post_op
    return replace(post_op, src1=_canonical(post_op.src1))


@lru_cache(maxsize=_MAX_CACHED)
def spec_digest(spec: Spec) -> bytes:
    """``DIGEST_NBYTES`` bytes that equal Specs share, and no others, in every process: the key of a Spec's cost.

    Not of :meth:`Spec.to_dict`, which takes longer, and in which 1 and 1.0 differ.

    Example:
        >>> from blocklayout import dnnl
        >>> def relu(tag):
        ...     return dnnl.eltwise(dnnl.MemoryDesc((2, 17, 4, 4), "f32", tag), algorithm="relu", n_threads=1)
        >>> spec_digest(relu("nhwc")) == spec_digest(relu("acdb")) != spec_digest(relu("nchw"))
        True
    """
    import hashlib  # only where costs are kept

    return hashlib.blake2b(repr(_normal(spec)).encode(), digest_size=DIGEST_NBYTES).digest()


@lru_cache(maxsize=_MAX_CACHED)  # a network's Specs share most of their descriptors
def _desc_text(desc: Desc) -> str:
    return repr(desc if isinstance(desc, AnyDesc) else (desc.dtype, desc.placement))


def _normal(value: Any) -> Any:
    """The value as nested tuples that print alike where values are equal."""
    if isinstance(value, MemoryDesc | AnyDesc):
        return _desc_text(value)
    if isinstance(value, Struct):
        return (type(value).__name__, *map(_normal, astuple(value)))
    if isinstance(value, tuple):
        return tuple(map(_normal, value))
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 equals 1, and -0.0 equals 0
    return value
