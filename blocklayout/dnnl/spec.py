"""Spec: one primitive as pure data, without anything of C in it, and without the rules of its kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Sum
from blocklayout.errors import BlockLayoutError, InvalidArgumentsError
from blocklayout.layout import MemoryDesc

MAX_THREADS = 4096
"""More than any machine has; the library would try to start as many."""


class Spec(Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
    """A primitive: its operation, descriptors, attributes and threads.

    Make one with the constructor of its kind (:func:`blocklayout.dnnl.convolution` and so on), which checks the
    arguments: its ``InvalidArgumentsError`` names the argument, the rule and what would be right. Specs are hashable
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
    params: tuple[tuple[str, Any], ...] = ()
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
        descs = [[name, _canonical(desc).to_dict()] for name, desc in self.descs]
        data: dict[str, Any] = {"kind": self.kind, "descs": descs}
        if self.params:
            data["params"] = {name: _value_to_json(value) for name, value in self.params}
        if self.attr != NO_ATTR:
            data["attr"] = _fields_to_json(self.attr)
        data |= {name: getattr(self, name) for name in ("algorithm", "prop_kind", "impl") if getattr(self, name)}
        return data | {"n_threads": self.n_threads}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spec:
        """The Spec that :meth:`to_dict` wrote, not yet checked: see :func:`blocklayout.dnnl.validate`.

        Raises:
            InvalidArgumentsError: The data is no Spec.
            LayoutError: A descriptor in it cannot exist.
        """
        try:
            unknown = set(data) - {*cls.__struct_fields__}
            if unknown:
                raise KeyError(*sorted(unknown))  # noqa: TRY301 - one message for all that is wrong
            return cls(
                kind=_text(data["kind"]),
                descs=tuple((_text(name), _desc_from_dict(desc)) for name, desc in data["descs"]),
                algorithm=_text(data.get("algorithm", "")),
                prop_kind=_text(data.get("prop_kind", "")),
                params=tuple((_text(name), _value_from_json(value)) for name, value in data.get("params", {}).items()),
                attr=_attr_from_dict(data.get("attr", {})),
                n_threads=_integer(data.get("n_threads", 1)),
                impl=_text(data.get("impl", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            if isinstance(error, BlockLayoutError):
                raise
            message = f"not a saved Spec: {type(error).__name__}: {error}; give what Spec.to_dict returned"
            raise InvalidArgumentsError(message) from error


_POST_OPS: dict[str, type[PostOp]] = dict(
    sum=Sum, eltwise=Eltwise, binary=Binary, prelu=Prelu, depthwise_conv=DepthwiseConv
)
_POST_OP_NAMES = {post_op: name for name, post_op in _POST_OPS.items()}
_INFINITIES = {"inf": math.inf, "-inf": -math.inf}  # strict JSON has no infinity


def _canonical(desc: Desc, role: str = "") -> Desc:
    """The descriptor under a name that equal ones share: by its role, else in letters."""
    if not isinstance(desc, MemoryDesc):
        return desc
    return desc.canonical.in_role(role) if role else desc.canonical


def _canonical_post_op(post_op: PostOp) -> PostOp:
    if not isinstance(post_op, Binary) or post_op.src1 is None:
        return post_op
    return replace(post_op, src1=_canonical(post_op.src1))


def _desc_from_dict(data: Mapping[str, Any]) -> Desc:
    if data.get("any"):
        return AnyDesc(tuple(_integer(extent) for extent in data["dims"]), _text(data["dtype"]))
    return MemoryDesc.from_dict(dict(data))


def _attr_from_dict(data: Mapping[str, Any]) -> Attr:
    return Attr(
        post_ops=tuple(_post_op_from_dict(post_op) for post_op in data.get("post_ops", ())),
        scales=tuple((_text(name), _integer(mask)) for name, mask in data.get("scales", ())),
        zero_points=tuple((_text(name), _integer(mask)) for name, mask in data.get("zero_points", ())),
        fpmath=_text(data.get("fpmath", "strict")),
    )


def _fields_to_json(struct: Struct) -> dict[str, Any]:
    return {name: _value_to_json(getattr(struct, name)) for name in struct.__struct_fields__}


def _post_op_from_dict(data: Mapping[str, Any]) -> PostOp:
    post_op = _POST_OPS[data["kind"]]
    fields = {name: _value_from_json(value) for name, value in data.items() if name not in {"kind", "src1"}}
    if data.get("src1") is not None:
        fields["src1"] = _desc_from_dict(data["src1"])
    return post_op(**fields)


def _value_to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_to_json(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, PostOp):
        return {"kind": _POST_OP_NAMES[type(value)]} | _fields_to_json(_canonical_post_op(value))
    return value.to_dict() if isinstance(value, Desc) else value


def _value_from_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value_from_json(item) for item in value)
    if isinstance(value, str):
        return _INFINITIES.get(value, value)
    if value is None or isinstance(value, int | float):
        return value
    raise TypeError(f"{value!r} is no parameter's value")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value
