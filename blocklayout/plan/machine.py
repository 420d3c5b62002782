"""What the cost model knows of a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Machine:
    """Ceilings of a machine, as far as the cost model asks.

    Attributes:
        isa: oneDNN's name of the instruction set, such as ``avx2``.
        n_threads: Threads a plan runs on.
        f32_flops: Floating-point operations per nanosecond and thread in f32.
        bf16_flops: The same in bf16; 0 where the CPU has none.
        bandwidth: Bytes per nanosecond that streaming steps move, all threads together.
        reorder_bandwidth: The same for a reorder that permutes elements.
        step_ns: What starting one primitive costs.
    """

    isa: str
    n_threads: int
    f32_flops: float
    bf16_flops: float
    bandwidth: float
    reorder_bandwidth: float
    step_ns: float

    @property
    def has_avx512(self) -> bool:
        """Whether 16 f32 lanes fit a register, so that blocks of 16 have kernels."""
        return self.isa.startswith("avx512")

    @property
    def block_names(self) -> tuple[str, ...]:
        """Blocked layouts with kernels of their own, largest first."""
        return ("blocked16", "blocked8") if self.has_avx512 else ("blocked8",)

    @classmethod
    def of(cls, isa: str, n_threads: int) -> Machine:
        """The committed profile of an instruction set."""
        profile = next((p for prefix, p in _PROFILES if isa.startswith(prefix)), _PROFILES[-1][1])
        return replace(profile, isa=isa, n_threads=n_threads)


_AVX512 = Machine("avx512_core", 2, 160.0, 0.0, 40.0, 12.0, 2500.0)
_PROFILES = (
    ("avx512_core_amx", replace(_AVX512, bf16_flops=1400.0)),
    ("avx512_core_bf16", replace(_AVX512, bf16_flops=320.0)),
    ("avx512_core_fp16", replace(_AVX512, bf16_flops=320.0)),
    ("avx512", replace(_AVX512, bf16_flops=80.0)),
    ("avx2", Machine("avx2", 2, 85.0, 0.0, 40.0, 12.0, 2500.0)),
    ("", Machine("sse41", 2, 20.0, 0.0, 20.0, 8.0, 2500.0)),
)
"""Round figures of 2-core cloud machines with these instruction sets, by prefix."""
