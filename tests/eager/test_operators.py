"""Every operator on Tensors: its values against the reference, and its format by the rules, in every layout."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import eager, ops
from blocklayout.errors import LayoutLossWarning
from blocklayout.layout import FormatTag
from tests.eager.cases import CASES, Case, reference

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")  # reference kernels

FORMATS = ("nchw", "nhwc", "nChw8c", "nChw16c", "chwn", "abCd4c", "aBcd5b")

SAME = {
    "BatchNormalization": "batch_norm",
    "GroupNormalization": "group_norm",
    "InstanceNormalization": "instance_norm",
    "LayerNormalization": "layer_norm",
    "MatMul": "matmul",
    "PRelu": "prelu",
}


def in_format(array: np.ndarray, layout: str) -> bl.Tensor:
    return bl.reorder(array, layout if array.ndim == len(FormatTag.parse(layout).order) else "abcdefgh"[: array.ndim])


def function_of(op_type: str) -> str:
    return SAME.get(op_type, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op_type).lower())


BY_OP = {
    "ByteTable",
    "ConvInteger",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "GRU",
    "LSTM",
    "MatMulInteger",
    "QuantizeLinear",
    "RNN",
}
"""Layers of many operands, of which a network has few, and bytes: ``bl.op`` computes them, or a session does."""


def test_every_native_operator_has_a_function() -> None:
    missing = {op_type for op_type in set(ops.op_types()) - BY_OP if function_of(op_type) not in eager.__all__}
    assert not missing


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_bytes_are_numbers_and_numbers_bytes(layout: str) -> None:
    given = np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)
    numbers = bl.op("DequantizeLinear", bl.reorder(given, layout), np.float32(0.5), np.uint8(2))
    np.testing.assert_array_equal(np.asarray(numbers), (given.astype(np.float32) - 2) / 2)
    np.testing.assert_array_equal(np.asarray(bl.op("QuantizeLinear", numbers, np.float32(0.5), np.uint8(2))), given)


def test_every_function_has_a_case() -> None:
    elsewhere = {"cast", "cast_like", "conv_transpose_weights", "conv_weights", "op"}
    missing = set(eager.__all__) - elsewhere - {case.name for case in CASES}
    assert not missing


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_those_of_the_reference(case: Case, layout: str) -> None:
    arrays = case.arrays()
    tensors = [
        in_format(array, layout if number == 0 or array.shape == arrays[0].shape else "abcdefgh"[: array.ndim])
        for number, array in enumerate(arrays)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayoutLossWarning)
        results = case.call(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    for result, expected in zip(results, reference(case, arrays), strict=True):
        assert result.shape == (expected.shape or (1,))
        np.testing.assert_allclose(
            result.numpy(), expected, rtol=0, atol=1e-5 * max(1.0, float(np.abs(expected).max()))
        )
        padding = result.desc.pack(result.numpy())
        np.testing.assert_array_equal(result.physical(), padding)
