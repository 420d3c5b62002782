"""Primitive descriptors: made from Specs, walked from implementation to implementation, and read back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl import arguments, c_desc, enums, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import AnyDesc
from blocklayout.dnnl.attr import Binary
from blocklayout.dnnl.c_create import create_pd
from blocklayout.dnnl.known_bugs import fault_of
from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.attr import Attr
    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.spec import Spec


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
        return is_reference(self.spec.impl)


def is_reference(impl: str) -> bool:
    """Whether an implementation is one of the library's unoptimised references.

    Example:
        >>> is_reference("conv:any+ref:any"), is_reference("brgconv:avx2")
        (True, False)
    """
    # A deconvolution names the convolution behind it: conv:any+ref:any.
    return any(name.startswith("ref") for name in impl.split("+"))


def walk(pd: Handle, spec: Spec, is_wanted: Callable[[str], bool] | None = None) -> Iterator[Resolved]:
    """Each implementation from the present one on; ``pd`` is the one that was given last.

    Passed over are implementations whose descriptors only the library could read, those that
    change a layout they were given, and those with a known fault.

    Args:
        pd: The first; it moves on.
        spec: What it was made from.
        is_wanted: Whether an implementation of this name is to be looked at; all are by default.
    """
    while True:
        if is_wanted is None or is_wanted(impl_name(pd, spec)):
            with contextlib.suppress(UnsupportedError):
                resolved = describe(pd, spec)
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


def describe(pd: Handle, spec: Spec) -> Resolved:
    """What a primitive descriptor settled on.

    Raises:
        UnsupportedError: A layout that only the library knows, or other than the one it was given.
    """
    descs: dict[str, Desc] = {}
    for name in arguments.queried(spec):
        found = _query_desc(pd, spec, name)
        if found is not None:
            descs[name] = found
    descs |= arguments.of_attributes(spec, descs)
    resolved = spec.settled(descs=tuple(descs.items()), attr=_settled(spec.attr, descs), impl=impl_name(pd, spec))
    return Resolved(resolved, _scratchpad_nbytes(pd))


def _query_desc(pd: Handle, spec: Spec, name: str) -> MemoryDesc | None:
    c_library: Any = library.load()
    c_found = c_library.dnnl_primitive_desc_query_md(pd.c, _EXEC_ARG, arguments.number(spec, name))
    if not c_found:
        return None
    given = spec.desc(name) if spec.has(name) else None
    role = "weights" if "weights" in name else "src"
    if isinstance(given, AnyDesc):
        return c_desc.chosen(c_found, given, role)
    if given is not None and c_desc.is_same(c_found, c_desc.to_c(given)):
        return given  # it names the layout as its owner does, and may have an offset
    found = c_desc.from_c(c_found)  # borrowed from pd, and read at once
    if not isinstance(found, MemoryDesc):
        return None
    if given is not None:
        return _as_given(spec, name, given, found)
    c_desc.to_c(found)  # whoever makes a Memory of it will need that
    return found.in_role(role)


def _as_given(spec: Spec, name: str, given: MemoryDesc, found: MemoryDesc) -> MemoryDesc:
    """The caller's own descriptor if it is what the library understood; that of a depthwise post-op's result."""
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


def _scratchpad_nbytes(pd: Handle) -> int:
    c_library: Any = library.load()
    c_found = c_library.dnnl_primitive_desc_query_md(pd.c, _SCRATCHPAD, 0)
    return int(c_library.dnnl_memory_desc_get_size(c_found)) if c_found else 0


_EXEC_ARG = enums.value("query", "exec_arg_md")
_SCRATCHPAD = enums.value("query", "scratchpad_md")
_IMPL_INFO = enums.value("query", "impl_info_str")
