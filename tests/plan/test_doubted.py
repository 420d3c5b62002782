"""Of prices that are doubted, those are measured on which a choice depends most."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from blocklayout.dnnl import Spec, multiply_adds
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan.candidates.fuse import fuse
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.costs import tuning
from blocklayout.plan.costs.atlas import EXACT_DOUBT, Atlas
from blocklayout.plan.costs.known import KnownCosts, RecordedCosts
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.costs.traits import source_dtype, spec_class, spec_numbers
from blocklayout.plan.doubted import mean_doubt, most_doubted, with_measured
from blocklayout.plan.network import Network, propose_all
from blocklayout.plan.pricing import measurements
from tests import nets
from tests.plan import made_up

MODEL = CostModel(Machine("avx2", 2))
KIND, OTHER = "Maker family 1", "Other family 1"


@pytest.fixture(scope="module")
def proposed() -> Network:
    program = lower(legalize(simplify(nets.residual().to_graph())))
    return propose_all(program, fuse(program, "f32", 2), Proposer(MODEL, "f32"), {})


def recorded(network: Network, specs: Sequence[Spec], kind: str = KIND, dtype: str = "f32") -> Network:
    """By an atlas that has these."""
    times = [(spec_class(spec, "avx2"), spec_numbers(spec), 1000.0) for spec in specs]
    times.append((times[0][0]._replace(dtypes=f"{dtype} {dtype}"), times[0][1], 1000.0))
    return network.priced(RecordedCosts(MODEL, Atlas.of(f"A CPU ({KIND}): made up", 2, times), kind, dtype))


def test_what_is_not_known_comes_by_how_much_it_matters_for_its_time(proposed: Network) -> None:
    worth = measurements(proposed)
    found = most_doubted(proposed, 1.0)
    assert set(found) == set(worth)
    steps = [spec for spec in found if spec.kind != "reorder"]  # all are doubted alike
    for earlier, later in pairwise(steps):
        is_shorter = proposed.costs.step_ns(earlier) < proposed.costs.step_ns(later)
        assert worth[earlier] >= worth[later] or is_shorter
    assert mean_doubt(proposed) == pytest.approx(MODEL.doubt(found[0]))


def test_what_is_too_large_for_the_time_is_left_out(proposed: Network) -> None:
    all_of_them = most_doubted(proposed, 1.0)
    nbytes = sorted({spec.nbytes_moved for spec in all_of_them})
    growing = (most_doubted(proposed, 2**n * 1e-6) for n in range(20))  # s, since kernels of some CPUs are slow
    found = next(filter(None, growing))
    assert found == [spec for spec in all_of_them if spec in found]
    assert {spec.nbytes_moved for spec in found} == set(nbytes[: len({spec.nbytes_moved for spec in found})])
    assert 0 < len(found) < len(all_of_them)
    assert most_doubted(proposed, 0.0) == []


def test_what_is_measured_or_recorded_is_left_out(proposed: Network) -> None:
    everything = [*measurements(proposed)]
    network = recorded(proposed, everything)
    assert most_doubted(network, 1.0) == []
    measured = proposed.priced(KnownCosts(MODEL, dict.fromkeys(everything[:-1], 1000.0)))
    assert most_doubted(measured, 1.0) == everything[-1:]
    assert mean_doubt(measured) < EXACT_DOUBT


def test_another_data_type_than_the_one_asked_for_is_left_out_on_cpus_of_another_kind(proposed: Network) -> None:
    everything = [*measurements(proposed)]
    network = recorded(proposed, everything, OTHER, "bf16")
    assert {spec.kind for spec in most_doubted(network, 1.0)} == {"reorder"}
    assert set(most_doubted(recorded(proposed, everything, OTHER), 1.0)) == set(everything)


def test_a_pair_that_tells_which_data_type_is_faster_comes_first_until_it_is_known() -> None:
    network = made_up.network_in_bf16().priced(MODEL)
    asked, instead = most_doubted(network, 60.0)[:2]
    assert (source_dtype(asked), source_dtype(instead)) == ("bf16", "f32")
    assert asked.kind == instead.kind
    assert multiply_adds(asked) == multiply_adds(instead) > 0
    known = network.priced(KnownCosts.over(network.costs, {asked: 1000.0, instead: 1000.0}))
    found = most_doubted(known, 60.0)
    assert not {asked, instead} & {*found}
    assert (found[0].impl, found[1].impl) != (asked.impl, instead.impl)
    in_f32 = most_doubted(replace(network, dtype="f32"), 60.0)
    assert {*in_f32} == {*most_doubted(network, 60.0)}
    assert in_f32 != most_doubted(network, 60.0)


def test_measured_times_are_prices_and_scale_others(proposed: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Spec, float] = {}

    def measure(specs: Sequence[Spec], seconds: float) -> dict[Spec, float]:
        assert seconds == 0.25
        known.update((spec, 8 * proposed.costs.step_ns(spec)) for spec in specs if spec.kind != "reorder")
        known.popitem()
        return known

    monkeypatch.setattr(tuning, "measure_briefly", measure)
    network = with_measured(proposed, 0.25)
    assert all(network.costs.step_ns(spec) == ns for spec, ns in known.items())
    left = next(spec for spec in measurements(proposed) if spec.kind != "reorder" and spec not in known)
    assert 4 < network.costs.step_ns(left) / proposed.costs.step_ns(left) < 8
    assert network.costs.source.startswith(f"{len(known)} times measured on this machine, ")


def test_where_nothing_could_be_measured_prices_stay(proposed: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "measure_briefly", lambda *_: {})
    assert with_measured(replace(proposed), 0.1).costs is proposed.costs
