"""Models in pieces, as their users meet them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import blocklayout as bl
from blocklayout.runtime import ContentsNeededError
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, ROW, S64, Case, check, graph_of, model_of, reference

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
PAIR = np.concatenate([IMAGE, IMAGE])
PLACED = [*PLACES, NODE("Softmax", ["c"], ["s"], axis=1), NODE("GatherND", ["c", "pt"], ["v"])]
PLACED = [*PLACED[:3], NODE("Transpose", ["p"], ["pt"]), *PLACED[3:], NODE("Relu", ["v"], ["y"])]


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_cut_where_only_data_settle_extents(name: str) -> None:
    check(CASES[name])


def test_a_session_in_pieces_shows_them_and_answers_all_else_or_says_why_not() -> None:
    model = model_of(PLACED, {"x": IMAGE}, {"y": F32, "s": F32})
    with bl.load(model, shapes={"x": (1, 3, 8, 8)}, streams=2, threads=2) as session:
        assert session.pieces is not None
        assert [len(piece.books) for piece in session.pieces] == [1, 0, 0]  # the first one has its plan
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
        with pytest.raises(bl.InputError, match="the model has no input 'z'"):
            session.run(None, {"z": IMAGE})
    with pytest.raises(bl.InputError, match="closed"):
        session.run(None, {"x": IMAGE})


def test_formats_at_the_border_hold() -> None:
    model = model_of(PLACED, {"x": IMAGE}, {"y": F32, "s": F32, "pt": S64})
    turned = bl.load(model, io_layout={"x": "nhwc", "s": "nChw8c"}).run(
        None, {"x": np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))}
    )
    plain = bl.load(model).run(None, {"x": IMAGE})
    for one, other in zip(turned, plain, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-6)


def test_demands_reach_the_piece_that_computes_the_node() -> None:
    model = model_of(PLACED, {"x": PAIR}, {"y": F32, "s": F32})
    expected = bl.load(model).run(None, {"x": PAIR})
    for key in ("conv", "c", "co*", "Conv"):
        session = bl.load(model, pin={key: "chwn"}, expect={"y": "a"})
        for output, wanted in zip(session.run(None, {"x": PAIR}), expected, strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)
        assert session.pieces is not None
        assert session.pieces[0].books[0].plan.format_of("c").named("src") == "chwn"
        assert session.pieces[2].books  # what is demanded of a quick piece, a plan has to do
    with pytest.raises(bl.PlanError, match="expect y=nhwc"):
        bl.load(model, expect={"y": "nhwc"}).run(None, {"x": PAIR})
    asked: list[str] = []
    bl.load(model, pin=lambda kernel: asked.append(kernel.name)).run(None, {"x": PAIR})
    assert {"conv", "softmax_2"} <= {*asked}
    assert any(name.startswith("relu") for name in asked)  # of the last piece


def test_demands_on_what_is_not_there_or_not_planned_are_refused() -> None:
    model = model_of(PLACED, {"x": PAIR}, {"y": F32, "s": F32})
    demands: list[tuple[dict[str, Any], str]] = [
        ({"pin": {"konv": "nhwc"}}, "pin konv=nhwc: no kernel, node or value of that name, and no operator; .*conv"),
        ({"pin": {"nz": "nhwc"}}, "pin nz=nhwc: no plan computes it, since the model is cut there"),
        ({"pin": {"NonZero": "nhwc"}}, "pin NonZero=nhwc: no plan computes it"),
        ({"precision": {"p": "f32"}}, "precision p=f32: no plan computes it"),
    ]
    for demand, message in demands:
        with pytest.raises(bl.PlanError, match=message):
            bl.load(model, shapes={"x": PAIR.shape}, **demand)
    b = bl.Builder()
    b.output("y", b.input("x", PAIR.shape).relu())
    with pytest.raises(bl.PlanError, match=r"cut into pieces.*no plan of the whole can be given; session\.save"):
        bl.load(model, shapes={"x": PAIR.shape}, plan=bl.load(b).plan)


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


KEPT = [
    NODE("Compress", ["x", "kept"], ["rows"], axis=0, name="kept_rows"),
    NODE("MatMul", ["rows", "weights"], ["product"]),
    NODE("Softmax", ["product"], ["shares"]),
    NODE("Gather", ["shares", "at"], ["picked"], axis=1, name="pick"),
    NODE("Concat", ["picked", "product"], ["y"], axis=1),
]
"""Rows that are chosen by data, and what is computed of them."""


def kept_model(n_columns: int = 6) -> onnx.ModelProto:
    x, at = np.empty((700, n_columns), np.float32), np.array([0])
    weights = np.random.default_rng(1).standard_normal((n_columns, 4)).astype(np.float32)
    return model_of(KEPT, {"x": x, "kept": np.empty(700, bool), "at": at}, weights=weights)


def rows_of(n: int, n_columns: int = 6) -> dict[str, np.ndarray]:
    x = np.random.default_rng(2).standard_normal((700, n_columns)).astype(np.float32)
    return {"x": x, "kept": np.arange(700) < n, "at": np.array([3, 1])}


def test_small_pieces_of_extents_that_data_settle_are_computed_node_by_node() -> None:
    model = kept_model()
    session = bl.load(model)
    for n in (1, 600, 0, 17, 600):
        [output] = session.run(None, rows_of(n))
        [expected] = reference(model, **rows_of(n))
        assert (output.shape, output.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    assert session.plans == []
    assert "computed node by node: it is fed less than 1024 KiB" in str(session.pieces)
    assert [step.name for step in session.profile(rows_of(5), n_runs=1).steps] == ["kept_rows", "net, piece 2"]
    with pytest.raises(bl.InputError, match="pick"):
        session.run(None, rows_of(5) | {"at": np.array([4])})


def test_large_pieces_of_extents_that_data_settle_are_planned() -> None:
    model = kept_model(500)
    session = bl.load(model)
    for n, n_plans in ((20, 0), (600, 1)):
        [output] = session.run(None, rows_of(n, 500))
        np.testing.assert_allclose(output, reference(model, **rows_of(n, 500))[0], rtol=1e-3, atol=1e-4)
        assert len(session.plans) == n_plans


def test_results_of_small_pieces_are_their_caller_s() -> None:
    nodes = [
        NODE("Compress", ["x", "kept"], ["c"]),
        NODE("Reshape", ["c", "minus"], ["y"]),
        NODE("Identity", ["c"], ["z"]),
    ]
    session = bl.load(model_of(nodes, {"x": ROW, "kept": np.ones(600, bool)}, {"y": F32, "z": F32}))
    y, z = session.run(None, {"x": ROW, "kept": np.ones(600, bool)})
    y[:] = 0
    np.testing.assert_array_equal(z, ROW)
