"""Saved sessions of models in pieces: they compute what the first one did, and what does not fit is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.runtime.pieces import Straight
from blocklayout.tensor.tensor_file import open_tensors, write_tensors
from tests.loading import test_cutting
from tests.loading.mutations import fields, mutations
from tests.loading.test_carried_layouts import PADDED, STATE, STEP, WEIGHTS, body_of, feed, looped, n_moves
from tests.loading.test_cutting import PAIR, PLACED, kept_model, rows_of
from tests.ops import test_control_flow, test_data_extents, test_sequences
from tests.ops.in_pieces import BOOL, F32, IMAGE, NODE, S64, Case, graph_of, model_of

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")

CASES: dict[str, Case] = {
    **test_control_flow.CASES,
    **test_data_extents.CASES,
    **test_sequences.CASES,
    **test_cutting.CASES,
}


def saved(session: bl.Session, path: Path, **arguments: Any) -> bl.Session:
    """The session that a file holds in which another was saved."""
    session.save(path)
    return bl.load(path, **arguments)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    session = bl.load(case.model())
    expected = [session.run(None, feed) for feed in case.feeds]
    again = saved(session, tmp_path / "net.bl")
    for fed, outputs in zip(case.feeds, expected, strict=True):
        for output, wanted in zip(again.run(None, fed), outputs, strict=True):
            np.testing.assert_equal(output, wanted)
    assert (again.get_inputs(), again.get_outputs()) == (session.get_inputs(), session.get_outputs())
    assert again.pieces is not None
    assert session.pieces is not None
    heads = [[(each.name, each.by, each.reason) for each in pieces] for pieces in (again.pieces, session.pieces)]
    assert heads[0] == heads[1]
    assert [plan.steps for plan in again.plans] == [plan.steps for plan in session.plans]


def test_a_state_keeps_its_layout(tmp_path: Path) -> None:
    session = bl.load(looped(STEP), layout="blocked")
    expected = session.run(None, feed())
    again = saved(saved(session, tmp_path / "net.bl"), tmp_path / "again.bl")
    np.testing.assert_array_equal(again.run(None, feed())[0], expected[0])
    assert n_moves(again, feed()) == n_moves(session, feed())
    assert body_of(again).io_layout == body_of(session).io_layout
    assert "v comes as v2 was written the time before" in str(again.pieces)


def test_pieces_that_are_cut_themselves_and_loops_in_loops_come_back(tmp_path: Path) -> None:
    inner = graph_of(
        [NODE("Conv", ["u", "w1"], ["u2"], **PADDED), NODE("Identity", ["go"], ["again2"])],
        {"i2": S64, "go": BOOL, "u": STATE},
        {"again2": BOOL, "u2": STATE},
    )
    loop = NODE("Loop", ["two", "", "r"], ["v2"], name="inner", body=inner)
    nested = looped([NODE("Conv", ["v", "w1"], ["r"], **PADDED), loop])
    x = feed()["x"]
    twice = [NODE("Conv", ["x", "w1"], ["c"]), NODE("NonZero", ["c"], ["p"]), NODE("NonZero", ["x"], ["q"])]
    both = model_of(twice, {"x": x}, {"p": S64, "q": S64}, **WEIGHTS)
    for model, fed in ((nested, feed()), (both, {"x": x})):
        session = bl.load(model)
        expected = session.run(None, fed)
        assert session.pieces is not None
        assert any(each.pieces is not None for each in session.pieces.books)
        for output, wanted in zip(saved(session, tmp_path / "net.bl").run(None, fed), expected, strict=True):
            np.testing.assert_array_equal(output, wanted)


def test_neither_the_model_nor_onnx_is_needed_where_numpy_computes_the_nodes(tmp_path: Path) -> None:
    session = bl.load(looped(STEP))
    session.run(None, feed())
    session.save(tmp_path / "net.bl")
    script = (
        "import sys, numpy as np, blocklayout as bl\n"
        f"session = bl.load({str(tmp_path / 'net.bl')!r})\n"
        f"session.run(None, {{'x': np.ones({feed()['x'].shape}, np.float32), 'n': np.array(2)}})\n"
        "assert not {'onnx', 'google.protobuf', 'safetensors'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_weights_are_held_once_and_formats_at_the_border_come_back(tmp_path: Path) -> None:
    model = model_of(PLACED, {"x": IMAGE}, {"y": F32, "s": F32})
    session = bl.load(model, io_layout={"x": "nhwc", "s": "nChw8c"})
    image = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))
    y, s = session.run(None, {"x": image})
    again = saved(session, tmp_path / "net.bl", io_layout={"x": "nhwc", "s": "nChw8c"})
    for one, other in zip(again.run(None, {"x": image}), (y, s), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    with pytest.raises(bl.PlanError, match=r"made with io_layout=.*'x': 'acdb'.*, and io_layout={'x': 'nchw'}"):
        bl.load(tmp_path / "net.bl", io_layout={"x": "nchw"})


def test_of_small_pieces_all_extents_are_computed_and_of_others_those_that_were_seen(tmp_path: Path) -> None:
    small = bl.load(kept_model())
    small.run(None, rows_of(4))
    again = saved(small, tmp_path / "small.bl")
    for n in (4, 9):
        np.testing.assert_array_equal(again.run(None, rows_of(n))[0], small.run(None, rows_of(n))[0])
    large = bl.load(kept_model(500))
    expected = large.run(None, rows_of(600, 500))
    again = saved(large, tmp_path / "large.bl")
    np.testing.assert_array_equal(again.run(None, rows_of(600, 500))[0], expected[0])
    with pytest.raises(bl.PlanError, match=r"no plan for rows 601x500, at 2: load the model itself"):
        again.run(None, rows_of(601, 500))


def test_what_never_ran_has_no_plan_and_says_so(tmp_path: Path) -> None:
    one, other = (
        graph_of([NODE("Conv", ["x", "w"], ["u"]), NODE(op_type, ["u"], ["v"])], {}, {"v": (1, 8, None, None)})
        for op_type in ("Relu", "Neg")
    )
    nodes = [NODE("ReduceSum", ["x"], ["sum"], keepdims=0), NODE("Greater", ["sum", "large"], ["c"])]
    nodes.append(NODE("If", ["c"], ["y"], name="which", then_branch=one, else_branch=other))
    x = np.zeros((1, 3, 16, 16), np.float32)
    session = bl.load(model_of(nodes, {"x": x}, large=np.float32(1e6)))
    session(x)
    again = saved(session, tmp_path / "net.bl")
    np.testing.assert_array_equal(again(x), session(x))
    with pytest.raises(bl.PlanError, match="no plan of the subgraph 'then_branch' of x f32: load the model itself"):
        again(x + 1e5)


def test_before_every_piece_has_run_there_is_nothing_to_save(tmp_path: Path) -> None:
    session = bl.load(model_of(PLACED, {"x": IMAGE}, {"y": F32, "s": F32}), shapes={"x": (1, 3, 8, 8)})
    assert session.pieces is not None
    last = session.pieces[2]
    assert isinstance(last, Straight)
    last.by_arrays = None  # as of a larger one
    with pytest.raises(bl.PlanError, match="net, piece 3 has no plan yet: run the session once"):
        session.save(tmp_path / "net.bl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "nhwc"}, "layout='nhwc' is asked for"),
        ({"threads": 7}, "threads=7 is asked for"),
        ({"pin": {"conv": "chwn"}}, "conv=chwn is asked for"),
        ({"expect": {"nothing": "nhwc"}}, "expect nothing=nhwc: no plan of a piece has a kernel, node or value"),
    ],
)
def test_other_terms_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    session = bl.load(model_of(PLACED, {"x": PAIR}, {"y": F32, "s": F32}))
    session.run(None, {"x": PAIR})
    with pytest.raises(bl.PlanError, match=message):
        saved(session, tmp_path / "net.bl", **arguments)


def test_demands_that_were_met_are_met_again(tmp_path: Path) -> None:
    session = bl.load(model_of(PLACED, {"x": PAIR}, {"y": F32, "s": F32}), pin={"conv": "chwn"})
    session.run(None, {"x": PAIR})
    saved(session, tmp_path / "net.bl", pin={"conv": "chwn"}, expect={"c": "chwn"})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved session of a model with a subgraph, and a piece that is computed node by node."""
    path = tmp_path_factory.mktemp("pieces") / "net.bl"
    case = CASES["Loop"]
    session = bl.load(case.model())
    session.run(None, case.feeds[0])
    session.save(path)
    return path


def _about_pieces(data: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    """The fields of a session in pieces but for its plans, which have tests of their own."""
    return [(path, value) for path, value in fields(data) if "plan" not in path]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damaged_field_crashes(data: st.DataObject, file: Path, tmp_path: Path) -> None:
    tensors = open_tensors(file)
    told = json.loads(tensors.text)
    path, value = data.draw(st.sampled_from(_about_pieces(told)))
    mutation = data.draw(st.sampled_from(list(mutations(path, value))))
    held = {name: np.array(tensor) for name, tensor in tensors.tensors.items()}
    write_tensors(tmp_path / "net.bl", json.dumps(mutation.of(told)), held)
    case = CASES["Loop"]
    with suppress(bl.BlockLayoutError):
        bl.load(tmp_path / "net.bl").run(None, case.feeds[0])
