"""Gradients of convolution against exact ones: every format, every layout of the incoming gradient."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.ir.result_format import dominating
from tests.dnnl.running import convolve
from tests.eager.gradients import GRADS, LAYOUTS, Array, as_given, check, in_layout, poisoned_results, random

__all__ = ["poisoned_results"]

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")


@dataclass(frozen=True)
class Problem:
    """A convolution in ONNX's words; weights (oc, ic / group, kernel...)."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1
    named: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.named

    @property
    def window(self) -> dict[str, Any]:
        names = ("strides", "pads", "dilations", "group")
        return {name: getattr(self, name) for name in names}

    def forward(self, x: Array, w: Array) -> Array:
        gaps = tuple(dilation - 1 for dilation in self.dilations)
        return convolve(x, w, self.strides, self.pads, gaps, self.group)


PROBLEMS = (
    Problem((2, 17, 9), (5, 17, 3), (1,), (1, 1), (1,), named="1d"),
    Problem((2, 17, 5, 4), (19, 17, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), named="3x3"),
    Problem((2, 17, 4, 4), (19, 17, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), named="1x1"),
    Problem((1, 3, 7, 7), (16, 3, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), named="stem"),
    Problem((1, 9, 6, 5), (9, 9, 3, 2), (2, 1), (0, 1, 1, 0), (1, 1), named="asymmetric"),
    Problem((1, 16, 6, 6), (8, 16, 3, 3), (1, 1), (2, 2, 2, 2), (2, 2), named="dilated"),
    Problem((1, 18, 5, 5), (12, 9, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), group=2, named="two groups"),
    Problem((1, 32, 3, 3), (16, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), group=2, named="two even groups"),
    Problem((1, 17, 5, 5), (17, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), group=17, named="depthwise"),
    Problem((1, 9, 3, 4, 4), (6, 9, 2, 1, 3), (1, 1, 2), (1, 0, 1, 0, 0, 1), (1, 1, 1), named="3d"),
)


@cache
def reference(problem: Problem) -> tuple[Array, Array, Array, Array, Array]:
    """``x``, ``w`` and a gradient, and the gradients of both: exact, since convolution is linear in each of them.

    It is known by what it makes of sources, and of weights, of which a single element is 1.
    """
    x, w = random(*problem.x), random(*problem.w, seed=1)
    grad = random(*problem.forward(x, w).shape, seed=2)
    axes = tuple(range(1, grad.ndim))
    sources = np.eye(prod(problem.x[1:])).reshape(-1, *problem.x[1:])
    data = np.tensordot(grad, problem.forward(sources, w), (axes, axes)).reshape(problem.x)
    axes, alone = (0, *axes[1:]), replace(problem, group=1)
    taps = np.eye(prod(problem.w[1:])).reshape(-1, *problem.w[1:])
    parts = zip(*(np.split(each, problem.group, 1) for each in (grad, x)), strict=True)
    weights = [np.tensordot(of, alone.forward(part, taps), (axes, axes)) for of, part in parts]
    return x, w, grad, data, np.concatenate(weights).reshape(problem.w)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients_come_in_the_formats_of_x_and_w(problem: Problem, layout: str) -> None:
    x, w, grad, data, weights = reference(problem)
    given_x = in_layout(x, layout)
    found = bl.conv_backward(grad, given_x, w, **problem.window)
    assert found.data is not None
    assert found.weights is not None
    assert found.bias is not None
    check(found.data, data, given_x)
    check(found.weights, weights, w)
    check(found.bias, grad.sum(axis=(0, *range(2, grad.ndim)), dtype=np.float64), np.zeros(w.shape[0], np.float32))


