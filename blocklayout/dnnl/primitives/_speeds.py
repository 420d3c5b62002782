"""Estimates of the shares of a machine's peak and bandwidth that implementations of any kind of primitive reach."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from blocklayout.dnnl.attr import Eltwise
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_PEAK_SHARES = (
    ("ref", 0.002),
    ("x64:gemm", 0.45),
    ("gemm", 0.45),
    ("jit_dw", 0.32),
    ("brdgmm_dw", 0.26),
    ("brgconv_1x1", 0.86),
    ("brg", 0.94),
    ("jit_1x1", 0.88),
    ("jit_deconvolution", 0.20),
    ("jit", 0.80),
)
"""By prefix of the implementation's name.

Medians over the convolutions of ResNet-50, SqueezeNet, DenseNet, GoogLeNet, Inception, EfficientNet, MobileNet and
ShuffleNet with cold weights, f32, on an AVX2 machine with 2 threads.
"""

_FUNCTION_FLOPS = {
    "eltwise_exp": 30,
    "eltwise_elu": 37,
    "eltwise_mish": 41,
    "eltwise_logistic": 42,
    "eltwise_gelu_erf": 46,
    "eltwise_swish": 60,
    "eltwise_tanh": 50,
    "eltwise_gelu_tanh": 67,
    "eltwise_soft_relu": 83,
    "eltwise_log": 129,
}
"""Operations at the peak that take as long as a function of one element, where these are more than a few.

As post-ops of a pointwise convolution in f32, on Zen 4.
"""

_OTHER_PEAK_SHARE = 0.4
_REFERENCE_BANDWIDTH_SHARE = 0.005

_NARROW_SHARE = 0.4
"""Of the bandwidth that slow implementations reach, where each element is widened before it is computed with."""

_GEMM_HALF_SPEED_CHANNELS, _HALF_SPEED_CHANNELS = 16, 8
"""Channels of a group at which a convolution, by gemm and by others, is half as fast as without groups.

Matrices of gemm are thin then, and vectors of others half empty: measured on the 16 of ResNeXt-50, on Zen 4.
"""

_BYTES_GEMM_SHARE = 0.13
"""Of the peak of bytes, by gemm with windows of several elements: most of the time these are copied into rows.

Median over 14 such convolutions of 3 to 256 channels on AVX512-VNNI with 2 threads.
"""

_BYTES_DEPTHWISE_SHARE, _SHIFTED_DEPTHWISE_SHARE, _SHIFTED_WIDE_SHARE = 0.062, 0.055, 0.038
"""Of the peak of bytes, by depthwise convolutions: they add products one by one, since a channel has no four to add.

Of unsigned bytes around 0; of others, which are shifted; and of these with more than 9 elements in a window. In f32
such a convolution takes 0.77, 0.69 and 0.48 of the time. Medians of 12 of 64 to 576 channels, on AVX512-VNNI.
"""
_FEW_TAPS = 9


def peak_share_by_name(spec: Spec) -> float:
    """Of arithmetic."""
    return next((share for prefix, share in _PEAK_SHARES if spec.impl.startswith(prefix)), _OTHER_PEAK_SHARE)


def function_flops(spec: Spec) -> int:
    """Operations at the peak in f32 that functions of each element take as long as: post-ops, and a primitive's own."""
    functions = [each.algorithm for each in spec.attr.post_ops if isinstance(each, Eltwise)]
    functions += [spec.algorithm] if spec.kind == "eltwise" else []
    n_flops = sum(_FUNCTION_FLOPS.get(each, 0) for each in functions)
    return n_flops * spec.memory_desc("dst").n_elements if n_flops and spec.has("dst") else 0


def is_gemm(spec: Spec) -> bool:
    """Whether it multiplies matrices by the library's gemm, and not by small blocks of its own."""
    return "gemm" in spec.impl and not spec.impl.startswith("br")


def windowed_peak_share(spec: Spec) -> float:
    """Of the arithmetic of a convolution or a deconvolution; thin matrices are slower."""
    share = peak_share_by_name(spec)
    weights, n_dims = spec.side("weights"), len(spec.side("src").dims)
    is_grouped = len(weights.dims) > n_dims
    if is_grouped and weights.dims[1:3] == (1, 1) and not is_gemm(spec):
        return _bytes_depthwise_share(spec, weights) if weights.dtype == "s8" else share
    if is_gemm(spec) and weights.dtype == "s8" and {*weights.dims[2 - n_dims :]} != {1}:
        share = _BYTES_GEMM_SHARE
    half_speed = _GEMM_HALF_SPEED_CHANNELS if is_gemm(spec) else _HALF_SPEED_CHANNELS
    return share * weights.dims[2] / (weights.dims[2] + half_speed) if is_grouped else share


def _bytes_depthwise_share(spec: Spec, weights: MemoryDesc) -> float:
    if spec.desc("src").dtype == "u8" and "src" not in dict(spec.attr.zero_points):
        return _BYTES_DEPTHWISE_SHARE
    return _SHIFTED_DEPTHWISE_SHARE if prod(weights.dims[3:]) <= _FEW_TAPS else _SHIFTED_WIDE_SHARE


def bandwidth_share_by_name(spec: Spec, slow: Mapping[str, float] | None = None, others: float = 1.0) -> float:
    """Of traffic: ``slow`` has those that do not stream, by prefix of their names, beside references."""
    for prefix, share in {**(slow or {}), "ref": _REFERENCE_BANDWIDTH_SHARE}.items():
        if spec.impl.startswith(prefix):
            return share * (_NARROW_SHARE if spec.side("dst").dtype in ("bf16", "f16") else 1.0)
    return others
