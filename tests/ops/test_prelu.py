"""PRelu against ONNX's reference, in every layout, with slopes of every broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from blocklayout.plan import Machine
from tests.ops.cases import Input, OpCase, Weights, problem_of
from tests.ops.harness import assert_close, check_case

IMAGE = (2, 17, 3, 5)
SLOPES = [
    (17, 1, 1),
    (1, 17, 1, 1),
    (1,),
    IMAGE,
    (17, 3, 5),
    (3, 5),
    (5,),
    (2, 1, 1, 1),
    (1, 17, 3, 1),
    (2, 17, 1, 1),
    (2, 1, 1, 5),
]
CASES = [
    *(OpCase("PRelu", (IMAGE, Weights(slope))) for slope in SLOPES),
    *(OpCase("PRelu", (IMAGE, slope)) for slope in SLOPES),
    OpCase("PRelu", (IMAGE, ())),
    OpCase("PRelu", ((4, 10), Weights((10,)))),
    OpCase("PRelu", ((7,), Weights((7,)))),
    OpCase("PRelu", ((2, 17, 9), Weights((17, 1)))),
    OpCase("PRelu", ((2, 17, 2, 3, 4), Weights((17, 1, 1, 1)))),
    OpCase("PRelu", ((2, 1, 2, 3, 2, 2), Weights((3, 1, 1)))),
    OpCase("PRelu", ((2, 1, 3, 5), Weights((1, 3, 5)))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@st.composite
def prelus(draw: st.DrawFn) -> OpCase:
    shape = [draw(st.integers(1, 3)), draw(st.sampled_from([1, 8, 17])), *(draw(st.integers(1, 4)) for _ in range(2))]
    slope = tuple(draw(st.sampled_from([1, extent])) for extent in shape)[draw(st.integers(0, 3)) :]
    slopes: Input = slope if draw(st.booleans()) else Weights(slope)
    return OpCase("PRelu", (tuple(shape), slopes))


@settings(max_examples=30)
@given(prelus())
def test_any_slopes_agree_with_the_reference(case: OpCase) -> None:
    check_case(case)


@pytest.mark.parametrize("slope", SLOPES[:8], ids=str)
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_unblocked_layouts_are_optimised(slope: tuple[int, ...], layout: str) -> None:
    [impl] = check_case(OpCase("PRelu", (IMAGE, slope)), layouts=(layout,)).values()
    assert "ref" not in impl


@pytest.mark.parametrize("slope", [(1,), IMAGE, (17, 3, 5), (3, 5), (2, 1, 1, 1)], ids=str)
def test_blocks_are_optimised(slope: tuple[int, ...]) -> None:
    ran = check_case(OpCase("PRelu", (IMAGE, slope)), layouts=("blocked8", "blocked16"))
    assert not any("ref" in impl for impl in ran.values())


def test_slopes_per_channel_are_optimised_in_blocks_of_a_register() -> None:
    blocks = Machine(dnnl.isa(), 1).block_names[0]
    ran = check_case(OpCase("PRelu", (IMAGE, (17, 1, 1))), layouts=(blocks,))
    assert dnnl.isa() == "sse41" or "ref" not in ran[blocks]


def test_slopes_along_other_dimensions_are_no_post_op() -> None:
    for shape, slope in ((IMAGE, (5,)), ((2, 1, 3, 5), (5,)), (IMAGE, IMAGE)):
        lowered = OpCase("PRelu", (shape, Weights(slope))).lowered()
        assert lowered.operator.as_post_op("src", problem_of(lowered, shape)) is None


def test_one_constant_slope_is_a_leaky_relu() -> None:
    slope = np.full((1, 1), 0.25, np.float32)
    assert OpCase("PRelu", (IMAGE, slope)).lowered().operator == (
        OpCase("LeakyRelu", (IMAGE,), {"alpha": 0.25}).lowered().operator
    )


def test_slopes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(ModelError, match="slopes"):
        OpCase("PRelu", (IMAGE, Weights((3,)))).uninferred(IMAGE)


def test_a_slope_that_is_no_number_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="nan"):
        OpCase("PRelu", (IMAGE, np.full(1, np.nan, np.float32))).lowered()


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None


def test_slopes_per_channel_join_a_convolution() -> None:
    rng = np.random.default_rng(0)
    weights, slopes = rng.standard_normal((17, 16, 3, 3)), rng.standard_normal((17, 1, 1))
    builder = bl.Builder()
    x = builder.input("x", (1, 16, 9, 9))
    builder.output("y", builder.op("PRelu", x.conv(weights.astype(np.float32), pads=1), slopes.astype(np.float32)))
    feed = {"x": rng.standard_normal((1, 16, 9, 9)).astype(np.float32)}
    expected: Any = ReferenceEvaluator(builder.to_onnx()).run(None, feed)
    for policy in ("auto", "plain", "nhwc", "blocked"):
        session = bl.load(builder, layout=policy)
        assert_close(session.run(None, feed)[0], expected[0], 1e-5, policy)
        if dnnl.isa() not in ("sse41", "avx"):
            assert [step.spec.kind for step in session.plan.steps].count("prelu") == 0
