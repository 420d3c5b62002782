"""What must hold of every plan, whatever the network and the policy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl import resolution
from blocklayout.dtypes import to_numpy
from blocklayout.plan import POLICIES, Plan, portfolio
from blocklayout.plan.assemble import Assembly, assemble
from blocklayout.plan.network import Choice, Network
from blocklayout.runtime import Workspace
from tests import nets

NETS: dict[str, Callable[[], bl.Builder]] = {
    "chain": nets.chain,
    "residual": nets.residual,
    "odd": lambda: nets.residual(channels=17, batch=3),
    "mobile": nets.mobile,
}


each_net = pytest.mark.parametrize("net", NETS)


@cache
def plan_of(net: str, policy: str) -> Plan:
    """The plan of a network, which is the same each time and cannot be changed."""
    return bl.load(NETS[net](), layout=policy).plan


@cache
def reference_of(net: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What a network is fed, and what it gives."""
    builder = NETS[net]()
    feed = nets.feed_of(bl.load(builder))
    outputs: Any = ReferenceEvaluator(builder.to_onnx()).run(None, feed)
    return feed, outputs[0]


@each_net
@pytest.mark.parametrize("policy", [*POLICIES, "nChw8c"])
def test_every_policy_computes_the_reference(net: str, policy: str) -> None:
    feed, expected = reference_of(net)
    session = bl.load(NETS[net](), layout=policy)
    error = np.abs(session.run(None, feed)[0] - expected).max() / np.abs(expected).max()
    assert error < 1e-5


@each_net
@pytest.mark.parametrize("policy", POLICIES)
def test_padding_is_zero_after_every_step(net: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocklayout.dnnl.executable.native", lambda: None)  # step by step
    plan = plan_of(net, policy)
    session = bl.load(NETS[net](), plan=plan)
    workspace = next(iter(session._book._plans.values())).workspaces[0]
    _poison(workspace)
    checked: list[bool] = []
    executable = workspace.executable(dict(plan.inputs))
    n_entries = len(plan.entries)
    pairs = zip(executable._steps[n_entries:], plan.steps, strict=True)
    watched: list[Any] = [_Checked(_primitive(execution), step.dst.desc, checked) for execution, step in pairs]
    executable._parts = (*executable._steps[:n_entries], *watched)
    session.run(None, nets.feed_of(session))
    assert len(checked) == len(plan.steps)
    assert all(checked)


def _primitive(execution: Any) -> dnnl.Execution:
    assert isinstance(execution, dnnl.Execution)
    return execution


class _Checked:
    """An execution that looks at the padding of what it wrote."""

    def __init__(self, execution: bl.dnnl.Execution, desc: bl.MemoryDesc, log: list[bool]) -> None:
        self._execution, self._desc, self._log = execution, desc, log
        self.memories = execution.memories

    def run(self) -> None:
        self._execution.run()
        buffer = self.memories["dst"].buffer
        assert isinstance(buffer, np.ndarray)
        values = buffer.reshape(-1).view(np.uint8)[: self._desc.nbytes].view(to_numpy(self._desc.dtype))
        holds = np.zeros(values.size, bool)
        holds[self._desc.offsets().reshape(-1)] = True
        self._log.append(bool((values[~holds] == 0).all() and np.isfinite(values[holds].astype(np.float32)).all()))


def _poison(workspace: Workspace) -> None:
    workspace.arena.view(np.float32)[:] = np.nan
    workspace.scratchpad[:] = 255


@each_net
def test_auto_is_never_above_another_policy(net: str) -> None:
    plan = plan_of(net, "auto")
    costs = dict(plan.policy_costs)
    assert plan.cost_ns == pytest.approx(min(costs.values()))
    for name, cost in costs.items():
        assert cost == pytest.approx(plan.cost_ns if name == "auto" else cost)
        assert plan.cost_ns <= cost + 1e-6
        if name in POLICIES:
            assert plan_of(net, name).cost_ns == pytest.approx(cost)


def test_a_run_of_convolutions_has_no_reorder_inside() -> None:
    plan = bl.load(nets.chain(convs=4)).plan
    work = [index for index, step in enumerate(plan.steps) if not step.is_reorder]
    assert not any(step.is_reorder for step in plan.steps[work[0] : work[-1] + 1])
    assert len(work) == 4 or not dnnl.has_isa("avx2")  # below, blocks have convolutions that fuse no Relu


@each_net
@pytest.mark.parametrize("policy", POLICIES)
def test_no_reorder_is_wasted(net: str, policy: str) -> None:
    plan = plan_of(net, policy)
    made = set()
    constants = {index for index, buffer in enumerate(plan.buffers) if buffer.kind == "constant"}
    written_by_reorder = set()
    for step in plan.steps:
        operands = dict(step.operands)
        if not step.is_reorder:
            written_by_reorder.discard(operands["dst"].buffer)
            continue
        src, dst = operands["src"], operands["dst"]
        assert not src.desc.readable_as(dst.desc), "it could have been read as it was"
        assert src.buffer not in constants, "constants are packed before the run"
        assert (src.buffer, dst.desc) not in made, "one per value and layout"
        if policy != "per-op":
            assert src.buffer not in written_by_reorder, "two in a row"
        made.add((src.buffer, dst.desc))
        written_by_reorder.add(dst.buffer)


def _wholes(plan: Plan, buffer: int) -> list[int]:
    """The buffers that a buffer is a part of, the next one first."""
    within = plan.buffers[buffer].within
    return [] if within is None else [within, *_wholes(plan, within)]


@each_net
@pytest.mark.parametrize("policy", POLICIES)
def test_slices_lie_inside_of_what_they_are_part_of(net: str, policy: str) -> None:
    plan = plan_of(net, policy)
    for index, buffer in enumerate(plan.buffers):
        for whole in (plan.buffers[other] for other in _wholes(plan, index)):
            assert whole.offset <= buffer.offset
            assert buffer.offset + buffer.nbytes <= whole.offset + whole.nbytes


@each_net
@pytest.mark.parametrize("policy", POLICIES)
def test_buffers_alive_together_do_not_overlap(net: str, policy: str) -> None:
    plan = plan_of(net, policy)
    spans: dict[int, tuple[int, int]] = {entry.buffer: (-1, -1) for entry in plan.entries}
    for position, step in enumerate(plan.steps):
        for _, operand in step.operands:
            spans[operand.buffer] = (spans.get(operand.buffer, (position, 0))[0], position)
    arena = [index for index in spans if plan.buffers[index].kind in ("arena", "entry")]
    for a in arena:
        for b in arena:
            is_part = b in _wholes(plan, a) or a in _wholes(plan, b)
            if a < b and not is_part and spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]:
                first, second = plan.buffers[a], plan.buffers[b]
                apart = first.offset + first.nbytes <= second.offset or second.offset + second.nbytes <= first.offset
                assert apart, f"{first} and {second}"
    assert plan.arena_lower_bound <= plan.arena_nbytes


