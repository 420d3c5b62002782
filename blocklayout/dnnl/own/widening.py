"""Numbers of bytes that stay in place, by C of our own beside the executor: with a scale the library is slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocklayout.dnnl import arguments
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.library import has_isa
from blocklayout.dnnl.own import Implementation, lanes_of
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.layout import MemoryDesc


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes bytes with one scale, in any dense layout without padding, which the result has as well."""
    src, dst, attr = spec.desc("src"), spec.desc("dst"), spec.attr
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc) or attr.post_ops:
        return None
    is_wide = src.dtype in BYTE_DTYPES and dst.dtype in ("f32", "bf16")
    is_whole = src.is_dense and not src.n_padding and src.n_elements and src.with_dtype(dst.dtype) == dst
    if not is_wide or not is_whole or attr.scales != (("src", 0),) or attr.zero_points not in ((), (("src", 0),)):
        return None
    descs: dict[str, Desc] = {"src": src, "dst": dst}
    return descs | dict(arguments.of_attributes(spec, descs))


def _fields(spec: Spec) -> Mapping[str, Any]:
    src = spec.memory_desc("src")
    return {
        "n_threads": spec.n_threads,
        "lanes": lanes_of(spec.impl),
        "is_signed": src.dtype == "s8",
        "to_bf16": spec.memory_desc("dst").dtype == "bf16",
        "has_bf16": has_isa("avx512_core_bf16"),
        "n": src.n_elements,
    }


OURS = Implementation(
    kinds=("reorder",),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "scale_src", "zero_point_src", "dst"),
)
