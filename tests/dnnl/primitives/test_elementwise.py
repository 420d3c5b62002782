"""Eltwise, binary, sum, PReLU, reorder, shuffle and concat against numpy, in every layout, on 17 channels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl.enums import ALGORITHMS
from tests.dnnl.running import LAYOUTS, assert_close, check, desc, execute, random

Array = np.ndarray
DIMS = (2, 17, 5, 4)


def soft_relu(x: Array, alpha: float) -> Array:
    return np.asarray(np.logaddexp(0, alpha * x) / alpha)


def gelu_tanh(x: Array, *_: float) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def gelu_erf(x: Array, *_: float) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def clip(x: Array, low: float, high: float) -> Array:
    return x.clip(low, high)


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


ELTWISE: dict[str, tuple[float, float, Callable[[Array, float, float], Array]]] = {
    "relu": (0.1, 0, lambda x, a, _: np.where(x > 0, x, a * x)),
    "tanh": (0, 0, lambda x, _a, _b: np.tanh(x)),
    "elu": (0.7, 0, lambda x, a, _: np.where(x > 0, x, a * np.expm1(x))),
    "square": (0, 0, lambda x, _a, _b: x * x),
    "abs": (0, 0, lambda x, _a, _b: np.abs(x)),
    "sqrt": (0, 0, lambda x, _a, _b: np.sqrt(x)),
    "linear": (1.5, -0.25, lambda x, a, b: a * x + b),
    "soft_relu": (2.0, 0, lambda x, a, _b: soft_relu(x, a)),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "logistic": (0, 0, lambda x, _a, _b: logistic(x)),
    "exp": (0, 0, lambda x, _a, _b: np.exp(x)),
    "gelu_tanh": (0, 0, gelu_tanh),
    "swish": (1.3, 0, lambda x, a, _: x * logistic(a * x)),
    "log": (0, 0, lambda x, _a, _b: np.log(x)),
    "clip": (0.6, 1.2, clip),
    "clip_v2": (0.6, 1.2, clip),
    "pow": (1.5, 2.0, lambda x, a, b: a * x**b),
    "gelu_erf": (0, 0, gelu_erf),
    "round": (0, 0, lambda x, _a, _b: np.rint(x)),
    "mish": (0, 0, lambda x, _a, _b: x * np.tanh(soft_relu(x, 1))),
    "hardswish": (1 / 6, 0.5, lambda x, a, b: x * np.clip(a * x + b, 0, 1)),
}

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "div": np.divide,
    "sub": np.subtract,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}


def test_every_algorithm_is_tried() -> None:
    forward = {name.removeprefix("eltwise_").removesuffix("_use_dst_for_bwd") for name in ALGORITHMS["eltwise"]}
    assert forward == set(ELTWISE)
    assert {name.removeprefix("binary_") for name in ALGORITHMS["binary"]} == set(BINARY)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS["eltwise"])
def test_eltwise(algorithm: str, layout: str) -> None:
    name = algorithm.removeprefix("eltwise_").removesuffix("_use_dst_for_bwd")
    alpha, beta, function = ELTWISE[name]
    x = random(*DIMS)
    x = np.abs(x) if name in ("sqrt", "log") else x
    spec = dnnl.eltwise(desc(DIMS, layout), None, algorithm, alpha, beta)
    check(spec, {"src": x}, function(x.astype(np.float64), alpha, beta))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS["binary"])
def test_binary(algorithm: str, layout: str) -> None:
    x, y = random(*DIMS), random(*DIMS, seed=1)
    y[0] = x[0]  # so that some are equal
    spec = dnnl.binary(desc(DIMS, layout), desc(DIMS, layout), None, algorithm)
    check(spec, {"src_0": x, "src_1": y}, BINARY[algorithm.removeprefix("binary_")](x, y).astype(np.float32))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dims", [(1, 17, 1, 1), (1, 1, 1, 1), (2, 17, 1, 1), (2, 1, 5, 4), (1, 17, 5, 4), (1, 1, 1, 4)], ids=str
)
@pytest.mark.parametrize("algorithm", ["add", "sub", "mul", "div"])
def test_binary_broadcasts_its_second_source(algorithm: str, dims: tuple[int, ...], layout: str) -> None:
    x, y = random(*DIMS), random(*dims, seed=1)
    spec = dnnl.binary(desc(DIMS, layout), desc(dims, "plain"), desc(DIMS, layout), algorithm)
    check(spec, {"src_0": x, "src_1": y}, BINARY[algorithm](x, y))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(1, 17, 1, 1), (1, 1, 1, 1), (2, 1, 5, 4), (1, 17, 5, 1)], ids=str)
def test_binary_broadcasts_its_first_source(dims: tuple[int, ...], layout: str) -> None:
    x, y = random(*dims), random(*DIMS, seed=1)
    spec = dnnl.binary(desc(dims, "plain"), desc(DIMS, layout), desc(DIMS, layout), "sub")
    check(spec, {"src_0": x, "src_1": y}, x - y)


def test_binary_broadcasts_both_sources() -> None:
    x, y = random(2, 17, 1, 4), random(1, 17, 5, 1)
    spec = dnnl.binary(desc(x.shape, "plain"), desc(y.shape, "plain"), desc(DIMS, "plain"), "sub")
    check(spec, {"src_0": x, "src_1": y}, x - y)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sum(layout: str) -> None:
    given = {f"src_{i}": random(*DIMS, seed=i) for i in range(3)}
    spec = dnnl.sum([desc(DIMS, layout)] * 3, None, (1.0, -2.0, 0.5))
    check(spec, given, given["src_0"] - 2 * given["src_1"] + 0.5 * given["src_2"])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(1, 17, 1, 1), (1, 1, 1, 1), DIMS, (1, 17, 5, 4)], ids=str)
def test_prelu(dims: tuple[int, ...], layout: str) -> None:
    x, slopes = random(*DIMS), random(*dims, seed=1)
    spec = dnnl.prelu(desc(DIMS, layout), dnnl.AnyDesc(dims), None)
    check(spec, {"src": x, "weights": slopes}, np.where(x > 0, x, x * slopes))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_concat(axis: int, layout: str) -> None:
    shapes = [tuple(extent if dim == axis else DIMS[dim] for dim in range(4)) for extent in (3, 17, 8)]
    arrays = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    spec = dnnl.concat([desc(shape, layout) for shape in shapes], None, axis)
    expected = np.concatenate(arrays, axis)
    check(spec, {f"src_{i}": array for i, array in enumerate(arrays)}, expected)
    exact = dnnl.concat([desc(shape, layout) for shape in shapes], desc(expected.shape, layout), axis)
    check(exact, {f"src_{i}": array for i, array in enumerate(arrays)}, expected)


@pytest.mark.parametrize("src", LAYOUTS)
@pytest.mark.parametrize("dst", LAYOUTS)
def test_reorder(src: str, dst: str) -> None:
    x = random(*DIMS)
    check(dnnl.reorder(desc(DIMS, src), desc(DIMS, dst)), {"src": x}, x, 0)


def test_reorder_of_weights_and_of_data_types() -> None:
    w = random(19, 17, 3, 3)
    check(dnnl.reorder(desc(w.shape, "plain"), dnnl.MemoryDesc(w.shape, "f32", "OIhw8i8o")), {"src": w}, w, 0)
    x = np.rint(random(*DIMS) * 20)
    spec = dnnl.reorder(desc(DIMS, "channels_last"), desc(DIMS, "plain", "s8"))
    assert_close(execute(spec, {"src": x})["dst"], x, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("axis", "group_size"), [(1, 3), (1, 6), (0, 2), (3, 2)])
def test_shuffle(axis: int, group_size: int, layout: str) -> None:
    x = random(2, 18, 5, 4)
    parts = (*x.shape[:axis], x.shape[axis] // group_size, group_size, *x.shape[axis + 1 :])
    expected = x.reshape(parts).swapaxes(axis, axis + 1).reshape(x.shape)
    check(dnnl.shuffle(desc(x.shape, layout), None, axis, group_size), {"src": x}, expected, 0)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("layout", LAYOUTS)
def test_eltwise_and_binary_in_bf16(layout: str) -> None:
    x, y = random(*DIMS, dtype="bf16"), random(*DIMS, seed=1, dtype="bf16")
    same = desc(DIMS, layout, "bf16")
    check(dnnl.eltwise(same, None, "swish", 1), {"src": x}, x * logistic(x.astype(np.float32)), 2e-2)
    check(dnnl.binary(same, same, None, "mul"), {"src_0": x, "src_1": y}, x.astype(np.float32) * y, 2e-2)
