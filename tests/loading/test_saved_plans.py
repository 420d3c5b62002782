"""Plans saved by one session and used by another, where they fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout import zoo
from blocklayout.loading.saved_plan import check_program
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import POLICIES, CostModel, Machine, Request, make, make_plan
from blocklayout.plan.plan import VERSION
from tests import nets


@pytest.fixture
def no_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a saved plan needs no planning")

    monkeypatch.setattr(make, "make_plan", refuse)


def free_model(weights: np.ndarray | None = None, alpha: float = 0.5) -> onnx.ModelProto:
    """Of free extents."""
    given = np.random.default_rng(0).standard_normal((9, 3, 3, 3)) if weights is None else weights
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["c"], ["y"], "second", alpha=alpha),
    ]
    graph = helper.make_graph(
        nodes,
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(given.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("policy", [*POLICIES, "nChw8c"])
def test_a_saved_plan_gives_the_same_answers_without_planning(
    policy: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = bl.load(nets.residual(), layout=policy)
    first.plan.save(tmp_path / "plan.json")
    request.getfixturevalue("no_planning")
    second = bl.load(nets.residual(), plan=tmp_path / "plan.json")
    assert second.plan == first.plan
    feed = nets.feed_of(first)
    np.testing.assert_array_equal(second.run(None, feed)[0], first.run(None, feed)[0])


def test_every_plan_of_a_network_with_views_and_slices_is_proven() -> None:
    program = lower(legalize(simplify(zoo.build("shufflenet_v2_x0_5", size=(64, 64)).to_graph())))
    for policy in ("auto", "per-op"):
        plan = make_plan(program, Request(policy=policy), CostModel(Machine(bl.dnnl.isa(), 2)))
        check_program(plan, program)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("old")
    bl.load(nets.chain()).plan.save(str(file))
    assert json.loads(file.read_text())["version"] == VERSION
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_the_same_network_with_other_weights_may_use_the_plan(no_planning_after: Any) -> None:
    plan = bl.load(free_model(), shapes={"x": (1, 3, 8, 8)}).plan
    no_planning_after()
    weights = np.zeros((9, 3, 3, 3))
    weights[:, 0, 1, 1] = 2
    x = np.ones((1, 3, 8, 8), np.float32)
    [output] = bl.load(free_model(weights), plan=plan).run(None, {"x": x})
    np.testing.assert_array_equal(output, np.full((1, 9, 8, 8), 2, np.float32))


@pytest.fixture
def no_planning_after(request: pytest.FixtureRequest) -> Any:
    return lambda: request.getfixturevalue("no_planning")


def test_numbers_within_primitives_are_part_of_the_model() -> None:
    plan = bl.load(free_model(alpha=0.5), shapes={"x": (1, 3, 8, 8)}).plan
    with pytest.raises(bl.PlanError, match="another model"):
        bl.load(free_model(alpha=0.25), plan=plan)
    with pytest.raises(bl.PlanError, match=r"steps\.\d\.spec"):  # even where somebody edits the digest
        bl.load(free_model(alpha=0.25), plan=replace(plan, program=digest_of(free_model(alpha=0.25))))


def digest_of(model: onnx.ModelProto) -> str:
    return bl.load(model, shapes={"x": (1, 3, 8, 8)}).plan.program


MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "other threads": ({}, {"threads": 1}, "threads=2, and threads=1"),
    "another policy": ({}, {"layout": "nhwc"}, "layout='auto', and layout='nhwc'"),
    "another data type": ({}, {"dtype": "bf16"}, "dtype='f32', and dtype='bf16'"),
    "another border": ({}, {"io_layout": {"x": "nhwc"}}, r"io_layout=\{\}, and io_layout=\{'x': 'acdb'\}"),
    "other extents": ({}, {"shapes": {"x": (2, 17, 12, 12)}}, "made for x of 1x17x12x12, and 2x17x12x12"),
    "another library": ({"config": {"library": "3.1.4"}}, {}, r"made with oneDNN 3\.1\.4; this is oneDNN 3"),
    "an unknown instruction set": ({"config": {"isa": "avx9000"}}, {}, "for CPUs with avx9000; this one runs"),
    "another structure": ({"program": "0" * 32}, {}, "another model"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_misfit_is_refused_with_its_reason_or_planned_anew(misfit: str) -> None:
    edits, asked, told = MISFITS[misfit]
    plan = bl.load(nets.chain(), threads=2).plan
    config = replace(plan.config, **edits.get("config", {}))
    plan = replace(plan, config=config, program=edits.get("program", plan.program))
    if misfit == "another data type" and not bl.dnnl.has_bf16():
        with pytest.raises(bl.UnsupportedError, match="dtype='bf16' needs a CPU"):
            bl.load(nets.chain(), plan=plan, **asked)
        return
    with pytest.raises(bl.PlanError, match=told):
        bl.load(nets.chain(), plan=plan, **asked)
    if misfit == "other extents":
        with pytest.warns(bl.PlanMisfitWarning), pytest.raises(bl.InputError):
            bl.load(nets.chain(), plan=plan, on_misfit="replan", **asked)
        return
    with pytest.warns(bl.PlanMisfitWarning, match=told) as warned:
        session = bl.load(nets.chain(), plan=plan, on_misfit="replan", **asked)
    assert len(warned) == 1
    assert session.plan == bl.load(nets.chain(), **asked).plan


def test_more_threads_than_this_process_may_use_are_refused_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bl.load(nets.chain(), threads=2).plan
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(bl.PlanError, match="for 2 threads; this process may use 1"):
        bl.load(nets.chain(), plan=plan)
    assert bl.load(nets.chain(), plan=plan, threads=2).plan == plan


def test_a_plan_for_an_instruction_set_that_may_not_be_used_is_refused(
    tmp_path: Path, tree_environ: dict[str, str]
) -> None:
    if not bl.dnnl.has_isa("avx2"):
        pytest.skip(f"needs a CPU with avx2; this one runs {bl.dnnl.isa()}")
    bl.load(nets.chain(), threads=1).plan.save(tmp_path / "plan.json")
    script = "import blocklayout as bl, sys; from tests import nets; bl.load(nets.chain(), plan=sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "plan.json")],
        env=tree_environ | {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "the plan is for CPUs with" in done.stderr.splitlines()[-1]


def test_a_missing_or_damaged_file_is_planned_anew_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for _ in range(2):
        with pytest.warns(bl.PlanMisfitWarning, match="made anew"):
            session = bl.load(nets.chain(), plan=file, on_misfit="replan")
        assert session.plan == bl.load(nets.chain()).plan
        file.write_text("{")


def test_a_plan_of_another_model_is_refused() -> None:
    plan = bl.load(nets.chain()).plan
    with pytest.raises(bl.PlanError, match=r"another model .*: this one has no input x"):
        bl.load(nets.residual(), plan=plan)
    with pytest.raises(bl.PlanError, match="another model"):
        bl.load(nets.chain(convs=2), plan=plan)


def test_other_shapes_than_the_plans_are_planned_at_run_time() -> None:
    plan = bl.load(free_model(), shapes={"x": (1, 3, 8, 8)}, layout="nhwc").plan
    session = bl.load(free_model(), plan=plan)
    assert session.plan is plan
    assert session.run(None, {"x": np.ones((2, 3, 9, 8), np.float32)})[0].shape == (2, 9, 9, 8)
    assert session.plan_for({"x": (1, 3, 8, 8)}) is plan
    assert session.plan_for({"x": (2, 3, 9, 8)}).policy == "nhwc"


def test_wrong_names_in_shapes_remain_the_callers_mistake() -> None:
    plan = bl.load(free_model(), shapes={"x": (1, 3, 8, 8)}).plan
    with pytest.raises(bl.InputError, match="no input 'y'"):
        bl.load(free_model(), plan=plan, shapes={"y": (1, 3, 8, 8)}, on_misfit="replan")
    with pytest.raises(bl.InputError, match="on_misfit='ignore'"):
        bl.load(free_model(), plan=plan, on_misfit="ignore")  # type: ignore[arg-type]


def test_the_formats_of_a_border_come_with_the_plan() -> None:
    first = bl.load(nets.chain(), io_layout={"x": "channels_last", "y": "nChw8c"})
    second = bl.load(nets.chain(), plan=bl.Plan.from_json(first.plan.to_json()))
    feed = nets.feed_of(first)
    assert second.get_inputs()[0].shape == (1, 12, 12, 17)
    one, other = (session.run(None, feed)[0] for session in (first, second))
    np.testing.assert_array_equal(one.physical(), other.physical())
    assert bl.load(nets.chain(), plan=first.plan, io_layout={"x": "nhwc", "y": "aBcd8b"}).plan is first.plan


def test_contents_that_decide_extents_are_planned_for_as_they_come() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "target"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "contents",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 6)),
            helper.make_tensor_value_info("target", TensorProto.INT64, (2,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feed = {"x": np.ones((2, 6), np.float32), "target": np.array([3, 4])}
    first = bl.load(model)
    first.run(None, feed)
    second = bl.load(model, plan=first.plan)
    assert second.run(None, feed)[0].shape == (3, 4)
    assert second.plan is first.plan
    assert second.run(None, feed | {"target": np.array([12, 1])})[0].shape == (12, 1)


def test_a_digest_is_the_same_in_every_process(tree_environ: dict[str, str]) -> None:
    script = (
        "from blocklayout import zoo; from blocklayout.model import legalize, lower, simplify;"
        "print(lower(legalize(simplify(zoo.build('mobilenet_v2', size=(32, 32)).to_graph()))).digest)"
    )
    own = lower(legalize(simplify(zoo.build("mobilenet_v2", size=(32, 32)).to_graph()))).digest
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=tree_environ | {"PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == own