@each_net
@pytest.mark.parametrize("policy", POLICIES)
def test_plans_round_trip_through_json(net: str, policy: str) -> None:
    plan = plan_of(net, policy)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert str(again) == str(plan)


def test_a_reorder_without_its_source_is_no_plan() -> None:
    plan = bl.load(nets.chain(), layout="per-op").plan
    record = json.loads(plan.to_json())
    number = next((number for number, step in enumerate(plan.steps) if step.is_reorder), None)
    if number is None:
        pytest.skip("all kernels are row-major on this CPU")
    record["steps"][number]["operands"] = record["steps"][number]["operands"][-1:]
    with pytest.raises(bl.PlanError, match=rf"steps.{number}.operands: a reorder has src and dst"):
        Plan.from_json(json.dumps(record))


def test_a_plan_read_from_json_runs() -> None:
    session = bl.load(nets.residual())
    [kept] = session._book._plans.values()
    before_it = kept.workspaces[0]
    again = Workspace(replace(kept.ready, plan=Plan.from_json(kept.ready.plan.to_json())))
    feed = nets.feed_of(session)
    before = session.run(None, feed)[0]
    kept.workspaces[0] = again
    session._book._bound.clear()
    np.testing.assert_array_equal(session.run(None, feed)[0], before)
    assert before_it is not again


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 99}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(bl.PlanError, match="not a plan"):
        Plan.from_json(text)


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a number that is text": (lambda plan: plan["config"].update(n_threads="2"), r"config\.n_threads"),
    "a missing field": (lambda plan: plan["steps"][0].pop("reason"), r"steps\.0\.reason"),
    "another kind of buffer": (lambda plan: plan["buffers"][0].update(kind="disk"), r"buffers\.0\.kind"),
    "a layout that cannot exist": (lambda plan: plan["values"][0][1].update(dims=[-1, 2]), r"values\.0\.1"),
    "a primitive that cannot exist": (lambda plan: plan["steps"][0]["spec"].update(kind="nothing"), "nothing"),
    "another version": (lambda plan: plan.update(version=99), "version"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_is_refused_by_the_name_of_the_field(damage: str) -> None:
    plan = json.loads(bl.load(nets.chain()).plan.to_json())
    change, named = DAMAGES[damage]
    change(plan)
    with pytest.raises(bl.PlanError, match=f"not a plan of this version: .*{named}"):
        Plan.from_json(json.dumps(plan))


def test_the_same_model_gives_the_same_plan_under_any_hash_seed(tree_environ: dict[str, str]) -> None:
    script = (
        "import blocklayout as bl; from tests import nets; "
        "print(bl.load(nets.mobile(), threads=2, tune='model').plan.to_json())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=tree_environ | {"PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == bl.load(nets.mobile(), threads=2, tune="model").plan.to_json() + "\n"


def test_a_plan_reads_the_same_whatever_was_planned_before() -> None:
    """Networks share the library's answers, and call the same layouts by other names."""
    reshaped, multiplied = bl.Builder(), bl.Builder()
    reshaped.output("y", reshaped.input("x", (2, 17, 1, 1)).reshape((2, 17)))
    multiplied.output("y", multiplied.op("Gemm", multiplied.input("x", (2, 17)), np.ones((17, 17), np.float32)))
    texts: dict[bl.Builder, list[str]] = {reshaped: [], multiplied: []}
    for order in (texts, reversed(texts)):
        for known in (resolution._ask, resolution._ask_optimised):
            known.cache_clear()
        for each in order:
            texts[each].append(bl.load(each, layout="plain", io_layout={"y": "ba"}, tune="model").plan.to_json())
    assert [len(set(each)) for each in texts.values()] == [1, 1]


@each_net
def test_no_reference_step_where_another_exists(net: str) -> None:
    for policy in POLICIES:
        assert plan_of(net, policy).reference_steps == ()


@each_net
def test_the_choice_costs_what_its_steps_cost(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float]] = []

    def spy(network: Network, choice: Choice, *, returns_to_plain: bool = False) -> Assembly:
        assembly = assemble(network, choice, returns_to_plain=returns_to_plain)
        if not returns_to_plain:
            seen.append((network.total_ns(choice), assembly.cost_ns))
        return assembly

    monkeypatch.setattr(portfolio, "assemble", spy)
    bl.load(NETS[net]())
    assert seen
    for total, assembled in seen:
        assert total == pytest.approx(assembled)


def test_policies_that_do_not_exist_are_refused() -> None:
    with pytest.raises(bl.PlanError, match="auto, any, blocked, nhwc, plain, per-op"):
        bl.load(nets.chain(), layout="fastest")


def test_bf16_is_refused_where_the_cpu_has_none() -> None:
    if bl.dnnl.has_bf16():
        pytest.skip("this CPU computes in bf16")
    with pytest.raises(bl.UnsupportedError, match="avx512_core"):
        bl.load(nets.chain(), dtype="bf16")


def test_bf16_is_close_to_f32() -> None:
    if not bl.dnnl.has_bf16():
        pytest.skip(f"this CPU has no bf16 ({bl.dnnl.isa()})")
    for policy in POLICIES:
        exact, rounded = (bl.load(nets.chain(), layout=policy, dtype=dtype) for dtype in ("f32", "bf16"))
        feed = nets.feed_of(exact)
        expected = exact.run(None, feed)[0]
        error = np.abs(rounded.run(None, feed)[0] - expected).max() / np.abs(expected).max()
        assert error < 6e-2
        assert rounded.run(None, feed)[0].dtype == np.float32


def test_max_isa_is_part_of_the_plan(tree_environ: dict[str, str]) -> None:
    script = "import blocklayout as bl; from tests import nets; print(bl.load(nets.chain(), layout='blocked').plan.isa)"
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=tree_environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout.strip() == "avx2"
