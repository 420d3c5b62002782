"""Implementations that are passed over: the library offers and then refuses them, or they compute wrong results."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from blocklayout.layout import MemoryDesc
from blocklayout.layout.ordering import named_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.dnnl.spec import Spec

MAX_SOUND_SUM = 2048
"""Products in a sum up to which a strided deconvolution was never found wrong; on this side of 7000 with margin."""

_MISREADING = ("jit:avx512_core", "jit_bf16:", "x64:gemm:jit")

_refused: dict[Spec, str] = {}


def refusals() -> Mapping[Spec, str]:
    """The resolved Specs that the library offered and then refused in this process, each with the refused verb."""
    return _refused


def remember(spec: Spec, refused: str) -> None:
    """Have a resolved Spec passed over from now on.

    Args:
        spec: As the library offered it.
        refused: The verb that it refused: ``create`` or ``run``.
    """
    _refused[spec] = refused


def fault_of(spec: Spec) -> str | None:
    """Why a resolved Spec's implementation is passed over; ``None`` where it is not."""
    if spec in _refused:
        return f"oneDNN offers {spec.impl}, and refused to {_refused[spec]} it"
    if (spec.kind == "deconvolution" and _may_be_wrong(spec)) or (spec.kind == "softmax" and _overruns(spec)):
        return f"{spec.impl} may give wrong results here"
    if spec.kind == "convolution" and _is_misread(spec):
        return f"{spec.impl} is offered only where it may choose the layouts"
    return None


def _may_be_wrong(spec: Spec) -> bool:
    """Whether a deconvolution may give wrong results.

    A strided deconvolution by brgemm that takes the rows of its kernel one by one, which it does to large ones by
    the sizes of the caches, applies bias and post-ops to partial sums.

    Source: ``src/cpu/x64/jit_brgemm_conv_bwd_strided.cpp``, oneDNN v3.2, and comparison with its other
    implementations: with AVX2 it is wrong from 448 channels and 4x4 kernels, or 256 channels and 6x6 ones.
    """
    if "brgconv_strided" not in spec.impl:
        return False
    if not spec.has("bias") and not spec.attr.post_ops:
        return False
    weights = spec.memory_desc("weights").dims
    n_spatial = spec.memory_desc("src").ndims - 2
    steps_over = all(k <= s for k, s in zip(weights[-n_spatial:], spec.param("strides"), strict=True))
    return not steps_over and prod(weights[-n_spatial - 1 :]) > MAX_SOUND_SUM


def _overruns(spec: Spec) -> bool:
    """Whether a softmax writes beyond its destination.

    The reference steps from row to row by the stride of the dimension before the axis, which is right where that is
    the length of a row.

    Source: ``src/cpu/ref_softmax.hpp``, oneDNN v3.2, and comparison with numpy over all orders of four dimensions.
    """
    src, dst, axis = spec.memory_desc("src"), spec.memory_desc("dst"), spec.param("axis")
    if spec.impl != "ref:any" or src.inner_blks or axis == 0 or prod(src.dims[:axis]) == 1:
        return False
    is_by_rows = prod(src.dims[axis + 1 :]) == 1 and src.strides == dst.strides and src.strides[axis] == 1
    return is_by_rows and src.strides[axis - 1] != src.dims[axis]


def _is_misread(spec: Spec) -> bool:
    """Whether a convolution is offered only as long as it may choose the layouts, and not once they are given.

    A tensor with one channel and one pixel has the same strides with channels first and last. These implementations
    take it for channels last, and then want both sources and results so.

    Source: creating what oneDNN v3.2 offers for 1 to 32 channels, 1 to 4 pixels a side and 1 to 3 spatial dimensions:
    it fails for all of these, and for no other.
    """
    if not spec.impl.startswith(_MISREADING) or not (spec.has("src") and spec.has("dst")):
        return False
    return _could_be_channels_last(spec.memory_desc("src")) != _could_be_channels_last(spec.memory_desc("dst"))


def _could_be_channels_last(desc: MemoryDesc) -> bool:
    channels_last = named_format("channels_last", desc.ndims)
    return not desc.inner_blks and desc.strides == MemoryDesc(desc.dims, desc.dtype, channels_last).strides
