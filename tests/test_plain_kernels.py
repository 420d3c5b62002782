"""What no primitive computes: by the reference, seen in the plan, told once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import model, ops
from blocklayout.errors import PlainKernelWarning
from blocklayout.plan import POLICIES, Plan
from blocklayout.runtime import Workspace
from tests import nets

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")


@pytest.fixture(autouse=True)
def erf_by_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Erf, as if numpy had no function for it."""
    monkeypatch.setattr(ops.facts_of("Erf"), "in_numpy", lambda _node: None)


FLOAT, DOUBLE, INT64, BOOL = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(5)


def _between_convolutions() -> bl.Builder:
    b = bl.Builder()
    x = b.input("x", (2, 3, 9, 9))
    y = x.conv(nets.he(RNG, 17, 3, 3, 3), pads=1).relu()
    y = b.op("Erf", y, name="error")
    b.output("y", y.conv(nets.he(RNG, 8, 17, 3, 3)).relu())
    return b


def _model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], opset: int = 18) -> onnx.ModelProto:
    def infos(of: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, *declared) for name, declared in of.items()]

    graph = helper.make_graph(nodes, "plain", infos(inputs), infos(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


NODE = helper.make_node
X23 = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
MODELS: dict[str, tuple[onnx.ModelProto, dict[str, np.ndarray]]] = {
    "two results, one read again": (
        _model(
            [
                NODE("Constant", [], ["k"], value_ints=[2]),
                NODE("TopK", ["x", "k"], ["v", "i"]),
                NODE("Relu", ["v"], ["y"]),
            ],
            {"x": (FLOAT, (2, 3))},
            {"y": (FLOAT, (2, 2)), "i": (INT64, (2, 2))},
        ),
        {"x": X23},
    ),
    "only the second result is read": (
        _model(
            [NODE("MaxPool", ["x"], ["v", "i"], kernel_shape=[2])],
            {"x": (FLOAT, (1, 2, 6))},
            {"i": (INT64, (1, 2, 5))},
        ),
        {"x": RNG.standard_normal((1, 2, 6)).astype(np.float32)},
    ),
    "integers through views": (
        _model(
            [
                NODE("Add", ["x", "x"], ["s"]),
                NODE("Transpose", ["s"], ["t"]),
                NODE("Neg", ["t"], ["y"]),
                NODE("Transpose", ["x"], ["z"]),
            ],
            {"x": (INT64, (2, 3))},
            {"y": (INT64, (3, 2)), "z": (INT64, (3, 2))},
        ),
        {"x": X23.astype(np.int64)},
    ),
    "double precision": (
        _model(
            [NODE("Exp", ["x"], ["e"]), NODE("Sub", ["e", "x"], ["y"])],
            {"x": (DOUBLE, (2, 3))},
            {"y": (DOUBLE, (2, 3))},
        ),
        {"x": X23.astype(np.float64)},
    ),
    "booleans choose": (
        _model(
            [NODE("Greater", ["x", "y"], ["c"]), NODE("Not", ["c"], ["n"]), NODE("Where", ["n", "x", "y"], ["z"])],
            {"x": (FLOAT, (2, 3)), "y": (FLOAT, (2, 3))},
            {"z": (FLOAT, (2, 3)), "n": (BOOL, (2, 3))},
        ),
        {"x": X23, "y": X23[::-1].copy()},
    ),
    "scalars": (
        _model(
            [
                NODE("ReduceMean", ["x"], ["m"], keepdims=0),
                NODE("Mul", ["x", "m"], ["p"]),
                NODE("Add", ["p", "s"], ["y"]),
            ],
            {"x": (FLOAT, (2, 3)), "s": (FLOAT, ())},
            {"m": (FLOAT, ()), "y": (FLOAT, (2, 3))},
        ),
        {"x": X23, "s": np.array(0.5, np.float32)},
    ),
    "a part without elements": (
        _model(
            [NODE("Relu", ["e"], ["r"]), NODE("Concat", ["r", "x"], ["c"], axis=0), NODE("Relu", ["c"], ["y"])],
            {"x": (FLOAT, (2, 3)), "e": (FLOAT, (0, 3))},
            {"y": (FLOAT, (2, 3)), "r": (FLOAT, (0, 3))},
        ),
        {"x": X23, "e": np.empty((0, 3), np.float32)},
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", MODELS)
def test_the_reference_computes_it(case: str, policy: str) -> None:
    proto, feed = MODELS[case]
    expected: Any = ReferenceEvaluator(proto).run(None, feed)
    for output, wanted in zip(bl.load(proto, layout=policy).run(None, feed), expected, strict=True):
        assert output.dtype == wanted.dtype
        assert output.shape == wanted.shape
        np.testing.assert_allclose(output, wanted, rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_plain_kernel_between_convolutions_is_right_in_every_layout(policy: str) -> None:
    b = _between_convolutions()
    session = bl.load(b, layout=policy)
    feed = nets.feed_of(session)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected[0], rtol=1e-4, atol=1e-5)
    [step] = session.plan.plain_steps
    assert step.kernel == "error"
    assert "plain: error" in str(session.plan)
    assert "no primitive computes 'Erf'" in step.reason


def test_one_warning_names_the_operators_and_what_they_cost() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = bl.load(_between_convolutions())
        session.run(None, nets.feed_of(session))
    [warning] = [item for item in caught if item.category is PlainKernelWarning]
    assert "error (Erf)" in str(warning.message)
    assert "% of the estimated time" in str(warning.message)


def test_a_plan_with_a_plain_step_read_from_json_runs() -> None:
    session = bl.load(_between_convolutions())
    [kept] = session._book._plans.values()
    ready = kept.ready
    again = Plan.from_json(ready.plan.to_json())
    assert again == ready.plan
    feed = nets.feed_of(session)
    before = session.run(None, feed)[0]
    kept.workspaces[0] = Workspace(replace(ready, plan=again))
    session._book._bound.clear()
    np.testing.assert_array_equal(session.run(None, feed)[0], before)


@pytest.mark.parametrize("order", ["transposed", "every second", "backwards", "big-endian"])
def test_integers_come_in_with_any_strides(order: str) -> None:
    proto, feed = MODELS["integers through views"]
    wide = np.arange(24, dtype=np.int64).reshape(4, 6)
    given = {
        "transposed": np.arange(6, dtype=np.int64).reshape(3, 2).T,
        "every second": wide[::2, ::2],
        "backwards": feed["x"][::-1],
        "big-endian": feed["x"].astype(">i8"),
    }[order]
    outputs = bl.load(proto).run(None, {"x": given})
    np.testing.assert_array_equal(outputs[0], -2 * given.T)
    np.testing.assert_array_equal(outputs[1], given.T)


@pytest.fixture
def without_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that offers no softmax."""
    softmax: Any = ops.find("Softmax")
    monkeypatch.setattr(softmax, "lower", lambda *_: None)


@pytest.mark.usefixtures("without_softmax")
def test_a_primitive_the_library_does_not_offer_is_computed_by_numpy() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (2, 8)).relu().softmax())
    session = bl.load(b)
    feed = nets.feed_of(session)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected[0], rtol=1e-6)
    [step] = [step for step in session.plan.steps if step.spec.kind == "numpy"]
    assert "no primitive on this CPU computes Softmax" in step.reason


def test_what_the_reference_cannot_be_trusted_with_is_unsupported() -> None:
    node = NODE("LRN", ["x"], ["y"], size=3)
    proto = _model([node], {"x": (DOUBLE, (1, 5, 4, 4))}, {"y": (DOUBLE, (1, 5, 4, 4))})
    with pytest.raises(bl.UnsupportedError, match="not what ONNX specifies"):
        bl.load(proto)


def test_a_step_that_holds_no_node_is_refused() -> None:
    session = bl.load(_between_convolutions())
    spec: Any = session.plan.plain_steps[0].spec
    damaged = type(spec)(spec.kind, spec.descs, spec.label, "bm9uc2Vuc2U=")
    with pytest.raises(bl.ModelError, match="plain step of Erf"):
        model.compute_of(damaged)
