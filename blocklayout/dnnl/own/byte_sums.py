"""Sums of two tensors of bytes, as residual networks have them, in C of our own: the library takes twice as long."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from blocklayout.dnnl import arguments
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr, Eltwise
from blocklayout.dnnl.own import Implementation, is_whole_bytes
from blocklayout.dnnl.spec import Spec

_SOURCES = ("src_0", "src_1")
_RELU = Eltwise("relu")


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes bytes that lie alike, in any dense order without padding, a scale for each source, and known functions."""
    if spec.algorithm != "binary_add" or spec.attr.zero_points or _line_of(spec.attr) is None:
        return None
    descs: dict[str, Desc] = {name: spec.desc(name) for name in (*_SOURCES, "dst")}
    first, *others = descs.values()
    if not all(map(is_whole_bytes, descs.values())) or any(first.with_dtype(each.dtype) != each for each in others):
        return None
    return descs | dict(arguments.of_attributes(spec, descs)) if not any(mask for _, mask in spec.attr.scales) else None


def _line_of(attr: Attr) -> Eltwise | None:
    """The linear function at the end, ``x`` where there is none; ``None`` if others than a ReLU precede it."""
    *before, last = attr.post_ops if attr.post_ops not in ((), (_RELU,)) else (*attr.post_ops, Eltwise("linear", 1.0))
    is_line = isinstance(last, Eltwise) and last.algorithm == "eltwise_linear" and before in ([], [_RELU])
    return last if is_line and isfinite(last.alpha) and isfinite(last.beta) else None


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
