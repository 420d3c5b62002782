"""The ceilings of this machine, measured in less than a second: the bounds that reports show steps beside."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import DisturbedError, UnimplementedError
from blocklayout.layout import MemoryDesc
from blocklayout.plan.costs.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from blocklayout.dnnl import Spec
    from blocklayout.plan.costs.measuring import SpecTimer

_CONV_SRC, _CONV_WEIGHTS = (1, 256, 28, 28), (256, 256, 3, 3)
"""A convolution as networks have them, near to the best that the library reaches; some 5 ms on two AVX2 cores."""

_STREAMED = (1, 128, 256, 256)
"""Extents of 32 MiB in f32: as much again is written, and both together are more than most caches hold."""

_REORDERED = ((1, 64, 28, 28), (1, 64, 56, 56), (1, 64, 112, 112))
_PERMUTATIONS = (("nchw", "nhwc"), ("nhwc", "nchw"), ("nchw", "nChw8c"), ("nChw8c", "nhwc"))
_TINY = (1, 8, 1, 1)

_FLOPS = "flops_"


@cache
def measured_machine(isa: str, n_threads: int, dtype: str) -> Machine:
    """This machine with its ceilings measured, once in a process; where other work keeps the CPUs busy, round figures.

    Operations are timed in f32 and ``dtype``; ``isa`` is named as oneDNN spells it.
    """
    try:
        measured = measure_ceilings(n_threads, {"f32", dtype})
    except DisturbedError:
        return Machine(isa, n_threads)
    flops = {name.removeprefix(_FLOPS): value for name, value in sorted(measured.items()) if name.startswith(_FLOPS)}
    others = {name: value for name, value in measured.items() if not name.startswith(_FLOPS)}
    return Machine(isa, n_threads, measured_flops=tuple(flops.items()), **others)


def measure_ceilings(n_threads: int, dtypes: Collection[str] = PRIMITIVE_FLOATS) -> dict[str, float]:
    """This machine's ceilings by name, measured on random data in some tenths of a second.

    ``bandwidth``, ``reorder_bandwidth`` and ``step_ns`` are those of :class:`Machine`; ``flops_f32``, and likewise
    those of other ``dtypes`` that the CPU has, are operations per nanosecond and thread. A DisturbedError where other
    work keeps the CPUs busy.
    """
    from blocklayout.plan.costs.measuring import SpecTimer

    timer = SpecTimer()
    known = (dtype for dtype in PRIMITIVE_FLOATS if dtype in dtypes and dnnl.missing_isa(dtype) is None)
    flops = {_FLOPS + dtype: max(_flops(timer, dtype, n_threads), default=0.0) for dtype in known}
    return {name: reached for name, reached in flops.items() if reached} | {
        "bandwidth": _bandwidth(timer, _relu(_STREAMED, n_threads)),
        "reorder_bandwidth": _reorder_bandwidth(timer, n_threads),
        "step_ns": timer.time(_relu(_TINY, n_threads)),
    }


def _flops(timer: SpecTimer, dtype: str, n_threads: int) -> Iterator[float]:
    """Speed reached in each layout that has a kernel; the ceiling is the largest."""
    weights = dnnl.AnyDesc(_CONV_WEIGHTS, dtype)
    for tag in ("nhwc", "nChw16c", "nChw8c"):
        spec = dnnl.convolution(MemoryDesc(_CONV_SRC, dtype, tag), weights, pads=1, n_threads=n_threads)
        with suppress(UnimplementedError):
            resolved = dnnl.resolve(spec).spec
            if not resolved.impl.startswith("ref"):
                yield 2 * dnnl.multiply_adds(resolved) / timer.time(resolved) / n_threads


def _reorder_bandwidth(timer: SpecTimer, n_threads: int) -> float:
    """The median over sizes and pairs of layouts."""
    import statistics  # only where ceilings are measured

    specs = [
        dnnl.reorder(MemoryDesc(dims, "f32", src), MemoryDesc(dims, "f32", dst), n_threads=n_threads)
        for dims in _REORDERED
        for src, dst in _PERMUTATIONS
    ]
    return statistics.median(_bandwidth(timer, spec) for spec in specs)


def _bandwidth(timer: SpecTimer, spec: Spec) -> float:
    return spec.nbytes_moved / timer.time(spec)


def _relu(dims: tuple[int, ...], n_threads: int) -> Spec:
    return dnnl.eltwise(MemoryDesc(dims), algorithm="relu", n_threads=n_threads)
