"""Nodes that no primitive computes as they are, as those that primitives compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blocklayout.ir import Role
from blocklayout.model import Builder, BuildValue, Graph, Node, legalize, lower, simplify
from blocklayout.model.passes import LEGALIZATION, Pass
from blocklayout.model.passes.decompose import Decompose
from blocklayout.model.passes.expand_functions import ExpandFunctions
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.one_walk import AlignRanks, RemoveDead

Same = Callable[[Graph, Graph], None]
OpTypes = Callable[[Graph], list[str]]
Rng = np.random.Generator


def array(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def never(_graph: Graph, _node: Node) -> bool:
    return False


def one_of(*op_types: str) -> Callable[[Graph, Node], bool]:
    return lambda _graph, node: node.op_type in op_types


def op(op_type: str, *args: Any, **attrs: Any) -> BuildValue:
    builder = next(arg.builder for arg in args if isinstance(arg, BuildValue))
    result: BuildValue = builder.op(op_type, *args, **attrs)
    return result


def plain_kernels(graph: Graph) -> list[str]:
    return [kernel.name for kernel in lower(legalize(simplify(graph))).kernels if kernel.operator.role is Role.PLAIN]


# --- products

SHAPES = [
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((4,), (2, 4, 3)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((0, 3, 4), (4, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_operands_of_a_product_get_its_rank(
    a: tuple[int, ...], b: tuple[int, ...], assert_same: Same, op_types: OpTypes
) -> None:
    builder = Builder()
    builder.output("y", op("MatMul", builder.input("a", a), builder.input("b", b)))
    before = builder.to_graph()
    after = Decompose()(before)
    product = next(node for node in after.nodes if node.op_type == "MatMul")
    ranks = {len(after.shape(name)) for name in (*product.inputs, *product.outputs)}
    assert len(ranks) == 1
    assert set(op_types(after)) <= {"Reshape", "MatMul", "Squeeze"}
    assert_same(before, after)
    assert not plain_kernels(before)


@pytest.mark.parametrize(("a", "b"), [shapes for shapes in SHAPES if 0 not in shapes[0]])
def test_a_constant_operand_is_reshaped(a: tuple[int, ...], b: tuple[int, ...], rng: Rng, assert_same: Same) -> None:
    builder = Builder()
    builder.output("y", op("MatMul", builder.input("a", a), array(rng, *b)))
    before = builder.to_graph()
    after = Decompose()(before)
    assert all(node.op_type == "MatMul" or not after.values[node.inputs[0]].is_constant for node in after.nodes)
    assert_same(before, after)
    assert not plain_kernels(before)


def test_a_product_of_equal_ranks_stays() -> None:
    builder = Builder()
    builder.output("y", op("MatMul", builder.input("a", (2, 3, 4)), builder.input("b", (1, 4, 5))))
    before = builder.to_graph()
    assert Decompose()(before) is before


@pytest.mark.parametrize("attrs", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "alpha": 0.5}, {"beta": 2.0}])
@pytest.mark.parametrize("c", [None, (5,), (3, 1), (3, 5), ()])
def test_a_gemm_of_computed_matrices_runs_in_parts(
    attrs: dict[str, Any], c: tuple[int, ...] | None, assert_same: Same
) -> None:
    b = Builder()
    left = b.input("a", (4, 3) if attrs.get("transA") else (3, 4))
    right = b.input("b", (5, 4) if attrs.get("transB") else (4, 5))
    addend = () if c is None else (b.input("c", c),)
    b.output("y", op("Gemm", left, right, *addend, **attrs))
    before = b.to_graph()
    after = Decompose(never)(before)
    assert "Gemm" not in [node.op_type for node in after.nodes]
    assert after.nodes[-1].name == before.nodes[0].name
    assert_same(before, after)
    assert not plain_kernels(before)


def test_a_constant_matrix_is_transposed_once(rng: Rng, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", b.input("a", (3, 4)).gemm(array(rng, 5, 4), trans_b=True))
    before = b.to_graph()
    assert op_types(Decompose(never)(before)) == ["MatMul"]
    assert_same(before, Decompose(never)(before))


def test_a_gemm_that_runs_stays() -> None:
    b = Builder()
    b.output("y", op("Gemm", b.input("a", (3, 4)), b.input("b", (4, 5))))
    before = b.to_graph()
    assert Decompose(one_of("Gemm"))(before) is before


# --- neighbours


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize(
    ("indices", "axis", "expected"),
    [
        (1, 1, ["Slice", "Reshape"]),
        (-1, -1, ["Slice", "Reshape"]),
        ([0, 1], 2, ["Slice"]),
        ([-2, -1], 1, ["Slice"]),
        ([1], 0, ["Slice"]),
        ([1, 0], 1, ["Gather"]),
        ([0, 2], 2, ["Gather"]),
        ([[0, 1]], 2, ["Gather"]),
        ([0, 0], 1, ["Gather"]),
    ],
)
def test_neighbours_are_a_slice(
    opset: int, indices: Any, axis: int, expected: list[str], assert_same: Same, op_types: OpTypes
) -> None:
    if opset == 9 and np.min(indices) < 0:
        indices = np.array(indices) + 3
    b = Builder(opset=opset)
    b.output("y", op("Gather", b.input("x", (3, 3, 3)), np.array(indices), axis=axis))
    before = b.to_graph()
    after = Decompose()(before)
    assert op_types(after) == expected
    assert_same(before, after)


# --- means and activations


@pytest.mark.parametrize("n", [2, 3])
def test_a_mean_is_a_sum_and_a_share(n: int, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", op("Mean", *(b.input(f"x{index}", (3,) if index else (2, 3)) for index in range(n))))
    before = b.to_graph()
    after = Decompose()(before)
    assert op_types(after) == ["Sum", "Mul"]
    assert_same(before, after)
    assert not plain_kernels(before)


@pytest.mark.parametrize(
    ("op_type", "attrs", "expected"),
    [
        ("Selu", {}, ["Elu", "Mul"]),
        ("Selu", {"alpha": 2.0, "gamma": 0.5}, ["Elu", "Mul"]),
        ("Softsign", {}, ["Abs", "Add", "Div"]),
        ("Shrink", {"lambd": 0.7, "bias": 0.7}, ["Max", "Min", "Sub"]),
    ],
)
@pytest.mark.parametrize("opset", [9, 20])
def test_activations_run_in_parts(
    op_type: str, attrs: dict[str, float], expected: list[str], opset: int, assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder(opset=opset)
    b.output("y", op(op_type, b.input("x", (2, 3, 4)), **attrs))
    before = b.to_graph()
    after = Decompose(never)(before)
    assert op_types(after) == expected
    assert_same(before, after)
    assert not plain_kernels(before)
    assert Decompose(one_of(op_type))(before) is before


def test_a_hard_shrink_stays(op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", op("Shrink", b.input("x", (2, 3)), lambd=0.5))
    assert op_types(Decompose(never)(b.to_graph())) == ["Shrink"]


@pytest.mark.parametrize("limits", [(True, True), (True, False), (False, True)])
def test_limits_computed_at_run_time_are_a_maximum_and_a_minimum(
    limits: tuple[bool, bool], assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    given = [b.input(name, ()) if is_there else None for name, is_there in zip(("lo", "hi"), limits, strict=True)]
    b.output("y", op("Clip", x, *given))
    before = b.to_graph()
    after = simplify(before, (Decompose(never),))
    wanted = zip(("Max", "Min"), limits, strict=True)
    assert op_types(after) == [op_type for op_type, is_there in wanted if is_there]
    assert_same(before, after)
    assert not plain_kernels(before)


def test_a_mean_of_one_is_that_one(op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", op("Mean", b.input("x", (2, 3))))
    assert op_types(Decompose()(b.to_graph())) == ["Identity"]


# --- function bodies


def test_a_body_within_a_body_is_taken(assert_same: Same, op_types: OpTypes) -> None:
    def is_native(_graph: Graph, node: Node) -> bool:
        return node.op_type not in ("SoftmaxCrossEntropyLoss", "LogSoftmax")

    b = Builder(opset=18)
    x = b.input("x", (2, 3))
    for name, labels in (("y", [0, 2]), ("z", [1, 1])):
        b.output(name, op("SoftmaxCrossEntropyLoss", x, np.array(labels), reduction="none"))
    before = b.to_graph()
    after = ExpandFunctions(is_native)(before).validate()
    assert not {"SoftmaxCrossEntropyLoss", "LogSoftmax"} & set(op_types(after))
    assert after.nodes[2].name == "softmaxcrossentropyloss_0.logsoftmax_2.reducemax_0"
    assert after.nodes[2].absorbed == ("softmaxcrossentropyloss_0.logsoftmax_2", "softmaxcrossentropyloss_0")
    assert_same(before, after)


def test_a_body_that_needs_another_pass_is_taken(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", op("Celu", b.input("x", (2, 3, 4))))

    def is_native(graph: Graph, node: Node) -> bool:
        ranks = {len(graph.shape(name)) for name in node.inputs}
        return node.op_type in ("Div", "Elu", "Mul") and ranks == {3}

    before = b.to_graph()
    assert op_types(ExpandFunctions(is_native)(before)) == ["Celu"]
    after = ExpandFunctions(is_native, (AlignRanks(),))(before)
    assert op_types(after) == ["Div", "Elu", "Mul"]
    assert_same(before, after)


def test_a_node_that_another_pass_makes_native_is_not_expanded(rng: Rng, op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", op("PRelu", b.input("x", (2, 3, 4)), array(rng, 4)))

    def is_native(graph: Graph, node: Node) -> bool:
        return len({len(graph.shape(name)) for name in node.inputs}) == 1

    before = b.to_graph()
    assert op_types(ExpandFunctions(is_native, (AlignRanks(),))(before)) == ["PRelu"]
    assert len(ExpandFunctions(one_of("Less", "Mul", "Where", "Cast", "CastLike", "Constant"))(before).nodes) > 1


def test_a_body_half_of_which_would_be_plain_is_not_taken() -> None:
    b = Builder(opset=18)
    b.output("y", op("ThresholdedRelu", b.input("x", (2, 3)), alpha=0.5))
    (kernel,) = lower(legalize(b.to_graph())).kernels
    assert kernel.nodes == ("thresholdedrelu_0",)


# --- the stage


def test_every_form_between_can_be_seen() -> None:
    b = Builder()
    x = b.input("x", (2, 3))
    b.output("y", op("Celu", x * x.sigmoid()))
    seen: list[tuple[Pass, list[str]]] = []
    graph = legalize(b.to_graph(), on_pass=lambda each, form: seen.append((each, [n.op_type for n in form.nodes])))
    assert tuple(each for each, _ in seen) == LEGALIZATION
    forms = {type(each): op_types for each, op_types in seen}
    assert forms[RemoveDead] == ["Sigmoid", "Mul", "Celu"]
    assert forms[MergeIdioms] == ["Swish", "Celu"]
    assert forms[ExpandFunctions] == ["Swish", "Div", "Elu", "Mul"]
    assert seen[-1][1] == [node.op_type for node in graph.nodes]


def test_single_passes_are_left_out(op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", op("Celu", b.input("x", (2, 3))))
    without = [each for each in LEGALIZATION if not isinstance(each, ExpandFunctions)]
    assert op_types(legalize(b.to_graph(), without)) == ["Celu"]


def test_a_graph_that_is_not_legalized_is_lowered_as_it_is() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    x.sigmoid()  # nobody reads it
    first, second = b.op("Split", x, axis=1, num_outputs=2, n_outputs=2, name="split")
    b.output("y", op("Add", first, b.input("z", (4,)), name="sum"))
    b.output("z2", second)
    kernels = {kernel.name: kernel for kernel in lower(b.to_graph()).kernels}
    assert {name: kernel.operator.role for name, kernel in kernels.items()} == {
        "split": Role.PLAIN,
        "sum": Role.FOLLOWER,
    }
    assert "unsqueeze it to the output's rank 3" in kernels["sum"].reason
    assert not plain_kernels(b.to_graph())


EQUATIONS = (
    *("ij,jk", "bhid,bhjd->bhij", "bqnd,bknd->bnqk", "bid,hdn->bihn", "ij->ji", "ij->", "ij->ij", "i,i->", "i,j->ij"),
    *("bchw,bchw->bc", "...ij,...jk->...ik", "i...,i->...i", "abc,cd,de->abe", "i,j,k->kij", "ijk,jil->kl", "ij,k->ki"),
)


@pytest.mark.parametrize("opset", [12, 20])
def test_einsum_is_products_sums_and_views(opset: int, run: Callable[[Graph], list[np.ndarray]]) -> None:
    """Of an equation with a letter twice in one operand, nothing is said."""
    extents = dict(zip("abcdehijklmnqw", (2, 3, 4, 5, 3, 4, 2, 5, 3, 4, 5, 2, 3, 4), strict=True))
    b = Builder(opset=opset)
    for index, equation in enumerate((*EQUATIONS, "ii->i")):
        operands = equation.partition("->")[0].replace("...", "ma").split(",")
        shapes = [tuple(5 if equation == "ii->i" else extents[letter] for letter in each) for each in operands]
        sources = [b.input(f"x{index}.{place}", shape) for place, shape in enumerate(shapes)]
        b.output(f"y{index}", b.op("Einsum", *sources, equation=equation))
    before = b.to_graph()
    after = legalize(before)
    assert [node.op_type for node in after.nodes].count("Einsum") == 1
    for expected, actual in zip(run(before), run(after), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
