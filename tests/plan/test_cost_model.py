"""Modelled times, where classes of implementations differ most."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.dnnl import MemoryDesc, Spec, own
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel

MODEL = CostModel(Machine("avx512_core_amx", 2))


def product(batch: int, rows: int, impl: str) -> Spec:
    src, dst = (MemoryDesc((1, batch, rows, n)) for n in (768, 3072))
    return dnnl.matmul(src, MemoryDesc((1, 1, 768, 3072)), dst, n_threads=2).replace(impl=impl)


def test_small_matrices_in_a_batch_take_brgemm_longer_than_one_large_matrix_does() -> None:
    brgemm, gemm = "brg:avx512_core", "gemm:jit:f32"
    assert MODEL.step_ns(product(7, 7, brgemm)) > 2 * MODEL.step_ns(product(1, 49, brgemm))
    assert MODEL.step_ns(product(7, 7, gemm)) == pytest.approx(MODEL.step_ns(product(1, 49, gemm)))
    assert MODEL.step_ns(product(7, 7, brgemm)) > MODEL.step_ns(product(7, 7, gemm))


def conv_ns(model: CostModel, dtype: str, isa: str) -> float:
    src, weights = MemoryDesc((1, 64, 56, 56), dtype, "nhwc"), MemoryDesc((64, 64, 3, 3), dtype)
    return model.step_ns(dnnl.convolution(src, weights, src, pads=1, n_threads=2).replace(impl=f"brgconv:{isa}"))


def test_bf16_is_faster_with_amx_and_on_such_a_cpu_slower_than_f32_without() -> None:
    f32_ns = conv_ns(MODEL, "f32", "avx512_core")
    assert conv_ns(MODEL, "bf16", "avx512_core_amx") < f32_ns < conv_ns(MODEL, "bf16", "avx512_core_bf16")


def test_bf16_is_twice_as_fast_as_f32_on_cpus_that_have_it_without_amx() -> None:
    model = CostModel(Machine("avx512_core_bf16", 2))
    ratio = conv_ns(model, "f32", "avx512_core") / conv_ns(model, "bf16", "avx512_core_bf16")
    assert ratio == pytest.approx(2.0, rel=0.1)


def test_one_long_row_takes_as_long_with_many_threads_as_with_one() -> None:
    def ns(rows: int, n_threads: int) -> float:
        desc = MemoryDesc((rows, 2_000_000 // rows))
        spec = dnnl.layer_normalization(desc, desc, n_threads=n_threads).replace(impl="jit:uni")
        return CostModel(Machine("avx2", n_threads)).step_ns(spec)

    assert ns(1, 4) == pytest.approx(4 * ns(4, 4), rel=0.1)
    assert ns(4, 4) == pytest.approx(ns(1000, 4))


@pytest.mark.skipif(not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler")
def test_arithmetic_that_overlaps_with_traffic_takes_no_time_beside_it() -> None:
    machine = Machine(dnnl.isa(), 1, bandwidth=1e-3)
    src, weights = dnnl.AnyDesc((1, 64, 9, 9), "f32"), dnnl.AnyDesc((64, 1, 1, 3, 3), "f32")
    offered = [each.spec for each in own.offers(dnnl.convolution(src, weights, pads=1, n_threads=1))]
    [depthwise] = [spec for spec in offered if own.name_of(spec.impl) == "depthwise"]
    assert CostModel(machine).step_ns(depthwise) == machine.step_ns + depthwise.nbytes_moved / machine.bandwidth
