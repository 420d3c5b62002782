"""Functions of each element that take an exponential, in C of our own: the library's take two to four times as long."""

from __future__ import annotations

from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dnnl.library import has_bf16, has_isa
from blocklayout.dnnl.own import Implementation, OwnPrimitive, lanes_of, problem
from blocklayout.dnnl.primitive_desc import Resolved
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

ALGORITHMS = ("eltwise_logistic", "eltwise_swish", "eltwise_gelu_tanh")
"""In the order of ``BL_LOGISTIC``, ... in C."""

_TANH_AS_LOGISTIC = 1.5957691
"""``(1 + tanh(y)) / 2`` is the logistic function of ``2 * y``; twice GELU's factor, ``sqrt(2 / pi)``."""

_FLOPS = 30
"""Floating-point operations that take as long as one element, at the peak; reading and writing are in it."""


def offer(spec: Spec, impl: str) -> Resolved | None:
    """Takes Swish, GELU by tanh, and the logistic function where there is no padding, which has to stay zero.

    In f32, and in bf16 with AVX-512; source and result are dense and lie alike.
    """
    if spec.prop_kind != "forward_inference" or spec.algorithm not in ALGORITHMS or spec.attr != NO_ATTR:
        return None
    src, dst = spec.desc("src"), spec.desc("dst")
    if not isinstance(src, MemoryDesc) or (spec.algorithm == "eltwise_logistic" and src.n_padding):
        return None
    dtypes = ("f32", "bf16") if lanes_of(impl) == 16 and has_bf16() else ("f32",)
    if src.dtype not in dtypes or not src.is_dense or src.offset0 or not src.n_elements:
        return None
    if isinstance(dst, MemoryDesc) and dst != src:
        return None
    return Resolved(spec.settled(descs=(("src", src), ("dst", src)), impl=impl), 0)


def compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Of its arithmetic."""
    del n_threads
    return _FLOPS * spec.memory_desc("src").n_elements / peak_flops


def _create(spec: Spec) -> OwnPrimitive:
    src = spec.memory_desc("src")
    alphas = {"eltwise_swish": spec.param("alpha"), "eltwise_gelu_tanh": _TANH_AS_LOGISTIC}
    fields = {
        "lanes": lanes_of(spec.impl),
        "is_bf16": src.dtype == "bf16",
        "has_bf16": has_isa("avx512_core_bf16"),
        "which": ALGORITHMS.index(spec.algorithm),
        "n_threads": spec.n_threads,
        "alpha": alphas.get(spec.algorithm, 1.0),
        "n": src.nbytes // src.itemsize,
    }
    return OwnPrimitive("bl_functions", problem("bl_functions_t", fields), ("src", "dst"))


OURS = Implementation(
    kinds=("eltwise",),
    isas=("avx512_core", "avx2"),
    offer=offer,
    create=_create,
    compute_ns=compute_ns,
    is_near=True,
    is_favourite=lambda _: True,
    algorithms=ALGORITHMS,
)
