"""Bytes by tables in C of our own beside the executor: by one that is given, or of several scales side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from blocklayout.dnnl import arguments
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import Implementation, is_whole_bytes, lanes_of
from blocklayout.dnnl.spec import Spec

_MAX_PARTS = 64


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes bytes in any dense order without padding, which the result has as well, and one scale for each tensor.

    Blocks do where the bytes are one tensor's.
    """
    descs: dict[str, Desc] = {name: spec.desc(name) for name in (*_sources(spec), "dst")}
    found = [desc for desc in descs.values() if is_whole_bytes(desc)]
    if len(found) < len(descs) or len(found) > _MAX_PARTS + 1:
        return None
    if spec.kind == "lookup":
        src, dst = found
        return dict(spec.descs) if src.with_dtype(dst.dtype) == dst else None
    is_mixed = any(desc.inner_blks for desc in found) or len({desc.dim_order for desc in found}) > 1
    if is_mixed or spec.attr.post_ops or any(mask for _, mask in (*spec.attr.scales, *spec.attr.zero_points)):
        return None
    return descs | dict(arguments.of_attributes(spec, descs))


def _sources(spec: Spec) -> tuple[str, ...]:
    return spec.counted_sources or ("src",)


def _fields(spec: Spec) -> Mapping[str, Any]:
    srcs, dst = [spec.memory_desc(name) for name in _sources(spec)], spec.memory_desc("dst")
    outer = dst.dim_order[: dst.dim_order.index(spec.param("axis"))] if spec.kind == "concat" else ()
    n_rows = prod(dst.dims[dim] for dim in outer)
    return {
        "n_threads": spec.n_threads,
        "lanes": lanes_of(spec.impl),
        "n_parts": len(srcs),
        "is_signed": [src.dtype == "s8" for src in srcs],
        "dst_is_signed": dst.dtype == "s8",
        "n_rows": n_rows,
        "nbytes": [src.n_elements // n_rows for src in srcs],
    }


def _arguments(spec: Spec) -> Sequence[str]:
    if spec.kind == "lookup":
        return "src", "table", "dst"
    return [f"{kind}{name}" for name in (*_sources(spec), "dst") for kind in ("", "scale_", "zero_point_")]


OURS = Implementation(
    kinds=("concat", "lookup"),
    offer=_offer,
    fields=_fields,
    arguments=_arguments,
    function=lambda spec: "bl_lookup" if spec.kind == "lookup" else "bl_requantizing",
    c_type="bl_requantizing_t",
    is_favourite=lambda _: True,
)
