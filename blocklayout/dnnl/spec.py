"""Spec: one primitive as pure data, without anything of C in it."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl.algorithms import INVALID_ARGUMENTS
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from blocklayout.dnnl.any_desc import Desc

MAX_THREADS = 4096
"""More than any machine has; the library would try to start as many."""

_MAX_VALID = 4096
_valid: set[tuple[object, ...]] = set()
"""What was found to be right, layouts aside: a network asks for the same in many of them."""


class Spec(Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
    """A primitive: what it computes, on which descriptors, with which attributes and threads.

    Make one with the constructor of its kind (:func:`blocklayout.dnnl.convolution` and so on),
    which checks the arguments. Specs are hashable and keys of caches, and round-trip through JSON.

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
            message = f"{self.kind}: n_threads is {self.n_threads}; give 1 to {MAX_THREADS}"
            raise InvalidArgumentsError(message, INVALID_ARGUMENTS)

    @cached_property
    def _descs_by_name(self) -> dict[str, Desc]:
        return dict(self.descs)

    def __str__(self) -> str:
        parts = [self.kind, self.algorithm, self.prop_kind, *(f"{name}: {desc}" for name, desc in self.descs)]
        parts += [f"{name}={value}" for name, value in self.params]
        parts += [str(post_op) for post_op in self.attr.post_ops]
        parts += [self.impl and f"implementation {self.impl}", f"{self.n_threads} threads"]
        return ", ".join(part for part in parts if part)

    def desc(self, name: str) -> Desc:
        """The descriptor of an argument.

        Raises:
            InvalidArgumentsError: There is no such argument.
        """
        if name not in self._descs_by_name:
            message = f"{self.kind}: no argument {name!r}; there are {', '.join(self._descs_by_name)}"
            raise InvalidArgumentsError(message, INVALID_ARGUMENTS)
        return self._descs_by_name[name]

    def memory_desc(self, name: str) -> MemoryDesc:
        """The descriptor of an argument that has a layout.

        Raises:
            InvalidArgumentsError: There is no such argument, or its layout is still left to the primitive.
        """
        desc = self.desc(name)
        if not isinstance(desc, MemoryDesc):
            message = f"{self.kind}: {name} has no layout yet; resolve the Spec first"
            raise InvalidArgumentsError(message, INVALID_ARGUMENTS)
        return desc

    def has(self, name: str) -> bool:
        """Whether there is an argument of this name."""
        return name in self._descs_by_name

    def param(self, name: str) -> Any:
        """A parameter: ``strides``, ``axis``, ...

        Raises:
            InvalidArgumentsError: There is no such parameter.
        """
        for key, value in self.params:
            if key == name:
                return value
        names = ", ".join(key for key, _ in self.params) or "none"
        raise InvalidArgumentsError(f"{self.kind}: no parameter {name!r}; there are {names}", INVALID_ARGUMENTS)

    @property
    def is_resolved(self) -> bool:
        """Whether the implementation and every layout are settled."""
        return bool(self.impl) and all(isinstance(desc, MemoryDesc) for _, desc in self.descs)

    def replace(self, **changes: Any) -> Spec:
        """A copy with other fields."""
        return replace(self, **changes)

    def settled(self, **changes: Any) -> Spec:
        """A copy with what the library made of this checked Spec, which needs no check."""
        spec = self.replace(**changes)
        spec.__dict__["_is_valid"] = True
        return spec

    def validate(self) -> Spec:
        """Check it against the rules of its kind, and return it.

        Raises:
            InvalidArgumentsError: The message names the argument, the rule and what would be right.
        """
        if "_is_valid" not in self.__dict__:
            question = self._without_layouts
            if question not in _valid:
                from blocklayout.dnnl.primitives._attributes import check_attributes

                kind_rules(self.kind).validate(self)
                check_attributes(self)
                if len(_valid) >= _MAX_VALID:
                    _valid.clear()
                _valid.add(question)
            self.__dict__["_is_valid"] = True  # it is frozen, so it stays so
        return self

    @property
    def _without_layouts(self) -> tuple[object, ...]:
        """All that rules look at: they ask whether an argument has a layout, and never which.

        Parameters as text, since 1, 1.0 and True are equal, and not equally right.
        """
        descs = tuple((name, type(desc), desc.dims, desc.dtype) for name, desc in self.descs)
        attr = "" if self.attr is NO_ATTR else repr(self.attr)
        return self.kind, descs, self.algorithm, self.prop_kind, repr(self.params), attr

    def multiply_adds(self, *, padded: bool = False) -> int:
        """Multiplications it does, each with an addition; 0 for kinds that mostly move bytes.

        Args:
            padded: Count those on padding as well.
        """
        from blocklayout.dnnl.work import multiply_adds

        return multiply_adds(self, padded=padded)

    @property
    def nbytes_moved(self) -> int:
        """Bytes of all its arguments together, padding included, each counted once."""
        from blocklayout.dnnl.work import nbytes_moved

        return nbytes_moved(self)

    def to_dict(self) -> dict[str, Any]:
        """This Spec as JSON-able data."""
        from blocklayout.dnnl.spec_json import spec_to_dict

        return spec_to_dict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Spec:
        """The Spec that :meth:`to_dict` wrote, checked like one made by its constructor.

        Raises:
            InvalidArgumentsError: The data is no Spec, or one that cannot exist.
            LayoutError: A descriptor in it cannot exist.
        """
        from blocklayout.dnnl.spec_json import spec_from_dict

        return spec_from_dict(data)


@cache
def kinds() -> tuple[str, ...]:
    """The kinds of primitive there are.

    Example:
        >>> "convolution" in kinds()
        True
    """
    from blocklayout.dnnl import primitives

    names = (module.name for module in pkgutil.iter_modules(primitives.__path__))
    return tuple(sorted(name for name in names if not name.startswith("_")))


@cache
def kind_rules(kind: str) -> ModuleType:
    """The module with the rules of a kind of primitive.

    Raises:
        InvalidArgumentsError: No such kind.
    """
    if kind not in kinds():
        message = f"no kind of primitive {kind!r}; there are {', '.join(kinds())}"
        raise InvalidArgumentsError(message, INVALID_ARGUMENTS)
    return importlib.import_module(f"blocklayout.dnnl.primitives.{kind}")
