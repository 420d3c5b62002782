"""The verdict says what plans and measurements say, in five lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

import blocklayout as bl
from blocklayout.show import verdict as verdict_module
from blocklayout.show.comparison import Measurement
from blocklayout.show.verdict import LEAST_GAIN, Verdict
from blocklayout.show.words import width_of
from blocklayout.timing import Spread
from tests import nets, quantised
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, model_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.plan import Plan

LABELS = ["best", "others", "reorders", "slow", "try"]


@pytest.fixture
def of_f32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without arithmetic in narrower types."""
    monkeypatch.setattr(verdict_module, "has_bf16", lambda: False)
    monkeypatch.setattr(verdict_module, "multiplies_bytes", lambda: False)


def measured(plan: Plan, ratios: Sequence[float], ms: float = 1.0) -> Measurement:
    ratio = Spread.of(ratios)
    return Measurement(plan, [plan], ratio.scaled(ms), ratio, 0.0, {})


@pytest.mark.parametrize("layout", ["auto", "nhwc", "per-op", "nChw8c"])
def test_its_numbers_are_the_plans(layout: str) -> None:
    session = bl.load(nets.residual(), layout=layout, tune="model")
    plan, verdict = session.plan, session.verdict()
    costs = dict(plan.policy_costs)
    assert (verdict.reorders.n, verdict.reorders.nbytes) == (len(plan.reorders), plan.reorder_nbytes)
    assert verdict.reorders.ns == pytest.approx(sum(each.cost_ns for each in plan.reorders))
    assert verdict.ns == pytest.approx(plan.cost_ns)
    assert verdict.best == ("auto" if costs["auto"] < plan.cost_ns else plan.policy)
    assert verdict.time.median == pytest.approx(min(costs["auto"], plan.cost_ns))
    for rival in verdict.rivals:
        assert not rival.is_measured
        assert rival.ratio.median == pytest.approx(costs[rival.policy] / verdict.time.median)
    ratios = [rival.ratio.median for rival in verdict.rivals]
    assert ratios == sorted(ratios)
    assert ({"any", "blocked", "nhwc", "plain", "per-op"} - {verdict.best, plan.chosen}) <= {
        rival.policy for rival in verdict.rivals
    }


def test_it_is_five_lines_of_a_pipe() -> None:
    lines = str(bl.load(nets.residual(), layout="per-op", tune="model").verdict()).splitlines()
    assert [line.split()[0] for line in lines] == LABELS
    assert max(map(width_of, lines)) <= 80
    assert "estimated" in lines[0]
    assert lines[1].endswith("%")


def test_a_run_off_is_measured_and_what_did_not_run_is_estimated() -> None:
    plan = bl.load(nets.residual(), tune="model").plan
    why = replace(plan.rationale, chosen="any", raced=(("nhwc", 1.0), ("any", 0.8), ("bold solve", 1.2)))
    verdict = Verdict.of([replace(plan, rationale=why)])
    rivals = {rival.policy: rival for rival in verdict.rivals}
    assert rivals["nhwc"].ratio.median == pytest.approx(1.25)
    assert {name for name, rival in rivals.items() if rival.is_measured} == {"nhwc"}
    assert rivals["plain"].ratio.median == pytest.approx(dict(plan.policy_costs)["plain"] / plan.cost_ns)
    assert {"any", "auto", "bold solve"}.isdisjoint(rivals)
    assert "(~ estimated)" in str(verdict)


@pytest.mark.runs_plans
def test_the_time_of_the_best_is_that_of_the_run_off_beside_whose_ratios_it_stands() -> None:
    session = bl.load(nets.residual())
    plan, verdict = session.plan, session.verdict()
    assert plan.raced_ns > 0
    assert (verdict.time.median, verdict.is_measured) == (plan.raced_ns * plan.parts, True)
    assert "measured" in str(verdict).splitlines()[0]


