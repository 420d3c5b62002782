"""Operators that state to compute each row apart from the others do so, by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blocklayout import ops
from tests.ops.test_transposed import BY_DECLARATION, CASES, Case, computed, evaluated, info_of, sources_of


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).random(shape, np.float32)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


APART = (
    Case("Conv", constants=(_floats(2, 3, 3, 3), _floats(2)), attrs={"pads": (1, 1, 1, 1)}),
    Case("Conv", shape=(3, 4, 5), constants=(_floats(4, 2, 2),), attrs={"group": 2}),
    Case("ConvTranspose", constants=(_floats(3, 2, 2, 2),)),
    Case("MaxPool", attrs={"kernel_shape": (2, 2)}),
    Case("AveragePool", attrs={"kernel_shape": (2, 2), "pads": (1, 1, 0, 0)}),
    Case("LpPool", attrs={"kernel_shape": (2, 2)}),
    Case("GlobalAveragePool"),
    Case("LRN", attrs={"size": 3}),
    Case("BatchNormalization", constants=(_floats(3), _floats(3), _floats(3), _floats(3))),
    Case("InstanceNormalization", constants=(_floats(3), _floats(3))),
    Case("LayerNormalization", constants=(_floats(5),)),
    Case("Gemm", shape=(4, 5), constants=(_floats(5, 3), _floats(3))),
    Case("MatMul", shape=(4, 5), constants=(_floats(5, 3),)),
    Case("MatMul", shape=(2, 4, 4), n_sources=2),
    Case("MatMul", constants=(_floats(3, 5, 2),)),
    Case("Softmax", shape=(3, 4), attrs={"axis": 1}, opset=11),
    Case("TopK", constants=(_ints(2),), n_results=2),
    Case("CumSum", constants=(np.array(-1),)),
    Case("Transpose", attrs={"perm": (0, 3, 1, 2)}),
    Case("Concat", attrs={"axis": 1}, n_sources=2),
    Case("Slice", constants=(_ints(1), _ints(3), _ints(2))),
    Case("Pad", constants=(_ints(0, 1, 2, 0, 0, 0, 1, 3),)),
    Case("Resize", constants=(None, np.array([1, 1, 2, 3], np.float32))),
    Case("Tile", constants=(_ints(1, 2, 1, 3),)),
    Case("Expand", shape=(2, 1, 4, 1), constants=(_ints(1, 3, 1, 5),)),
    Case("Add", constants=(_floats(1, 3, 4, 5),)),
    Case("ReduceMean", constants=(_ints(1, 2),), attrs={"keepdims": 0}),
    Case("ArgMax", attrs={"axis": -1}),
    Case("PRelu", constants=(_floats(3, 1, 1),)),
)
"""Nodes of which that has to be known."""

MIXED = (
    Case("Gemm", shape=(4, 4), constants=(_floats(4, 3),), attrs={"transA": 1}),
    Case("Gemm", shape=(4, 5), constants=(_floats(5, 3), _floats(4, 3))),
    Case("MatMul", shape=(4, 4), n_sources=2),
    Case("MatMul", shape=(5,), constants=(_floats(5, 2),)),
    Case("MaxPool", attrs={"kernel_shape": (2, 2)}, n_results=2),
    Case("Softmax", shape=(5,)),
    Case("Softmax", attrs={"axis": 0}),
    Case("Softmax", shape=(3, 4), attrs={"axis": 0}, opset=11),
    Case("LayerNormalization", attrs={"axis": 0}, constants=(_floats(2, 3, 4, 5),)),
    Case("CumSum", constants=(np.array(0),)),
    Case("TopK", attrs={"axis": 0}, constants=(_ints(2),), n_results=2),
    Case("Concat", attrs={"axis": 0}, n_sources=2),
    Case("Slice", constants=(_ints(0), _ints(1))),
    Case("Pad", constants=(_ints(1, 0, 0, 0, 0, 0, 0, 0),)),
    Case("Resize", constants=(None, np.array([2, 1, 1, 1], np.float32))),
    Case("Resize", shape=(2, 3), constants=(None, np.array([1.3, 1], np.float32))),
    Case("Expand", shape=(3, 2), constants=(_ints(3, 3, 2),)),
    Case("Reshape", shape=(4, 2), constants=(_ints(2, 4),)),
    Case("Unsqueeze", constants=(_ints(0),)),
    Case("Gather", attrs={"axis": 0}, constants=(_ints(1, 1),)),
    Case("Add", shape=(2, 2), constants=(_floats(2, 2),)),
    Case("Add", shape=(3, 3), constants=(_floats(3, 3, 3),)),
)
"""Nodes that mix rows, or have their own number of them."""


def states_it(case: Case) -> bool:
    _, inputs, results = computed(case)
    rows = frozenset(range(case.n_sources))
    return ops.facts_of(case.op_type).keeps_rows(info_of(case, inputs, results), rows)


@pytest.mark.parametrize("case", APART, ids=str)
def test_rows_are_known_to_be_apart(case: Case) -> None:
    assert states_it(case)


@pytest.mark.parametrize("case", MIXED, ids=str)
def test_rows_that_are_mixed_are_not(case: Case) -> None:
    assert not states_it(case)


@pytest.mark.parametrize("case", [*APART, *CASES, *BY_DECLARATION], ids=str)
def test_a_row_follows_from_its_own(case: Case) -> None:
    if not states_it(case):
        return
    _, inputs, results = computed(case)
    for row in range(case.shape[0]):
        others: list[Any] = [np.roll(source[::-1], 1, axis=-1) for source in sources_of(case)]
        for index, other in enumerate(others):
            other[row] = inputs[index][row]
        found = evaluated(case.op_type, [*others, *inputs[case.n_sources :]], case, case.attrs)
        for result, expected in zip(found, results, strict=True):
            assert len(result) == case.shape[0]
            np.testing.assert_allclose(result[row], expected[row], rtol=1e-6, atol=1e-7)
