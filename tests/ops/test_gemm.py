"""Gemm against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError
from blocklayout.ir import HostSpec, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.plan import CostModel, Pricing
from blocklayout.plan.costs.model import Price
from tests import nets
from tests.ops.cases import Input, OpCase, Weights, problem_of
from tests.ops.harness import check_case, in_narrow_floats, resolved

CASES = [
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((7,)))),
    OpCase("Gemm", ((4, 10), Weights((7, 10)), Weights((1, 7))), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights(()))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((4, 7))), {"alpha": 0.5, "beta": 2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((4, 1)))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((7,))), {"beta": 0.0}),
    OpCase("Gemm", ((1, 10), Weights((10, 7)))),
    OpCase("Gemm", (Weights((10, 4)), (10, 7)), {"transA": 1, "alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7), (4, 7))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (1, 7)), {"alpha": 0.5}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (7,))),
    OpCase("Gemm", ((4, 10), (7, 10)), {"transB": 1}),
    OpCase("Gemm", ((4, 10), (7, 10), (7,)), {"transB": 1}),
    OpCase("Gemm", ((4, 10), (7, 10), Weights((7,))), {"transB": 1, "beta": 2.0}),
    OpCase("Gemm", (Weights((10, 4)), (7, 10), (4, 7)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7)), {"alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7), Weights((7,))), {"alpha": 0.5}),
    OpCase("Gemm", ((4, 10), (10, 7), (4, 7)), {"alpha": 0.5, "beta": 2.0}),
    OpCase("Gemm", ((4, 10), (10, 7), (1, 7)), {"beta": 2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (4, 1)), {"beta": -2.0}),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), (1, 1))),
    OpCase("Gemm", ((10, 4), Weights((10, 7))), {"transA": 1}),
    OpCase("Gemm", ((10, 4), Weights((7, 10)), Weights((7,))), {"transA": 1, "transB": 1, "alpha": 0.5}),
    OpCase("Gemm", ((10, 4), (7, 10), (7,)), {"transA": 1, "transB": 1, "beta": 2.0}),
    OpCase("Gemm", ((10, 4), (10, 7), (7,)), {"transA": 1}),
    OpCase("Gemm", ((4, 10), (7, 10)), {"transB": 1, "alpha": 2.0}),
    OpCase("Gemm", ((4, 10), (7, 10), (4, 7)), {"transB": 1, "alpha": 2.0, "beta": -1.0}),
    OpCase("Gemm", ((4, 10), (10, 7), (7,)), {"beta": 2.0}),
    OpCase("Gemm", ((4, 10), (10, 7), (7,))),
    OpCase("Gemm", ((4, 10), (10, 7), (1,))),
    OpCase("Gemm", ((4, 10), Weights((10, 7)), ()), {"beta": 0.5}),
    OpCase("Gemm", ((1, 10), Weights((10, 7)), (1, 7))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


@in_narrow_floats
@pytest.mark.parametrize("case", CASES[:8], ids=str)
def test_agrees_with_the_reference_in_narrow_floats(case: OpCase, dtype: str) -> None:
    check_case(case, dtype)


def test_weights_of_a_gemm_are_a_view_with_the_output_in_front() -> None:
    case = OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((1,))))
    constants = case.lowered().constants
    assert constants["weights"].shape == (7, 10)
    assert np.shares_memory(constants["weights"], case.arrays[1])
    assert constants["bias"].shape == (7,)


def test_matrices_computed_at_run_time_are_turned_where_they_lie() -> None:
    lowered = OpCase("Gemm", ((10, 4), (7, 10)), {"transA": 1, "transB": 1}).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, (4, 7)), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    [step] = recipe.steps
    assert step.spec.memory_desc("src") == MemoryDesc((4, 10), "f32", "ba")
    assert dict(recipe.whole)["src"] == MemoryDesc((10, 4), "f32", "ab")


@pytest.mark.parametrize("tail", [(), (dnnl.Eltwise("relu"),), (dnnl.Binary("mul"),)])
@pytest.mark.parametrize("n_rows", [1, 2])
def test_rows_may_be_pixels_of_an_image(n_rows: int, tail: tuple[dnnl.PostOp, ...]) -> None:
    lowered = OpCase("Gemm", ((n_rows, 10), Weights((10, 7)), Weights((1, 7)))).lowered()
    problem = problem_of(lowered, (n_rows, 7))
    recipe = lowered.operator.lower(problem, Wish("channels_last", "channels_last"), dnnl.Attr(tail))
    if n_rows == 1:
        assert recipe is not None
        assert recipe.steps[0].spec.kind == "inner_product"
    elif any(isinstance(post_op, dnnl.Binary) for post_op in tail):
        assert recipe is None
    else:
        assert recipe is not None
        assert recipe.steps[0].spec.kind == "convolution"
        assert dict(recipe.whole)["dst"] == MemoryDesc((2, 7))


def test_what_is_added_to_rows_as_pixels_is_read_row_by_row() -> None:
    lowered = OpCase("Gemm", ((2, 10), Weights((10, 7)))).lowered()
    operands = (MemoryDesc((1, 7)), MemoryDesc((2, 7), "f32", "ba"), MemoryDesc((2, 1)))
    row, matrix, column = (dnnl.Binary("add", desc) for desc in operands)
    problem, wish = problem_of(lowered, (2, 7)), Wish("channels_last", "channels_last")
    recipe = lowered.operator.lower(problem, wish, dnnl.Attr((row, matrix)))
    assert recipe is not None
    seen = [post_op.src1 for post_op in recipe.steps[0].spec.attr.post_ops if isinstance(post_op, dnnl.Binary)]
    assert seen == [MemoryDesc((1, 7, 1, n_rows), "f32", "nhwc") for n_rows in (1, 2)]
    assert dict(recipe.whole)["post_op_1_src_1"] == MemoryDesc((2, 7))
    assert lowered.operator.lower(problem, wish, dnnl.Attr((column,))) is None


class _CheapConvolutions(CostModel, frozen=True):
    """Prices at which products are best had as convolutions over pixels."""

    def price(self, spec: dnnl.Spec | HostSpec) -> Price:
        is_cheap = isinstance(spec, dnnl.Spec) and spec.kind == "convolution"
        return Price(1.0, "modelled") if is_cheap else super().price(spec)


def test_a_plan_over_pixels_packs_its_matrix_and_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pricing, "priced", lambda _, network: network.priced(_CheapConvolutions(network.costs.machine)))
    rng = np.random.default_rng(3)
    weights, bias = nets.he(rng, 1000, 512), rng.standard_normal(1000).astype(np.float32)
    b = bl.Builder()
    b.output("y", b.input("x", (16, 512)).gemm(weights, bias, trans_b=True).relu())
    session = bl.load(b, tune="model")
    assert [step.spec.kind for step in session.plan.steps if not step.is_reorder] == ["convolution"]
    x = nets.random_input((16, 512))
    np.testing.assert_allclose(session(x), np.maximum(x @ weights.T + bias, 0), atol=1e-4)


@pytest.mark.parametrize("c", [(4, 7), (4, 1), Weights((4, 7))], ids=str)
@pytest.mark.parametrize("b", [(10, 7), Weights((10, 7))], ids=str)
def test_a_matrix_is_added_by_no_reference_kernel(b: Input, c: Input) -> None:
    lowered = OpCase("Gemm", ((4, 10), b, c)).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, (4, 7)), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    assert not [step for step in recipe.steps if resolved(step).spec.impl.startswith("ref")]


def test_nothing_fuses_behind_an_added_matrix() -> None:
    lowered = OpCase("Gemm", ((4, 10), (10, 7), (4, 7))).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, (4, 7)), Wish("plain", "plain"), attr) is None


def test_matrices_that_do_not_multiply_are_refused() -> None:
    with pytest.raises(ModelError, match="multiply"):
        OpCase("Gemm", ((4, 10), Weights((9, 7)))).uninferred((4, 7))


def test_a_bias_that_does_not_broadcast_is_refused() -> None:
    with pytest.raises(ModelError, match="broadcast"):
        OpCase("Gemm", ((4, 10), Weights((10, 7)), Weights((6,)))).uninferred((4, 7))
