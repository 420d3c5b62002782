"""Numbers of another type that stay in place, by C of our own beside the executor.

The library is slow with the scale of bytes, and where it does not compute in f16 or bf16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocklayout.dnnl import arguments
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dnnl.library import has_isa, missing_isa
from blocklayout.dnnl.own import Implementation, lanes_of
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.layout import MemoryDesc

_DTYPES = ("u8", "s8", "f32", "bf16", "f16")
"""In the order of ``BL_U8``, ... in C."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes any dense layout, which the result has as well: of bytes with one scale and no padding, and of floats."""
    src, dst, attr = spec.desc("src"), spec.desc("dst"), spec.attr
    if not isinstance(src, MemoryDesc) or src.with_dtype(spec.desc("dst").dtype) != dst or attr.post_ops:
        return None
    if not src.is_dense or src.offset0 or not src.n_elements:
        return None
    if src.dtype in BYTE_DTYPES:
        is_wide = dst.dtype in ("f32", "bf16") and not src.n_padding
        is_known = is_wide and attr.scales == (("src", 0),) and attr.zero_points in ((), (("src", 0),))
    else:
        dtypes = {src.dtype, dst.dtype}
        is_slow = any(dtypes == {"f32", half} and missing_isa(half) for half in ("f16", "bf16"))
        is_known = is_slow and attr == NO_ATTR and lanes_of(spec.impl) > 4
    descs: dict[str, Desc] = {"src": src, "dst": dst}
    return descs | dict(arguments.of_attributes(spec, descs)) if is_known else None


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    return {
        "n_threads": spec.n_threads,
        "lanes": lanes_of(spec.impl),
        "from": _DTYPES.index(src.dtype),
        "to": _DTYPES.index(dst.dtype),
        "has_bf16": has_isa("avx512_core_bf16"),
        "n": src.nbytes // src.itemsize,
    }


OURS = Implementation(
    kinds=("reorder",),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "scale_src", "zero_point_src", "dst"),
    is_favourite=lambda _: True,
)
