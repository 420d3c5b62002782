"""Updates of parameters as operators of networks, in any layout, against numpy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests.dnnl.running import LAYOUTS, Array, assert_close, random
from tests.ops.test_gradients import OURS, computed

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PolicyWarning")

DIMS = (17, 19, 3, 2)
RATE, DECAY, MOMENTUM = 0.1, 0.01, 0.9


def number(value: float) -> Array:
    return np.array([value], np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("has_velocity", "decay", "is_nesterov"), [(False, 0, 0), (False, DECAY, 0), (True, 0, 0), (True, DECAY, 1)]
)
def test_sgd(layout: str, is_nesterov: int, decay: float, *, has_velocity: bool) -> None:
    grad, param, velocity = (random(*DIMS, seed=seed) for seed in range(3))
    state = (velocity,) if has_velocity else ()
    attrs: dict[str, Any] = {"momentum": MOMENTUM, "weight_decay": float(decay), "nesterov": is_nesterov}
    found = computed("SgdUpdate", (grad, param, *state, number(-RATE)), layout, 1 + has_velocity, **attrs)
    slope = grad + decay * param.astype(float)
    if has_velocity:
        moved = MOMENTUM * velocity + slope
        assert_close(found[1], moved)
        slope = MOMENTUM * moved + slope if is_nesterov else moved
    assert_close(found[0], param - RATE * slope)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adam(layout: str) -> None:
    grad, param, mean = (random(*DIMS, seed=seed) for seed in range(3))
    square, (first, second), n_steps = random(*DIMS, seed=3) ** 2, (0.9, 0.99), 3
    numbers = -RATE / (1 - first**n_steps), 1 / (1 - second**n_steps), 1 - RATE * DECAY
    given = (grad, param, mean, square, *map(number, numbers))
    found = computed("AdamUpdate", given, layout, 3, beta_1=first, beta_2=second, epsilon=1e-3)
    mean, square = first * mean + (1 - first) * grad, second * square + (1 - second) * grad.astype(float) ** 2
    change = mean / (1 - first**n_steps) / (np.sqrt(square / (1 - second**n_steps)) + 1e-3)
    for got, expected in zip(found, (param * (1 - RATE * DECAY) - RATE * change, mean, square), strict=True):
        assert_close(got, expected)


def test_extents_are_the_gradients() -> None:
    b = bl.Builder()
    grad, param, rate = (b.input(name, shape) for name, shape in (("g", (2, 3)), ("p", (3, 2)), ("r", (1,))))
    with pytest.raises(bl.ModelError, match=r"input 1 has extents \[3, 2\]; \[2, 3\] is right"):
        b.op(f"{OURS}SgdUpdate", grad, param, rate)
    with pytest.raises(bl.ModelError, match=r"input 2 has extents \[3, 2\]; \[1\] is right"):
        b.op(f"{OURS}SgdUpdate", param, param, param)
