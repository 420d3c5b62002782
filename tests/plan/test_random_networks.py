"""Random small networks: every policy against the reference, with padding real and values read twice."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.model import BuildValue
from blocklayout.plan import POLICIES, Plan
from tests import nets

CHANNELS = (1, 3, 8, 16, 17, 24, 33)


class Sketch:
    """A network under construction, and the choices that make it."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
        self.builder = bl.Builder()
        shape = (data.draw(st.sampled_from((1, 2)), "batch"), data.draw(st.sampled_from(CHANNELS), "channels"), 6, 5)
        self.values = [self.builder.input("x", shape)]

    def pick(self) -> BuildValue:
        return self.data.draw(st.sampled_from(self.values[-4:]), "source")

    def op(self, op_type: str, *args: Any, **attrs: Any) -> BuildValue:
        result: BuildValue = self.builder.op(op_type, *args, **attrs)
        return result

    def vector(self, size: int) -> np.ndarray:
        return self.rng.standard_normal(size).astype(np.float32)


def _conv(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    wanted = sketch.data.draw(st.sampled_from(CHANNELS), "output channels")
    size = sketch.data.draw(st.sampled_from((1, 3)), "kernel")
    weights = nets.he(sketch.rng, wanted, x.shape[1], size, size)
    bias = sketch.vector(wanted) if sketch.data.draw(st.booleans(), "bias") else None
    stride = sketch.data.draw(st.sampled_from((1, 1, 2)), "stride")
    return x.conv(weights, bias, pads=size // 2, strides=stride)


def _depthwise(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return x.conv(nets.he(sketch.rng, x.shape[1], 1, 3, 3), pads=1, group=x.shape[1])


def _combine(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    same = [value for value in sketch.values if value.shape == x.shape]
    other = sketch.data.draw(st.sampled_from(same), "other")
    ways: tuple[Callable[[BuildValue, BuildValue], BuildValue], ...] = (operator.add, operator.sub, operator.mul)
    return sketch.data.draw(st.sampled_from(ways), "way")(x, other)


def _scale(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return x * sketch.vector(x.shape[1]).reshape(-1, 1, 1)


def _batch_norm(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    scale, bias, mean = (sketch.vector(x.shape[1]) for _ in range(3))
    return x.batch_norm(scale, bias, mean, sketch.vector(x.shape[1]) ** 2 + 0.5)


def _concat(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    same = [value for value in sketch.values if value.shape[2:] == x.shape[2:]]
    return sketch.builder.concat([x, sketch.data.draw(st.sampled_from(same), "other")], axis=1)


def _squeeze_and_excite(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    weights = nets.he(sketch.rng, x.shape[1], x.shape[1], 1, 1)
    return x * x.global_average_pool().conv(weights).sigmoid()


def _prelu(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return sketch.op("PRelu", x, sketch.vector(x.shape[1]).reshape(-1, 1, 1))


def _pad(sketch: Sketch) -> BuildValue:
    mode = sketch.data.draw(st.sampled_from(("constant", "edge", "reflect")), "mode")
    return sketch.op("Pad", sketch.pick(), [0, 0, 1, 0, 0, 0, 1, 1], mode=mode)


def _resize(sketch: Sketch) -> BuildValue:
    mode = sketch.data.draw(st.sampled_from(("nearest", "linear")), "mode")
    roi, scales = np.empty(0, np.float32), np.array([1, 1, 2, 2], np.float32)
    attrs: dict[str, Any]
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
    return sketch.op("Resize", sketch.pick(), roi, scales, mode=mode, **attrs)


def _instance_norm(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return sketch.op("InstanceNormalization", x, sketch.vector(x.shape[1]), sketch.vector(x.shape[1]))


def _layer_norm_over_channels(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    scale, bias = sketch.vector(x.shape[1]), sketch.vector(x.shape[1])
    normed = sketch.op("LayerNormalization", x.transpose((0, 2, 3, 1)), scale, bias, axis=-1)
    return normed.transpose((0, 3, 1, 2))


def _centre(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    axes = sketch.data.draw(st.sampled_from(([1], [2, 3], [1, 2, 3], [3])), "axes")
    return x - sketch.op("ReduceMean", x, axes, keepdims=1)


def _shuffle(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    n, c, h, w = x.shape
    groups = next(size for size in (3, 2, 1) if c % size == 0)
    return x.reshape((n, groups, c // groups, h, w)).transpose((0, 2, 1, 3, 4)).reshape((n, c, h, w))


def _shuffled_halves(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    n, c, h, w = x.shape
    same = [value for value in sketch.values if value.shape == x.shape]
    joined = sketch.builder.concat([x, sketch.data.draw(st.sampled_from(same), "other")], axis=1)
    y = joined.reshape((n, 2, c, h, w)).transpose((0, 2, 1, 3, 4)).reshape((n, 2 * c, h, w))
    first, second = y.split([c, c], 1)
    sketch.values.append(first)
    return second


def _half_of_the_channels(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    start, end = sketch.data.draw(st.sampled_from(((0, 8), (8, 40), (1, 9), (0, 1))), "channels")
    start = min(start, x.shape[1] - 1)
    return sketch.op("Slice", x, [start], [end], [1])


def _spelled_hard_swish(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return x * (x + np.float32(3)).clip(0, 6) * np.float32(1 / 6)


STEPS: tuple[Callable[[Sketch], BuildValue], ...] = (
    _conv,
    _conv,
    _depthwise,
    _combine,
    _combine,
    _scale,
    _batch_norm,
    _concat,
    lambda sketch: sketch.pick().relu(),
    lambda sketch: sketch.pick().sigmoid(),
    lambda sketch: sketch.pick().clip(-0.5, 1.0),
    lambda sketch: sketch.pick().clip(0.25, 1.0),
    lambda sketch: sketch.pick().softmax(axis=1),
    lambda sketch: sketch.pick().max_pool(3, pads=1),
    lambda sketch: sketch.pick().average_pool(3, strides=1, pads=1),
    _squeeze_and_excite,
    _prelu,
    _pad,
    _resize,
    _instance_norm,
    _layer_norm_over_channels,
    _centre,
    _shuffle,
    _half_of_the_channels,
    _shuffled_halves,
    _spelled_hard_swish,
    lambda sketch: sketch.op("Erf", sketch.pick()),
    lambda sketch: sketch.pick().transpose((0, 1, 3, 2)).relu().transpose((0, 1, 3, 2)),
)

ENDS: tuple[Callable[[BuildValue], BuildValue], ...] = (
    lambda value: value,
    lambda value: value.global_average_pool().flatten(),
    lambda value: value.flatten().softmax(),
    lambda value: value.global_average_pool().reshape((value.shape[0], -1)).matmul(np.ones((value.shape[1], 3), "f4")),
    lambda value: value.transpose((0, 2, 3, 1)),
)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@settings(max_examples=30)
@given(st.data())
def test_random_networks_compute_the_reference(data: st.DataObject) -> None:
    sketch = Sketch(data)
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=10), "steps"):
        sketch.values.append(step(sketch))
    sketch.builder.output("y", data.draw(st.sampled_from(ENDS), "end")(sketch.values[-1]))
    if len(sketch.values) > 2 and data.draw(st.booleans(), "second output"):
        sketch.builder.output("z", sketch.values[-2])
    feed = {"x": nets.random_input(sketch.values[0].shape)}
    expected: Any = ReferenceEvaluator(sketch.builder.to_onnx()).run(None, feed)
    for policy in ("auto", data.draw(st.sampled_from(POLICIES), "policy")):
        session = bl.load(sketch.builder, layout=policy)
        for given_, wanted in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(given_, wanted, rtol=1e-4, atol=2e-5 * max(1.0, float(np.abs(wanted).max())))
        assert Plan.from_json(session.plan.to_json()) == session.plan
        costs = dict(session.plan.policy_costs)
        assert costs["auto"] <= min(costs.values()) + 1e-6