@pytest.mark.parametrize(
    ("raced_ns", "best", "others"), [(1e6, "1.00 ms measured", "%"), (0.0, "estimated", "measured")]
)
def test_of_a_run_off_without_its_time_the_others_alone_are_called_measured(
    raced_ns: float, best: str, others: str
) -> None:
    plan = bl.load(nets.residual(), tune="model").plan
    names = dict(plan.policy_costs)
    raced = tuple((name, 1.0 + number / 10) for number, name in enumerate(names))
    why = replace(plan.rationale, chosen=raced[0][0], raced=raced, raced_ns=raced_ns)
    first, second, *_ = str(Verdict.of([replace(plan, rationale=why)])).splitlines()
    assert f"{best};" in first
    assert second.endswith(others)


def test_times_of_a_profile_take_the_place_of_prices() -> None:
    session = bl.load(nets.residual(), layout="per-op")
    profile = session.profile(nets.feed_of(session), n_runs=2)
    verdict = session.verdict(profile)
    assert verdict.time.median == verdict.ns == pytest.approx(profile.ns)
    assert verdict.is_measured
    assert verdict.is_profiled
    moves = profile.by_kind["reorder"] + profile.by_kind["input"] + profile.by_kind["output"]
    assert verdict.reorders.ns == pytest.approx(moves)


def test_measurements_decide_and_a_policy_that_is_faster_beyond_the_spread_is_best() -> None:
    auto, nhwc, plain = (bl.load(nets.residual(), layout=name, tune="model").plan for name in ("auto", "nhwc", "plain"))
    own, close = measured(auto, [1.0] * 4, 2.0), measured(plain, [0.98, 0.98, 1.0, 1.1], 2.0)
    by_price = Verdict.of([auto])
    verdict = by_price.timed([own, measured(nhwc, [0.8] * 4, 2.0), close])
    assert (verdict.best, verdict.is_measured) == ("nhwc", True)
    assert verdict.time.median == pytest.approx(1.6e6)
    rivals = {rival.policy: rival for rival in verdict.rivals}
    assert rivals["auto"].ratio.median == pytest.approx(1.25)
    assert rivals["plain"].ratio.high == pytest.approx(1.375)
    assert rivals["plain"].is_measured
    assert "nhwc" not in rivals
    assert by_price.timed([own, close]).best == "auto"


def test_another_data_type_that_was_measured_is_advised_only_if_it_is_faster() -> None:
    plan = bl.load(nets.residual(), tune="model").plan
    narrow = replace(plan, config=replace(plan.config, dtype="bf16"))
    own, verdict = measured(plan, [1.0], 2.0), Verdict.of([plan])
    faster = verdict.timed([own, measured(narrow, [1.0], 1.0)]).advice
    assert faster is not None
    assert faster.option == "--dtype bf16"
    assert faster.share == pytest.approx(0.5)
    assert "2x as fast, measured" in faster.why
    assert verdict.timed([own, measured(narrow, [1.0], 2.5)]).advice is None


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_code_that_is_not_optimised_is_named_with_its_share() -> None:
    b = bl.Builder()
    b.output("y", b.op("Det", b.input("x", (2, 3, 3))))
    session = bl.load(b)
    [slow] = session.verdict().slow
    [step] = session.plan.plain_steps
    assert (slow.kernel, slow.how, slow.ns) == (step.kernel, "by onnx.reference", step.cost_ns)
    assert f"{step.kernel} by onnx.reference" in str(session.verdict())
    [slow] = session.verdict(session.profile({"x": np.ones((2, 3, 3), np.float32)}, n_runs=1)).slow
    assert slow.ns > 0


def test_of_a_model_in_pieces_all_plans_and_the_nodes_between_count() -> None:
    session = bl.load(model_of([*PLACES, NODE("Cast", ["p"], ["y"], to=F32)], {"x": IMAGE}))
    with pytest.raises(bl.PlanError, match="no plan yet"):
        session.verdict()
    feed = {"x": np.ones((1, 3, 8, 8), np.float32)}
    session.run(None, feed)
    verdict = session.verdict()
    assert [(each.kernel, each.how, each.ns) for each in verdict.slow if not each.ns] == [("nz", "in numpy", 0.0)]
    assert verdict.ns == pytest.approx(sum(plan.cost_ns for plan in session.plans))
    assert "nz in numpy" in str(verdict)
    timed = session.verdict(session.profile(feed, n_runs=1))
    assert {each.kernel: each.ns > 0 for each in timed.slow}["nz"]


