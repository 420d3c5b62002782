"""Gradients of functions of each element against central differences, in every format."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.eager import backward
from tests.eager.gradients import GRADS, LAYOUTS, Array, as_given, check, in_layout, poisoned_results, random

__all__ = ["poisoned_results"]

DIMS = (2, 17, 5, 4)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf)(x))


FUNCTIONS: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "relu": ({}, lambda x: np.maximum(x, 0)),
    "leaky_relu": ({"alpha": 0.2}, lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": ({"alpha": 0.7}, lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "clip": ({"lo": -0.9, "hi": 1.3}, lambda x: x.clip(-0.9, 1.3)),
    "sigmoid": ({}, sigmoid),
    "hard_sigmoid": ({"alpha": 0.4, "beta": 0.4}, lambda x: np.clip(0.4 * x + 0.4, 0, 1)),
    "tanh": ({}, np.tanh),
    "gelu": ({}, lambda x: x / 2 * (1 + erf(x / math.sqrt(2)))),
    "swish": ({"alpha": 1.3}, lambda x: x * sigmoid(1.3 * x)),
    "hard_swish": ({}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "mish": ({}, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "softplus": ({}, lambda x: np.logaddexp(0, x)),
    "cosh": ({}, np.cosh),
    "exp": ({}, np.exp),
    "log": ({}, np.log),
    "sqrt": ({}, np.sqrt),
    "square": ({}, np.square),
    "abs": ({}, np.abs),
    "neg": ({}, np.negative),
    "reciprocal": ({}, np.reciprocal),
    "pow": ({"exponent": 0.5}, np.sqrt),
}
POSITIVE = ("log", "sqrt", "pow")


def slope(function: Callable[[Array], Array], x: Array, step: float = 1e-6) -> Array:
    x = x.astype(np.float64)
    return np.asarray((function(x + step) - function(x - step)) / (2 * step))


def function_of(name: str) -> Callable[..., bl.Tensor]:
    found: Callable[..., bl.Tensor] = getattr(bl, f"{name}_backward")
    return found


def is_elementwise(name: str) -> bool:
    """Whether a gradient takes nothing but another, a source, and numbers."""
    _, _, *others = inspect.signature(getattr(backward, name)).parameters.values()
    return all(str(each.annotation) in ("float", "bool") for each in others) and name != "global_average_pool_backward"


def test_every_function_is_tried() -> None:
    public = [name for name in backward.__all__ if name.endswith("_backward") and is_elementwise(name)]
    assert {name.removesuffix("_backward") for name in public} == set(FUNCTIONS)
    assert all(inspect.getdoc(getattr(backward, name)) for name in public)


@pytest.mark.parametrize("layout", [*LAYOUTS, "array"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_come_in_the_format_of_x(name: str, layout: str) -> None:
    parameters, function = FUNCTIONS[name]
    x, grad = random(*DIMS), random(*DIMS, seed=1)
    x = np.abs(x) if name in POSITIVE else x
    x = 1 + np.abs(x) if name == "reciprocal" else x
    given = x if layout == "array" else in_layout(x, layout)
    check(function_of(name)(grad, given, **parameters), grad * slope(function, x), given, 2e-5)


@pytest.mark.parametrize("how", GRADS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["relu", "sqrt"])
def test_the_incoming_gradient_may_have_any_layout(name: str, layout: str, how: str) -> None:
    parameters, function = FUNCTIONS[name]
    x, grad = np.abs(random(*DIMS)), random(*DIMS, seed=1)
    given = in_layout(x, layout)
    check(function_of(name)(as_given(grad, how), given, **parameters), grad * slope(function, x), given, 2e-5)


def test_gelu_by_way_of_tanh() -> None:
    x, grad = random(*DIMS), random(*DIMS, seed=1)
    found = bl.gelu_backward(grad, x, approximate=True)
    check(found, grad * slope(lambda v: v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))), x), x)


@pytest.mark.parametrize("dims", [(5,), (3, 4), (2, 3, 4), (1, 2, 3, 4, 5, 2)], ids=str)
def test_any_rank(dims: tuple[int, ...]) -> None:
    x, grad = random(*dims), random(*dims, seed=1)
    check(bl.tanh_backward(grad, x), grad * slope(np.tanh, x), x)


def test_kinks_are_flat() -> None:
    x = np.array([-1, 0, 1], np.float32)
    assert bl.relu_backward(np.ones(3, np.float32), x).numpy().tolist() == [0, 0, 1]
    assert bl.clip_backward(np.ones(3, np.float32), x, -1, 1).numpy().tolist() == [0, 1, 0]
    assert bl.abs_backward(np.ones(3, np.float32), x).numpy().tolist() == [-1, 0, 1]


def test_a_batch_of_none() -> None:
    for layout in LAYOUTS:
        x = in_layout(np.zeros((0, 17, 4, 4), np.float32), layout)
        assert bl.log_backward(np.zeros(x.shape, np.float32), x).shape == x.shape
