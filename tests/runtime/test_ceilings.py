"""A machine's ceilings: the instruction set's until they are measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from blocklayout import dnnl
from blocklayout.errors import DisturbedError
from blocklayout.plan import Machine
from blocklayout.plan.costs import repeating
from blocklayout.runtime import ceilings
from blocklayout.runtime.ceilings import measure_ceilings, measured_machine


@pytest.fixture(autouse=True)
def _measured_anew() -> Iterator[None]:
    measured_machine.cache_clear()
    yield
    measured_machine.cache_clear()


def test_an_implementation_for_less_keeps_its_share_of_a_measured_peak() -> None:
    table = Machine("avx512_core_amx", 1)
    half = Machine("avx512_core_amx", 1, measured_flops=(("bf16", 150.0), ("f32", 80.0)))
    for impl in ("brgconv:avx512_core_amx", "jit:avx2", "jit:uni"):
        for dtype in ("f32", "bf16", "s8"):
            assert half.peak_flops(impl, dtype) == pytest.approx(table.peak_flops(impl, dtype) * 0.5)


def test_measured_ceilings_are_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeating, "_n_switches", lambda: 0)
    monkeypatch.setattr(ceilings, "_STREAMED", (1, 8, 64, 64))
    found = measure_ceilings(2)
    assert {"bandwidth", "reorder_bandwidth", "step_ns", "flops_f32"} <= set(found)
    assert all(0 < value < math.inf for value in found.values())
    assert ("flops_bf16" in found) == dnnl.has_bf16()


def test_ceilings_are_measured_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(n_threads: int, dtypes: set[str]) -> dict[str, float]:
        asked.append((n_threads, dtypes))
        return {"bandwidth": 7.0, "flops_f32": 80.0}

    monkeypatch.setattr(ceilings, "measure_ceilings", measured)
    found = [measured_machine("avx2", 2, "bf16") for _ in range(2)]
    assert found == [Machine("avx2", 2, bandwidth=7.0, measured_flops=(("f32", 80.0),))] * 2
    assert asked == [(2, {"f32", "bf16"})]


def test_a_busy_machine_keeps_round_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(n_threads: int, dtypes: object) -> dict[str, float]:
        raise DisturbedError(f"{n_threads} threads, {dtypes}")

    monkeypatch.setattr(ceilings, "measure_ceilings", busy)
    assert measured_machine("avx2", 2, "f32") == Machine("avx2", 2)


@pytest.mark.usefixtures("no_garbage")
def test_measuring_leaves_no_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeating, "_n_switches", lambda: 0)
    monkeypatch.setattr(repeating, "_PATIENCE_NS", 1e12)  # however slow the machine is meanwhile
    before = dnnl.live_handles()
    measure_ceilings(1)
    after = dnnl.live_handles()
    assert [after[kind] for kind in ("memory", "primitive")] == [before[kind] for kind in ("memory", "primitive")]
