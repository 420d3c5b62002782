"""What PyTorch's tutorial and proposal on memory formats say of operators, one test for each statement.

Source: "Channels Last Memory Format in PyTorch" (tutorial), "Memory format (aka layout aka NHWC) support" (proposal,
pytorch/pytorch 19092), "Writing memory format aware operators" (PyTorch's wiki). What they say of channels-last holds
here for every layout.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.errors import LayoutLossWarning
from tests.eager.rules import BLOCKED, LAST, PLAIN, tag_of

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")  # reference kernels

LAYOUTS = [tag_of(name) for name in (PLAIN, LAST, BLOCKED)]
FOLLOWED = LAYOUTS[1:]


def image(shape: tuple[int, ...], layout: str, seed: int = 0) -> bl.Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return bl.as_tensor(array).to(memory_format=layout)


def weights(shape: tuple[int, ...] = (16, 16, 3, 3)) -> bl.Tensor:
    return image(shape, "oihw", 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_litmus_size_1_is_channels_behind_every_operator(layout: str) -> None:
    x = image((2, 16, 8, 6), layout)
    y = bl.max_pool(bl.relu(bl.conv(x, weights((24, 16, 3, 3)), pads=1)), 2)
    assert (y.size(0), y.size(1), y.size(2), y.size(3)) == (2, 24, 4, 3)


@pytest.mark.parametrize("layout", FOLLOWED)
def test_pointwise_operators_preserve_the_memory_format(layout: str) -> None:
    x = image((2, 16, 4, 4), layout)
    for y in (x + x, x * 2.0, 1.0 - x, -x, abs(x), bl.relu(x), bl.sigmoid(x), bl.clip(x, 0, 6), x**2):
        assert y.memory_format == x.memory_format
        assert y.stride() == x.stride()


@pytest.mark.parametrize("layout", FOLLOWED)
def test_a_chain_of_operators_stays_in_one_memory_format(layout: str) -> None:
    x, w = image((1, 16, 8, 8), layout), weights()
    packed = bl.conv_weights(x, w, pads=1)
    vector = bl.ones((16,))
    with bl.watch("raise"):
        y = bl.batch_norm(bl.conv(x, packed, pads=1), vector, vector, vector, vector)
        y = bl.average_pool(bl.relu(y) + x, 2)
    assert y.memory_format == x.memory_format


@pytest.mark.parametrize("layout", FOLLOWED)
def test_a_convolution_of_a_formatted_source_gives_its_format_whatever_the_weights_are(layout: str) -> None:
    for kernel in (weights(), weights().to(memory_format="ohwi")):
        assert bl.conv(image((1, 16, 8, 8), layout), kernel).is_contiguous(layout)


def test_a_convolution_of_a_plain_source_with_channels_last_weights_gives_channels_last() -> None:
    y = bl.conv(image((1, 16, 8, 8), "nchw"), weights().to(memory_format=bl.channels_last))
    assert y.memory_format == bl.channels_last


def test_a_convolution_gives_plain_only_if_all_it_is_given_is_plain() -> None:
    assert bl.conv(image((1, 16, 8, 8), "nchw"), weights()).memory_format == bl.contiguous_format


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 16, 1, 1), (1, 1, 1, 1)], ids=["N1HW", "NC11", "1111"])
def test_operators_follow_the_format_where_strides_are_ambiguous(shape: tuple[int, ...]) -> None:
    x = image(shape, "nhwc")
    y = bl.relu(x) + 1.0
    assert y.memory_format == bl.channels_last
    wider = bl.conv(y, weights((24, shape[1], 1, 1)))
    assert wider.memory_format == bl.channels_last
    assert bl.relu(image(shape, "nchw")).memory_format == bl.contiguous_format


@pytest.mark.parametrize("layout", FOLLOWED)
def test_a_tensor_with_a_scalar_or_a_column_keeps_the_tensors_format(layout: str) -> None:
    column: Any = np.ones((16, 1, 1), np.float32)  # numpy believes that it adds anything itself
    x = image((2, 16, 4, 4), layout)
    for y in (x + 1, 1 + x, x + np.float32(1), x * column, column * x, x - bl.as_tensor(column)):
        assert y.memory_format == x.memory_format


@pytest.mark.parametrize("layout", FOLLOWED)
def test_two_tensors_that_differ_follow_the_first_with_a_warning(layout: str) -> None:
    x, plain = image((2, 16, 4, 4), layout), image((2, 16, 4, 4), "nchw", 1)
    with pytest.warns(LayoutLossWarning, match="gives way"):
        assert (x + plain).memory_format == x.memory_format
    with pytest.warns(LayoutLossWarning, match="gives way"):
        assert (plain + x).memory_format == bl.contiguous_format


@pytest.mark.parametrize("layout", FOLLOWED)
def test_a_chain_with_one_unsupported_operator_is_right_warns_and_returns_to_its_format(layout: str) -> None:
    x = image((1, 16, 8, 8), layout)
    with pytest.warns(LayoutLossWarning, match=f"in {x.desc.tag}: it went through"), bl.watch("record") as seen:
        y = bl.relu(bl.op("Hardmax", bl.relu(x)))
    assert y.memory_format == x.memory_format
    assert [event.operator for event in seen if event.kind == "loss"] == ["Hardmax"]
    plain = bl.relu(bl.op("Hardmax", bl.relu(x.to(memory_format=bl.contiguous_format))))
    np.testing.assert_array_equal(y.numpy(), plain.numpy())


@pytest.mark.parametrize("layout", FOLLOWED)
def test_the_warning_comes_once_a_line(layout: str) -> None:
    x = image((1, 16, 9, 9), layout)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", bl.PlainKernelWarning)
        for _ in range(3):
            bl.op("Hardmax", x)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_non_overlapping_and_dense(layout: str) -> None:
    x = image((2, 16, 4, 4), layout)
    part = x[:, :8]
    assert not part.is_dense
    for y in (bl.relu(x), bl.relu(part), bl.max_pool(part, 2), x + x):
        assert y.is_dense
        assert y.is_contiguous(layout)


def test_a_permuted_tensor_keeps_the_order_of_its_bytes() -> None:
    x = image((2, 16, 4, 6), "nchw")
    y = bl.relu(x.permute(0, 2, 3, 1))
    assert y.shape == (2, 4, 6, 16)
    assert y.stride() == x.permute(0, 2, 3, 1).stride()
