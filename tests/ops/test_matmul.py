"""MatMul against ONNX's reference, in every layout."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import UnsupportedError
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops.matmul import MatMul
from tests import nets
from tests.ops.cases import Input, OpCase, Weights, problem_of
from tests.ops.harness import check_case, in_narrow_floats

CASES = [
    OpCase("MatMul", ((4, 10), Weights((10, 7)))),
    OpCase("MatMul", ((4, 10), (10, 7))),
    OpCase("MatMul", ((2, 4, 10), Weights((10, 7)))),
    OpCase("MatMul", ((2, 3, 4, 10), (2, 3, 10, 5))),
    OpCase("MatMul", ((2, 3, 4, 10), (1, 3, 10, 5))),
    OpCase("MatMul", (Weights((4, 10)), (2, 10, 7))),
    OpCase("MatMul", ((2, 1, 2, 1, 4, 3), Weights((2, 3, 2)))),
    OpCase("MatMul", ((2, 5, 4, 10), Weights((1, 10, 7)))),
    OpCase("MatMul", ((2, 5, 4, 10), (1, 1, 10, 7))),
    OpCase("MatMul", ((3, 17, 2, 2, 5), Weights((5, 17)))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@in_narrow_floats
@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_agrees_with_the_reference_in_narrow_floats(case: OpCase, dtype: str) -> None:
    check_case(case, dtype)


@pytest.mark.parametrize("weights", [(1, 1, 10, 7), Weights((10, 7))], ids=str)
def test_a_batch_of_matrices_by_the_same_one_is_one_product(weights: Input) -> None:
    lowered = OpCase("MatMul", ((2, 3, 4, 10), weights)).lowered()
    recipe = lowered.operator.lower(problem_of(lowered, (2, 3, 4, 7)), Wish("plain", "plain"), dnnl.Attr())
    assert recipe is not None
    [step] = recipe.steps
    assert (step.spec.memory_desc("src").dims, step.spec.memory_desc("dst").dims) == ((24, 10), (24, 7))
    assert dict(recipe.whole)["dst"] == MemoryDesc((2, 3, 4, 7))


def test_rows_that_do_not_follow_each_other_are_multiplied_in_batches() -> None:
    lowered = OpCase("MatMul", ((2, 3, 4, 10), Weights((10, 7)))).lowered()
    src = MemoryDesc((2, 3, 4, 10), "f32", "acbd")
    recipe = lowered.operator.lower(problem_of(lowered, (2, 3, 4, 7)), Wish(src, "plain"), dnnl.Attr())
    assert recipe is not None
    assert recipe.steps[0].spec.memory_desc("src") == src


@pytest.mark.parametrize("shape", [(2, 5, 20), (10, 20)], ids=str)
@pytest.mark.parametrize("layout", ["auto", "any", "nhwc", "plain"])
def test_weights_are_packed_once_where_the_library_can(layout: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    weights, bias = nets.he(rng, 20, 24), rng.standard_normal(24).astype(np.float32)
    b = bl.Builder()
    x, r = b.input("x", shape), b.input("r", (*shape[:-1], 24))
    y = b.op("Relu", b.op("Add", b.op("MatMul", x, b.constant(weights)), b.constant(bias)))
    b.output("y", b.op("Add", y, r))
    session = bl.load(b, layout=layout, tune="model")
    x_data, r_data = nets.random_input(shape), nets.random_input((*shape[:-1], 24))
    np.testing.assert_allclose(session(x_data, r_data), np.maximum(x_data @ weights + bias, 0) + r_data, atol=1e-5)
    specs = [step.spec for step in session.plan.steps if isinstance(step.spec, dnnl.Spec)]
    [weights_desc] = [spec.memory_desc("weights") for spec in specs if spec.has("weights")]
    inner = dnnl.inner_product(MemoryDesc((10, 20)), dnnl.AnyDesc((24, 20)), MemoryDesc((10, 24)))
    if dnnl.optimised(inner)[0].spec.impl.startswith("brgemm"):
        assert weights_desc.inner_blks


def test_slopes_of_each_row_are_none_of_each_pixels_channel() -> None:
    lowered = OpCase("MatMul", ((2, 4, 10), Weights((10, 7)))).lowered()
    problem, wish = problem_of(lowered, (2, 4, 7)), Wish("channels_last", "channels_last")
    recipe = lowered.operator.lower(problem, wish, dnnl.Attr((dnnl.Prelu(0b10),)))
    assert recipe is None or recipe.steps[-1].spec.kind != "convolution"


@pytest.mark.parametrize("layout", ["auto", "any", "nhwc", "plain"])
def test_an_addend_whose_extents_are_those_of_pixels_is_one_of_rows(layout: str) -> None:
    weights = nets.he(np.random.default_rng(7), 256, 64)
    b = bl.Builder()
    x, r = b.input("x", (1, 64, 1, 256)), b.input("r", (1, 64, 1, 64))
    b.output("y", b.op("Add", b.op("MatMul", x, b.constant(weights)), r))
    session = bl.load(b, layout=layout, tune="model")
    x_data, r_data = nets.random_input((1, 64, 1, 256)), nets.random_input((1, 64, 1, 64))
    np.testing.assert_allclose(session(x_data, r_data), x_data @ weights + r_data, atol=1e-4)


@pytest.mark.parametrize("layout", ["auto", "any", "nhwc", "blocked", "plain"])
def test_what_follows_a_product_of_all_rows_reads_it_in_batches(layout: str) -> None:
    rng = np.random.default_rng(5)
    wide, narrow = nets.he(rng, 10, 34)[None, None], nets.he(rng, 34, 10)[None, None]
    bias, gamma = (rng.standard_normal((1, 1, 1, n)).astype(np.float32) for n in (34, 10))
    per_row = rng.standard_normal((1, 3, 4, 1)).astype(np.float32)
    b = bl.Builder()
    x = b.input("x", (2, 3, 4, 10))
    y = b.op("Relu", b.op("Add", b.op("MatMul", x, b.constant(wide)), b.constant(bias)))
    y = b.op("Mul", b.op("MatMul", y, b.constant(narrow)), b.constant(gamma))
    y = b.op("Add", y, x)
    b.output("y", b.op("Mul", b.op("MatMul", y, b.constant(wide)), b.constant(per_row)))
    session = bl.load(b, layout=layout, tune="model")
    data = nets.random_input((2, 3, 4, 10))
    inner = np.maximum(data @ wide + bias, 0) @ narrow * gamma + data
    np.testing.assert_allclose(session(data), inner @ wide * per_row, atol=1e-4)


def test_operands_of_different_ranks_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="rank"):
        OpCase("MatMul", ((2, 4, 10), (10, 7))).lowered()


def test_heads_of_attention_are_read_where_they_lie() -> None:
    """Products of two computed matrices take each in the layout in which it arrives."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 48, 64))
    query, key, value = (x.matmul(nets.he(rng, 64, 64)).reshape((1, 48, 4, 16)) for _ in range(3))
    scores = query.transpose((0, 2, 1, 3)).matmul(key.transpose((0, 2, 3, 1)), name="scores") * 0.25
    seen = (scores + np.triu(np.full((48, 48), -9, np.float32), 1)).softmax()
    y = seen.matmul(value.transpose((0, 2, 1, 3)), name="seen").transpose((0, 2, 1, 3)).reshape((1, 48, 64))
    b.output("y", y.matmul(nets.he(rng, 64, 64)))
    session = bl.load(b, tune="model")
    moved = {step.kernel for step in session.plan.steps if step.spec.kind == "reorder"}
    assert moved.isdisjoint(("scores", "seen")), session.plan
    feed = nets.feed_of(session)
    [expected] = cast("list[np.ndarray]", ReferenceEvaluator(b.to_onnx()).run(None, feed))
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_formats_of_images_are_one_wish() -> None:
    asked = [Wish(src, dst) for src in ("plain", "channels_last", "blocked8") for dst in ("plain", "blocked16")]
    any_format, exact = Wish("any", "any"), Wish(MemoryDesc((2, 3)), "plain")
    assert {*map(MatMul().meant, [*asked, any_format, exact])} == {Wish("plain", "plain"), any_format, exact}
