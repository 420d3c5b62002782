"""A machine's ceilings: the instruction set's until they are measured, and kept then."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocklayout import dnnl
from blocklayout.errors import DisturbedError
from blocklayout.plan import Machine
from blocklayout.plan.costs import ceilings, repeating
from blocklayout.plan.costs.ceilings import machine_as_it_is, machine_with_ceilings, measure_ceilings, measured_machine
from blocklayout.plan.costs.store import CostStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CostStore]:
    with CostStore(tmp_path / "costs.sqlite3", environment="here") as opened:
        yield opened


def test_without_measurements_it_is_the_instruction_sets(store: CostStore) -> None:
    assert machine_with_ceilings("avx512_core_amx", 2, store) == Machine("avx512_core_amx", 2)


def test_kept_ceilings_are_used(store: CostStore) -> None:
    store.keep_ceilings(2, {"bandwidth": 11.0, "reorder_bandwidth": 7.0, "step_ns": 900.0, "flops_f32": 80.0})
    machine = machine_with_ceilings("avx2", 2, store)
    assert (machine.bandwidth, machine.reorder_bandwidth, machine.step_ns) == (11.0, 7.0, 900.0)
    assert machine.peak_flops("jit:avx2", "f32") == 160.0
    assert machine_with_ceilings("avx2", 1, store) == Machine("avx2", 1)


def test_ceilings_measured_in_part_leave_the_rest(store: CostStore) -> None:
    store.keep_ceilings(2, {"step_ns": 900.0})
    assert machine_with_ceilings("avx2", 2, store) == Machine("avx2", 2, step_ns=900.0)


def test_an_implementation_for_less_keeps_its_share_of_a_measured_peak() -> None:
    table = Machine("avx512_core_amx", 1)
    half = Machine("avx512_core_amx", 1, measured_flops=(("bf16", 150.0), ("f32", 80.0)))
    for impl in ("brgconv:avx512_core_amx", "jit:avx2", "jit:uni"):
        for dtype in ("f32", "bf16", "s8"):
            expected = table.peak_flops(impl, dtype) * (1.0 if dtype == "s8" else 0.5)
            assert half.peak_flops(impl, dtype) == pytest.approx(expected)


def test_measured_ceilings_are_positive_and_kept(store: CostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeating, "_n_switches", lambda: 0)
    monkeypatch.setattr(ceilings, "_STREAMED", (1, 8, 64, 64))
    machine = measured_machine(dnnl.isa(), 2, store)
    kept = store.ceilings(2)
    assert {"bandwidth", "reorder_bandwidth", "step_ns", "flops_f32"} <= set(kept)
    assert all(0 < value < math.inf for value in kept.values())
    assert ("flops_bf16" in kept) == dnnl.has_bf16()
    assert machine_with_ceilings(dnnl.isa(), 2, store) == machine


def test_ceilings_for_a_report_are_measured_once_and_kept_nowhere(
    store: CostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(n_threads: int, dtypes: set[str]) -> dict[str, float]:
        asked.append((n_threads, dtypes))
        return {"bandwidth": 7.0, "flops_f32": 80.0}

    monkeypatch.setattr(ceilings, "measure_ceilings", measured)
    machine_as_it_is.cache_clear()
    try:
        found = [machine_as_it_is(Machine("avx2", 2), "bf16") for _ in range(2)]
        known = Machine("avx2", 2, measured_flops=(("f32", 90.0),))
        assert machine_as_it_is(known, "f32") == known
    finally:
        machine_as_it_is.cache_clear()
    assert found == [Machine("avx2", 2, bandwidth=7.0, measured_flops=(("f32", 80.0),))] * 2
    assert asked == [(2, {"f32", "bf16"})]
    assert store.ceilings(2) == {}


def test_a_busy_machine_keeps_what_it_had(store: CostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(n_threads: int, dtypes: object = None) -> dict[str, float]:
        del dtypes
        raise DisturbedError(f"{n_threads} threads")

    monkeypatch.setattr(ceilings, "measure_ceilings", busy)
    assert measured_machine("avx2", 2, store) == Machine("avx2", 2)
    assert machine_as_it_is.__wrapped__(Machine("avx2", 2), "f32") == Machine("avx2", 2)
    assert store.ceilings(2) == {}


@pytest.mark.usefixtures("no_garbage")
def test_measuring_leaves_no_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeating, "_n_switches", lambda: 0)
    monkeypatch.setattr(repeating, "_PATIENCE_NS", 1e12)  # however slow the machine is meanwhile
    before = dnnl.live_handles()
    measure_ceilings(1)
    after = dnnl.live_handles()
    assert [after[kind] for kind in ("memory", "primitive")] == [before[kind] for kind in ("memory", "primitive")]
