"""Idioms inside of networks: by primitives, in every layout, to the values that another runtime finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import Builder
from blocklayout.model import BuildValue

Spelling = Callable[[BuildValue], BuildValue]
CHANNELS = 18
RNG = np.random.default_rng(11)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def op(op_type: str, *args: Any, **attrs: Any) -> BuildValue:
    builder = next(arg.builder for arg in args if isinstance(arg, BuildValue))
    result: BuildValue = builder.op(op_type, *args, **attrs)
    return result


def layer_norm(x: BuildValue) -> BuildValue:
    y = x.transpose((0, 2, 3, 1))
    centred = y - op("ReduceMean", y, axes=(-1,))
    y = centred / op("Sqrt", op("ReduceMean", centred * centred, axes=(-1,)) + 1e-3)
    return (y * array(CHANNELS) + array(CHANNELS)).transpose((0, 3, 1, 2))


def group_norm(x: BuildValue) -> BuildValue:
    y = op("InstanceNormalization", x.reshape((0, 3, -1)), array(3), array(3)).reshape(x.shape)
    return y * array(CHANNELS, 1, 1) + array(CHANNELS, 1, 1)


def instance_norm(x: BuildValue) -> BuildValue:
    centred = x - op("ReduceMean", x, axes=(2, 3))
    y = centred / op("Sqrt", op("ReduceMean", centred * centred, axes=(2, 3)) + 1e-3)
    return y * array(CHANNELS, 1, 1)


def local_response(x: BuildValue) -> BuildValue:
    n, channels, height, _ = x.shape
    seen = (x * x).reshape((n, 1, channels, height, -1))
    wide = op("Pad", seen, np.array([0, 0, 2, 0, 0, 0, 0, 2, 0, 0]))
    average = op("AveragePool", wide, kernel_shape=(5, 1, 1)).reshape(x.shape)
    return x / op("Pow", average * 0.1 + 1, 0.75)


def shuffle(x: BuildValue) -> BuildValue:
    n, channels, height, width = x.shape
    return x.reshape((n, 3, channels // 3, height, width)).transpose((0, 2, 1, 3, 4)).reshape(x.shape)


def squeeze_and_excite(x: BuildValue) -> BuildValue:
    gate = op("ReduceMean", x, axes=(2, 3)).conv(array(CHANNELS, CHANNELS, 1, 1) / 4)
    return x * ((gate + 3).clip(0, 6) / 6)


def padded(x: BuildValue) -> BuildValue:
    return op("Pad", x, np.array([0, 0, 0, 0, 0, 0, 1, 1])).conv(array(4, CHANNELS, 3, 3) / 9, strides=2)


SPELLINGS: dict[str, Spelling] = {
    "hard swish": lambda x: x * (x + 3).clip(0, 6) / 6,
    "swish": lambda x: x * x.sigmoid(),
    "mish": lambda x: x * op("Tanh", op("Softplus", x)),
    "gelu": lambda x: x * (op("Erf", x / math.sqrt(2)) + 1) * 0.5,
    "gelu by tanh": lambda x: 0.5 * x * (1 + op("Tanh", math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "leaky relu": lambda x: op("Max", x, x * 0.2),
    "selu": lambda x: op("Selu", x),
    "softsign": lambda x: op("Softsign", x),
    "layer normalization": layer_norm,
    "group normalization": group_norm,
    "instance normalization": instance_norm,
    "local response": local_response,
    "shuffle": shuffle,
    "depth to space": lambda x: op("DepthToSpace", x.conv(array(12, CHANNELS, 1, 1)), blocksize=2),
    "space to depth": lambda x: op("SpaceToDepth", x, blocksize=2),
    "squeeze and excite": squeeze_and_excite,
    "maximum of images": lambda x: op("ReduceMax", x, axes=(2, 3), keepdims=0),
    "pad": padded,
    "mean": lambda x: op("Mean", x, x.relu(), x.sigmoid()),
    "vector": lambda x: op("MatMul", op("ReduceMean", x, axes=(2, 3), keepdims=0), array(CHANNELS)),
    "gemm": lambda x: op("Gemm", op("ReduceMax", x, axes=(2, 3), keepdims=0), x.reshape((2, -1)), transA=1, alpha=0.5),
    "expand": lambda x: x + op("Expand", op("ReduceMean", x, axes=(2, 3)), np.array(x.shape)),
}


@pytest.mark.parametrize("layout", ["auto", "nhwc", "blocked", "plain"])
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_idioms_run_by_primitives_in_every_layout(spelling: Spelling, layout: str) -> None:
    _check(spelling, layout, opset=17)


@pytest.mark.parametrize("layout", ["auto", "nhwc", "blocked", "plain"])
def test_group_normalization_runs_by_primitives_in_newer_operator_sets(layout: str) -> None:
    _check(group_norm, layout, opset=21)


def _check(spelling: Spelling, layout: str, opset: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    b = Builder(opset=opset)
    x = b.input("x", (2, 3, 8, 6))
    y = spelling(x.conv(array(CHANNELS, 3, 3, 3) / 3, pads=1))
    b.output("y", y.conv(array(5, y.shape[1], 1, 1)) if len(y.shape) == 4 else y)
    session = bl.load(b, layout=layout, threads=1)
    feed = {"x": RNG.standard_normal((2, 3, 8, 6)).astype(np.float32)}
    (actual,) = session.run(None, feed)
    (expected,) = onnxruntime.InferenceSession(b.to_onnx().SerializeToString()).run(None, feed)
    assert np.abs(actual - expected).max() <= 1e-5 * max(1, np.abs(expected).max())
    assert not session.plan.plain_steps
