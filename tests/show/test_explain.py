"""What a plan says of itself: runners-up, reorders and runs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.plan import find_runs, portfolio
from blocklayout.plan.runs import family
from tests import nets


def _flattened() -> bl.Builder:
    """A convolution whose result is flattened: the view needs it plain."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8)).conv(nets.he(rng, 16, 16, 3, 3), pads=1, name="conv").relu()
    b.output("y", x.flatten().gemm(nets.he(rng, 4, 1024), trans_b=True))
    return b


@pytest.fixture
def at_their_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices are taken as they are, whatever they may be wrong by."""
    monkeypatch.setattr(portfolio, "PROMISE", 0.0)


@pytest.mark.usefixtures("at_their_word")
def test_pinning_a_kernel_to_its_other_layout_costs_what_was_said() -> None:
    free = bl.load(nets.residual()).plan
    for choice in free.choices:
        other = choice.other_layout
        if not choice.chosen.impls or other is None:
            continue
        assert isinstance(other.way.dst, bl.MemoryDesc)
        assert isinstance(choice.chosen.dst, bl.MemoryDesc)
        if other.way.dst.physically_equal(choice.chosen.dst):
            continue
        forced = bl.load(nets.residual(), pin={choice.kernel: other.way.dst.named("src")}).plan
        assert forced.cost_ns == pytest.approx(free.cost_ns + other.extra_ns)


@pytest.mark.usefixtures("at_their_word")
def test_no_alternative_is_cheaper_than_an_optimal_plan() -> None:
    plan = bl.load(nets.residual()).plan
    assert plan.is_optimal
    for choice in plan.choices:
        for alternative in (choice.runner_up, choice.other_layout):
            assert alternative is None or alternative.extra_ns >= -1e-6
        if choice.runner_up and choice.other_layout:
            assert choice.runner_up.extra_ns <= choice.other_layout.extra_ns
    for reorder in plan.reorders:
        assert reorder.readers
        assert reorder.without_ns is None or reorder.without_ns >= -1e-6


def test_formats_name_every_value_of_the_model_those_included_that_only_a_primitive_holds() -> None:
    builder = nets.residual()
    plan = bl.load(builder).plan
    graph = bl.model.simplify(builder.to_graph())
    computed = {name for node in graph.nodes for name in node.outputs}
    assert computed | set(graph.inputs) == set(plan.formats)
    for name, desc in plan.formats.items():
        assert desc.dims == graph.values[name].shape
    with pytest.raises(bl.PlanError, match="closest are block1/a"):
        plan.format_of("block1/aa")


@pytest.mark.usefixtures("at_their_word")
def test_the_explanation_names_kernels_reorders_policies_and_runs() -> None:
    plan = bl.load(nets.residual(), layout="any").plan
    text = plan.explain()
    for expected in (*(c.kernel for c in plan.choices if c.chosen.impls), "per-op", "proven", "in blocked"):
        assert expected in text
    assert text.count("read by") == len(plan.reorders)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")
@pytest.mark.parametrize("layout", ["auto", "nhwc", "nChw8c"])
def test_every_step_has_its_reason(layout: str) -> None:
    b = bl.Builder()
    y = b.input("x", (1, 3, 8, 8)).conv(nets.he(np.random.default_rng(0), 17, 3, 3, 3), pads=1, name="first")
    b.output("y", b.op("Det", b.op("LRN", y, name="norm", size=4), name="det"))
    plan = bl.load(b, layout=layout).plan
    text = plan.explain().partition("why each is computed so, reorders apart:\n")[2].partition("\n\n")[0]
    lines = text.split("\n")
    said = {
        (name, why.strip())
        for why, names in zip(lines[::2], lines[1::2], strict=True)
        for name in names.strip().split(", ")
    }
    steps = [step for step in plan.steps if not step.is_reorder]
    assert {step.kernel for step in steps} == {"first", "norm", "det"}
    slow = "by reference code: oneDNN has nothing faster for this lrn in any layout asked for"
    reasons = {(each.kernel, each.reason + f", {slow}" * each.is_reference) for each in steps}
    assert said == reasons | {*plan.exceptions}
    assert ("det", "node 'det': no primitive computes 'Det'") in said


def test_every_reader_of_a_copy_is_named() -> None:
    plan = bl.load(nets.residual(), layout="nhwc").plan
    for step in plan.steps:
        if step.is_reorder:
            copy = dict(step.operands)["dst"].buffer
            readers = {s.kernel for s in plan.steps if any(a != "dst" and o.buffer == copy for a, o in s.operands)}
            outputs = {result.buffer for result in plan.results}
            assert set(step.readers) == readers | ({"the caller"} if copy in outputs else set())


@pytest.mark.parametrize("layout", ["nhwc", "nChw8c"])
def test_a_run_ends_with_the_operator_that_drops_it(layout: str) -> None:
    plan = bl.load(_flattened(), layout=layout).plan
    [run] = find_runs(plan)
    assert run.kernels == ("conv",)
    [end] = run.ends
    assert end.reader.startswith("flatten")
    assert end.is_loss
    assert family(end.reads) == "plain"


@pytest.mark.parametrize("layout", ["nhwc", "nChw8c"])
def test_a_lost_layout_is_warned_of_or_refused(layout: str) -> None:
    expected = r"flatten_2 \(\w+\) drops a run of 1 kernel .* f32 1x16x8x8 \w+ strides \(.*\), reads nchw and writes nc"
    with pytest.raises(bl.PlanError, match=expected):
        bl.load(_flattened(), layout=layout, on_layout_loss="raise")
    with pytest.warns(bl.LayoutLossWarning, match=expected):
        bl.load(_flattened(), layout=layout, on_layout_loss="warn")


def test_no_loss_is_reported_where_the_layout_makes_no_difference() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bl.load(nets.residual(), layout="nhwc", on_layout_loss="warn")


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(bl.PlanError, match="give 'warn' or 'raise'"):
        bl.load(nets.chain(), on_layout_loss="ignore")  # type: ignore[arg-type]
