"""Matmul, inner product and reductions against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl.enums import ALGORITHMS
from tests.dnnl.running import LAYOUTS, check, desc, random

Array = np.ndarray


@pytest.mark.parametrize(
    ("src", "weights"),
    [
        ((5, 17), (17, 3)),
        ((1, 17), (17, 19)),
        ((4, 5, 17), (4, 17, 3)),
        ((4, 5, 17), (1, 17, 3)),
        ((1, 5, 17), (4, 17, 3)),
        ((2, 3, 5, 17), (2, 1, 17, 3)),
        ((2, 1, 3, 5, 17), (1, 4, 3, 17, 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_any", [False, True])
def test_matmul(src: tuple[int, ...], weights: tuple[int, ...], is_any: bool) -> None:  # noqa: FBT001
    x, w = random(*src), random(*weights)
    expected = x.astype(np.float64) @ w
    bias = random(*(1,) * (len(src) - 1), weights[-1])
    make = dnnl.AnyDesc if is_any else (lambda dims: desc(dims, "plain"))
    spec = dnnl.matmul(make(src), make(weights), None, desc(bias.shape, "plain"))
    check(spec, {"src": x, "weights": w, "bias": bias}, expected + bias)
    check(dnnl.matmul(make(src), make(weights)), {"src": x, "weights": w}, expected)


@pytest.mark.parametrize(("src", "weights"), [("ab", "ba"), ("ba", "ab"), ("ba", "ba")])
def test_matmul_of_transposed_matrices(src: str, weights: str) -> None:
    x, w = random(5, 17), random(17, 3)
    spec = dnnl.matmul(dnnl.MemoryDesc(x.shape, "f32", src), dnnl.MemoryDesc(w.shape, "f32", weights))
    check(spec, {"src": x, "weights": w}, x.astype(np.float64) @ w)


@pytest.mark.parametrize("layout", ["any", *LAYOUTS])
@pytest.mark.parametrize("spatial", [(), (3,), (3, 4), (2, 3, 4)], ids=str)
def test_inner_product(spatial: tuple[int, ...], layout: str) -> None:
    x, w, b = random(3, 17, *spatial), random(7, 17, *spatial), random(7)
    make = dnnl.AnyDesc if layout == "any" else (lambda dims: desc(dims, layout))
    spec = dnnl.inner_product(make(x.shape), make(w.shape), None, dnnl.AnyDesc((7,)))
    expected = x.reshape(3, -1).astype(np.float64) @ w.reshape(7, -1).T + b
    check(spec, {"src": x, "weights": w, "bias": b}, expected)


P, EPS = 2.0, 0.25


def _powers(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray((np.abs(x) ** P).sum(axis=axes, keepdims=True))


REDUCTION: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "max": lambda x, axes: x.max(axis=axes, keepdims=True),
    "min": lambda x, axes: x.min(axis=axes, keepdims=True),
    "sum": lambda x, axes: x.sum(axis=axes, keepdims=True),
    "mul": lambda x, axes: x.prod(axis=axes, keepdims=True),
    "mean": lambda x, axes: x.mean(axis=axes, keepdims=True),
    "norm_lp_max": lambda x, axes: np.maximum(_powers(x, axes), EPS) ** (1 / P),
    "norm_lp_sum": lambda x, axes: (_powers(x, axes) + EPS) ** (1 / P),
    "norm_lp_power_p_max": lambda x, axes: np.maximum(_powers(x, axes), EPS),
    "norm_lp_power_p_sum": lambda x, axes: _powers(x, axes) + EPS,
}


def test_every_reduction_is_tried() -> None:
    assert {name.removeprefix("reduction_") for name in ALGORITHMS["reduction"]} == set(REDUCTION)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [(2, 3), (1,), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("algorithm", REDUCTION)
def test_reduction(algorithm: str, axes: tuple[int, ...], layout: str) -> None:
    x = random(2, 17, 5, 4)
    expected = REDUCTION[algorithm](x.astype(np.float64), axes)
    spec = dnnl.reduction(desc(x.shape, layout), None, algorithm, P, EPS, axes=axes)
    check(spec, {"src": x}, expected)
    exact = dnnl.reduction(desc(x.shape, layout), desc(expected.shape, layout), algorithm, P, EPS)
    check(exact, {"src": x}, expected)
