"""Models in pieces, as their users meet them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import blocklayout as bl
from blocklayout.runtime import ContentsNeededError
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, ROW, S64, Case, check, graph_of, model_of

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")

CASES = {
    "one cut behind another, and TopK of what is counted": Case(
        [
            *PLACES,
            NODE("Shape", ["p"], ["n"]),
            NODE("Slice", ["n", "ones", "two"], ["k"]),
            NODE("Compress", ["x", "kept"], ["some"], name="some"),
            NODE("Shape", ["some"], ["many"]),
            NODE("Min", ["k", "many"], ["least"]),
            NODE("Reshape", ["c", "minus"], ["flat"]),
            NODE("TopK", ["flat", "least"], ["y", "at"]),
        ],
        [{"x": IMAGE, "kept": np.arange(192) % n == 0} for n in (5, 7)],
        ["nz", "some"],
        {"y": F32, "at": S64},
    ),
    "Resize to sizes that are computed": Case(
        [
            NODE("ReduceMax", ["x"], ["most"], keepdims=0),
            NODE("Cast", ["most"], ["n"], to=S64),
            NODE("Reshape", ["n", "ones"], ["n1"]),
            NODE("Concat", ["ones", "three", "n1", "n1"], ["to"], axis=0),
            NODE("Resize", ["x", "", "", "to"], ["y"], name="resize", mode="nearest"),
        ],
        [{"x": np.full((1, 3, 16, 16), extent, np.float32)} for extent in (16, 24)],
        [],
    ),
}
PLACED = [*PLACES, NODE("Softmax", ["c"], ["s"], axis=1), NODE("GatherND", ["c", "pt"], ["v"])]
PLACED = [*PLACED[:3], NODE("Transpose", ["p"], ["pt"]), *PLACED[3:], NODE("Relu", ["v"], ["y"])]


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_cut_where_only_data_settle_extents(name: str) -> None:
    check(CASES[name])


def test_a_session_in_pieces_shows_them_and_answers_all_else_or_says_why_not() -> None:
    model = model_of(PLACED, {"x": IMAGE}, {"y": F32, "s": F32})
    with bl.load(model, shapes={"x": (1, 3, 8, 8)}, streams=2, threads=2) as session:
        assert session.pieces is not None
        assert [len(piece.sessions) for piece in session.pieces] == [1, 0, 0]  # the first one has its plan
        outputs = session.run(["s", "y"], {"x": IMAGE})
        for one, other in zip(session.submit({"x": IMAGE}, ["s", "y"]).result(), outputs, strict=True):
            np.testing.assert_array_equal(one, other)
        out = np.empty_like(outputs[1])
        assert session.run(["y"], {"x": IMAGE}, out={"y": out})[0] is out
        np.testing.assert_array_equal(out, outputs[1])
        assert len(session.plans) == session.memory().n_plans == 2
        assert "cut into 3 pieces" in repr(session)
        assert "nz by numpy -> p: node 'nz': the extents of NonZero's output 'p' depend on" in str(session.pieces)
        with bl.checking(), bl.watch("record") as moves:
            session.run(None, {"x": IMAGE})
        assert str(moves)
        assert {"conv", "nz"} <= {step.name for step in session.profile({"x": IMAGE}, n_runs=1).steps}
        with pytest.raises(bl.PlanError, match=r"cut into 3 pieces.*print\(session.pieces\)"):
            _ = session.plan
        with pytest.raises(bl.PlanError, match="cut into 3 pieces"):
            session.plan_for({"x": (1, 3, 8, 8)})
        with pytest.raises(bl.PlanError, match="cannot be saved"):
            session.save("x.session")
        with pytest.raises(bl.InputError, match="the model has no input 'z'"):
            session.run(None, {"z": IMAGE})
    with pytest.raises(bl.InputError, match="closed"):
        session.run(None, {"x": IMAGE})


def test_formats_at_the_border_hold_and_demands_on_kernels_are_refused() -> None:
    model = model_of(PLACED, {"x": IMAGE}, {"y": F32, "s": F32, "pt": S64})
    turned = bl.load(model, io_layout={"x": "nhwc", "s": "nChw8c"}).run(
        None, {"x": np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))}
    )
    plain = bl.load(model).run(None, {"x": IMAGE})
    for one, other in zip(turned, plain, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-6)
    with pytest.raises(bl.PlanError, match="cut into pieces"):
        bl.load(model, shapes={"x": (1, 3, 8, 8)}, pin={"conv": "nhwc"})
    with pytest.raises(bl.PlanError, match="cut into pieces"):
        bl.load(model, shapes={"x": (1, 3, 8, 8)}, precision={"conv": "f32"})


def test_nothing_to_plan_before_the_first_run_is_said() -> None:
    session = bl.load(model_of([NODE("NonZero", ["x"], ["y"])], {"x": ROW}, {"y": S64}))
    with pytest.raises(ContentsNeededError, match="run once"):
        session.prepare({"x": (600,)})


def test_a_function_that_calls_itself_is_refused() -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    call = NODE("f", ["a"], ["b"], domain="own")
    graph = graph_of([NODE("f", ["x"], ["y"], domain="own")], {"x": (2,)}, {"y": (2,)})
    function = helper.make_function("own", "f", ["a"], ["b"], [call], opsets)
    with pytest.raises(bl.ModelError, match="'f'"):
        bl.load(helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[function]))
