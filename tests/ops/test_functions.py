"""Operators' functions in numpy as steps of a plan: in every layout, of every kind of number, and refused ones."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.ir import HostSpec
from blocklayout.ops import facts_of, functions
from tests import nets
from tests.ops.in_numpy import IMAGE, RNG, ROWS, SIGNED, SPECIAL, Case, check, computed, floats, integers, scalar

LAYOUTS = ("plain", "channels_last", "dcba", "blocked8", "blocked16")
DIVISORS = integers(*IMAGE, low=1) * RNG.choice([-1, 1], IMAGE)
CHANNELS = floats(17, 1, 1)
ELEMENTWISE = [
    Case("Where", (integers(*IMAGE) > 0, floats(*IMAGE), floats(*IMAGE))),
    Case("Where", (integers(*IMAGE) > 0, floats(*IMAGE), scalar(0.5, "float32"))),
    Case("Greater", (SPECIAL, floats(*IMAGE))),
    Case("And", (integers(*IMAGE) > 0, integers(*IMAGE) > 0)),
    Case("BitShift", (integers(*IMAGE, low=0, dtype="uint8"), scalar(3, "uint8")), {"direction": "LEFT"}),
    Case("Add", (SIGNED, DIVISORS)),
    Case("Div", (SIGNED, DIVISORS)),
    Case("Div", (integers(*IMAGE, low=0, dtype="uint8"), scalar(3, "uint8"))),
    Case("Mod", (SIGNED, DIVISORS)),
    Case("Mod", (floats(*IMAGE), floats(*IMAGE)), {"fmod": 1}),
    Case("Pow", (SIGNED, scalar(2))),
    Case("Max", (SPECIAL.astype("f8"), floats(*IMAGE, dtype="f8"), scalar(0, "f8"))),
    Case("Erf", (SPECIAL,)),
    Case("Erf", (floats(*IMAGE, dtype="float16"),)),
    Case("Cos", (floats(*IMAGE, dtype="f8"),)),
    Case("IsInf", (SPECIAL,), {"detect_negative": 0}),
    Case("Shrink", (SIGNED.astype("f8"),), {"lambd": 1.5, "bias": 0.5}),
    Case("Clip", (SIGNED, None, scalar(3))),
    Case("Cast", (integers(*IMAGE, dtype="float32") / 4,), {"to": TensorProto.INT64}),
    Case("QuantizeLinear", (floats(*IMAGE), scalar(0.02, "float32"), scalar(130, "uint8"))),
    Case("DequantizeLinear", (SIGNED.astype("int8"), scalar(0.02, "float32"), scalar(3, "int8"))),
]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
def test_an_elementwise_function_computes_in_every_layout(case: Case) -> None:
    tolerance = 1e-3 if case.sources[0].dtype == np.float16 else 2e-6  # type: ignore[union-attr]
    assert check(case, LAYOUTS, tolerance) == set(LAYOUTS)


@pytest.mark.parametrize(
    "case",
    [
        Case("Less", (floats(*IMAGE), CHANNELS)),
        Case("Where", (integers(2, 1, 3, 5) > 0, floats(*IMAGE), CHANNELS)),
        Case("Sub", (floats(5, dtype="f8"), floats(*IMAGE, dtype="f8"))),
    ],
    ids=str,
)
def test_what_is_broadcast_is_read_in_any_order_of_dimensions(case: Case) -> None:
    assert check(case, LAYOUTS) == {"plain", "channels_last", "dcba"}


TIES = integers(4, 200, low=0, high=9).astype(np.float32)
OTHERS = [
    Case("ArgMax", (TIES,), {"axis": 1, "select_last_index": 1, "keepdims": 0}),
    Case("ArgMin", (SPECIAL,), {"axis": -2}),
    Case("Hardmax", (TIES,)),
    Case("LpNormalization", (np.abs(ROWS),), {"p": 1, "axis": 1}),
    Case("ReduceLogSumExp", (SPECIAL * 200, np.array([1, -1])), {"keepdims": 0}),
    Case("ReduceSum", (SIGNED, np.array([], np.int64)), {"noop_with_empty_axes": 1}),
    Case("ReduceSum", (SIGNED, np.array([0, 2]))),
    Case("ReduceMean", (SIGNED, np.array([-1])), {"keepdims": 0}),
    Case("ReduceMax", (SIGNED,), {"axes": [1, 3]}, opset=13),
    Case("ReduceMin", (np.zeros((2, 0), "int32"), np.array([1]))),
    Case("ReduceProd", (ROWS.astype("f8"),), {"keepdims": 0}),
    Case("ReduceL1", (SIGNED, np.array([1]))),
    Case("Slice", (SIGNED, np.array([9, 0]), np.array([-99, 2]), np.array([1, -1]), np.array([-3, 1]))),
    Case("Split", (SIGNED,), {"axis": 1, "num_outputs": 3}, n_outputs=3),
    Case("Split", (SIGNED, np.array([1, 16])), {"axis": -3}, n_outputs=2),
    Case("Concat", (SIGNED, DIVISORS[:, :0], DIVISORS), {"axis": 1}),
    Case("Tile", (SIGNED, np.array([1, 2, 1, 3]))),
    Case("Expand", (integers(17, 1, 1), np.array([2, 1, 3, 1]))),
    Case("Pad", (SIGNED, np.array([1, 0, 0, 2]), scalar(7), np.array([-1, 0]))),
    Case("Pad", (SIGNED, np.array([2, 1]), None, np.array([3])), {"mode": "reflect"}),
    Case("MatMul", (integers(2, 3, 4), integers(4, 5))),
    Case("Softmax", (floats(2, 3, dtype="f8"),), {"axis": 0}),
    Case("LogSoftmax", (floats(2, 3, dtype="f8"),)),
    Case("RandomNormal", (), {"shape": [3, 4], "seed": 7.0, "mean": 2.0}),
    Case("RandomUniformLike", (ROWS,), {"seed": 7.0, "low": -1.0}),
    Case("Dropout", (ROWS, scalar(0.3, "float32"), scalar(1, "bool")), {"seed": 5}, n_outputs=2),
]


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_a_function_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (Case("Gather", (ROWS, np.array([5])), {"axis": 1}), "an extent of 4 has -4 to 3"),
        (Case("ScatterND", (ROWS, np.array([[3]]), ROWS[:1])), "out of bounds"),
        (Case("RandomNormal", (), {"shape": [2], "seed": 1.0, "scale": math.nan}), "it must be a finite number"),
    ],
    ids=lambda case: str(case)[:20],
)
def test_a_wrong_index_or_attribute_is_one_error_that_names_the_node(case: Case, told: str) -> None:
    with pytest.raises((bl.InputError, bl.ModelError), match=rf"'own'.*{told}"):
        computed(case, [ROWS])


def _spec(case: Case) -> HostSpec:
    operator = functions.operator_of(case.node(case.expected()))
    assert operator is not None
    return operator.spec


@pytest.mark.parametrize("damage", ["{}", "none", '{"inputs": 3}', "[1]", "null", "[" * 100_000])
def test_a_step_that_holds_no_node_is_refused(damage: str) -> None:
    with pytest.raises(bl.PlanError, match="step of Greater is none"):
        functions.compute_of(replace(_spec(ELEMENTWISE[2]), node=damage))


@pytest.mark.parametrize("changed", [{"inputs": []}, {"attrs": {"q_num_heads": 10**30, "kv_num_heads": 1}}], ids=str)
def test_a_step_of_an_operator_with_another_node_is_refused(changed: dict[str, Any]) -> None:
    x = floats(2, 3, 4)
    case = Case("LinearAttention", (x, x, x), {"q_num_heads": 2, "kv_num_heads": 2}, n_outputs=2, opset=28)
    shapes = [np.zeros((2, 3, 4), np.float32), np.zeros((2, 2, 2, 2), np.float32)]
    operator = functions.operator_of(case.node(shapes))
    assert operator is not None
    spec = operator.spec
    with pytest.raises(bl.PlanError, match="step of LinearAttention is none"):
        functions.compute_of(replace(spec, node=json.dumps(json.loads(spec.node) | changed)))


def test_a_mistake_of_an_operator_is_not_the_fault_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(_node: object) -> None:
        raise AssertionError

    spec = _spec(ELEMENTWISE[2])
    monkeypatch.setattr(facts_of(spec.label), "in_numpy", mistaken)
    with pytest.raises(AssertionError):
        functions.compute_of(spec)


def test_a_step_of_other_extents_or_of_no_operator_is_refused() -> None:
    spec = _spec(ELEMENTWISE[2])
    said = json.loads(spec.node)
    said["inputs"][0][1] = [1]
    for changed in (replace(spec, node=json.dumps(said)), replace(spec, label="Conv"), replace(spec, label="Nothing")):
        with pytest.raises(bl.PlanError):
            functions.compute_of(changed)


@pytest.mark.parametrize("layout", ["nhwc", "blocked", "plain", "auto"])
def test_between_convolutions_nothing_is_reordered_for_it(layout: str) -> None:
    b = bl.Builder()
    y = b.input("x", (1, 16, 6, 6)).conv(nets.he(RNG, 16, 16, 3, 3), pads=1, name="before")
    y = b.op("Where", b.op("IsNaN", y), y, b.op("Sin", y))
    b.output("y", y.conv(nets.he(RNG, 16, 16, 3, 3), pads=1, name="behind"))
    session = bl.load(b, layout=layout)
    plan = session.plan
    assert not plan.plain_steps
    assert all("no primitive" in step.reason for step in plan.steps if step.spec.kind == "numpy"), plan
    assert {step.kernel for step in plan.steps if step.is_reorder} <= {"before", "the caller"}
    feed = nets.feed_of(session)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected[0], rtol=1e-4, atol=1e-4)
