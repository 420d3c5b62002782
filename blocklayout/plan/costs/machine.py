"""Machine description for the cost model."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.dtypes import BYTE_DTYPES

_PEAK_FLOPS = {
    "avx512_core_amx": (160.0, 300.0),
    "avx512_core_fp16": (160.0, 70.0),
    "avx512_core_bf16": (160.0, 70.0),
    "avx512_core": (160.0, 40.0),
    "avx512": (160.0, 0.0),
    "avx2": (100.0, 0.0),
    "avx": (50.0, 0.0),
    "sse41": (25.0, 0.0),
}
"""Floating-point operations per nanosecond and thread in f32 and in bf16, by instruction set.

Round figures of 2-core cloud machines: an AVX2 server core, and an AVX-512 one with AMX, which multiplies pairs of bf16
without AMX at half the rate of f32 numbers or less.
"""

_FULL_RATE_ISA, _FULL_RATE_BF16_FLOPS = "avx512_core_bf16", 320.0
"""Of a CPU that has this and neither AVX512-FP16 nor AMX, in bf16: AMD's Zen 4 and 5, Intel's Cooper Lake.

It multiplies pairs of bf16 at the rate of f32 numbers: on Zen 5 convolutions by brgemm are 1.9 times as fast as in f32.
"""

_F16_SHARE = 0.75
"""Of operations in f32: numbers are widened as they are read. Median over convolutions by brgemm."""

_BYTES_OVER_F32, _BYTES_OVER_BF16 = 4.0, 2.0
"""Operations on bytes to those on f32 by VNNI, and to those on bf16 by AMX: as many more as there are in a register."""

_WITHOUT_VNNI, _PAIRS_OVER_F32 = ("sse41", "avx", "avx2", "avx512_core"), 2.0
"""Instruction sets that take two instructions to multiply bytes and to add the products in 32 bits."""

_GEMM_BF16_FLOPS = 110.0
"""At most of a convolution by gemm in bf16, a thread: most of its time it copies windows of the image into rows."""


class Machine(Struct, frozen=True):
    """Ceilings of a machine, as far as the cost model asks.

    Attributes:
        isa: Name of the instruction set as oneDNN spells it, such as ``avx2``.
        n_threads: Threads a plan runs on.
        bandwidth: Bytes per nanosecond that streaming steps move, all threads together.
        reorder_bandwidth: The same for a reorder that permutes elements.
        step_ns: Nanoseconds of starting one primitive.
        measured_flops: Operations per nanosecond and thread that this machine reached, by data type; those
            that are not measured are round figures of such CPUs.
    """

    isa: str
    n_threads: int
    bandwidth: float = 40.0
    reorder_bandwidth: float = 36.0
    step_ns: float = 2500.0
    measured_flops: tuple[tuple[str, float], ...] = ()

    @property
    def block_names(self) -> tuple[str, ...]:
        """Blocked layouts with kernels of their own, largest first."""
        return tuple(f"blocked{size}" for size in dnnl.channel_blocks(self.isa))

    @property
    def layout_names(self) -> tuple[str, ...]:
        """The layouts that are always worth asking for, row-major first."""
        return ("plain", "channels_last", *self.block_names)

    def peak_flops(self, impl: str, dtype: str) -> float:
        """Operations per nanosecond, all threads together, that an implementation on ``dtype`` cannot exceed.

        ``jit:avx2`` is bound by AVX2 even where the machine has more.
        """
        if dtype in BYTE_DTYPES:
            over_f32 = _PAIRS_OVER_F32 if self.isa in _WITHOUT_VNNI else _BYTES_OVER_F32
            wider = self.peak_flops(impl, "f32") * over_f32
            return max(wider, self.peak_flops(impl, "bf16") * _BYTES_OVER_BF16) if "amx" in self.isa else wider
        reached = dict(self.measured_flops).get(dtype)
        if reached is None and (self.isa, dtype) == (_FULL_RATE_ISA, "bf16"):
            reached = _FULL_RATE_BF16_FLOPS
        share = 1.0 if reached is None else reached / _of_dtype(_peaks_of(self.isa), dtype)
        return self.n_threads * peak_flops(impl, self.isa, dtype) * share


@cache
def peak_flops(impl: str, isa: str, dtype: str) -> float:
    """As :meth:`Machine.peak_flops`, of a thread, by instruction sets alone."""
    peak = _of_dtype(_PEAK_FLOPS.get(impl.rsplit(":", 1)[-1]) or _peaks_of(isa), dtype)
    return min(peak, _GEMM_BF16_FLOPS) if "gemm:jit" in impl and dtype == "bf16" else peak


def _of_dtype(peaks: tuple[float, float], dtype: str) -> float:
    f32, bf16 = peaks
    if dtype == "f16":
        return f32 * _F16_SHARE
    return bf16 if dtype == "bf16" and bf16 else f32


def _peaks_of(isa: str) -> tuple[float, float]:
    prefixes = (name for name in sorted(_PEAK_FLOPS, key=len, reverse=True) if isa.startswith(name))
    return _PEAK_FLOPS[next(prefixes, "sse41")]
