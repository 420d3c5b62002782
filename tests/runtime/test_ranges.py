"""A session for ranges of extents: what it takes and refuses, and the one arena in which all its plans run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout.ir import Fused
from blocklayout.layout import MemoryDesc
from blocklayout.plan import Plan
from tests import nets

RANGES = ((1, 2), 3, (8, 32), (8, 40))
MOST = (2, 3, 32, 40)


def loaded(**options: Any) -> bl.Session:
    return bl.load(nets.free_model(), shapes={"x": RANGES}, **options)


def sum_model(*extents: tuple[int | str | None, ...]) -> Any:
    """The sum of inputs ``a``, ``b``, ... of these extents."""
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in zip("abc", extents, strict=False)
    ]
    names = [info.name for info in infos]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Sum", names, ["y"])], "sum", infos, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def ranged() -> bl.Session:
    return loaded(max_plans=4)


@pytest.fixture(scope="module")
def free() -> bl.Session:
    return bl.load(nets.free_model(), max_plans=4)


@settings(max_examples=12, deadline=None)
@given(st.tuples(st.integers(1, 2), st.just(3), st.integers(8, 32), st.integers(8, 40)))
def test_answers_are_those_of_a_session_for_these_extents(
    ranged: bl.Session, free: bl.Session, shape: tuple[int, ...]
) -> None:
    x = nets.random_input(shape)
    np.testing.assert_allclose(ranged(x), free(x), rtol=1e-4, atol=1e-4)
    assert len({id(kept.workspaces[0].arena) for kept in ranged._book._plans.values()}) == 1


def test_answers_do_not_depend_on_the_order_of_extents() -> None:
    inputs = [nets.random_input(shape) for shape in ((1, 3, 9, 40), (2, 3, 32, 8), (1, 3, 16, 17), MOST)]
    there, back = loaded(), loaded()
    answers = [there(x) for x in inputs]
    for x, answer in reversed([*zip(inputs, answers, strict=True)]):
        np.testing.assert_array_equal(back(x), answer)


def test_all_plans_run_in_the_arena_of_the_largest_extents() -> None:
    session = loaded()
    [largest] = session.plans
    assert dict(largest.inputs)["x"].dims == MOST
    held = session.memory()
    for shape in ((1, 3, 8, 8), (2, 3, 31, 40), (1, 3, 20, 9)):
        session(nets.random_input(shape))
    after = session.memory()
    assert (after.n_plans, after.n_workspaces) == (4, 4)
    assert after.arena_nbytes == held.arena_nbytes == largest.arena_nbytes
    assert after.arena_lower_bound == largest.arena_lower_bound


def test_an_arena_has_room_for_what_is_not_stored_where_two_kernels_are_one() -> None:
    session = bl.load(nets.free_model(), shapes={"x": RANGES})
    held = MemoryDesc((1, 8, 16, 16), "f32")
    [plan] = session.plans
    first, *others = plan.choices
    fused = replace(first, chosen=replace(first.chosen, dst=Fused(held, "jit")))
    assert plan.roomy_arena_nbytes == plan.arena_nbytes
    why = replace(plan.rationale, choices=(fused, *others))
    assert replace(plan, rationale=why).roomy_arena_nbytes == plan.arena_nbytes + held.nbytes


def test_one_arena_is_left_where_a_plan_needs_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    session = loaded()
    x, most = nets.random_input((1, 3, 9, 9)), nets.random_input(MOST)
    first, expected = session(x), session(most)
    [large] = [plan for plan in session.plans if dict(plan.inputs)["x"].dims == MOST]
    monkeypatch.setattr(Plan, "roomy_arena_nbytes", property(lambda _: 2 * large.arena_nbytes))
    session(nets.random_input((1, 3, 10, 10)))
    assert session.memory().arena_nbytes == 2 * large.arena_nbytes
    for source, result in ((x, first), (most, expected)):
        np.testing.assert_array_equal(session(source), result)
    assert session.memory().arena_nbytes == 2 * large.arena_nbytes
    assert session.memory().n_workspaces == 3


def test_a_stream_that_begins_with_small_extents_has_the_whole_arena() -> None:
    if bl.dnnl.default_threads() < 2:
        pytest.skip("streams need a thread each")
    with loaded(streams=2, threads=2) as session:
        x = nets.random_input((1, 3, 8, 8))
        for future in [session.submit({"x": x}) for _ in range(8)]:
            future.result()
        arenas = {
            id(each.arena): each.arena for kept in session._book._plans.values() for each in kept.workspaces.values()
        }
        assert {arena.nbytes for arena in arenas.values()} == {session.plan_for({"x": MOST}).arena_nbytes}


def test_layouts_are_those_of_the_largest_extents_however_small_others_are() -> None:
    session = bl.load(nets.free_model(), shapes={"x": (1, 3, (4, 128), (4, 128))})
    plan = session.prepare({"x": (1, 3, 4, 4)})
    assert "chosen for x 1x3x128x128" in plan.priced_by


def test_inputs_tell_their_ranges(ranged: bl.Session) -> None:
    [info] = ranged.get_inputs()
    assert info.ranges == ((1, 2), (3, 3), (8, 32), (8, 40))
    assert info.shape == ("n", 3, "h", "w")
    assert "x f32 1..2x3x8..32x8..40" in repr(ranged)
    [info] = bl.load(nets.free_model()).get_inputs()
    assert info.ranges == ()


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ((3, 3, 8, 8), "'x' is 1..2x3x8..32x8..40, .* got 3x3x8x8: axis 0 must be 1 to 2"),
        ((1, 3, 7, 8), "axis 2 must be 8 to 32"),
        ((1, 3, 8, 41), "axis 3 must be 8 to 40"),
        ((0, 3, 8, 8), "axis 0 must be 1 to 2"),
    ],
)
def test_extents_outside_are_refused(ranged: bl.Session, shape: tuple[int, ...], rule: str) -> None:
    x = nets.random_input(shape)
    for run in (ranged, lambda x: ranged(bl.reorder(x, "nchw")), lambda x: ranged.prepare({"x": x.shape})):
        with pytest.raises(bl.InputError, match=rule):
            run(x)


def test_numbers_beside_ranges_are_fixed() -> None:
    session = bl.load(nets.free_model(), shapes={"x": (1, 3, 8, (8, 16))})
    assert session(nets.random_input((1, 3, 8, 12))).shape[3] == 12
    with pytest.raises(bl.InputError, match="axis 0 must be 1"):
        session(nets.random_input((2, 3, 8, 12)))


def test_extents_are_in_the_callers_order() -> None:
    session = bl.load(
        nets.free_model(), shapes={"x": ((1, 2), (8, 32), (8, 40), 3)}, io_layout={"x": "nhwc"}, layout="plain"
    )
    assert session.get_inputs()[0].ranges == ((1, 2), (8, 32), (8, 40), (3, 3))
    x = nets.random_input((1, 3, 10, 40))
    y = session(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(y, bl.load(nets.free_model(), layout="plain")(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(bl.InputError, match="axis 1 must be 8 to 32"):
        session(nets.random_input((1, 33, 8, 3)))
    with pytest.raises(bl.InputError, match="axis 1 must be 8 to 32"):
        session(bl.reorder(nets.random_input((1, 3, 33, 8)), "nchw"))


def test_extents_of_one_name_have_one_range() -> None:
    model = sum_model(("n", "m"), ("n", "m"))
    session = bl.load(model, shapes={"a": ((2, 5), 4)})
    assert [info.ranges for info in session.get_inputs()] == [((2, 5), (4, 4))] * 2
    a = nets.random_input((3, 4))
    np.testing.assert_allclose(session(a, a), 2 * a)
    with pytest.raises(bl.InputError, match="'n'"):
        session(a, nets.random_input((2, 4)))
    with pytest.raises(bl.InputError, match="'n'"):
        bl.load(model, shapes={"a": ((2, 5), 4), "b": ((2, 6), 4)})


def test_a_fixed_extent_within_a_range_stays_fixed() -> None:
    session = bl.load(sum_model(("n", 4)), shapes={"a": ((1, 3), (2, 8))})
    assert session.get_inputs()[0].ranges == ((1, 3), (4, 4))


def test_an_input_of_undeclared_rank_has_the_rank_of_its_ranges() -> None:
    model = sum_model(("n",))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    session = bl.load(model, shapes={"a": ((1, 3), 2)})
    assert session(nets.random_input((2, 2))).shape == (2, 2)
    with pytest.raises(bl.InputError, match="rank 2"):
        session(nets.random_input((2,)))


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        (((2, 1), 3, 8, 8), r"axis 0 is \(2, 1\), and the least comes first"),
        (((-1, 2), 3, 8, 8), "no extent can be negative"),
        (((1.5, 2), 3, 8, 8), "give numbers, and the least and the most of ranges"),
        (((1, 2, 3), 3, 8, 8), "give numbers, and the least and the most of ranges"),
        (("n", 3, 8, (8, 9)), "give numbers, and the least and the most of ranges"),
        (((1, 2), 3, 8), "has 4 dimensions"),
        (((1, 2), (4, 5), 8, 8), "extent 1 is fixed to 3, which the range 4 to 5 does not contain"),
    ],
)
def test_what_is_no_range_is_refused(shape: Any, rule: str) -> None:
    with pytest.raises(bl.InputError, match=rule):
        bl.load(nets.free_model(), shapes={"x": shape})


def test_a_range_needs_all_extents_of_all_inputs() -> None:
    model = sum_model(("n", 4), ("k", 4))
    with pytest.raises(bl.InputError, match="'b' has free extents"):
        bl.load(model, shapes={"a": ((2, 5), 4)})
    with pytest.raises(bl.InputError, match="no input 'z'"):
        bl.load(model, shapes={"z": ((2, 5), 4)})


def test_a_saved_session_keeps_its_ranges(tmp_path: Path) -> None:
    session = loaded()
    x = nets.random_input((1, 3, 9, 9))
    expected = session(x)
    session.save(tmp_path / "session")
    again = bl.load(tmp_path / "session")
    assert again.get_inputs() == session.get_inputs()
    np.testing.assert_array_equal(again(x), expected)
    assert again.memory().arena_nbytes == session.memory().arena_nbytes
    with pytest.raises(bl.InputError, match="axis 2 must be 8 to 32"):
        again(nets.random_input((1, 3, 7, 8)))


def test_a_saved_plan_keeps_its_ranges(tmp_path: Path) -> None:
    session = loaded()
    session.plan.save(tmp_path / "plan.json")
    again = bl.load(nets.free_model(), plan=tmp_path / "plan.json")
    assert again.plan == session.plan
    assert again.get_inputs() == session.get_inputs()


def test_the_plan_for_the_largest_extents_is_made_beside_one_that_is_given() -> None:
    session = loaded()
    small = session.prepare({"x": (1, 3, 8, 8)})
    again = bl.load(nets.free_model(), plan=small)
    assert again.plan_for({"x": (1, 3, 8, 8)}) == small
    assert again.plan_for({"x": MOST}).arena_nbytes == again.memory().arena_nbytes
    with pytest.raises(bl.PlanError, match="1x3x8x8"):
        bl.load(nets.free_model(), plan=small, shapes={"x": (1, 3, (9, 10), 8)})


def test_what_is_fed_in_place_of_an_initializer_is_computed_with() -> None:
    model = nets.free_model()
    weights = next(each for each in model.graph.initializer if each.name == "w1")
    info = helper.make_tensor_value_info("w1", TensorProto.FLOAT, weights.dims)
    model.graph.input.append(info)
    session = bl.load(model, shapes={"x": RANGES})
    x, fed = nets.random_input((1, 3, 9, 9)), nets.random_input(tuple(weights.dims))
    usual = session(x)
    [other] = session.run(None, {"x": x, "w1": fed})
    assert not np.allclose(usual, other)
    np.testing.assert_allclose(other, bl.load(model).run(None, {"x": x, "w1": fed})[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(session(x), usual)


def test_a_model_in_pieces_refuses_extents_outside() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Cast", ["places"], ["y"], to=1)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph(nodes, "places", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = bl.load(model, shapes={"x": ((1, 3), 4)})
    assert session(np.ones((2, 4), np.float32)).shape == (2, 8)
    assert session.pieces is not None
    with pytest.raises(bl.InputError, match="axis 0 must be 1 to 3"):
        session(np.ones((4, 4), np.float32))
