"""Loading, and what crosses the border between a model and its caller."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import garbage
from blocklayout.plan import POLICIES
from tests import nets

FLOAT = TensorProto.FLOAT


def _model(
    nodes: list[onnx.NodeProto],
    outputs: dict[str, tuple[Any, ...]],
    constants: dict[str, np.ndarray] | None = None,
    shape: tuple[Any, ...] = (2, 3),
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "border",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, dtype, extents) for name, extents in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NODE = helper.make_node
BORDERS = {
    "an input is an output": _model([NODE("Identity", ["x"], ["y"])], {"y": (2, 3)}),
    "a view of an input is an output": _model(
        [NODE("Reshape", ["x", "shape"], ["y"]), NODE("Relu", ["x"], ["z"])],
        {"y": (3, 2), "z": (2, 3)},
        {"shape": np.array([3, 2])},
    ),
    "a value and its view are outputs": _model(
        [NODE("Relu", ["x"], ["y"]), NODE("Reshape", ["y", "shape"], ["z"])],
        {"y": (2, 3), "z": (3, 2)},
        {"shape": np.array([3, 2])},
    ),
    "a transposed value is an output": _model([NODE("Transpose", ["x"], ["y"])], {"y": (3, 2)}),
    "an output is read again": _model(
        [NODE("Relu", ["x"], ["y"]), NODE("Add", ["y", "x"], ["z"]), NODE("Relu", ["z"], ["w"])],
        {"y": (2, 3), "w": (2, 3)},
    ),
    "an output is a constant": _model(
        [NODE("Add", ["c", "c"], ["y"]), NODE("Relu", ["x"], ["z"])],
        {"y": (2,), "z": (2, 3)},
        {"c": np.ones(2, np.float32)},
    ),
    "one value under two names": _model(
        [NODE("Relu", ["x"], ["y"]), NODE("Identity", ["y"], ["z"])], {"y": (2, 3), "z": (2, 3)}
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", BORDERS)
def test_whatever_is_an_output_comes_out(case: str, policy: str) -> None:
    feed = {"x": nets.random_input((2, 3))}
    expected: Any = ReferenceEvaluator(BORDERS[case]).run(None, feed)
    session = bl.load(BORDERS[case], layout=policy)
    outputs = session.run(None, feed)
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output, wanted)
        assert not np.shares_memory(output, feed["x"])
    assert not any(np.shares_memory(a, b) for a in outputs for b in outputs if a is not b)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_initializer_serves_readers_that_see_it_differently(policy: str) -> None:
    weights, vector = nets.random_input((8, 8)), nets.random_input((8,), seed=1)
    b = bl.Builder()
    x, image = b.input("x", (2, 8)), b.input("image", (2, 8, 4, 4))
    w, v = b.constant(weights, "w"), b.constant(vector, "v")
    b.output("transposed", x.gemm(w, trans_b=True).relu())
    b.output("as it is", x.gemm(w))
    b.output("product", x.matmul(w))
    b.output("bias", x.gemm(w, v))
    b.output("broadcast", image.conv(nets.he(np.random.default_rng(0), 8, 8, 1, 1), v) * v.reshape((8, 1, 1)))
    session = bl.load(b, layout=policy)
    feed = nets.feed_of(session)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    for output, wanted in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture
def dynamic() -> bl.Session:
    weights = {"w": np.ones((4, 3, 3, 3), np.float32)}
    shape = ("batch", 3, "height", "width")
    return bl.load(_model([NODE("Conv", ["x", "w"], ["y"])], {"y": (None,) * 4}, weights, shape))


def test_a_plan_is_made_for_each_set_of_shapes(dynamic: bl.Session) -> None:
    with pytest.raises(bl.PlanError, match="no plan yet"):
        _ = dynamic.plan
    for size in (5, 7, 5):
        [output] = dynamic.run(None, {"x": np.ones((1, 3, size, size), np.float32)})
        np.testing.assert_array_equal(output, np.full((1, 4, size - 2, size - 2), 27))
    assert dynamic.plan_for({"x": (1, 3, 7, 7)}).inputs[0][1].dims == (1, 3, 7, 7)
    with pytest.raises(bl.PlanError, match="2 plans"):
        _ = dynamic.plan
    with pytest.raises(bl.PlanError, match=r"no plan for .*the session has plans for"):
        dynamic.plan_for({"x": (1, 3, 9, 9)})


def test_old_plans_make_room(dynamic: bl.Session) -> None:
    for size in range(3, 20):
        dynamic.run(None, {"x": np.ones((1, 3, size, size), np.float32)})
    assert len(dynamic._book._plans) == 8


def test_extents_that_differ_are_refused_by_name(dynamic: bl.Session) -> None:
    with pytest.raises(bl.InputError, match="batchx3xheightxwidth"):
        dynamic.run(None, {"x": np.ones((1, 4, 5, 5), np.float32)})
    with pytest.raises(bl.ModelError, match="must fit into the padded source"):
        dynamic.run(None, {"x": np.ones((1, 3, 2, 2), np.float32)})


def test_sessions_describe_themselves_as_onnxruntime_does(dynamic: bl.Session) -> None:
    [info] = dynamic.get_inputs()
    assert (info.name, info.shape, info.type) == ("x", ("batch", 3, "height", "width"), "tensor(float)")
    assert [output.name for output in dynamic.get_outputs()] == ["y"]


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_threads_must_be_a_positive_number(threads: Any) -> None:
    with pytest.raises(bl.InputError, match="give a positive number"):
        bl.load(nets.chain(), threads=threads)


def test_progress_is_told() -> None:
    told: list[str] = []
    bl.load(nets.chain(), progress=told.append)
    assert told == ["reading the model", "simplifying the graph", "choosing layouts", "packing weights"]


@pytest.fixture
def thawed() -> Iterator[None]:
    """With nothing frozen, as where no test suite has frozen its cases."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_nothing_is_collected_while_loading_and_what_was_made_counts_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "MANY_OBJECTS", 0)
    were_enabled: list[bool] = []
    session = bl.load(nets.chain(), progress=lambda _: were_enabled.append(gc.isenabled()))
    assert were_enabled == [False] * 4
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert any(each is session for each in gc.get_objects(generation=2))


def test_what_the_caller_has_frozen_is_not_counted_for_a_few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    bl.load(nets.chain())  # modules, which are many, are loaded
    counted: list[None] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(None))
    bl.load(nets.chain())
    assert not counted


@pytest.mark.usefixtures("thawed")
def test_loading_leaves_the_garbage_collector_as_its_caller_set_it() -> None:
    gc.freeze()
    n_frozen = gc.get_freeze_count()
    bl.load(nets.chain())
    assert gc.get_freeze_count() >= n_frozen // 2  # what dies is frozen no longer
    gc.disable()
    try:
        bl.load(nets.chain())
        assert not gc.isenabled()
    finally:
        gc.enable()
