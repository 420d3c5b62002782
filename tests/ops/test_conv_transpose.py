"""Transposed convolution against ONNX's reference, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.errors import ModelError, UnsupportedError
from tests.ops.cases import OpCase, Weights
from tests.ops.harness import check_case

CASES = [
    OpCase("ConvTranspose", ((1, 3, 4, 5), Weights((3, 8, 3, 3)), Weights((8,)))),
    OpCase("ConvTranspose", ((1, 8, 4, 4), Weights((8, 5, 2, 2))), {"strides": [2, 2]}),
    OpCase(
        "ConvTranspose",
        ((1, 4, 4, 4), Weights((4, 3, 3, 3))),
        {"group": 2, "pads": [1, 0, 1, 1]},
        is_reference_wrong=True,
    ),
    OpCase(
        "ConvTranspose",
        ((1, 4, 4, 4), Weights((4, 3, 3, 3))),
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    OpCase("ConvTranspose", ((1, 2, 5), Weights((2, 3, 3))), {"dilations": [2]}),
    OpCase("ConvTranspose", ((1, 2, 4, 4), Weights((2, 3, 3, 3))), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    OpCase(
        "ConvTranspose",
        ((1, 2, 4, 4), Weights((2, 3, 3, 3))),
        {"strides": [2, 2], "output_shape": [8, 8]},
        is_reference_wrong=True,
    ),
    OpCase("ConvTranspose", ((1, 3, 4, 5), (3, 8, 3, 3), (8,))),
    OpCase("ConvTranspose", ((1, 4, 4, 4), (4, 3, 3, 3)), {"group": 2}, is_reference_wrong=True),
    OpCase("ConvTranspose", ((1, 4, 4, 4), Weights((4, 1, 3, 3))), {"group": 4}, is_reference_wrong=True),
    OpCase(
        "ConvTranspose",
        ((1, 3, 4, 3, 3), Weights((3, 8, 3, 2, 2)), (8,)),
        {"strides": [2, 1, 2], "output_padding": [1, 0, 1], "dilations": [2, 1, 1]},
    ),
    *(
        OpCase(
            "ConvTranspose",
            ((1, 8, 4, 4), Weights((8, 8, 3, 3))),
            {"strides": [3, 2], **attrs},
            is_reference_wrong=True,
        )
        for attrs in (
            {"auto_pad": "SAME_LOWER"},
            {"auto_pad": "VALID"},
            {"output_padding": [2, 1]},
            {"output_shape": [10, 8]},
            {"output_shape": [10, 8], "auto_pad": "SAME_UPPER"},
            {"output_shape": [10, 8], "auto_pad": "SAME_LOWER"},
        )
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        (((1, 3, 4, 4), Weights((2, 4, 3, 3))), {}, "channels"),
        (((1, 3, 4, 4), Weights((3, 4, 3, 3)), Weights((3,))), {}, "bias"),
        (((1, 3, 4, 4), Weights((3, 4, 3, 3))), {"group": 2}, "group"),
        (((1, 3, 4, 4), Weights((3, 4, 3, 3))), {"strides": [0, 1]}, "strides"),
        (((1, 3, 4, 4), Weights((3, 4, 3, 3))), {"pads": [1, 1, 1, 1]}, r"the window gives \[4, 4\]"),
    ],
)
def test_contradictions_name_node_and_attribute(
    inputs: tuple[tuple[int, ...] | Weights, ...], attrs: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=f"'tested'.*{message}"):
        OpCase("ConvTranspose", inputs, attrs).uninferred((1, 4, 6, 6))


def test_outputs_larger_than_the_windows_are_unsupported() -> None:
    case = OpCase("ConvTranspose", ((1, 3, 4, 4), Weights((3, 4, 3, 3))), {"output_shape": [9, 9]})
    with pytest.raises(UnsupportedError, match="negative"):
        case.uninferred((1, 4, 9, 9))


@pytest.mark.parametrize("policy", ["plain", "nhwc", "blocked"])
def test_many_channels_in_strides_are_summed_before_the_bias_is_added(policy: str) -> None:
    rng, b = np.random.default_rng(0), bl.Builder()
    weights = (rng.standard_normal((512, 17, 4, 4)) * 0.02).astype(np.float32)
    x = b.input("x", (1, 512, 6, 6))
    y = b.op("ConvTranspose", x, weights, np.ones(17, np.float32), strides=[2, 2], pads=[1, 1, 1, 1]).relu()
    b.output("y", y)
    feed = {"x": rng.standard_normal((1, 512, 6, 6)).astype(np.float32)}
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    np.testing.assert_allclose(bl.load(b, layout=policy).run(None, feed)[0], expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("policy", bl.plan.POLICIES)
def test_post_ops_that_a_reference_would_compute_are_steps_of_their_own(policy: str) -> None:
    """``conv:any`` hands nothing but the deconvolution itself on to the fast convolution that it is named with."""
    b = bl.Builder()
    b.output("y", b.input("x", (1, 16, 5, 5)).conv_transpose(np.ones((16, 16, 4, 4), np.float32), strides=2).relu())
    plan = bl.load(b, layout=policy, tune="model").plan
    assert not plan.reference_steps
    assert not [step for step in plan.steps if step.spec.impl.startswith("conv:any") and step.spec.attr.post_ops]
