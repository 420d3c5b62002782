"""Inputs whose contents decide extents: a plan for each of their contents, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.runtime import ContentsNeededError
from blocklayout.runtime.inputs import check_feeds
from tests import nets

ELEM_TYPES = {"f": TensorProto.FLOAT, "l": TensorProto.INT64, "?": TensorProto.BOOL}
NODE = helper.make_node
IMAGE = nets.random_input((2, 17, 6, 6))


@dataclass(frozen=True)
class Case:
    """Nodes that write ``y``, what they are fed, and the inputs that are to decide extents."""

    nodes: tuple[onnx.NodeProto, ...]
    feed: dict[str, Any]
    deciding: tuple[str, ...]
    elem_type: int = TensorProto.FLOAT

    def model(self) -> onnx.ModelProto:
        arrays = {name: np.asarray(fed) for name, fed in self.feed.items()}
        graph = helper.make_graph(
            list(self.nodes),
            "contents",
            [
                helper.make_tensor_value_info(name, ELEM_TYPES[array.dtype.char], array.shape)
                for name, array in arrays.items()
            ],
            [helper.make_tensor_value_info("y", self.elem_type, None)],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _one(op_type: str, deciding: str, *, elem_type: int = TensorProto.FLOAT, **feed: Any) -> Case:
    attrs = {name: feed.pop(name) for name in ("axis", "mode") if name in feed}
    fed = {name: np.asarray(value) for name, value in feed.items()}
    node = NODE(op_type, ["" if name.startswith("_") else name for name in fed], ["y"], **attrs)
    return Case((node,), {name: a for name, a in fed.items() if name[0] != "_"}, tuple(deciding.split()), elem_type)


CASES = {
    "Reshape": _one("Reshape", "target", x=IMAGE, target=[2, -1]),
    "Slice": _one("Slice", "starts ends axes", x=IMAGE, starts=[1], ends=[9], axes=[1]),
    "Pad": _one("Pad", "pads", x=IMAGE, pads=[0, 0, 1, 1, 0, 0, 1, 1]),
    "Tile": _one("Tile", "repeats", x=IMAGE, repeats=[1, 1, 2, 1]),
    "Expand": _one("Expand", "shape", x=IMAGE[:, :, :1], shape=[2, 17, 3, 6]),
    "Resize": _one("Resize", "sizes", x=IMAGE, _roi=0, _scales=0, sizes=[2, 17, 12, 12], mode="nearest"),
    "ReduceSum": _one("ReduceSum", "axes", x=IMAGE, axes=[1]),
    "Squeeze": _one("Squeeze", "axes", x=IMAGE[:1], axes=[0]),
    "ConstantOfShape": _one("ConstantOfShape", "shape", shape=[2, 3]),
    "Range": _one("Range", "start limit delta", elem_type=TensorProto.INT64, start=0, limit=7, delta=2),
    "TopK": Case((NODE("TopK", ["x", "k"], ["y", "i"]),), {"x": IMAGE, "k": np.array([3])}, ("k",)),
    "a sum of what is fed and of extents": Case(
        (NODE("Shape", ["x"], ["extents"]), NODE("Add", ["extents", "more"], ["t"]), NODE("Tile", ["x", "t"], ["y"])),
        {"x": IMAGE, "more": np.array([0, -16, -5, -4])},
        ("more",),
    ),
    "two nodes": Case(
        (NODE("Reshape", ["x", "target"], ["r"]), NODE("Relu", ["r"], ["s"]), NODE("Tile", ["s", "repeats"], ["y"])),
        {"x": IMAGE, "target": np.array([2, -1]), "repeats": np.array([2, 1])},
        ("target", "repeats"),
    ),
}


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("name", CASES)
def test_extents_follow_from_contents(name: str) -> None:
    case = CASES[name]
    session = bl.load(case.model())
    with pytest.raises(bl.PlanError, match="no plan yet"):
        _ = session.plan
    expected: Any = ReferenceEvaluator(case.model()).run(None, case.feed)
    [output] = session.run(None, case.feed)
    np.testing.assert_allclose(output, expected[0], rtol=1e-5, atol=1e-5)
    assert output.dtype == expected[0].dtype
    [kept] = session._book._plans.values()
    assert set(kept.ready.contents) == set(case.deciding)
    assert not set(case.deciding) & {entry.input for entry in session.plan.entries}


def _reshape() -> onnx.ModelProto:
    return CASES["Reshape"].model()


def test_each_content_has_a_plan_of_its_own() -> None:
    session = bl.load(_reshape())
    for target in ([2, -1], [4, -1], [2, -1], [34, 36]):
        [output] = session.run(None, {"x": IMAGE, "target": np.array(target)})
        np.testing.assert_array_equal(output, IMAGE.reshape(target))
    assert session.memory().n_plans == 3
    assert session.plan_for({"x": IMAGE.shape, "target": (2,)}).results[0].shape == (34, 36)


def test_data_beside_them_need_no_plan_of_their_own() -> None:
    session = bl.load(_reshape())
    for seed in range(3):
        image = nets.random_input(IMAGE.shape, seed)
        np.testing.assert_array_equal(
            session.run(None, {"x": image, "target": np.array([2, -1])})[0], image.reshape(2, -1)
        )
    assert session.memory().n_plans == 1


def test_what_the_caller_changes_later_changes_no_plan() -> None:
    session = bl.load(_reshape())
    target = np.array([2, -1])
    session.run(None, {"x": IMAGE, "target": target})
    target[:] = 4, -1
    assert session.run(None, {"x": IMAGE, "target": target})[0].shape == (4, 306)
    assert session.run(None, {"x": IMAGE, "target": np.array([2, -1])})[0].shape == (2, 612)


def test_what_has_the_contents_of_the_last_run_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    n_looks = []

    def counting(*args: Any) -> Any:
        n_looks.append(args)
        return check_feeds(*args)

    monkeypatch.setattr("blocklayout.runtime.plan_book.check_feeds", counting)
    session = bl.load(_reshape())
    for target, n_expected in (([2, -1], 1), ([2, -1], 1), ([4, -1], 2), ([4, -1], 2), ([2, -1], 3)):
        [output] = session.run(None, {"x": IMAGE, "target": np.array(target)})
        np.testing.assert_array_equal(output, IMAGE.reshape(target))
        assert len(n_looks) == n_expected


def test_contents_come_with_any_strides_and_as_tensors() -> None:
    session = bl.load(_reshape())
    for target in (np.array([-1, 2])[::-1], np.array([2, 0, -1, 0])[::2], bl.reorder(np.array([2, -1]), "x")):
        assert session.run(None, {"x": IMAGE, "target": target})[0].shape == (2, 612)
    assert session.memory().n_plans == 1


def test_a_constant_output_is_a_fresh_array() -> None:
    session = bl.load(CASES["ConstantOfShape"].model())
    [first] = session.run(None, {"shape": np.array([2, 3])})
    first += 1
    np.testing.assert_array_equal(session.run(None, {"shape": np.array([2, 3])})[0], np.zeros((2, 3)))


def test_they_are_checked_like_any_input() -> None:
    session = bl.load(_reshape())
    with pytest.raises(bl.InputError, match=r"'target' is int64, got float64"):
        session.run(None, {"x": IMAGE, "target": np.array([2.0, -1.0])})
    with pytest.raises(bl.InputError, match="'target' is 2, got 3"):
        session.run(None, {"x": IMAGE, "target": np.array([2, 3, -1])})
    with pytest.raises(bl.InputError, match="missing input target"):
        session.run(None, {"x": IMAGE})
    with pytest.raises(bl.ModelError, match="Reshape"):
        session.run(None, {"x": IMAGE, "target": np.array([7, 7])})
    assert session.run(None, {"x": IMAGE, "target": np.array([4, -1])})[0].shape == (4, 306)


def test_a_plan_can_be_made_ahead_with_contents() -> None:
    session = bl.load(_reshape())
    shapes = {"x": IMAGE.shape, "target": (2,)}
    with pytest.raises(ContentsNeededError, match=r"what the input 'target' holds.*contents="):
        session.prepare(shapes)
    plan = session.prepare(shapes, {"target": [4, -1]})
    assert session.plan is plan
    session.run(None, {"x": IMAGE, "target": np.array([4, -1])})
    assert session.plan is plan
