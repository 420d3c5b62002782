"""What a plan's record says of memory: buffers, their spans and values, and the bytes alive at each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.plan.place import ALIGNMENT, lifetimes
from blocklayout.show.plan_record import held_values, plan_record
from tests import nets


def _concat() -> bl.Builder:
    """Two convolutions that write their slices of a concatenation where layouts allow it, and one behind them."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 8, 8, 8)).conv(nets.he(rng, 16, 8, 3, 3), pads=1).relu()
    parts = [x.conv(nets.he(rng, n, 16, 3, 3), pads=1, name=f"part{n}").relu() for n in (16, 8)]
    b.output("y", b.concat(parts, name="joined").conv(nets.he(rng, 16, 24, 3, 3), pads=1, name="behind"))
    return b


NETWORKS = {"residual": nets.residual, "mobile": nets.mobile, "chain": nets.chain, "concat": _concat}


@pytest.fixture(scope="module", params=[(name, layout) for name in NETWORKS for layout in ("auto", "nchw", "nhwc")])
def plan(request: pytest.FixtureRequest) -> bl.Plan:
    name, layout = request.param
    with bl.load(NETWORKS[name](), layout=layout, tune="model") as session:
        return session.plan


def _in_arena(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in record["buffers"] if each["kind"] in ("arena", "entry") and each["first"] is not None]


def test_spans_reach_from_the_first_to_the_last_step_that_touches_a_buffer(plan: bl.Plan) -> None:
    spans = lifetimes(plan.entries, plan.steps, plan.buffers)
    for number, step in enumerate(plan.steps):
        for _, operand in step.operands:
            first, last = spans[operand.buffer]
            assert first <= number <= last
    for index, (first, last) in spans.items():
        parts = {index, *(at for at, buffer in enumerate(plan.buffers) if buffer.within == index)}
        touched = {n for n, step in enumerate(plan.steps) if parts & {operand.buffer for _, operand in step.operands}}
        touched |= {-1} if index in {entry.buffer for entry in plan.entries} else set()
        assert (first, last) == (min(touched), max(touched))


def test_a_part_lies_within_its_whole_in_place_and_in_time(plan: bl.Plan) -> None:
    buffers = plan_record(plan)["buffers"]
    for each in buffers:
        if each["within"] is not None:
            whole = buffers[each["within"]]
            assert whole["offset"] <= each["offset"]
            assert each["offset"] + each["nbytes"] <= whole["offset"] + whole["nbytes"]
            assert whole["first"] <= each["first"] <= each["last"] <= whole["last"]


def test_most_bytes_alive_are_the_bound_and_fit_the_arena(plan: bl.Plan) -> None:
    record = plan_record(plan)
    alive = record["memory"]["alive_nbytes"]
    assert len(alive) == len(plan.steps) + 1
    assert max(alive) == plan.arena_lower_bound <= plan.arena_nbytes
    for number, nbytes in enumerate(alive, start=-1):
        wholes = [each for each in _in_arena(record) if each["within"] is None]
        together = [each["nbytes"] for each in wholes if each["first"] <= number <= each["last"]]
        assert nbytes == sum(-(-each // ALIGNMENT) * ALIGNMENT for each in together)


def test_buffers_alive_together_are_apart(plan: bl.Plan) -> None:
    wholes = [each for each in _in_arena(plan_record(plan)) if each["within"] is None and each["nbytes"]]
    for index, a in enumerate(wholes):
        for b in wholes[index + 1 :]:
            if a["first"] <= b["last"] and b["first"] <= a["last"]:
                assert a["offset"] + a["nbytes"] <= b["offset"] or b["offset"] + b["nbytes"] <= a["offset"]


def test_writers_are_the_steps_that_write_and_the_kernel_is_theirs(plan: bl.Plan) -> None:
    record = plan_record(plan)
    for index, each in enumerate(record["buffers"]):
        writers = [n for n, step in enumerate(plan.steps) if index in {operand.buffer for operand in step.dsts}]
        assert each["writers"] == writers
        if writers and each["kernel"] is not None:
            assert record["kernels"][each["kernel"]]["name"] == plan.steps[writers[0]].kernel
        assert each["desc"] is not None
        assert each["values"]


def test_every_value_that_is_written_is_held_by_one_buffer_or_is_inside_a_primitive(plan: bl.Plan) -> None:
    held = {value for values in held_values(plan).values() for value in values}
    inside = {value for choice in plan.choices for value in choice.holds}
    assert set(plan.formats) - held <= inside


def test_a_sum_in_place_is_a_second_value_of_the_same_buffer() -> None:
    with bl.load(nets.residual(), tune="model") as session:
        plan = session.plan
    summing = [choice for choice in plan.choices if choice.chosen.in_place]
    if not summing:
        pytest.skip("no sum is in place on this CPU")
    for choice in summing:
        [values] = [list(values) for values in held_values(plan).values() if choice.writes in values]
        assert len(values) > 1


def test_weights_are_summed_before_and_after_packing() -> None:
    with bl.load(zoo.build("squeezenet1_1", size=64), tune="model") as session:
        record = plan_record(session.plan)
    memory, descs = record["memory"], record["descs"]
    packed = [descs[each["desc"]] for each in record["constants"]]
    assert memory["weights_nbytes"] == sum(each["nbytes"] for each in packed)
    assert memory["weights_elements_nbytes"] == sum(each["elements_nbytes"] for each in packed)
    assert memory["weights_elements_nbytes"] <= memory["weights_nbytes"]
