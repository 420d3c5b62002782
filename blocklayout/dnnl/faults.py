"""Implementations that compute something else than they should, and are passed over."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.dnnl.spec import Spec

MAX_SOUND_SUM = 2048
"""Products in a sum up to which a strided deconvolution was never found wrong; on this side of 7000 with margin."""


def is_faulty(spec: Spec) -> bool:
    """Whether a resolved Spec's implementation may give wrong results.

    A strided deconvolution by brgemm that takes the rows of its kernel one by one, which it does to large ones by
    the sizes of the caches, applies bias and post-ops to partial sums.

    Source: ``src/cpu/x64/jit_brgemm_conv_bwd_strided.cpp``, oneDNN v3.2, and comparison with its other
    implementations: with AVX2 it is wrong from 448 channels and 4x4 kernels, or 256 channels and 6x6 ones.
    """
    if spec.kind != "deconvolution" or "brgconv_strided" not in spec.impl:
        return False
    if not spec.has("bias") and not spec.attr.post_ops:
        return False
    weights = spec.memory_desc("weights").dims
    n_spatial = spec.memory_desc("src").ndims - 2
    steps_over = all(k <= s for k, s in zip(weights[-n_spatial:], spec.param("strides"), strict=True))
    return not steps_over and prod(weights[-n_spatial - 1 :]) > MAX_SOUND_SUM
