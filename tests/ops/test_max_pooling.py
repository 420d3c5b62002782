"""Max pooling that says where: against ONNX's reference, in every layout; NaN is kept."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from tests.ops.cases import OpCase

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

FORMATS = ("contiguous_format", "channels_last", "nChw8c", "nChw16c", "chwn")
X = np.random.default_rng(0).integers(-9, 9, (2, 17, 9, 8)).astype(np.float32)  # with equal ones
WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 3], "strides": [2, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "strides": [1, 2], "dilations": [2, 3]},
    {"kernel_shape": [3, 3], "strides": [3, 3], "storage_order": 1},
    {"kernel_shape": [9, 8], "strides": [9, 8]},
]


def largest(x: np.ndarray, kernel: int, stride: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Each window's first NaN or largest, and its number."""
    n, c, *spatial = x.shape
    around = [(0, 0), (0, 0), *[(pad, pad)] * len(spatial)]
    padded = np.pad(x, around, constant_values=-np.inf)
    numbers = np.pad(np.arange(x.size).reshape(x.shape), around)
    places = product(*(range(0, extent + 2 * pad - kernel + 1, stride) for extent in spatial))
    windows: list[Any] = [(..., *(slice(at, at + kernel) for at in place)) for place in places]
    seen = np.stack([padded[window].reshape(n, c, -1) for window in windows], 2)
    which = np.stack([numbers[window].reshape(n, c, -1) for window in windows], 2)
    first = seen.argmax(-1)[..., None]
    shape = (n, c, *((extent + 2 * pad - kernel) // stride + 1 for extent in spatial))
    return tuple(np.take_along_axis(each, first, -1).reshape(shape) for each in (seen, which))  # type: ignore[return-value]


def in_format(array: np.ndarray, memory_format: str) -> bl.Tensor:
    return bl.from_array(array) if memory_format == "contiguous_format" else bl.reorder(array, memory_format)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("attrs", WINDOWS, ids=str)
def test_indices_are_the_references_and_lie_as_the_maxima(attrs: dict[str, Any], memory_format: str) -> None:
    case = OpCase("MaxPool", (X.shape,), attrs, n_outputs=2)
    expected = ReferenceEvaluator(case.model).run(None, {"in_0": X})
    x = in_format(X, memory_format)
    with bl.watch("raise"):
        found = bl.op("MaxPool", x, n_outputs=2, **attrs)
    for each, right in zip(found, expected, strict=True):
        assert each.memory_format == memory_format
        assert np.array_equal(each.numpy(), right)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_nan_is_kept_and_found(kernel: int, stride: int, pad: int, memory_format: str) -> None:
    x = X.copy()
    x[0, 3, 4, 4] = x[1, 16, 0, 0] = x[1, 16, 0, 1] = np.nan
    if not pad:  # what is there is as low as padding, and found all the same
        x[1, 5] = -np.inf
    values, numbers = largest(x, kernel, stride, pad)
    given = in_format(x, memory_format)
    y, indices = bl.max_pool_with_indices(given, kernel, stride, pad)
    alone = bl.max_pool(given, kernel, stride, pad)
    assert np.isnan(values).sum() > 1
    assert np.array_equal(y.numpy(), values, equal_nan=True)
    assert np.array_equal(alone.numpy(), values, equal_nan=True)
    assert np.array_equal(indices.numpy(), numbers)


@pytest.mark.parametrize("layout", ["auto", "plain", "nhwc", "blocked"])
def test_a_session_keeps_nan(layout: str) -> None:
    b = bl.Builder()
    x = b.input("x", X.shape)
    b.output("y", x.max_pool(3, 2, 1))
    b.output("z", x.global_max_pool())
    fed = X.copy()
    fed[1, 16, 8, 7] = np.nan
    y, z = bl.load(b, layout=layout).run(None, {"x": fed})
    assert np.array_equal(y, largest(fed, 3, 2, 1)[0], equal_nan=True)
    assert np.array_equal(z, fed.max(axis=(2, 3), keepdims=True), equal_nan=True)


@pytest.mark.parametrize("shape", [(2, 5, 9), (1, 17, 5, 4, 6), (3, 1, 7, 7), (1, 40, 3, 3), (1, 3, 40, 70)])
@pytest.mark.parametrize("memory_format", ["contiguous_format", "channels_last"])
def test_other_ranks_and_extents(shape: tuple[int, ...], memory_format: str) -> None:
    x = np.random.default_rng(1).integers(-3, 3, shape).astype(np.float32)
    values, numbers = largest(x, 2, 1, 1)
    y, indices = bl.max_pool_with_indices(in_format(x, memory_format), 2, 1, 1)
    assert np.array_equal(y.numpy(), values)
    assert np.array_equal(indices.numpy(), numbers)


def test_dilated_windows_of_the_function() -> None:
    [expected] = ReferenceEvaluator(OpCase("MaxPool", (X.shape,), WINDOWS[3]).model).run(None, {"in_0": X})
    assert np.array_equal(bl.max_pool(X, (3, 2), (1, 2), dilations=(2, 3)).numpy(), expected)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("memory_format", FORMATS)
def test_bf16(memory_format: str) -> None:
    values, numbers = largest(X, 3, 2, 1)
    x = in_format(X, memory_format).astype("bf16")
    y, indices = bl.max_pool_with_indices(x, 3, 2, 1)
    assert y.dtype == "bf16"
    assert np.array_equal(y.numpy().astype(np.float32), values)
    assert np.array_equal(indices.numpy(), numbers)
