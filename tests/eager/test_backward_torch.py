"""Gradients against PyTorch's, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests.eager.gradients import LAYOUTS, Array, check, in_layout, random

torch: Any = pytest.importorskip("torch", reason="compares with PyTorch")

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")

DIMS = (2, 18, 6, 5)


def leaf(array: Array) -> Any:
    return torch.from_numpy(array.copy()).double().requires_grad_()


def gradients(result: Any, grad: Array, *leaves: Any) -> list[Array]:
    result.backward(torch.from_numpy(grad).double())
    return [each.grad.numpy() for each in leaves]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "window",
    [{"padding": 1}, {"stride": 2, "padding": (1, 0)}, {"dilation": 2, "padding": 2}, {"groups": 3, "padding": 1}],
    ids=str,
)
def test_convolution(window: dict[str, Any], layout: str) -> None:
    x, w, bias = random(*DIMS), random(12, 18 // window.get("groups", 1), 3, 3, seed=1), random(12, seed=2)
    leaves = leaf(x), leaf(w), leaf(bias)
    y = torch.nn.functional.conv2d(*leaves, **window)
    grad = random(*y.shape, seed=3)
    names = {"stride": "strides", "padding": "pads", "dilation": "dilations", "groups": "group"}
    given = in_layout(x, layout)
    found = bl.conv_backward(grad, given, w, **{names[name]: value for name, value in window.items()})
    likes: tuple[Any, ...] = (given, w, bias)
    for got, expected, like in zip(found, gradients(y, grad, *leaves), likes, strict=True):
        assert got is not None
        check(got, expected, like)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pooling(layout: str) -> None:
    x, given = random(*DIMS), in_layout(random(*DIMS), layout)
    cases: list[tuple[Any, Any]] = [
        (
            lambda v: torch.nn.functional.max_pool2d(v, 3, 2, 1),
            lambda grad: bl.max_pool_backward(grad, given, 3, 2, 1),
        ),
        (
            lambda v: torch.nn.functional.max_pool2d(v, 2, 1, 0, 2),
            lambda grad: bl.max_pool_backward(grad, given, 2, 1, dilations=2),
        ),
        (
            lambda v: torch.nn.functional.avg_pool2d(v, 3, 2, 1),
            lambda grad: bl.average_pool_backward(grad, given, 3, 2, 1, count_include_pad=True),
        ),
        (
            lambda v: torch.nn.functional.avg_pool2d(v, (2, 3), count_include_pad=False),
            lambda grad: bl.average_pool_backward(grad, given, (2, 3)),
        ),
        (
            lambda v: v.mean((2, 3), keepdim=True),
            lambda grad: bl.global_average_pool_backward(grad, given),
        ),
    ]
    for forward, backward in cases:
        source = leaf(x)
        y = forward(source)
        grad = random(*y.shape, seed=3)
        [expected] = gradients(y, grad, source)
        check(backward(grad), expected, given)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_functions_of_each_element(layout: str) -> None:
    functional = torch.nn.functional
    cases: dict[str, Any] = {
        "relu": functional.relu,
        "leaky_relu": functional.leaky_relu,
        "elu": functional.elu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "gelu": functional.gelu,
        "swish": functional.silu,
        "hard_swish": functional.hardswish,
        "mish": functional.mish,
        "softplus": functional.softplus,
        "exp": torch.exp,
        "log": torch.log,
        "sqrt": torch.sqrt,
        "square": torch.square,
        "abs": torch.abs,
    }
    grad = random(*DIMS, seed=3)
    for name, forward in cases.items():
        x = np.abs(random(*DIMS)) if name in ("log", "sqrt") else random(*DIMS)
        source, given = leaf(x), in_layout(x, layout)
        [expected] = gradients(forward(source), grad, source)
        check(getattr(bl, f"{name}_backward")(grad, given), expected, given, 2e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_normalization(layout: str) -> None:
    x, scale, shift, grad = random(*DIMS), random(18, seed=1), random(18, seed=2), random(*DIMS, seed=3)
    leaves, given = (leaf(x), leaf(scale), leaf(shift)), in_layout(x, layout)
    expected = torch.nn.functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], training=True)
    y, mean, variance = bl.batch_norm_training(given, scale, shift)
    check(y, expected.detach().numpy(), given)
    found = bl.batch_norm_backward(grad, given, scale, mean, variance)
    likes: tuple[Any, ...] = (given, scale, shift)
    for got, wanted, like in zip(found, gradients(expected, grad, *leaves), likes, strict=True):
        check(got, wanted, like, 2e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inner_product(layout: str) -> None:
    x, w, bias, grad = random(*DIMS), random(7, *DIMS[1:], seed=1), random(7, seed=2), random(2, 7, seed=3)
    leaves, given = (leaf(x), leaf(w), leaf(bias)), in_layout(x, layout)
    expected = torch.nn.functional.linear(leaves[0].flatten(1), leaves[1].flatten(1), leaves[2])
    check(bl.inner_product(given, w, bias), expected.detach().numpy(), bias.reshape(1, 7).repeat(2, 0))
    found = bl.inner_product_backward(grad, given, w)
    likes: tuple[Any, ...] = (given, w, bias)
    for got, wanted, like in zip(found, gradients(expected, grad, *leaves), likes, strict=True):
        check(got, wanted, like)


def test_torch_tensors_are_read_as_they_are() -> None:
    x, w = torch.randn(2, 17, 6, 6).to(memory_format=torch.channels_last), torch.randn(8, 17, 3, 3)
    grad = torch.randn(2, 8, 4, 4)
    with bl.watch("record") as seen:
        found = bl.conv_backward(grad.to(memory_format=torch.channels_last), x, w)
    assert not [event for event in seen if event.reason.startswith(("x is", "grad is"))]
    assert found.data is not None
    assert found.data.desc.is_contiguous("channels_last")
