"""A Spec's fields as the C functions take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocklayout.dnnl import c_attr, c_desc, enums, handles
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.engine import cpu_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.spec import Spec


class Call:
    """Converts one Spec; what it converted lives as long as it.

    Attributes:
        spec: The Spec.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._keep: list[object] = []

    @property
    def c_engine(self) -> Any:
        """The CPU engine."""
        return cpu_engine().c

    @property
    def c_algorithm(self) -> int:
        """Value of ``dnnl_alg_kind_t``."""
        return enums.value("alg_kind", self.spec.algorithm)

    @property
    def c_prop_kind(self) -> int:
        """Value of ``dnnl_prop_kind_t``."""
        return enums.value("prop_kind", self.spec.prop_kind)

    @property
    def c_attr(self) -> Any:
        """The attributes; their scratchpad is the caller's."""
        return self._kept(c_attr.to_c(self.spec.attr, self.spec))

    @property
    def c_flags(self) -> int:
        """Normalisation flags, joined."""
        return sum(enums.value("normalization_flags", flag) for flag in self.spec.param("flags"))

    def c_desc(self, name: str) -> Any:
        """The descriptor of an argument; null if it is absent."""
        return self.c_desc_of(self.spec.desc(name)) if self.spec.has(name) else ffi.NULL

    def c_desc_of(self, desc: Desc) -> Any:
        """Any descriptor."""
        return self._kept(c_desc.to_c(desc))

    def c_descs(self, names: Sequence[str]) -> Any:
        """An array of descriptors."""
        c_array = ffi.new("const_dnnl_memory_desc_t[]", [self.c_desc(name) for name in names])
        self._keep.append(c_array)
        return c_array

    def c_dims(self, values: Sequence[int]) -> Any:
        """Integers as ``dnnl_dims_t``."""
        c_values = c_desc.c_dims(tuple(values))
        self._keep.append(c_values)
        return c_values

    def c_floats(self, values: Sequence[float]) -> Any:
        """Numbers as an array of floats; null if there are none."""
        if not values:
            return ffi.NULL
        c_values = ffi.new("float[]", tuple(values))
        self._keep.append(c_values)
        return c_values

    def c_windows(self, *first: str) -> tuple[Any, ...]:
        """The parameters named, then the pads in front and those behind."""
        pads = self.spec.param("pads")
        n_spatial = len(pads) // 2
        names = [self.c_dims(self.spec.param(name)) for name in first]
        return (*names, self.c_dims(pads[:n_spatial]), self.c_dims(pads[n_spatial:]))

    def create(self, function: str, *c_args: Any, keep: object = None) -> Handle:
        """The primitive descriptor that a function creates on the CPU engine.

        Args:
            function: The C function.
            c_args: What it takes behind the engine.
            keep: Whatever must live as long as the primitive descriptor.

        Raises:
            UnimplementedError: oneDNN has no implementation.
            DnnlError: It refused the call.
        """
        return self.create_anywhere(function, self.c_engine, *c_args, keep=keep)

    def create_anywhere(self, function: str, *c_args: Any, keep: object = None) -> Handle:
        """Likewise, for a function that does not take an engine first."""
        return handles.create("primitive_desc", function, *c_args, subject=self.spec, keep=keep)

    def _kept(self, handle: Handle) -> Any:
        self._keep.append(handle)
        return handle.c
