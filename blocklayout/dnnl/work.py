"""How much work a primitive is: multiplications, and bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from blocklayout.dnnl import winograd
from blocklayout.dtypes import itemsize
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec


def multiply_adds(spec: Spec, *, padded: bool = False) -> int:
    """Multiplications a primitive does, each with an addition; 0 for kinds that mostly move bytes.

    Args:
        spec: Resolved or not.
        padded: Count those on padding as well.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 3, 8, 8), "f32"), dnnl.AnyDesc((16, 3, 3, 3), "f32")
        >>> multiply_adds(dnnl.convolution(src, weights, n_threads=1)) == 16 * 6 * 6 * 3 * 3 * 3
        True
    """
    if spec.kind == "matmul":
        return _of_matmul(spec, padded=padded)
    if spec.kind == "inner_product":
        return _side(spec, "src").dims[0] * _volume(_side(spec, "weights"), padded=padded)
    if winograd.is_winograd(spec.impl):
        return winograd.multiply_adds(spec)
    if spec.kind == "convolution":
        return _of_convolution(spec, padded=padded)
    if spec.kind == "deconvolution":
        return _of_window(_side(spec, "src"), _side(spec, "weights"), padded=padded)
    return 0


def nbytes_moved(spec: Spec) -> int:
    """Bytes of all arguments together, padding included, each counted once."""
    return sum(nbytes(desc) for _, desc in spec.descs)


def nbytes(desc: Desc) -> int:
    """Bytes a descriptor spans; without layout, those of its logical elements."""
    if isinstance(desc, MemoryDesc):
        return desc.nbytes
    return math.prod(desc.dims) * itemsize(desc.dtype)


def _of_convolution(spec: Spec, *, padded: bool) -> int:
    dst, weights = _side(spec, "dst"), _side(spec, "weights")
    from blocklayout.dnnl.primitives.convolution import inner_extents

    depthwise = spec.attr.depthwise
    if depthwise is None:
        return _of_window(dst, weights, padded=padded)
    inner = inner_extents(spec)
    before, behind = math.prod(inner), math.prod(depthwise.dst_extent(extent) for extent in inner)
    channels = _extents(dst, padded=padded)[1]
    return dst.dims[0] * (before * _volume(weights, padded=padded) + behind * channels * depthwise.kernel**2)


def _of_window(moving: Desc, weights: Desc, *, padded: bool) -> int:
    """All weights meet every position of the moving side: dst of a convolution, src of a deconvolution."""
    return moving.dims[0] * math.prod(moving.dims[2:]) * _volume(weights, padded=padded)


def _of_matmul(spec: Spec, *, padded: bool) -> int:
    src, weights, dst = (_extents(_side(spec, name), padded=padded) for name in ("src", "weights", "dst"))
    rows, columns = max(src[-2], dst[-2]), max(weights[-1], dst[-1])
    return math.prod(dst[:-2]) * rows * columns * max(src[-1], weights[-2])


def _side(spec: Spec, name: str) -> Desc:
    """An argument, or its gradient where a backward primitive has that instead."""
    return spec.desc(name) if spec.has(name) else spec.desc(f"diff_{name}")


def _volume(desc: Desc, *, padded: bool) -> int:
    return math.prod(_extents(desc, padded=padded))


def _extents(desc: Desc, *, padded: bool) -> Sequence[int]:
    return desc.padded_dims if padded and isinstance(desc, MemoryDesc) else desc.dims
