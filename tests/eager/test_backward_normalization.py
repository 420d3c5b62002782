"""Batch normalisation in training, and its gradients, against numpy in double precision."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import blocklayout as bl
from tests.eager.gradients import GRADS, LAYOUTS, Array, as_given, check, in_layout, numeric, poisoned_results, random

__all__ = ["poisoned_results"]

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")

SHAPES = ((5, 17), (3, 17, 6), (2, 17, 5, 4), (2, 16, 4, 4), (2, 5, 2, 3, 3))
EPSILON = 1e-3


def normalise(x: Array, scale: Array, shift: Array) -> Array:
    axes = (0, *range(2, x.ndim))
    x = x.astype(np.float64)
    scale, shift = (v.astype(np.float64).reshape(1, -1, *(1,) * (x.ndim - 2)) for v in (scale, shift))
    spread = np.sqrt(x.var(axis=axes, keepdims=True) + EPSILON)
    return np.asarray((x - x.mean(axis=axes, keepdims=True)) / spread * scale + shift)


def operands(dims: tuple[int, ...]) -> tuple[Array, Array, Array, Array]:
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    return x, random(dims[1], seed=1), random(dims[1], seed=2), random(*dims, seed=3)


@cache
def reference(dims: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Gradients of the source, the scale and the shift."""
    x, scale, shift, grad = operands(dims)
    return (
        numeric(lambda each: normalise(each, scale, shift), x, grad),
        numeric(lambda each: normalise(x, each, shift), scale, grad),
        numeric(lambda each: normalise(x, scale, each), shift, grad),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_training(dims: tuple[int, ...], layout: str) -> None:
    x, scale, shift, _ = operands(dims)
    given = in_layout(x, layout)
    y, mean, variance = bl.batch_norm_training(given, scale, shift, EPSILON)
    axes = (0, *range(2, x.ndim))
    check(y, normalise(x, scale, shift), given)
    check(mean, x.mean(axis=axes, dtype=np.float64), scale)
    check(variance, x.var(axis=axes, dtype=np.float64), scale)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_gradients_come_in_the_format_of_x(dims: tuple[int, ...], layout: str) -> None:
    x, scale, shift, grad = operands(dims)
    given = in_layout(x, layout)
    _, mean, variance = bl.batch_norm_training(given, scale, shift, EPSILON)
    found = bl.batch_norm_backward(grad, given, scale, mean, variance, EPSILON)
    data, of_scale, of_shift = reference(dims)
    check(found.data, data, given, 2e-5)
    check(found.scale, of_scale, scale, 2e-5)
    check(found.shift, of_shift, scale, 2e-5)


@pytest.mark.parametrize("how", GRADS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_incoming_gradient_may_have_any_layout(layout: str, how: str) -> None:
    x, scale, shift, grad = operands(SHAPES[2])
    given = in_layout(x, layout)
    _, mean, variance = bl.batch_norm_training(given, scale, shift, EPSILON)
    found = bl.batch_norm_backward(as_given(grad, how), given, scale, mean, variance, EPSILON)
    check(found.data, reference(SHAPES[2])[0], given, 2e-5)


def test_vectors_may_have_strides() -> None:
    x, scale, shift, _ = operands(SHAPES[2])
    wide = np.stack([scale, shift], axis=1)
    y, _, _ = bl.batch_norm_training(x, wide[:, 0], wide[:, 1], EPSILON)
    check(y, normalise(x, scale, shift), x)
