"""Inner products and their gradients against numpy, in every format."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from tests.eager.gradients import GRADS, LAYOUTS, Array, as_given, check, in_layout, poisoned_results, random

__all__ = ["poisoned_results"]

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")

SHAPES = ((3, 17), (3, 17, 6), (2, 17, 5, 4), (2, 16, 4, 4), (2, 17, 2, 3, 3))


def operands(dims: tuple[int, ...]) -> tuple[Array, Array, Array, Array]:
    return random(*dims), random(10, *dims[1:], seed=1), random(10, seed=2), random(dims[0], 10, seed=3)


def expected(x: Array, w: Array, grad: Array) -> tuple[Array, Array, Array]:
    rows, matrix, grads = (each.reshape(each.shape[0], -1).astype(np.float64) for each in (x, w, grad))
    return (grads @ matrix).reshape(x.shape), (grads.T @ rows).reshape(w.shape), grads.sum(axis=0)


@pytest.mark.parametrize("w_layout", LAYOUTS)
@pytest.mark.parametrize("x_layout", LAYOUTS)
@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_forward_and_gradients(dims: tuple[int, ...], x_layout: str, w_layout: str) -> None:
    x, w, bias, grad = operands(dims)
    given_x, given_w = in_layout(x, x_layout), in_layout(w, w_layout)
    sums = x.reshape(dims[0], -1).astype(np.float64) @ w.reshape(10, -1).T
    check(bl.inner_product(given_x, given_w), sums, grad)
    check(bl.inner_product(given_x, given_w, bias), sums + bias, grad)
    found = bl.inner_product_backward(grad, given_x, given_w)
    data, weights, shift = expected(x, w, grad)
    check(found.data, data, given_x)
    check(found.weights, weights, given_w)
    check(found.bias, shift, bias)


@pytest.mark.parametrize("how", GRADS)
def test_the_incoming_gradient_may_have_any_layout(how: str) -> None:
    x, w, _, grad = operands(SHAPES[2])
    found = bl.inner_product_backward(as_given(grad, how), in_layout(x, "blocked8"), w)
    data, weights, _ = expected(x, w, grad)
    check(found.data, data, in_layout(x, "blocked8"))
    check(found.weights, weights, w)


@pytest.mark.parametrize(("x_tag", "w_tag"), [("ab", "ba"), ("ba", "ab"), ("ba", "ba"), ("ab", "AB8b8a")])
def test_matrices_in_either_order(x_tag: str, w_tag: str) -> None:
    x, w, _, grad = operands(SHAPES[0])
    given_x, given_w = bl.reorder(x, x_tag), bl.reorder(w, w_tag)
    found = bl.inner_product_backward(grad, given_x, given_w)
    data, weights, _ = expected(x, w, grad)
    check(found.data, data, given_x)
    check(found.weights, weights, given_w)
    check(bl.inner_product(given_x, given_w), x.astype(np.float64) @ w.T, grad)


def test_a_batch_of_none() -> None:
    x, w, _, grad = (each[:0] if index in (0, 3) else each for index, each in enumerate(operands(SHAPES[2])))
    found = bl.inner_product_backward(grad, x, w)
    assert found.data.shape == x.shape
    assert not found.weights.numpy().any()
    assert not found.bias.numpy().any()
