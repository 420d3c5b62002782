"""MatMul against ONNX's reference, in every layout."""

from __future__ import annotations

import pytest

from blocklayout.errors import ModelError, UnsupportedError
from tests.ops.cases import OpCase, Weights
from tests.ops.harness import check_case

CASES = [
    OpCase("MatMul", ((4, 10), Weights((10, 7)))),
    OpCase("MatMul", ((4, 10), (10, 7))),
    OpCase("MatMul", ((2, 4, 10), Weights((10, 7)))),
    OpCase("MatMul", ((2, 3, 4, 10), (2, 3, 10, 5))),
    OpCase("MatMul", ((2, 3, 4, 10), (1, 3, 10, 5))),
    OpCase("MatMul", (Weights((4, 10)), (2, 10, 7))),
    OpCase("MatMul", ((2, 1, 2, 1, 4, 3), Weights((2, 3, 2)))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_agrees_with_the_reference_in_bf16(case: OpCase) -> None:
    check_case(case, "bf16")


def test_matrices_that_do_not_multiply_are_refused() -> None:
    with pytest.raises(ModelError, match="multiply"):
        OpCase("MatMul", ((4, 10), Weights((9, 7)))).uninferred((4, 7))


def test_operands_of_different_ranks_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="rank"):
        OpCase("MatMul", ((2, 4, 10), (10, 7))).lowered()
