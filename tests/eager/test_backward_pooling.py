"""Gradients of pooling against central differences, in every format."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from tests.eager.gradients import (
    GRADS,
    LAYOUTS,
    Array,
    as_given,
    check,
    in_layout,
    numeric,
    poisoned_results,
    pool,
)

__all__ = ["poisoned_results"]

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")


@dataclass(frozen=True)
class Problem:
    """A pooling."""

    x: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    named: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.named


PROBLEMS = (
    Problem((1, 17, 6, 6), (3, 3), (2, 2), (1, 1, 1, 1), "overlapping"),
    Problem((2, 17, 4, 4), (2, 2), (2, 2), (0, 0, 0, 0), "side by side"),
    Problem((1, 17, 5, 6), (2, 3), (1, 2), (0, 1, 1, 0), "asymmetric"),
    Problem((1, 17, 7, 7), (2, 2), (3, 3), (0, 0, 0, 0), "gaps"),
    Problem((2, 17, 9), (3,), (2,), (1, 1), "1d"),
    Problem((1, 9, 4, 3, 4), (2, 2, 3), (2, 1, 1), (0, 0, 1, 0, 1, 1), "3d"),
)


def distinct(dims: tuple[int, ...]) -> Array:
    """Values of which no two are close: the largest of a window stays that when one moves a little."""
    values = np.random.default_rng(0).permutation(np.prod(dims)).astype(np.float32)
    return values.reshape(dims) / 100


@cache
def expected(problem: Problem, algorithm: str) -> Array:
    x, grad = distinct(problem.x), grad_of(problem)
    return numeric(
        lambda each: pool(each, algorithm, problem.kernel, problem.strides, problem.pads), x, grad, n_apart=2
    )


def grad_of(problem: Problem) -> Array:
    dims = pool(distinct(problem.x), "max", problem.kernel, problem.strides, problem.pads).shape
    return np.random.default_rng(1).standard_normal(dims).astype(np.float32)


def run(problem: Problem, algorithm: str, grad: object, x: object) -> bl.Tensor:
    window = (problem.kernel, problem.strides, problem.pads)
    if algorithm == "max":
        return bl.max_pool_backward(grad, x, *window)  # type: ignore[arg-type]
    return bl.average_pool_backward(grad, x, *window, count_include_pad=algorithm == "include")  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["max", "include", "exclude"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients_come_in_the_format_of_x(problem: Problem, algorithm: str, layout: str) -> None:
    x, grad = in_layout(distinct(problem.x), layout), grad_of(problem)
    check(run(problem, algorithm, grad, x), expected(problem, algorithm), x)


@pytest.mark.parametrize("how", GRADS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["max", "exclude"])
def test_the_incoming_gradient_may_have_any_layout(algorithm: str, layout: str, how: str) -> None:
    x, grad = in_layout(distinct(PROBLEMS[1].x), layout), grad_of(PROBLEMS[1])
    check(run(PROBLEMS[1], algorithm, as_given(grad, how), x), expected(PROBLEMS[1], algorithm), x)


def test_dilated_max_pooling() -> None:
    x = distinct((1, 17, 6, 6))
    shape = pool(x, "max", (2, 2), (1, 2), (0, 0, 0, 0), (1, 2)).shape
    grad = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wanted = numeric(lambda each: pool(each, "max", (2, 2), (1, 2), (0, 0, 0, 0), (1, 2)), x, grad, n_apart=2)
    for layout in LAYOUTS:
        given = in_layout(x, layout)
        check(bl.max_pool_backward(grad, given, 2, (1, 2), dilations=(2, 3)), wanted, given)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(2, 17, 9), (2, 17, 5, 4), (1, 17, 3, 2, 4)], ids=str)
def test_global_average_pooling(dims: tuple[int, ...], layout: str) -> None:
    grad = np.random.default_rng(1).standard_normal((*dims[:2], *(1 for _ in dims[2:]))).astype(np.float32)
    x = in_layout(distinct(dims), layout)
    wanted = np.broadcast_to(grad / np.prod(dims[2:]), dims)
    for how in GRADS:
        check(bl.global_average_pool_backward(as_given(grad, how), x.desc), wanted, x)


def test_the_first_of_equal_elements_takes_the_gradient() -> None:
    for layout in LAYOUTS:
        x = in_layout(np.ones((1, 17, 4, 4), np.float32), layout)
        found = bl.max_pool_backward(np.ones((1, 17, 2, 2), np.float32), x, 2).numpy()
        assert found[:, :, ::2, ::2].all()
        assert found.sum() == 17 * 4


def test_strides_are_the_kernel_by_default() -> None:
    x = distinct((1, 17, 6, 6))
    grad = np.ones((1, 17, 2, 2), np.float32)
    assert (bl.max_pool_backward(grad, x, 3).numpy() == bl.max_pool_backward(grad, x, (3, 3), 3, (0, 0)).numpy()).all()


@settings(max_examples=40)
@given(data=st.data(), layout=st.sampled_from(LAYOUTS), algorithm=st.sampled_from(["max", "include", "exclude"]))
def test_random_problems(data: st.DataObject, layout: str, algorithm: str) -> None:
    n_spatial = data.draw(st.integers(1, 3))
    each = st.tuples(*[st.integers(1, 3)] * n_spatial)
    kernel, strides = data.draw(each), data.draw(each)
    pads = tuple(data.draw(st.integers(0, k - 1)) for k in kernel * 2)
    spatial = tuple(k + data.draw(st.integers(0, 2)) for k in kernel)
    problem = Problem((1, data.draw(st.integers(1, 3)), *spatial), kernel, strides, pads)
    x, grad = in_layout(distinct(problem.x), layout), grad_of(problem)
    check(run(problem, algorithm, grad, x), expected(problem, algorithm), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_of_none(layout: str) -> None:
    x = in_layout(np.zeros((0, 17, 4, 4), np.float32), layout)
    grad = np.zeros((0, 17, 2, 2), np.float32)
    assert bl.max_pool_backward(grad, x, 2).shape == x.shape
    assert bl.average_pool_backward(grad, x, 2).shape == x.shape
