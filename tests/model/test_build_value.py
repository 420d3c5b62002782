"""Methods of a builder's values for operators that changed with ONNX's versions, or came late."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from blocklayout.model import Builder
from blocklayout.model.builder import BuildValue

X = np.random.default_rng(5).standard_normal((2, 6, 3)).astype(np.float32)


def wide() -> np.ndarray:
    return X.astype(np.float64)


def normalised() -> np.ndarray:
    x = wide()
    y: np.ndarray = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * [1, 2, 3] + [4, 5, 6]
    return y


SCALE, BIAS = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
CASES: dict[str, tuple[int, Callable[[BuildValue], BuildValue], Callable[[], np.ndarray]]] = {
    "tanh": (7, lambda x: x.tanh(), lambda: np.tanh(wide())),
    "gelu": (20, lambda x: x.gelu(), lambda: wide() * (1 + np.vectorize(math.erf)(wide() / math.sqrt(2))) / 2),
    "gelu of tanh": (
        20,
        lambda x: x.gelu(approximate=True),
        lambda: wide() * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide() + 0.044715 * wide() ** 3))) / 2,
    ),
    "hard_swish": (14, lambda x: x.hard_swish(), lambda: wide() * np.clip(wide() / 6 + 0.5, 0, 1)),
    "layer_norm": (17, lambda x: x.layer_norm(SCALE, BIAS, epsilon=1e-3), normalised),
    "mean, attributes": (13, lambda x: x.mean((0, 2)), lambda: wide().mean((0, 2))),
    "mean": (18, lambda x: x.mean((1,), keepdims=True), lambda: wide().mean(1, keepdims=True)),
    "split, attributes": (11, lambda x: x.split((2, 3, 1))[1], lambda: wide()[:, 2:5]),
    "split": (13, lambda x: x.split((1, 2), axis=-1)[1], lambda: wide()[..., 1:]),
    "split in one": (13, lambda x: x.split((6,))[0], wide),
}


@pytest.mark.parametrize(("opset", "write", "expected"), CASES.values(), ids=CASES.keys())
def test_methods_have_the_specified_meaning(
    opset: int, write: Callable[[BuildValue], BuildValue], expected: Callable[[], np.ndarray]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    b = Builder(opset=opset)
    b.output("y", write(b.input("x", X.shape)))
    [y] = onnxruntime.InferenceSession(b.to_onnx().SerializeToString()).run(None, {"x": X})
    np.testing.assert_allclose(y, expected(), rtol=1e-5, atol=1e-5)
