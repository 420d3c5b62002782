"""No edited or damaged plan crashes, and none gives another answer than the model's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import blocklayout as bl
from blocklayout.ir import HostSpec, Program
from blocklayout.loading.saved_plan import check_here, check_program
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan.checked import check_bounds
from blocklayout.plan.plan import Rationale
from tests import nets
from tests.loading.mutations import fields, mutations


@dataclass(frozen=True)
class Subject:
    """A network with its plan, and what it computes."""

    net: bl.Builder
    plan: bl.Plan
    program: Program
    feed: dict[str, np.ndarray]
    expected: np.ndarray

    def survives(self, text: str) -> bool:
        """Whether a plan of this text is taken, and then computes the same; anything but a PlanError is raised."""
        try:
            plan = bl.Plan.from_json(text)
            check_here(plan)
            check_program(plan, self.program)
            session = bl.load(self.net, plan=plan)
        except bl.PlanError:
            return False
        if essence(plan) != essence(self.plan):
            [output] = session.run(None, self.feed)
            np.testing.assert_array_equal(output, self.expected)
        return True


def essence(plan: bl.Plan) -> bl.Plan:
    """A plan without what only tells its reader something."""
    return replace(
        plan,
        model="",
        values=(),
        rationale=Rationale((), "", (), 0.0, False, False, None, "", (), (), 0),
        entries=tuple(replace(entry, reason="", cost_ns=0.0, readers=(), without_ns=None) for entry in plan.entries),
        steps=tuple(replace(step, reason="", cost_ns=0.0, readers=(), without_ns=None) for step in plan.steps),
        buffers=tuple(replace(buffer, name="") for buffer in plan.buffers),
        constants=tuple(replace(packed, kernel="") for packed in plan.constants),
    )


def plain_and_native() -> bl.Builder:
    """With steps that numpy computes."""
    b = bl.Builder()
    x = b.input("x", (2, 17, 6, 6))
    y = x.conv(nets.he(np.random.default_rng(0), 17, 17, 3, 3), pads=1)
    b.output("y", b.op("CumSum", y, np.array(1)).relu())
    return b


NETS = {"single": lambda: nets.chain(convs=1), "residual": nets.residual, "plain": plain_and_native}


@cache
def subject(name: str, layout: str = "auto") -> Subject:
    net = NETS[name]()
    session = bl.load(net, layout=layout)
    feed = nets.feed_of(session)
    return Subject(net, session.plan, lower(legalize(simplify(net.to_graph()))), feed, session.run(None, feed)[0])


@cache
def damages(name: str, layout: str) -> tuple[tuple[tuple[str | int, ...], Any], ...]:
    return tuple(fields(json.loads(subject(name, layout).plan.to_json())))


NAMED = {
    "steps deleted",
    "config.n_threads = -1",
    "config.dtype = ''",
    "config.policy = 'nonsense'",
    "entries.0.buffer = -1",
}


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_a_plan_without_damage_survives() -> None:
    for name in NETS:
        assert subject(name).survives(subject(name).plan.to_json()), name


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.full_size)])
def test_no_damage_to_a_field_of_a_plan_is_harmful(every: int) -> None:
    whole = subject("single", "blocked")
    data = json.loads(whole.plan.to_json())
    tried = [mutation for path, value in fields(data) for mutation in mutations(path, value)]
    some = [mutation for number, mutation in enumerate(tried) if number % every == 0 or str(mutation) in NAMED]
    refused = {str(mutation) for mutation in some if not whole.survives(json.dumps(mutation.of(data)))}
    assert refused >= NAMED


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@settings(max_examples=40)
@given(data=st.data())
def test_damage_to_larger_plans_is_not_harmful_either(data: st.DataObject) -> None:
    name, layout = data.draw(st.sampled_from((("residual", "auto"), ("residual", "per-op"), ("plain", "blocked"))))
    path, value = data.draw(st.sampled_from(damages(name, layout)))
    mutation = data.draw(st.sampled_from(tuple(mutations(path, value))))
    whole = subject(name, layout)
    whole.survives(json.dumps(mutation.of(json.loads(whole.plan.to_json()))))


def operand(plan: dict[str, Any], number: int, arg: str) -> dict[str, Any]:
    found: dict[str, Any] = dict(plan["steps"][number]["operands"])[arg]
    return found


def swap_constants(plan: dict[str, Any]) -> None:
    first, second, *_ = (each for step in plan["steps"] for argument, each in step["operands"] if argument == "weights")
    first["buffer"], second["buffer"] = second["buffer"], first["buffer"]


def change_activation(plan: dict[str, Any]) -> None:
    """Of the first kernel: a post-op, or a step where the convolution takes none."""
    convolution, activation = (step["spec"] for step in plan["steps"][:2])
    relu = convolution["attr"]["post_ops"][0] if "attr" in convolution else activation
    assert relu["algorithm"] == "eltwise_relu"
    relu["alpha"] = 0.5


def swap_steps(plan: dict[str, Any]) -> None:
    steps = plan["steps"]
    steps[1], steps[2] = steps[2], steps[1]


def share_arena(plan: dict[str, Any]) -> None:
    for buffer in plan["buffers"]:
        buffer["offset"] = 0


def stretch_entry(plan: dict[str, Any]) -> None:
    """Let what is fed lie terabytes apart, in buffers that agree."""
    entry, strides = plan["entries"][0], [17 << 40, 1 << 40, 12, 1]
    desc = {"dims": entry["desc"]["dims"], "dtype": "f32", "strides": strides}
    nbytes = bl.MemoryDesc.from_dict(desc).nbytes
    entry["desc"] = desc
    plan["steps"][0]["operands"] = [
        [arg, each | {"desc": desc}] if each["buffer"] == entry["buffer"] else [arg, each]
        for arg, each in plan["steps"][0]["operands"]
    ]
    descs = plan["steps"][0]["spec"]["descs"]
    plan["steps"][0]["spec"]["descs"] = [[arg, desc if arg == "src" else each] for arg, each in descs]
    plan["buffers"][entry["buffer"]].update(nbytes=nbytes, offset=plan["arena_nbytes"])
    plan["arena_nbytes"] += -(-nbytes // 64) * 64


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a buffer that is not there": (
        lambda p: operand(p, 0, "dst").update(buffer=99),
        r"steps\.0\.operands\.dst\.buffer is 99",
    ),
    "a negative buffer": (lambda p: operand(p, 0, "dst").update(buffer=-1), r"steps\.0\.operands\.dst\.buffer is -1"),
    "another descriptor": (
        lambda p: operand(p, 1, "src")["desc"].update(dims=[1, 17, 12, 13]),
        r"steps\.1\.operands\.src\.desc",
    ),
    "an offset off the grid": (lambda p: p["buffers"][0].update(offset=4), r"buffers\.0\.offset is 4"),
    "a smaller arena": (lambda p: p.update(arena_nbytes=64), "arena_nbytes is 64"),
    "a huge arena": (lambda p: p.update(arena_nbytes=2**60), "arena_nbytes"),
    "an input of terabytes": (stretch_entry, r"entries\.0\.desc"),
    "buffers in one place": (share_arena, r"buffers\.\d\.offset is 0"),
    "weights of another kernel": (swap_constants, r"steps\.0\.operands\.weights\.buffer"),
    "a constant of another model": (lambda p: p["constants"][0].update(constant="w"), r"constants\.0\.constant"),
    "steps in another order": (swap_steps, r"steps\.1\.kernel"),
    "a step left out": (lambda p: p["steps"].pop(1), r"steps\.1\.kernel"),
    "another algorithm": (lambda p: p["steps"][0]["spec"].update(algorithm="convolution_winograd"), r"steps\.0\.spec"),
    "another activation": (change_activation, r"steps\.[01]\.spec"),
    "another implementation": (lambda p: p["steps"][0]["spec"].update(impl="jit:sse2000"), r"steps\.0\.spec"),
    "a smaller scratchpad": (
        lambda p: [each.update(scratchpad_nbytes=64) for each in (*p["steps"], p)],
        r"steps\.0\.scratchpad_nbytes is 64",
    ),
    "a cost that is no number": (lambda p: p["steps"][0].update(cost_ns=float("nan")), r"steps\.0\.cost_ns"),
    "an output of another name": (lambda p: p["results"][0].update(name="z"), "results"),
    "an output that is an input": (lambda p: p["results"][0].update(buffer=0), r"results\.0\.buffer"),
    "a format that is not so": (
        lambda p: p["values"][1][1].update(tag="cdab"),
        r"values\.conv0",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_told_by_the_name_of_its_field(damage: str, tmp_path: Path) -> None:
    change, told = DAMAGES[damage]
    plan = json.loads(bl.load(nets.chain(), layout="blocked").plan.to_json())
    change(plan)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    with pytest.raises(bl.PlanError, match=told):
        bl.load(nets.chain(), plan=file)


def test_a_step_in_numpy_computes_what_the_model_says() -> None:
    plan = json.loads(bl.load(plain_and_native()).plan.to_json())
    [number] = [number for number, step in enumerate(plan["steps"]) if step["spec"]["kind"] == "numpy"]
    other = bl.Builder()
    other.output("y", other.op("CumSum", other.input("x", (2, 17, 6, 6)), np.array(2)))
    foreign = next(step.spec for step in bl.load(other).plan.steps if isinstance(step.spec, HostSpec))
    plan["steps"][number]["spec"]["node"] = foreign.node
    with pytest.raises(bl.PlanError, match=rf"steps\.{number}\.spec"):
        bl.load(plain_and_native(), plan=bl.Plan.from_json(json.dumps(plan)))


FILES: dict[str, bytes] = {
    "empty": b"",
    "half of it": b'{"model": "digits", "policy": "au',
    "noise": bytes(range(256)) * 9,
    "no text": b"\xff\xfe\x00",
    "half of a character": b'{"model": "\\ud800"}',
    "brackets without end": b"[" * 100_000,
    "another document": b'{"name": "blocklayout"}',
}


@pytest.mark.parametrize("contents", FILES.values(), ids=FILES.keys())
def test_what_is_no_saved_plan_is_refused(contents: bytes, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(contents)
    with pytest.raises(bl.PlanError, match="not a plan of this version"):
        bl.load(nets.chain(), plan=file)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json", "with\0zero"):
        with pytest.raises(bl.PlanError, match="no plan can be read from"):
            bl.load(nets.chain(), plan=path)
    nothing: Any = 5
    with pytest.raises(bl.PlanError, match="the path of a saved one"):
        bl.load(nets.chain(), plan=nothing)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    plan = subject("single", "blocked").plan
    for path in (tmp_path, tmp_path / "missing" / "plan.json"):
        with pytest.raises(bl.PlanError, match="cannot be saved as"):
            plan.save(path)
    assert not list(tmp_path.iterdir())


def test_an_input_may_enter_in_two_layouts() -> None:
    """As a compiled step's parameters do, which a convolution and its gradients read in several orders."""
    plan = subject("single").plan
    entry, buffer = plan.entries[0], plan.buffers[plan.entries[0].buffer]
    again = replace(entry, buffer=len(plan.buffers))
    twice = replace(plan, buffers=(*plan.buffers, buffer), entries=(*plan.entries, again))
    check_bounds(twice, {packed.buffer: packed.desc.nbytes for packed in plan.constants})