@pytest.mark.parametrize("how", GRADS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_incoming_gradient_may_have_any_layout(layout: str, how: str) -> None:
    x, w, grad, data, weights = reference(PROBLEMS[1])
    given_x = in_layout(x, layout)
    found = bl.conv_backward(as_given(grad, how), given_x, w, pads=1)
    assert found.data is not None
    assert found.weights is not None
    check(found.data, data, given_x)
    check(found.weights, weights, w)


@pytest.mark.parametrize("tag", ["oihw", "hwio", "ohwi", "OIhw8i8o", "OIhw8o8i", "Ohwi8o", "OIhw16i16o"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_of_weights_has_their_layout(layout: str, tag: str) -> None:
    x, w, grad, data, weights = reference(PROBLEMS[1])
    given_x, given_w = in_layout(x, layout), bl.reorder(w, tag)
    found = bl.conv_backward(grad, given_x, given_w, pads=1)
    assert found.data is not None
    assert found.weights is not None
    check(found.data, data, given_x)
    check(found.weights, weights, given_w)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.group > 1], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_grouped_weights_in_blocks_and_with_groups_in_front(problem: Problem, layout: str) -> None:
    x, w, grad, data, weights = reference(problem)
    given_x = in_layout(x, layout)
    n_groups = (problem.group, problem.w[0] // problem.group, *problem.w[1:])
    for given_w, expected in (
        (bl.reorder(w, "OIhw8i8o"), weights),
        (bl.reorder(w.reshape(n_groups), "goihw"), weights.reshape(n_groups)),
        (bl.reorder(w.reshape(n_groups), "gOIhw8i8o"), weights.reshape(n_groups)),
    ):
        found = bl.conv_backward(grad, given_x, given_w, **problem.window)
        assert found.data is not None
        assert found.weights is not None
        check(found.data, data, given_x)
        check(found.weights, expected, given_w)


def test_what_is_not_needed_is_not_computed() -> None:
    x, w, grad, _, _ = reference(PROBLEMS[1])
    for needs in ((), ("data",), ("weights",), ("bias",), ("data", "bias")):
        found = bl.conv_backward(grad, x, w, pads=1, needs=needs)
        assert [name for name, value in found._asdict().items() if value is not None] == [*needs]


def test_single_gradients_need_descriptors_only() -> None:
    x, w, grad, data, weights = reference(PROBLEMS[1])
    given_x, given_w = in_layout(x, "blocked8"), bl.reorder(w, "OIhw8i8o")
    check(bl.conv_backward_data(grad, given_x.desc, given_w, pads=1), data, given_x)
    found, bias = bl.conv_backward_weights(grad, given_x, given_w.desc, pads=1)
    check(found, weights, given_w)
    assert bias.shape == (19,)


@pytest.mark.parametrize(
    ("tag", "wanted"), [("OIhw8i8o", "nChw8c"), ("ohwi", "nhwc"), ("oihw", "nchw"), ("hwio", "nchw")]
)
def test_weights_dominate_where_x_is_plain(tag: str, wanted: str) -> None:
    x, w, grad, data, weights = reference(PROBLEMS[1])
    given_w = bl.reorder(w, tag)
    assert dominating([bl.reorder(x, "nchw").desc, given_w.desc], grad.shape, "f32").desc.tag == wanted
    found = bl.conv_backward(grad, x, given_w, pads=1)
    assert found.data is not None
    assert found.weights is not None
    check(found.data, data, x)
    check(found.weights, weights, given_w)


def test_a_view_of_a_larger_tensor_has_a_dense_gradient() -> None:
    x, w, grad, data, weights = reference(PROBLEMS[1])
    wide = np.zeros((2, 17, 5, 9), np.float32)
    wide[..., ::2][..., :4] = x
    found = bl.conv_backward(grad, wide[..., ::2][..., :4], w, pads=1)
    assert found.data is not None
    assert found.weights is not None
    check(found.data, data, x)
    check(found.weights, weights, w)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_of_none(layout: str) -> None:
    x, w, grad = (np.zeros(dims, np.float32) for dims in ((0, 17, 5, 4), (19, 17, 3, 3), (0, 19, 5, 4)))
    found = bl.conv_backward(grad, in_layout(x, layout), w, pads=1)
    assert found.data is not None
    assert found.weights is not None
    assert found.bias is not None
    assert found.data.shape == x.shape
    assert not found.weights.numpy().any()
    assert not found.bias.numpy().any()


@settings(max_examples=40)
@given(data=st.data(), layout=st.sampled_from(LAYOUTS), how=st.sampled_from(GRADS))
def test_random_problems_are_adjoint(data: st.DataObject, layout: str, how: str) -> None:
    group = data.draw(st.sampled_from([1, 1, 2, 3]))
    n_src, n_dst = (group * data.draw(st.integers(1, 9)) for _ in range(2))
    n_spatial = data.draw(st.integers(1, 3))
    each = st.tuples(*[st.integers(1, 3)] * n_spatial)
    kernel, strides, dilations = data.draw(each), data.draw(each), data.draw(each)
    pads = data.draw(st.tuples(*[st.integers(0, 2)] * (2 * n_spatial)))
    spatial = tuple((k - 1) * d + 1 + data.draw(st.integers(0, 3)) for k, d in zip(kernel, dilations, strict=True))
    x_dims, w_dims = (2, n_src, *spatial), (n_dst, n_src // group, *kernel)
    problem = Problem(x_dims, w_dims, strides, pads, dilations, group)
    x, w, dx, dw = random(*x_dims), random(*w_dims), random(*x_dims, seed=3), random(*w_dims, seed=4)
    grad = random(*problem.forward(x, w).shape, seed=5)
    found = bl.conv_backward(as_given(grad, how), in_layout(x, layout), w, **problem.window)
    assert found.data is not None
    assert found.weights is not None
    for gradient, forward, direction in (
        (found.data, problem.forward(dx, w), dx),
        (found.weights, problem.forward(x, dw), dw),
    ):
        size = float(np.abs(grad).ravel() @ np.abs(forward).ravel())
        assert abs(np.vdot(gradient.numpy(), direction) - np.vdot(grad, forward)) <= 1e-5 * size