def test_bf16_is_advised_where_the_cpu_multiplies_it_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bl.load(nets.residual(), tune="model").plan
    fast = replace(plan, config=replace(plan.config, isa="avx512_core_amx"))
    monkeypatch.setattr(verdict_module, "has_bf16", lambda: True)
    [advice] = verdict_module._precision_advice([fast], fast.cost_ns)
    assert advice.option == "--dtype bf16"
    assert 0 < advice.share < 1
    slow = replace(plan, config=replace(plan.config, isa="avx512_core_fp16"))
    [none] = verdict_module._precision_advice([slow], slow.cost_ns)
    assert none.share == 0
    monkeypatch.setattr(verdict_module, "has_bf16", lambda: False)
    monkeypatch.setattr(verdict_module, "multiplies_bytes", lambda: True)
    [advice] = verdict_module._precision_advice([plan], plan.cost_ns)
    assert advice.option == "blocklayout quantize"
    monkeypatch.setattr(verdict_module, "multiplies_bytes", lambda: False)
    assert not [*verdict_module._precision_advice([plan], plan.cost_ns)]


def test_nothing_narrower_is_advised_for_a_model_in_bytes() -> None:
    plan = bl.load(quantised.model_of(quantised.chain), tune="model").plan
    if any(desc.dtype == "u8" for desc in plan.formats.values()):
        assert not [*verdict_module._precision_advice([plan], plan.cost_ns)]


@pytest.mark.usefixtures("of_f32_alone")
def test_a_better_policy_and_pins_that_cost_are_advised_against() -> None:
    plain = bl.load(nets.residual(), layout="per-op", tune="model")
    advice = plain.verdict().advice
    costs = dict(plain.plan.policy_costs)
    assert advice is not None
    assert advice.option == "--layout auto"
    assert advice.share == pytest.approx(1 - costs["auto"] / plain.plan.cost_ns)
    pinned = bl.load(nets.residual(), pin={"Conv": "nchw"}, tune="model")
    assert pinned.plan.unpinned_ns is not None
    share = 1 - pinned.plan.unpinned_ns / pinned.plan.cost_ns
    advice = pinned.verdict().advice
    if share >= LEAST_GAIN:
        assert advice is not None
        assert advice.option.startswith("without --pin Conv=nchw")
        assert advice.share == pytest.approx(share)
    else:
        assert advice is None or not advice.option.startswith("without")


@pytest.mark.usefixtures("of_f32_alone")
def test_a_batch_is_advised_where_one_sample_waits_for_weights() -> None:
    rng = np.random.default_rng(0)
    b = bl.Builder()
    b.output("y", b.input("x", (1, 2048)).gemm(nets.he(rng, 2048, 2048), trans_b=True))
    fixed = b.to_onnx()
    free = onnx.ModelProto.FromString(fixed.SerializeToString())
    for value in (*free.graph.input, *free.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    advice = bl.load(free, shapes={"x": (1, 2048)}, tune="model").verdict().advice
    assert advice is not None
    assert advice.option == "--shape x=8x2048"
    batch = bl.load(free, shapes={"x": (8, 2048)}, tune="model").verdict().advice
    assert batch is None or "--shape" not in batch.option
    alone = bl.load(fixed, tune="model").verdict().advice
    assert alone is None or "--shape" not in alone.option


def test_the_borders_reorder_is_spared_by_the_callers_format() -> None:
    plan = bl.load(nets.residual(), layout="nhwc", io_layout={}, tune="model").plan
    asked = {each.option: each.share for each in verdict_module._advice(plan, plan.cost_ns)}
    moved = [reorder for reorder in plan.reorders if reorder.cost_ns]
    assert moved
    assert sum(share for option, share in asked.items() if option.startswith("--io-layout")) == pytest.approx(
        sum(reorder.cost_ns for reorder in moved) / plan.cost_ns
    )
    for option in asked:
        if option.startswith("--io-layout"):
            name, _, layout = option.removeprefix("--io-layout ").partition("=")
            spared = bl.load(nets.residual(), layout="nhwc", io_layout={name: layout}, tune="model").plan
            assert len(spared.reorders) < len(plan.reorders)
