"""Specs to and from JSON-able data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from blocklayout.dnnl.algorithms import INVALID_ARGUMENTS
from blocklayout.dnnl.any_desc import AnyDesc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Sum
from blocklayout.dnnl.spec import Spec
from blocklayout.errors import BlockLayoutError, InvalidArgumentsError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.dnnl.any_desc import Desc

_POST_OPS: dict[str, type[PostOp]] = {
    "sum": Sum,
    "eltwise": Eltwise,
    "binary": Binary,
    "prelu": Prelu,
    "depthwise_conv": DepthwiseConv,
}
_POST_OP_NAMES = {post_op: name for name, post_op in _POST_OPS.items()}
_INFINITIES = {"inf": math.inf, "-inf": -math.inf}  # strict JSON has no infinity


def spec_to_dict(spec: Spec) -> dict[str, Any]:
    """``spec`` as JSON-able data; fields at their defaults are left out."""
    data: dict[str, Any] = {"kind": spec.kind, "descs": [[name, desc_to_dict(desc)] for name, desc in spec.descs]}
    if spec.params:
        data["params"] = {name: _value_to_json(value) for name, value in spec.params}
    if spec.attr != NO_ATTR:
        data["attr"] = attr_to_dict(spec.attr)
    data |= {name: getattr(spec, name) for name in ("algorithm", "prop_kind", "impl") if getattr(spec, name)}
    return data | {"n_threads": spec.n_threads}


def spec_from_dict(data: Mapping[str, Any]) -> Spec:
    """The checked Spec.

    Raises:
        InvalidArgumentsError: The data is no Spec, or one that cannot exist.
        LayoutError: A descriptor in it cannot exist.
    """
    try:
        spec = _read_spec(data)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, BlockLayoutError):
            raise
        message = f"not a saved Spec: {type(error).__name__}: {error}; give what Spec.to_dict returned"
        raise InvalidArgumentsError(message, INVALID_ARGUMENTS) from error
    return spec.validate()


def _read_spec(data: Mapping[str, Any]) -> Spec:
    unknown = set(data) - {*Spec.__struct_fields__}
    if unknown:
        raise KeyError(*sorted(unknown))
    return Spec(
        kind=_text(data["kind"]),
        descs=tuple((_text(name), desc_from_dict(desc)) for name, desc in data["descs"]),
        algorithm=_text(data.get("algorithm", "")),
        prop_kind=_text(data.get("prop_kind", "")),
        params=tuple((_text(name), _value_from_json(value)) for name, value in data.get("params", {}).items()),
        attr=attr_from_dict(data.get("attr", {})),
        n_threads=_integer(data.get("n_threads", 1)),
        impl=_text(data.get("impl", "")),
    )


def desc_to_dict(desc: Desc) -> dict[str, Any]:
    """A descriptor, with or without layout, as JSON-able data."""
    if isinstance(desc, AnyDesc):
        return {"any": True, "dims": list(desc.dims), "dtype": desc.dtype}
    return desc.to_dict()


def desc_from_dict(data: Mapping[str, Any]) -> Desc:
    """The descriptor that :func:`desc_to_dict` wrote.

    Raises:
        LayoutError: It cannot exist.
    """
    if data.get("any"):
        return AnyDesc(tuple(_integer(extent) for extent in data["dims"]), _text(data["dtype"]))
    return MemoryDesc.from_dict(dict(data))


def attr_to_dict(attr: Attr) -> dict[str, Any]:
    """Attributes as JSON-able data."""
    return {
        "post_ops": [_post_op_to_dict(post_op) for post_op in attr.post_ops],
        "scales": [list(pair) for pair in attr.scales],
        "zero_points": [list(pair) for pair in attr.zero_points],
        "fpmath": attr.fpmath,
    }


def attr_from_dict(data: Mapping[str, Any]) -> Attr:
    """The attributes that :func:`attr_to_dict` wrote."""
    return Attr(
        post_ops=tuple(_post_op_from_dict(post_op) for post_op in data.get("post_ops", ())),
        scales=tuple((_text(name), _integer(mask)) for name, mask in data.get("scales", ())),
        zero_points=tuple((_text(name), _integer(mask)) for name, mask in data.get("zero_points", ())),
        fpmath=_text(data.get("fpmath", "strict")),
    )


def _post_op_to_dict(post_op: PostOp) -> dict[str, Any]:
    fields = {name: _value_to_json(getattr(post_op, name)) for name in post_op.__struct_fields__}
    if isinstance(post_op, Binary) and post_op.src1 is not None:
        fields["src1"] = desc_to_dict(post_op.src1)
    return {"kind": _POST_OP_NAMES[type(post_op)]} | fields


def _post_op_from_dict(data: Mapping[str, Any]) -> PostOp:
    post_op = _POST_OPS[data["kind"]]
    fields = {name: _value_from_json(value) for name, value in data.items() if name not in {"kind", "src1"}}
    if data.get("src1") is not None:
        fields["src1"] = desc_from_dict(data["src1"])
    return post_op(**fields)


def _value_to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_to_json(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


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
