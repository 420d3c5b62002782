"""Primitive descriptors: made from Specs, walked from implementation to implementation, and read back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl import arguments, c_desc, enums, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr, Binary
from blocklayout.dnnl.c_create import create_pd
from blocklayout.dnnl.handles import Handle
from blocklayout.dnnl.known_bugs import fault_of
from blocklayout.dnnl.spec import Spec
from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc


class Resolved(Struct, frozen=True):
    """A Spec whose implementation and layouts are settled.

    Attributes:
        spec: Lists every execution argument but the scratchpad.
        scratchpad_nbytes: Bytes it needs while it runs.
    """

    spec: Spec
    scratchpad_nbytes: int

    @property
    def is_reference(self) -> bool:
        """Whether it is one of the unoptimised references."""
        return is_reference(self.spec.impl, has_post_ops=bool(self.spec.attr.post_ops))


@cache  # there are some dozens of names
def is_reference(impl: str, *, has_post_ops: bool = False) -> bool:
    """Whether an implementation is one of the library's unoptimised references, or its post-ops are done by one.

    A deconvolution names the convolution behind it: that of ``conv:any+ref:any`` is a reference. Post-ops are nothing
    that ``conv:any`` hands on to it: they take 0.1 us an element, more than the deconvolution itself.

    Source: ``src/cpu/ref_deconvolution.cpp``, oneDNN v3.2.

    Example:
        >>> is_reference("conv:any+ref:any"), is_reference("brgconv:avx2")
        (True, False)
        >>> is_reference("conv:any+jit:avx2"), is_reference("conv:any+jit:avx2", has_post_ops=True)
        (False, True)
    """
    if impl == "ref":  # a recurrent layer's, without an instruction set: products by gemm, and generated code for gates
        return False
    return any(name.startswith("ref") for name in impl.split("+")) or (has_post_ops and impl.startswith("conv:any"))


_known_arguments: dict[object, tuple[tuple[str, ...], Any]] = {}


def walk(pd: Handle, spec: Spec, is_wanted: Callable[[str], bool] | None = None) -> Iterator[Resolved]:
    """Each wanted implementation from the present one of ``pd`` on; ``pd`` moves on to the one that was yielded last.

    Passed over are implementations whose descriptors only the library could read, those that change a layout they were
    given, and those with a known fault.
    """
    while True:
        impl = impl_name(pd, spec)
        if is_wanted is None or is_wanted(impl):
            with contextlib.suppress(UnsupportedError):
                resolved = _described(pd, spec, impl)
                if fault_of(resolved.spec) is None:
                    yield resolved
        if not _next_impl(pd, spec):
            return


def impl_names(spec: Spec) -> list[str]:
    """Names of all implementations, those included whose layouts cannot be expressed."""
    pd = create_pd(spec)
    names = [impl_name(pd, spec)]
    while _next_impl(pd, spec):
        names.append(impl_name(pd, spec))
    return names


def _next_impl(pd: Handle, spec: Spec) -> bool:
    c_status = library.load().dnnl_primitive_desc_next_impl(pd.c)
    if c_status == status.LAST_IMPL_REACHED:
        return False
    status.check(c_status, "dnnl_primitive_desc_next_impl", spec)
    return True


def _described(pd: Handle, spec: Spec, impl: str) -> Resolved:
    """The layouts that a primitive descriptor settled on; UnsupportedError where one is not as given, or unreadable."""
    names, c_args = _asked(spec)
    records, scratchpad_nbytes = c_desc.describe(pd.c, c_args)
    given = dict(spec.descs)
    descs: dict[str, Desc] = {}
    for name, record in zip(names, records, strict=True):
        found = _found_desc(spec, name, given.get(name), record)
        if found is not None:
            descs[name] = found
    descs |= arguments.of_attributes(spec, descs)
    resolved = spec.settled(descs=tuple(descs.items()), attr=_settled(spec.attr, descs), impl=impl)
    return Resolved(resolved, scratchpad_nbytes)


def _asked(spec: Spec) -> tuple[tuple[str, ...], Any]:
    """Names of the arguments whose descriptors are read, and their numbers in C: the same for many Specs."""
    flags = next((value for name, value in spec.params if name == "flags"), ())
    names = tuple(name for name, _ in spec.descs)
    key = spec.kind, spec.prop_kind, flags, names, tuple(map(type, spec.attr.post_ops))
    if key not in _known_arguments:
        queried = tuple(arguments.queried(spec))
        _known_arguments[key] = queried, ffi.new("int[]", [arguments.number(spec, name) for name in queried])
    return _known_arguments[key]


def _found_desc(spec: Spec, name: str, given: Desc | None, record: bytes) -> MemoryDesc | None:
    if not isinstance(given, MemoryDesc):
        return c_desc.in_role(record, "weights" if "weights" in name else "src")
    found = c_desc.of_record(record)
    return _as_given(spec, name, given, found) if isinstance(found, MemoryDesc) else None


def _as_given(spec: Spec, name: str, given: MemoryDesc, found: MemoryDesc) -> MemoryDesc:
    """The caller's own descriptor if the library understood it so; that of a depthwise post-op's result."""
    if given.dims != found.dims:
        given = given.resized(found.dims)
    placed = given if given.offset0 == 0 else MemoryDesc(given.dims, given.dtype, given.layout)
    if placed == found or placed.physically_equal(found):
        return given
    raise UnsupportedError(f"{spec}: {name} was given as {given} and came back as {found}")


def _settled(attr: Attr, descs: dict[str, Desc]) -> Attr:
    """With the layouts of binary post-ops' operands."""
    if not any(isinstance(post_op, Binary) for post_op in attr.post_ops):
        return attr
    post_ops = tuple(
        replace(post_op, src1=descs[f"post_op_{index}_src_1"]) if isinstance(post_op, Binary) else post_op
        for index, post_op in enumerate(attr.post_ops)
    )
    return replace(attr, post_ops=post_ops)


def impl_name(pd: Handle, spec: Spec) -> str:
    """Name of the present implementation, such as ``brgconv:avx512_core``."""
    c_name = ffi.new("const char **")
    status.call("dnnl_primitive_desc_query", pd.c, _IMPL_INFO, 0, c_name, subject=spec)
    return str(ffi.string(c_name[0]).decode())


_IMPL_INFO = enums.value("query", "impl_info_str")
