"""Clip with known bounds against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = ((2, 17, 3, 5),)
LOW, HIGH = np.array(-0.5, np.float32), np.array(0.25, np.float32)
CASES = [
    OpCase("Clip", (*IMAGE, LOW, HIGH)),
    OpCase("Clip", (*IMAGE, LOW)),
    OpCase("Clip", (*IMAGE, None, HIGH)),
    OpCase("Clip", (*IMAGE, np.array(0, np.float32))),
    OpCase("Clip", (*IMAGE, HIGH, LOW)),
    OpCase("Clip", IMAGE),
    OpCase("Clip", IMAGE, {"min": -0.5, "max": 0.25}, opset=6),
    OpCase("Clip", IMAGE, {"max": 0.25}, opset=6),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference_by_no_reference_kernel(case: OpCase) -> None:
    assert not any("ref" in impl for impl in check_case(case).values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_pair_of_bounds_is_a_post_op(case: OpCase) -> None:
    lowered = case.lowered()
    use = lowered.operator.as_post_op("src", problem_of(lowered, case.expected.shape))
    assert use is not None
    assert isinstance(use.post_op, dnnl.Eltwise)
    assert use.operand is None
    assert not use.is_sum


def test_clip_from_zero_upwards_is_a_relu() -> None:
    use = OpCase("Clip", (*IMAGE, np.array(0, np.float32))).lowered().operator
    assert use == OpCase("Relu", IMAGE).lowered().operator


def test_bounds_computed_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match=r"'tested'.*min"):
        OpCase("Clip", (*IMAGE, ())).lowered()


def test_bounds_that_are_no_scalars_are_refused() -> None:
    with pytest.raises(ModelError, match="scalar"):
        OpCase("Clip", (*IMAGE, np.zeros(2, np.float32))).uninferred(IMAGE[0])


def test_bounds_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match="nan"):
        OpCase("Clip", (*IMAGE, np.array(np.nan, np.float32))).lowered()
