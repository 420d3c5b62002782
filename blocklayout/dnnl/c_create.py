"""Primitive descriptors in C: a Spec's fields in the order in which the creation function of its kind takes them."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from blocklayout.dnnl import arguments, c_desc, enums, handles, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.attr import Binary, DepthwiseConv, Eltwise, Prelu, Sum
from blocklayout.dnnl.engine import cpu_engine
from blocklayout.dnnl.primitives import kind_of
from blocklayout.errors import InvalidArgumentsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blocklayout.dnnl.attr import PostOp
    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.primitives import Direction
    from blocklayout.dnnl.spec import Spec


def create_pd(spec: Spec) -> Handle:
    """The first primitive descriptor for a Spec, whatever implementation it names.

    Raises:
        UnimplementedError: oneDNN offers none.
        DnnlError: It refused the call.
    """
    kind = kind_of(spec.kind)
    name = kind.direction(spec.prop_kind)
    direction = kind.directions[name]
    order = direction.c_order.split()
    hint = create_pd(_forward(spec, direction, kind.directions["forward"])) if "hint" in order else None
    call = _Call(kind.for_c(spec) if kind.for_c else spec, hint)
    c_args = [c_arg for each in order for c_arg in call.c_args(each)]
    function = "_".join(filter(None, ("dnnl", spec.kind, name, "primitive_desc_create")))
    # The hint is asked again when the next implementation is.
    return handles.create("primitive_desc", function, *c_args, subject=spec, keep=hint)


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
    """Converts the fields of one Spec, and keeps the results as long as itself.

    Args:
        spec: The Spec.
        hint: The forward primitive descriptor that a gradient is derived from.
    """

    def __init__(self, spec: Spec, hint: Handle | None) -> None:
        self.spec = spec
        self.hint = hint
        self._params = dict(spec.params)
        self._keep: list[object] = []

    def c_args(self, name: str) -> Sequence[Any]:
        """The C arguments for one name of a ``c_order``: one, but for pads."""
        if name in _FIELDS:
            return (_FIELDS[name](self),)
        if name in self._params:
            return self._c_param(name, self._params[name])
        found = _first(self.spec, name)
        return (self._c_desc(found) if found else ffi.NULL,)

    def _c_param(self, name: str, value: Any) -> Sequence[Any]:
        if name == "pads":
            half = len(value) // 2
            return self._c_dims(value[:half]), self._c_dims(value[half:])
        if name in _DIMS:
            return (self._c_dims(value),)
        if name in _FLOATS:
            return (self._kept(ffi.new("float[]", value)) if value else ffi.NULL,)
        if name == "flags":
            return (sum(enums.value("normalization_flags", flag) for flag in value),)
        return (value,)

    def _c_dims(self, values: Sequence[int]) -> Any:
        return self._kept(c_desc.c_dims(tuple(values)))

    def _c_desc(self, name: str) -> Any:
        return self._kept(c_desc.to_c(self.spec.desc(name))).c

    def c_sources(self) -> Any:
        """An array of the descriptors of counted sources."""
        c_descs = [self._c_desc(name) for name in self.spec.counted_sources]
        return self._kept(ffi.new("const_dnnl_memory_desc_t[]", c_descs))

    def c_attr(self) -> Any:
        """The attributes."""
        return self._kept(_c_attr(self.spec)).c

    def c_hint(self) -> Any:
        """The forward primitive descriptor."""
        return self.hint.c if self.hint else ffi.NULL

    def _kept(self, value: Any) -> Any:
        self._keep.append(value)
        return value


_FIELDS: Mapping[str, Callable[[_Call], Any]] = {
    "engine": lambda _: cpu_engine().c,
    "prop_kind": lambda call: enums.value("prop_kind", call.spec.prop_kind),
    "algorithm": lambda call: enums.value("alg_kind", call.spec.algorithm),
    "n_srcs": lambda call: len(call.spec.counted_sources),
    "srcs": _Call.c_sources,
    "hint": _Call.c_hint,
    "attr": _Call.c_attr,
}
_DIMS = ("strides", "kernel", "dilations")
_FLOATS = ("factors", "scales")


def _c_attr(spec: Spec) -> Handle:
    """The C attributes; their scratchpad is the caller's."""
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
        post_ops = _c_post_ops(spec)
        _set(handle, "post_ops", post_ops.c, subject=spec)
        post_ops.destroy()  # the attributes hold a copy
    return handle


def _set(handle: Handle, what: str, *c_args: Any, subject: Spec) -> None:
    status.call(f"dnnl_primitive_attr_set_{what}", handle.c, *c_args, subject=subject)


def _c_post_ops(spec: Spec) -> Handle:
    handle = handles.create("post_ops", "dnnl_post_ops_create", subject=spec)
    for post_op in spec.attr.post_ops:
        _append(post_op, handle.c, spec)
    return handle


@singledispatch
def _append(post_op: PostOp, c_post_ops: Any, spec: Spec) -> None:
    del c_post_ops
    raise InvalidArgumentsError(f"{spec.kind}: {post_op!r} is no post-op")


@_append.register(Sum)
def _sum(post_op: Sum, c_post_ops: Any, spec: Spec) -> None:
    c_dtype = _dtype(post_op.dtype)
    function = "dnnl_post_ops_append_sum"
    status.call(function, c_post_ops, post_op.scale, post_op.zero_point, c_dtype, subject=spec)


@_append.register(Eltwise)
def _eltwise(post_op: Eltwise, c_post_ops: Any, spec: Spec) -> None:
    c_algorithm = enums.value("alg_kind", post_op.algorithm)
    function = "dnnl_post_ops_append_eltwise"
    status.call(function, c_post_ops, c_algorithm, post_op.alpha, post_op.beta, subject=spec)


@_append.register(Binary)
def _binary(post_op: Binary, c_post_ops: Any, spec: Spec) -> None:
    if post_op.src1 is None:
        rule = "a binary post-op has no src1; give it the descriptor of its second operand"
        raise InvalidArgumentsError(f"{spec.kind}: attr: {rule}")
    c_algorithm = enums.value("alg_kind", post_op.algorithm)
    src_1 = c_desc.to_c(post_op.src1)
    status.call("dnnl_post_ops_append_binary", c_post_ops, c_algorithm, src_1.c, subject=spec)


@_append.register(Prelu)
def _prelu(post_op: Prelu, c_post_ops: Any, spec: Spec) -> None:
    status.call("dnnl_post_ops_append_prelu", c_post_ops, post_op.mask, subject=spec)


@_append.register(DepthwiseConv)
def _depthwise(post_op: DepthwiseConv, c_post_ops: Any, spec: Spec) -> None:
    c_dtypes = (_dtype(dtype) for dtype in (post_op.weights_dtype, post_op.bias_dtype, post_op.dst_dtype))
    geometry = (post_op.kernel, post_op.stride, post_op.padding)
    status.call("dnnl_post_ops_append_dw", c_post_ops, *c_dtypes, *geometry, subject=spec)


def _dtype(dtype: str) -> int:
    return enums.value("data_type", dtype or "data_type_undef")
