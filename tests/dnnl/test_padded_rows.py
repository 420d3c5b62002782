"""Rows with a gap behind them: what decision 12 rests on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blocklayout import dnnl
from blocklayout.dnnl import AnyDesc, MemoryDesc, Spec, own


def rows(*dims: int, gap: int) -> MemoryDesc:
    """A channels-last image or a matrix with a gap behind each pixel or row."""
    ranked = len(dims) == 4
    whole = (dims[0], dims[1] + gap, *dims[2:]) if ranked else (dims[0], dims[1] + gap)
    desc = MemoryDesc(whole, "f32", "nhwc" if ranked else None)
    return desc.submemory(dims, (0,) * len(dims)) if gap else desc


def convolution(gap: int) -> Spec:
    image = rows(1, 64, 14, 14, gap=gap)
    return dnnl.convolution(image, AnyDesc((64, 64, 3, 3)), image, pads=1, n_threads=1)


def inner_product(gap: int) -> Spec:
    return dnnl.inner_product(rows(64, 256, gap=gap), AnyDesc((256, 256)), rows(64, 256, gap=gap), n_threads=1)


def optimised(spec: Spec) -> list[str]:
    """The library's implementations that are no references."""
    offered = (each.spec.impl for each in dnnl.optimised(spec) if not each.is_reference)
    return [impl for impl in offered if own.implementation(impl) is None]


@pytest.mark.parametrize("primitive", [convolution, inner_product])
def test_convolutions_and_inner_products_have_no_kernel_for_rows_with_a_gap(primitive: Callable[[int], Spec]) -> None:
    assert optimised(primitive(0))
    assert not optimised(primitive(16))


def test_a_product_of_matrices_with_a_gap_is_left_to_gemm() -> None:
    src, dst = rows(64, 256, gap=16), rows(64, 128, gap=16)
    offered = optimised(dnnl.matmul(src, AnyDesc((256, 128)), dst, n_threads=1))
    assert all(impl.startswith("gemm") for impl in offered)
