"""What the library offers and then refuses leads to the next candidate, once, and is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.runtime import ReadyPlan, Workspace
from tests import nets
from tests.refusing import Refusing

Refuse = Callable[[Callable[[dnnl.Spec], bool]], None]


def convolution() -> bl.Builder:
    return nets.chain(channels=16, convs=1)


def chosen(session: bl.Session) -> str:
    """The implementation of the convolution."""
    [impl] = {step.spec.impl for step in session.plan.steps if step.spec.kind == "convolution"}
    return impl


def of_implementation(impl: str) -> Callable[[dnnl.Spec], bool]:
    return lambda spec: spec.kind == "convolution" and spec.impl == impl


@pytest.mark.parametrize("doing", ["create", "run"])
@pytest.mark.parametrize("tune", ["model", "cached"])
def test_the_next_candidate_computes_it_and_the_plan_says_why(tune: str, doing: str, refusing: Refusing) -> None:
    before = bl.load(convolution(), tune=tune)  # type: ignore[arg-type]
    impl, feed = chosen(before), nets.feed_of(before)
    expected = before.run(None, feed)[0]
    refuse: Refuse = getattr(refusing, doing)
    refuse(of_implementation(impl))
    session = bl.load(convolution(), tune=tune)  # type: ignore[arg-type]
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-4, atol=1e-4)
    plan, n_met = session.plan, len(refusing.met)
    assert n_met
    assert chosen(session) != impl
    assert any(
        kernel == "conv0" and impl in reason and f"refused to {doing}" in reason for kernel, reason in plan.exceptions
    )
    assert f"exception: conv0: oneDNN offers {impl}" in str(plan)
    assert bl.load(convolution(), tune=tune).plan == plan  # type: ignore[arg-type]
    assert len(refusing.met) == n_met


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("doing", ["create", "run"])
@pytest.mark.parametrize("kinds", [("reorder",), ("convolution", "reorder", "eltwise")], ids="+".join)
def test_where_the_library_refuses_all_of_a_kind_numpy_computes(
    kinds: tuple[str, ...], doing: str, refusing: Refusing
) -> None:
    before = bl.load(convolution(), layout="blocked")
    feed = nets.feed_of(before)
    expected = before.run(None, feed)[0]
    refuse: Refuse = getattr(refusing, doing)
    refuse(lambda spec: spec.kind in kinds)
    session = bl.load(convolution(), layout="blocked")
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-4, atol=1e-4)
    assert {step.spec.kind for step in session.plan.steps} <= {"copy", "convolution", "plain", "numpy"}


def test_what_only_we_compute_is_left_to_numpy_where_we_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocklayout.dnnl.own.native", lambda: None)
    b = bl.Builder()
    b.output("y", b.input("x", (2, 9)).pad((0, 5, 0, 8), mode="reflect"))
    session, x = bl.load(b), nets.random_input((2, 9))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.pad(x, ((0, 0), (5, 8)), "reflect"))
    assert [step.spec.kind for step in session.plan.steps] == ["numpy"]


def test_another_process_replays_the_plan_that_runs(refusing: Refusing) -> None:
    impl = chosen(bl.load(convolution()))
    refusing.create(of_implementation(impl))
    plan = bl.load(convolution()).plan
    refusing.met.clear()
    assert bl.load(convolution(), plan=bl.Plan.from_json(plan.to_json())).plan == plan
    refusing.forget()
    assert bl.load(convolution()).plan == plan
    assert not refusing.met


def test_what_cannot_be_measured_is_not_chosen(refusing: Refusing) -> None:
    impl = chosen(bl.load(convolution()))
    refusing.create(of_implementation(impl))
    session = bl.load(convolution(), tune="measure", tune_seconds=0.3)
    assert chosen(session) != impl
    assert len(refusing.met) == len({*refusing.met})


def test_every_refusal_of_a_plan_is_met_at_once(refusing: Refusing) -> None:
    b = nets.mobile()
    plan = bl.load(b, tune="model", layout="nhwc").plan
    refused = {step.spec for step in plan.steps if step.spec.kind == "convolution"}
    told: list[str] = []
    refusing.create(refused.__contains__)
    again = bl.load(b, tune="model", layout="nhwc", progress=told.append).plan
    assert {*refusing.met} == refused
    assert told.count("choosing layouts") == 2
    assert not refused & {step.spec for step in again.steps}


def test_a_given_plan_that_is_refused_is_told_of_or_replaced(refusing: Refusing) -> None:
    plan = bl.load(convolution()).plan
    [impl] = {step.spec.impl for step in plan.steps if step.spec.kind == "convolution"}
    refusing.create(of_implementation(impl))
    with pytest.raises(bl.PlanError, match=r"the plan cannot be followed: .*conv0") as caught:
        bl.load(convolution(), plan=plan)
    assert any(note.startswith(f"conv0: oneDNN offers {impl}, and refuses to create it") for note in _notes(caught))
    with pytest.warns(bl.PlanMisfitWarning, match=r"the plan cannot be followed: .*conv0"):
        assert chosen(bl.load(convolution(), plan=plan, on_misfit="replan")) != impl


@pytest.mark.parametrize("doing", ["create", "run"])
def test_a_saved_session_names_what_is_refused(doing: str, tmp_path: Path, refusing: Refusing) -> None:
    first = bl.load(convolution())
    impl, feed = chosen(first), nets.feed_of(first)
    first.save(tmp_path / "net.bl")
    refuse: Refuse = getattr(refusing, doing)
    refuse(of_implementation(impl))
    with pytest.raises(bl.PlanError) as caught:
        bl.load(tmp_path / "net.bl").run(None, feed)
    told = "\n".join([str(caught.value), *_notes(caught)])
    assert f"conv0: oneDNN offers {impl}, and refuses to {doing} it" in told
    assert "load the model" in told


def test_where_no_primitive_is_left_numpy_computes_it(refusing: Refusing) -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 16, 4, 4)).tanh(name="curve"))
    refusing.create(lambda spec: spec.kind == "eltwise")
    session = bl.load(b)
    assert [step.spec.impl for step in session.plan.steps] == ["numpy"]
    x = nets.random_input((1, 16, 4, 4))
    np.testing.assert_allclose(session(x), np.tanh(x), rtol=1e-5)


def test_a_plain_run_names_kernel_and_implementation(refusing: Refusing) -> None:
    from blocklayout.loading.from_model import constants_of
    from blocklayout.model import legalize, lower, simplify
    from blocklayout.plan.prepack import PackedWeights

    plan = bl.load(convolution()).plan
    refusing.run(lambda spec: spec.kind == "convolution")
    constants = constants_of(lower(legalize(simplify(convolution().to_graph()))))
    workspace = Workspace(ReadyPlan(plan, PackedWeights().pack(plan, constants.pop), {}))
    buffers = [dnnl.aligned_empty(desc.nbytes) for _, desc in plan.inputs]
    match = r"^conv0: oneDNN offers \S+, and refuses to run it: .*ONEDNN_VERBOSE=check.*: load the model"
    with pytest.raises(bl.RefusedError, match=match):
        workspace.run(workspace.executable(dict(plan.inputs)), buffers)


def _notes(caught: pytest.ExceptionInfo[Exception]) -> list[str]:
    return getattr(caught.value, "__notes__", [])


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("layout", ["auto", "any", "plain", "nhwc", "blocked"])
@pytest.mark.parametrize(("n_in", "n_out"), [(1, 16), (1, 17), (16, 1)])
def test_one_pixel_of_one_channel_is_no_layout_to_choose_by(n_in: int, n_out: int, layout: str) -> None:
    """The library offers implementations for it that it does not create once the layouts are given."""
    b = bl.Builder()
    weights = nets.he(np.random.default_rng(0), n_out, n_in, 3, 3)
    b.output("y", b.input("x", (1, n_in, 1, 1)).conv(weights, pads=1).relu())
    session = bl.load(b, layout=layout, tune="model")
    x = nets.random_input((1, n_in, 1, 1))
    expected = np.maximum(weights[:, :, 1, 1] @ x.reshape(n_in), 0)
    np.testing.assert_allclose(session(x).reshape(n_out), expected, rtol=1e-4, atol=1e-5)
    assert not dnnl.refusals()
