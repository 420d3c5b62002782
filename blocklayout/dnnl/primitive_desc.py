"""Primitive descriptors: made from Specs, walked from implementation to implementation, and read back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl import arguments, c_desc, enums, handles, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr, Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Sum
from blocklayout.dnnl.handles import Handle, cpu_engine
from blocklayout.dnnl.known_bugs import fault_of
from blocklayout.dnnl.primitives import Direction, direction_of, kind_of
from blocklayout.dnnl.spec import Spec
from blocklayout.errors import InvalidArgumentsError, UnimplementedError, UnsupportedError
from blocklayout.layout import MemoryDesc

UNIMPLEMENTED = 3
"""The library's status."""


class Resolved(Struct, frozen=True):
    """A Spec whose implementation and layouts are settled.

    Attributes:
        spec: Lists every execution argument but the scratchpad.
        scratchpad_nbytes: Bytes it needs while it runs.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> desc = bl.MemoryDesc((4,))
        >>> resolved = dnnl.resolve(dnnl.eltwise(desc, algorithm="relu"))
        >>> resolved.spec.kind, resolved.is_reference, resolved.scratchpad_nbytes
        ('eltwise', False, 0)
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


def create_pd(spec: Spec) -> Handle:
    """The first primitive descriptor for a Spec, in any implementation; a DnnlError where oneDNN offers none.

    An InvalidArgumentsError where an argument other than a reorder's source repeats elements.
    """
    _check_repeats_nothing(spec)
    kind = kind_of(spec.kind)
    name = kind.direction(spec.prop_kind)
    direction = direction_of(spec)
    if not direction.c_order:
        message = f"{spec}: the library has no {spec.algorithm or spec.kind}; our own takes a compiler at installation"
        raise UnimplementedError(message, UNIMPLEMENTED)
    hint = create_pd(_forward(spec, direction, kind.directions["forward"])) if "backward" in name else None
    call = _Call(kind.for_c(spec) if kind.for_c else spec, hint)
    c_args = call.c_args(direction.c_order)
    family = direction.family or spec.kind
    function = f"dnnl_{family}_{name}_primitive_desc_create".replace("__", "_")  # some have but one direction
    # The hint is asked again when the next implementation is.
    return handles.create("primitive_desc", function, *c_args, subject=spec, keep=hint)


def _check_repeats_nothing(spec: Spec) -> None:
    """Refuse strides of 0, which the library divides by, or reads beyond, in some implementations of some kinds."""
    for name, desc in spec.descs:
        if isinstance(desc, MemoryDesc) and desc.repeats and (spec.kind, name) != ("reorder", "src"):
            raise InvalidArgumentsError(
                f"{spec.kind}: {name} is {desc}, which repeats elements (a stride of 0); only a reorder reads such a "
                "source: reorder it first"
            )


def _forward(spec: Spec, direction: Direction, forward: Direction) -> Spec:
    """The forward primitive that a gradient is derived from."""
    names = direction.hint or {name: f"{name}|diff_{name}" for name in forward.c_order.split()}
    descs = ((name, _first(spec, alternatives)) for name, alternatives in names.items())
    given = tuple((name, spec.desc(found)) for name, found in descs if found)
    return spec.replace(descs=given, prop_kind="forward_training", impl="")


def _first(spec: Spec, alternatives: str) -> str:
    """The first argument that there is; empty where there is none."""
    return next(filter(spec.has, alternatives.split("|")), "")


class _Call:
    """Converts the fields of one Spec, and keeps the results as long as itself."""

    def __init__(self, spec: Spec, hint: Handle | None) -> None:
        self.spec = spec
        self.hint = hint
        self._descs = dict(spec.descs)
        self._params = dict(spec.params)
        self._keep: list[object] = []

    def c_args(self, c_order: str) -> list[Any]:
        c_args: list[Any] = []
        for name in c_order.split():
            if name in self._descs:
                c_args.append(self._c_desc(name))
            elif name in self._params:
                c_args += self._c_param(name, self._params[name])
            elif name in _FIELDS:
                c_args.append(_FIELDS[name](self))
            else:
                found = _first(self.spec, name)
                c_args.append(self._c_desc(found) if found else ffi.NULL)
        return c_args

    def _c_param(self, name: str, value: Any) -> Sequence[Any]:
        if name == "pads":
            half = len(value) // 2
            return self._c_dims(value[:half]), self._c_dims(value[half:])
        if name in _DIMS:
            return (self._c_dims(value),)
        if name in _FLOATS:
            return (self.kept(ffi.new("float[]", value)) if value else ffi.NULL,)
        if name == "flags":
            return (sum(enums.value("normalization_flags", flag) for flag in value),)
        return (enums.value(_ENUMS[name], value) if name in _ENUMS else value,)

    def _c_dims(self, values: Sequence[int]) -> Any:
        return self.kept(c_desc.c_dims(tuple(values)))

    def _c_desc(self, name: str) -> Any:
        return self.kept(c_desc.to_c(self._descs[name])).c

    def c_sources(self) -> Any:
        c_descs = [self._c_desc(name) for name in self.spec.counted_sources]
        return self.kept(ffi.new("const_dnnl_memory_desc_t[]", c_descs))

    def kept(self, value: Any) -> Any:
        self._keep.append(value)
        return value


_FIELDS: Mapping[str, Callable[[_Call], Any]] = {
    "engine": lambda _: cpu_engine().c,
    "prop_kind": lambda call: enums.value("prop_kind", call.spec.prop_kind),
    "algorithm": lambda call: enums.value("alg_kind", call.spec.algorithm),
    "n_srcs": lambda call: len(call.spec.counted_sources),
    "no_flags": lambda _: 0,
    "srcs": _Call.c_sources,
    "hint": lambda call: call.hint.c if call.hint else ffi.NULL,
    "attr": lambda call: call.kept(_attr_to_c(call.spec)).c,
}
_DIMS = ("strides", "kernel", "dilations")
_FLOATS = ("factors", "scales")
_ENUMS = {"activation": "alg_kind", "direction": "rnn_direction"}


def _attr_to_c(spec: Spec) -> Handle:
    """The attributes, whose scratchpad is the caller's."""
    attr = spec.attr
    handle = handles.create("primitive_attr", "dnnl_primitive_attr_create", subject=spec)
    _set(handle, "scratchpad_mode", enums.value("scratchpad_mode", "user"), subject=spec)
    if attr.fpmath != "strict":
        _set(handle, "fpmath_mode", enums.value("fpmath_mode", attr.fpmath), subject=spec)
    for name, mask in attr.scales:
        _set(handle, "scales_mask", arguments.number(spec, name), mask, subject=spec)
    for name, mask in attr.zero_points:
        _set(handle, "zero_points_mask", arguments.number(spec, name), mask, subject=spec)
    if attr.post_ops:
        post_ops = handles.create("post_ops", "dnnl_post_ops_create", subject=spec)
        for post_op in attr.post_ops:
            _append(post_ops, post_op, spec)
        _set(handle, "post_ops", post_ops.c, subject=spec)
        post_ops.destroy()  # the attributes hold a copy
    return handle


