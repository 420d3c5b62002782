"""Max unpooling against ONNX's reference, in every layout: elements go back to where max pooling found them."""

from __future__ import annotations

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


def in_format(array: np.ndarray, memory_format: str) -> bl.Tensor:
    return bl.from_array(array) if memory_format == "contiguous_format" else bl.reorder(array, memory_format)


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
    assert back.desc.pack(back.numpy()).tobytes() == back.physical().tobytes()  # padding is zero


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("output_shape", [None, (2, 17, 9, 10)])
def test_unpooling_agrees_with_the_reference(output_shape: tuple[int, ...] | None, memory_format: str) -> None:
    y = np.random.default_rng(2).standard_normal((2, 17, 4, 4)).astype(np.float32)
    numbers = np.arange(2 * 17 * 64).reshape(2, 17, 4, 2, 4, 2)[:, :, :, 1, :, 0]
    attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    shape = None if output_shape is None else np.array(output_shape)
    case = OpCase("MaxUnpool", (y, numbers, shape) if output_shape else (y, numbers), attrs, opset=11)
    [expected] = ReferenceEvaluator(case.model).run(None, {})
    given: Any = (
        in_format(y, memory_format),
        in_format(numbers, memory_format),
        *([output_shape] if output_shape else []),
    )
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
    maxima, places = bl.max_pool_with_indices(bl.conv(X, weights, pads=1), 2)
    expected = bl.conv(bl.max_unpool(bl.relu(maxima), places, 2, output_shape=X.shape), weights, pads=1)
    assert (i == places.numpy()).mean() > 0.99  # sums are added up in another order
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
