"""Max pooling that says where, and the way back: against ONNX's reference, in every layout; NaN is kept."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import InvalidArgumentsError, ModelError
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
    windows = [(..., *(slice(at, at + kernel) for at in place)) for place in places]
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
    expected = ReferenceEvaluator(OpCase("MaxPool", (X.shape,), WINDOWS[3]).model).run(None, {"in_0": X})[0]
    assert np.array_equal(bl.max_pool(X, (3, 2), (1, 2), dilations=(2, 3)).numpy(), expected)


@pytest.mark.parametrize("memory_format", FORMATS)
def test_unpooling_puts_maxima_back(memory_format: str) -> None:
    x = in_format(X, memory_format)
    y, indices = bl.max_pool_with_indices(x, 2)
    with bl.watch("raise"):
        back = bl.max_unpool(y, indices, 2, output_shape=X.shape)
    expected = np.zeros(X.size, np.float32)
    expected[indices.numpy().ravel()] = y.numpy().ravel()
    assert back.memory_format == memory_format
    assert np.array_equal(back.numpy(), expected.reshape(X.shape))
    assert back.desc.n_padding == 0 or not back.desc.pack(back.numpy()).tobytes() != back.physical().tobytes()


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("output_shape", [None, (2, 17, 9, 10)])
def test_unpooling_agrees_with_the_reference(output_shape: tuple[int, ...] | None, memory_format: str) -> None:
    y = np.random.default_rng(2).standard_normal((2, 17, 4, 4)).astype(np.float32)
    numbers = np.arange(2 * 17 * 64).reshape(2, 17, 4, 2, 4, 2)[:, :, :, 1, :, 0]
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    shape = None if output_shape is None else np.array(output_shape)
    case = OpCase("MaxUnpool", (y, numbers, shape) if output_shape else (y, numbers), attrs, opset=11)
    [expected] = ReferenceEvaluator(case.model).run(None, {})
    given = (in_format(y, memory_format), in_format(numbers, memory_format), *([output_shape] if output_shape else []))
    with bl.watch("raise"):
        found = bl.op("MaxUnpool", *given, **attrs)
    assert found.memory_format == memory_format
    assert np.array_equal(found.numpy(), expected)


def test_indices_in_another_layout_are_moved() -> None:
    y, indices = bl.max_pool_with_indices(X, 2)
    blocked = y.to(memory_format="nChw8c")
    back = bl.max_unpool(blocked, indices, 2, output_shape=X.shape)
    assert back.memory_format == "nChw8c"
    assert np.array_equal(back.numpy(), bl.max_unpool(y, indices, 2, output_shape=X.shape).numpy())


@pytest.mark.parametrize("layout", ["auto", "plain", "nhwc", "blocked"])
def test_an_encoder_and_its_decoder_run_in_a_session(layout: str) -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((17, 17, 3, 3)).astype(np.float32)
    b = bl.Builder()
    y, indices = b.input("x", X.shape).conv(weights, pads=1).max_pool_with_indices(2)
    b.output("z", y.relu().max_unpool(indices, 2, output_shape=X.shape).conv(weights, pads=1))
    b.output("i", indices)
    session = bl.load(b, layout=layout)
    z, i = session.run(None, {"x": X})
    y, indices = bl.max_pool_with_indices(bl.conv(X, weights, pads=1), 2)
    expected = bl.conv(bl.max_unpool(bl.relu(y), indices, 2, output_shape=X.shape), weights, pads=1)
    assert (i == indices.numpy()).mean() > 0.99  # sums are added up in another order
    assert np.abs(z - expected.numpy()).max() < 1e-3 * np.abs(expected.numpy()).max()
    assert not any(step.is_reference for step in session.plan.steps)


def test_a_number_that_no_element_has_is_named() -> None:
    ones = np.ones((1, 1, 2, 2), np.float32)
    for wrong in (16, -1):
        with pytest.raises(InvalidArgumentsError, match="indices holds a number that no element of the result has"):
            bl.max_unpool(ones, np.full(ones.shape, wrong), 2)
    assert bl.max_unpool(ones, np.arange(4).reshape(ones.shape), 2).numpy().sum() == ones.size


def test_a_result_too_small_for_its_windows_is_refused() -> None:
    ones = np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(ModelError, match="output_shape"):
        bl.max_unpool(ones, np.zeros(ones.shape, np.int64), 2, output_shape=(1, 1, 2, 2))


@pytest.mark.needs_bf16
@pytest.mark.parametrize("memory_format", FORMATS)
def test_bf16(memory_format: str) -> None:
    values, numbers = largest(X, 3, 2, 1)
    x = in_format(X, memory_format).astype("bf16")
    y, indices = bl.max_pool_with_indices(x, 3, 2, 1)
    assert y.dtype == "bf16"
    assert np.array_equal(y.numpy().astype(np.float32), values)
    assert np.array_equal(indices.numpy(), numbers)