def _set(handle: Handle, what: str, *c_args: Any, subject: Spec) -> None:
    status.call(f"dnnl_primitive_attr_set_{what}", handle.c, *c_args, subject=subject)


def _append(post_ops: Handle, post_op: PostOp, spec: Spec) -> None:
    if isinstance(post_op, Binary) and post_op.src1 is None:
        rule = "a binary post-op has no src1; give it the descriptor of its second operand"
        raise InvalidArgumentsError(f"{spec.kind}: attr: {rule}")
    name, c_args_of = _POST_OPS[type(post_op)]
    c_args = c_args_of(post_op)
    c_values = (c_arg.c if isinstance(c_arg, handles.Handle) else c_arg for c_arg in c_args)
    status.call(f"dnnl_post_ops_append_{name}", post_ops.c, *c_values, subject=spec)


def _c_dtype(dtype: str) -> int:
    return enums.value("data_type", dtype or "data_type_undef")


_POST_OPS: Mapping[type[PostOp], tuple[str, Callable[[Any], Sequence[Any]]]] = {
    Sum: ("sum", lambda its: (its.scale, its.zero_point, _c_dtype(its.dtype))),
    Eltwise: ("eltwise", lambda its: (enums.value("alg_kind", its.algorithm), its.alpha, its.beta)),
    Binary: ("binary", lambda its: (enums.value("alg_kind", its.algorithm), c_desc.to_c(its.src1))),
    Prelu: ("prelu", lambda its: (its.mask,)),
    DepthwiseConv: (
        "dw",
        lambda its: (
            *map(_c_dtype, (its.weights_dtype, its.bias_dtype, its.dst_dtype)),
            *(its.kernel, its.stride, its.padding),
        ),
    ),
}


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
