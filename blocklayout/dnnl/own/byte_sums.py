"""Sums of two tensors of bytes in C of our own beside the executor: the library takes nearly twice as long."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from blocklayout.dnnl import arguments, library
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr, Eltwise
from blocklayout.dnnl.own import Implementation, is_whole_bytes
from blocklayout.dnnl.spec import Spec

_SOURCES = ("src_0", "src_1")
_RELU = Eltwise("relu")


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes bytes that lie alike, in any dense order without padding, a scale for each source, and known functions.

    The library has those of CPUs with AVX-512.
    """
    is_known = spec.algorithm == "binary_add" and not spec.attr.zero_points and _line_of(spec.attr) is not None
    if not is_known or any(mask for _, mask in spec.attr.scales) or library.has_isa("avx512_core"):
        return None
    descs: dict[str, Desc] = {name: spec.desc(name) for name in (*_SOURCES, "dst")}
    found = [desc for desc in descs.values() if is_whole_bytes(desc)]
    if len(found) < len(descs) or len({desc.with_dtype("u8") for desc in found}) > 1:
        return None
    return descs | dict(arguments.of_attributes(spec, descs))


def _line_of(attr: Attr) -> Eltwise | None:
    """The linear function behind a ReLU, if there is one, or alone; ``None`` where there are others."""
    match attr.post_ops[attr.post_ops[:1] == (_RELU,) :]:
        case ():
            return Eltwise("linear", 1.0)
        case (Eltwise(algorithm="eltwise_linear") as line,) if isfinite(line.alpha) and isfinite(line.beta):
            return line
    return None


def _fields(spec: Spec) -> Mapping[str, Any]:
    line = _line_of(spec.attr) or Eltwise("linear", 1.0)
    return {
        "n_threads": spec.n_threads,
        "is_signed": [spec.desc(name).dtype == "s8" for name in _SOURCES],
        "dst_is_signed": spec.desc("dst").dtype == "s8",
        "has_relu": _RELU in spec.attr.post_ops,
        "alpha": line.alpha,
        "beta": line.beta,
        "n": spec.memory_desc("dst").n_elements,
    }


OURS = Implementation(
    kinds=("binary",),
    isas=lambda _: ("avx2",),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: (*_SOURCES, *(f"scale_{name}" for name in _SOURCES), "dst"),
    is_favourite=lambda _: True,
)
