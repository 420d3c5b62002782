"""``If`` nodes that are settled before the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper

import blocklayout as bl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.model import read
from tests.model.protos import OpTypes, make_model

X = np.array([[-1.5, 2.0, -0.5]], np.float32)


def branch(*nodes: NodeProto, outputs: tuple[str, ...] = ("b",), constants: dict[str, np.ndarray] | None = None) -> Any:
    infos = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    arrays = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), "branch", [], infos, arrays)


def of_x(op_type: str, source: str = "x", result: str = "b") -> NodeProto:
    return helper.make_node(op_type, [source], [result], name="inner")


def if_node(then: Any, other: Any, condition: str = "c", result: str = "y", name: str = "i") -> NodeProto:
    return helper.make_node("If", [condition], [result], name=name, then_branch=then, else_branch=other)


RELU, NEG = branch(of_x("Relu")), branch(of_x("Neg"))


def model_of(*nodes: NodeProto, condition: Any = True, shape: Any = (1, 3)) -> ModelProto:
    return make_model(list(nodes), {"x": shape}, constants={"c": np.array(condition)})


@pytest.mark.parametrize(
    ("condition", "op_type", "result"), [(True, "Relu", [0, 2, 0]), (False, "Neg", [1.5, -2, 0.5])]
)
def test_a_known_condition_leaves_the_branch_it_takes(
    *, condition: bool, op_type: str, result: list[float], op_types: OpTypes
) -> None:
    model = model_of(if_node(RELU, NEG), condition=condition)
    assert op_types(read(model)) == [op_type, "Identity"]
    np.testing.assert_array_equal(bl.load(model)(X), [result])


def test_a_condition_may_follow_from_extents() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Equal", ["n", "one"], ["is_one"]),
        if_node(branch(of_x("Squeeze")), branch(of_x("Identity")), "is_one"),
    ]
    constants = {"zero": np.array(0), "one": np.array(1)}
    session = bl.load(make_model(nodes, {"x": ("n", 3)}, constants=constants))
    assert session(X).shape == (3,)
    assert session(np.concatenate([X, X])).shape == (2, 3)


def test_a_condition_may_be_fed() -> None:
    model = make_model([if_node(RELU, NEG)], {"x": (1, 3)})
    model.graph.input.append(helper.make_tensor_value_info("c", 9, ()))
    session = bl.load(model)
    for condition, result in [(True, [[0, 2, 0]]), (False, [[1.5, -2, 0.5]])]:
        np.testing.assert_array_equal(session.run(None, {"x": X, "c": np.array(condition)})[0], result)


def test_branches_have_branches_and_constants_and_names_of_their_own() -> None:
    two, three = (
        branch(
            of_x("Relu", "y1"),
            helper.make_node("Mul", ["b", "k"], ["p"]),
            outputs=("p",),
            constants={"k": np.array(k, np.float32)},
        )
        for k in (2, 3)
    )
    nested = branch(
        of_x("Neg", "y0", "y1"), if_node(two, three, "d", "z"), outputs=("z",), constants={"d": np.array(False)}
    )
    nodes = [if_node(NEG, RELU, result="y0"), if_node(nested, RELU, result="y", name="")]
    np.testing.assert_array_equal(bl.load(model_of(*nodes))(X), [[0, 6, 0]])


def test_a_branch_may_compute_nothing() -> None:
    given, constant = branch(of_x("Identity")), branch(outputs=("k",), constants={"k": np.full((1, 3), 7, np.float32)})
    for condition, result in [(True, X), (False, [[7, 7, 7]])]:
        np.testing.assert_array_equal(bl.load(model_of(if_node(given, constant), condition=condition))(X), result)


SUM = [
    helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
    helper.make_node("Greater", ["sum", "zero"], ["c"]),
]
LARGE = np.linspace(-1, 2, 1000, dtype=np.float32)
"""More than an input whose contents may decide extents."""


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_condition_may_be_computed_at_run_time(*, is_nested: bool) -> None:
    then = branch(if_node(RELU, NEG, "c", "b")) if is_nested else RELU
    nodes = [*SUM, if_node(then, NEG), helper.make_node("Add", ["y", "x"], ["z"])]
    session = bl.load(make_model(nodes, {"x": (1000,)}, ("z",), constants={"zero": np.array(0, np.float32)}))
    for x in (LARGE, -LARGE):
        np.testing.assert_array_equal(session(x), (np.maximum(x, 0) if x.sum() > 0 else -x) + x)
    assert session.memory().n_plans == 1


def test_of_branches_of_other_extents_the_one_that_is_chosen_runs() -> None:
    wider = branch(helper.make_node("Concat", ["x", "x"], ["b"], axis=0))
    model = make_model([*SUM, if_node(RELU, wider)], {"x": (1000,)}, constants={"zero": np.array(0, np.float32)})
    session = bl.load(model)
    for x, expected in ((LARGE, np.maximum(LARGE, 0)), (-LARGE, np.concatenate([-LARGE, -LARGE]))):
        np.testing.assert_array_equal(session(x), expected)
    assert "node 'i': the extents of this If's output 'y'" in str(session.pieces)
    with pytest.raises(UnsupportedError, match=r"node 'i': which branch this If takes depends on 'c', computed at run"):
        read(model)


def test_what_an_if_cannot_be() -> None:
    with pytest.raises(ModelError, match=r"node 'i': the condition 'c' must be one bool, not \(2,\)"):
        read(model_of(if_node(RELU, NEG), condition=[True, False]))
    two = branch(of_x("Relu"), of_x("Neg", "x", "b2"), outputs=("b", "b2"))
    with pytest.raises(ModelError, match="1 outputs, its branch has 2"):
        read(model_of(if_node(two, two)))
    foreign = branch(helper.make_node("Relu", ["x"], ["b"], domain="com.example"))
    with pytest.raises(UnsupportedError, match=r"operator set 'com\.example'"):
        read(model_of(if_node(foreign, NEG)))
