"""Functions of each element that take an exponential, in C of our own: the library's take two to four times as long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dnnl.library import has_bf16, has_isa
from blocklayout.dnnl.own import Implementation, lanes_of
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

ALGORITHMS = ("eltwise_logistic", "eltwise_swish", "eltwise_gelu_tanh")
"""In the order of ``BL_LOGISTIC``, ... in C."""

_TANH_AS_LOGISTIC = 1.5957691
"""``(1 + tanh(y)) / 2`` is the logistic function of ``2 * y``; twice GELU's factor, ``sqrt(2 / pi)``."""

_FLOPS = {8: 38, 16: 30}
"""By lanes, floating-point operations that take as long as one element, at the peak; reading and writing are in it."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes Swish, GELU by tanh, and the logistic function where there is no padding, which has to stay zero.

    In f32, and in bf16 with AVX-512; source and result are dense and lie alike.
    """
    if spec.prop_kind != "forward_inference" or spec.algorithm not in ALGORITHMS or spec.attr != NO_ATTR:
        return None
    src, dst = spec.desc("src"), spec.desc("dst")
    if not isinstance(src, MemoryDesc) or (spec.algorithm == "eltwise_logistic" and src.n_padding):
        return None
    dtypes = ("f32", "bf16") if lanes_of(spec.impl) == 16 and has_bf16() else ("f32",)
    if src.dtype not in dtypes or not src.is_dense or src.offset0 or not src.n_elements:
        return None
    if isinstance(dst, MemoryDesc) and dst != src:
        return None
    return {"src": src, "dst": src}


def _fields(spec: Spec) -> Mapping[str, Any]:
    src = spec.memory_desc("src")
    alphas = {"eltwise_swish": spec.param("alpha"), "eltwise_gelu_tanh": _TANH_AS_LOGISTIC}
    return {
        "lanes": lanes_of(spec.impl),
        "is_bf16": src.dtype == "bf16",
        "has_bf16": has_isa("avx512_core_bf16"),
        "which": ALGORITHMS.index(spec.algorithm),
        "n_threads": spec.n_threads,
        "alpha": alphas.get(spec.algorithm, 1.0),
        "n": src.nbytes // src.itemsize,
    }


OURS = Implementation(
    kinds=("eltwise",),
    isas=lambda _: ("avx512_core", "avx2"),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "dst"),
    compute_ns=lambda spec, peak_flops, _: (
        _FLOPS[lanes_of(spec.impl)] * spec.memory_desc("src").n_elements / peak_flops
    ),
    total_ns=lambda compute_ns, _: compute_ns,  # what it reads is in caches as a rule
    is_favourite=lambda _: True,
    algorithms=ALGORITHMS,
)
