"""Gradients against PyTorch's, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests.dnnl.running import assert_padding_is_zero
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


def network(given: Any, how: Any) -> Any:
    """What trained networks are made of; ``how`` has the functions."""
    x, w, scale, shift, taps, slope, head = given
    y = how.conv(x, w)
    y = how.prelu(how.group(how.norm(y, scale, shift), scale, shift), slope)
    y = how.resize(how.taps(how.lrn(y), taps))
    return how.loss(how.layer(how.flat(y)), head)


class Theirs:
    conv = staticmethod(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1))
    norm = staticmethod(lambda x, *given: torch.nn.functional.batch_norm(x, None, None, *given, training=True))
    group = staticmethod(lambda x, *given: torch.nn.functional.group_norm(x, 4, *given))
    prelu = staticmethod(torch.nn.functional.prelu)
    lrn = staticmethod(lambda x: torch.nn.functional.local_response_norm(x, 3, 0.1, 0.75, 1.0))
    taps = staticmethod(lambda x, w: torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1))
    resize = staticmethod(lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"))
    flat = staticmethod(lambda x: x.amax((2, 3)))
    layer = staticmethod(lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]))
    loss = staticmethod(
        lambda x, head: torch.nn.functional.cross_entropy(
            torch.nn.functional.linear(x, head), torch.tensor([3, 7]), ignore_index=7, reduction="sum"
        )
    )


class Ours:
    conv = staticmethod(lambda x, w: bl.conv(x, w, pads=1))
    norm = staticmethod(lambda *given: bl.batch_norm_training(*given).y)
    group = staticmethod(lambda x, *given: bl.group_norm(x, 4, *given))
    prelu = staticmethod(lambda x, slope: bl.prelu(x, slope.reshape((-1, 1, 1))))
    lrn = staticmethod(lambda x: bl.lrn(x, 3, 0.1, 0.75, 1.0))
    taps = staticmethod(lambda x, w: bl.conv_transpose(x, w, strides=2, pads=1))
    resize = staticmethod(lambda x: bl.resize(x, scales=(1, 1, 2, 2), mode="linear"))
    flat = staticmethod(lambda x: x.reduce_max((2, 3)).flatten())
    layer = staticmethod(lambda x: bl.layer_norm(x, np.ones(x.shape[1], np.float32)))
    loss = staticmethod(
        lambda x, head: bl.op(
            "SoftmaxCrossEntropyLoss",
            bl.gemm(x, head, trans_b=True),
            np.array([3, 7]),
            ignore_index=7,
            reduction="sum",
        )
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_network_on_the_tape(layout: str) -> None:
    dims = DIMS, (12, 18, 3, 3), (12,), (12,), (12, 20, 4, 4), (12,), (10, 20)
    arrays = [random(*each, seed=seed) / (1 if len(each) == 1 else 3) for seed, each in enumerate(dims)]
    leaves, given = [leaf(each) for each in arrays], [bl.from_array(each) for each in arrays]
    given[0] = in_layout(arrays[0], layout)
    network(leaves, Theirs).backward()
    with bl.record() as tape:
        loss = network(given, Ours)
    for got, expected, like in zip(tape.gradients(loss, given), leaves, given, strict=True):
        assert got.desc == like.desc
        assert_padding_is_zero(got.desc, got.buffer)
        np.testing.assert_allclose(got.numpy(), expected.grad.numpy(), rtol=1e-3, atol=2e-4)
