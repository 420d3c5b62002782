"""Networks as channels-last frameworks export them: each operator between Transposes, and no byte more moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import model, zoo
from blocklayout.model import BuildValue, Graph
from blocklayout.plan import POLICIES, Plan, portfolio
from tests import nets
from tests.wrapping import to_last, wrapped

Wrap = Callable[[BuildValue, Callable[[BuildValue], BuildValue]], BuildValue]


def _as_it_is(x: BuildValue, operator: Callable[[BuildValue], BuildValue]) -> BuildValue:
    return operator(x)


def _wrapped(x: BuildValue, operator: Callable[[BuildValue], BuildValue]) -> BuildValue:
    """The operator between Transposes to channels-first and back; what it reads and gives is channels-last."""
    ndims = len(x.shape)
    y = operator(x.transpose((0, ndims - 1, *range(1, ndims - 1))))
    return y.transpose((0, *range(2, ndims), 1)) if len(y.shape) == ndims else y


def network(spatial: tuple[int, ...], wrap: Wrap) -> bl.Builder:
    """Convolutions with all that usually stands between them, over images of this rank."""
    rng, b = np.random.default_rng(0), bl.Builder()
    n_dims = len(spatial)
    last = wrap is _wrapped
    x = b.input("x", (1, *spatial, 8) if last else (1, 8, *spatial))

    def vector(size: int) -> np.ndarray:
        return rng.standard_normal(size).astype(np.float32)

    def conv(y: BuildValue, wanted: int, size: int) -> BuildValue:
        channels = y.shape[-1] if last else y.shape[1]
        weights = nets.he(rng, wanted, channels, *[size] * n_dims)
        return wrap(y, lambda z: z.conv(weights, pads=size // 2))

    def add_vector(y: BuildValue, values: np.ndarray) -> BuildValue:
        return y + (values if last else values.reshape(-1, *[1] * n_dims))

    def norm(y: BuildValue) -> BuildValue:
        c = y.shape[-1] if last else y.shape[1]
        args = vector(c), vector(c), vector(c), vector(c) ** 2 + np.float32(0.5)
        return wrap(y, lambda z: z.batch_norm(*args))

    x = wrap(add_vector(norm(conv(x, 17, 3)), vector(17)), lambda z: z.relu())
    x = wrap(x, lambda z: z.max_pool(3, strides=2, pads=1))
    y = wrap(norm(conv(x, 17, 3)), lambda z: z.clip(0, 6))
    y = wrap(add_vector(conv(y, 17, 1), vector(17)) + x, lambda z: z.relu())
    y = b.concat([y, x], axis=n_dims + 1 if last else 1)
    y = wrap(conv(y, 24, 1), lambda z: z.average_pool(2, strides=2))
    y = wrap(y, lambda z: z.sigmoid()) * y
    axes = range(1, n_dims + 1) if last else range(2, n_dims + 2)
    y = b.op("ReduceMean", y, list(axes), keepdims=0)
    b.output("y", y.gemm(nets.he(rng, 24, 10), vector(10)).softmax())
    return b


SPATIAL = {3: (12,), 4: (12, 10), 5: (8, 6, 6)}


@pytest.mark.parametrize("rank", SPATIAL)
def test_transposes_around_every_operator_move_no_byte(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "PROMISE", 0.0)
    held = {3: "nwc", 4: "nhwc", 5: "ndhwc"}[rank]  # as the other one's caller holds it
    plain = bl.load(network(SPATIAL[rank], _as_it_is), io_layout={"x": held}, tune="model").plan
    wrapped = bl.load(network(SPATIAL[rank], _wrapped), tune="model").plan
    assert wrapped.reorder_nbytes <= plain.reorder_nbytes
    assert len(wrapped.steps) <= len(plain.steps)
    assert wrapped.cost_ns <= plain.cost_ns * 1.0001
    assert not wrapped.plain_steps


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rank", SPATIAL)
def test_transposes_around_every_operator_change_no_value(rank: int, policy: str) -> None:
    plain = bl.load(network(SPATIAL[rank], _as_it_is), layout="plain")
    wrapped = bl.load(network(SPATIAL[rank], _wrapped), layout=policy)
    feed = nets.feed_of(plain)
    order = (0, *range(2, rank), 1)
    [expected] = plain.run(None, feed)
    [given] = wrapped.run(None, {"x": np.ascontiguousarray(feed["x"].transpose(order))})
    np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-6)


CHANNELS_LAST = {3: "nwc", 4: "nhwc", 5: "ndhwc"}
FROM_THE_ZOO: dict[str, tuple[int | tuple[int, ...], dict[str, Any]]] = {
    "densenet121": (45, {"blocks": (2, 1), "growth": 12, "stem": 20}),
    "mobilenet_v2": (49, {"stacks": ((1, 16, 1, 1), (6, 24, 2, 2)), "classes": 10}),
    "shufflenet_v2_x1_0": (49, {"channels": (24, 116, 232, 64), "units": (3, 2), "classes": 10}),
    "efficientnet_b0": (49, {"stages": ((1, 3, 1, 16, 1), (6, 5, 2, 24, 2)), "classes": 10}),
    "convnext_tiny": (45, {"blocks": (1, 1), "channels": (24, 40), "classes": 10}),
    "unet": ((61, 50), {"width": 24, "depth": 2}),
    "dcgan_generator": ((2, 3), {"width": 20}),
    "r2plus1d_18": ((5, 21, 17), {"layers": 2, "classes": 10}),
    "m34_res": (3001, {"stages": ((48, 1), (96, 1))}),
}


def channels_last(graph: Graph) -> bl.Session:
    """The session of a network without Transposes whose caller holds images channels-last."""
    images = [name for name in (*graph.inputs, *graph.outputs) if len(graph.shape(name)) in CHANNELS_LAST]
    orders = {name: CHANNELS_LAST[len(graph.shape(name))] for name in images}
    return bl.load(model.to_model(graph), io_layout=orders)


def n_primitives(plan: Plan) -> int:
    return sum(step.spec.kind != "reorder" for step in plan.steps)


@pytest.mark.parametrize("name", FROM_THE_ZOO)
def test_a_network_of_wrapped_operators_has_the_plan_of_the_bare_one(name: str) -> None:
    size, variant = FROM_THE_ZOO[name]
    bare = zoo.build(name, size=size, **variant).to_graph()
    expected, session = channels_last(bare), bl.load(model.to_model(wrapped(bare)))
    assert session.plan.reorder_nbytes <= expected.plan.reorder_nbytes
    assert n_primitives(session.plan) <= n_primitives(expected.plan)
    assert session.plan.cost_ns <= expected.plan.cost_ns * 1.0001
    x = nets.random_input(bare.shape("x"))
    x = np.ascontiguousarray(x.transpose(to_last(x.ndim)))
    y = expected(x)
    np.testing.assert_allclose(session(x), y, rtol=1e-4, atol=1e-5 * np.abs(y).max())


def from_keras() -> bl.Builder:
    """The beginning and the end of a MobileNet, in the spelling of tf2onnx."""
    rng, b = np.random.default_rng(1), bl.Builder()
    last, first = (0, 2, 3, 1), (0, 3, 1, 2)
    x = b.input("image", (1, 16, 16, 3))
    y = b.op("Pad", x, [0, 0, 0, 0, 0, 1, 1, 0])
    y = y.transpose(first).conv(nets.he(rng, 16, 3, 3, 3), strides=2).transpose(last)
    y = (y + rng.standard_normal(16).astype(np.float32)).clip(0, 6)
    y = y.transpose(first).conv(nets.he(rng, 16, 1, 3, 3), pads=1, group=16).transpose(last)
    y = (y + rng.standard_normal(16).astype(np.float32)).clip(0, 6)
    y = y.transpose(first).conv(nets.he(rng, 24, 16, 1, 1)).transpose(last)
    y = b.op("Squeeze", b.op("ReduceMean", y, [1, 2], keepdims=1), [1, 2])
    y = y.matmul(nets.he(rng, 24, 10)) + rng.standard_normal(10).astype(np.float32)
    b.output("scores", y.softmax())
    return b


def test_a_network_of_keras_is_three_convolutions_and_a_head() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    b = from_keras()
    session = bl.load(b)
    kinds = [step.spec.kind for step in session.plan.steps]
    assert kinds.count("convolution") == 3
    assert "binary" not in kinds[:-3]
    assert session.plan.reorder_nbytes <= 2 * 16 * 16 * 3 * 4
    feed = nets.feed_of(session)
    peer = onnxruntime.InferenceSession(b.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feed)[0], peer.run(None, feed)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["efficientnet_b0", "shufflenet_v2_x1_0", "r2plus1d_18"])
def test_every_pass_leaves_a_model_for_others(name: str) -> None:
    size, variant = FROM_THE_ZOO[name]
    graph = wrapped(zoo.build(name, size=size, **variant).to_graph())

    def check(_: object, after: Graph) -> None:
        onnx.checker.check_model(model.to_model(after), full_check=True)

    simple = model.simplify(graph, on_pass=check)
    assert simple.opset == graph.opset
    assert model.to_model(model.simplify(graph)) == model.to_model(simple)


def from_keras_with_gates() -> bl.Builder:
    """Squeeze and excite, a strided convolution padded on one side, softmax over channels, in opset 13."""
    rng, b = np.random.default_rng(2), bl.Builder(opset=13)
    last, first = (0, 2, 3, 1), (0, 3, 1, 2)

    def conv(y: BuildValue, wanted: int, size: int, **window: Any) -> BuildValue:
        z = y.transpose(first).conv(nets.he(rng, wanted, y.shape[3], size, size), **window).transpose(last)
        return z + rng.standard_normal(wanted).astype(np.float32)

    y = conv(b.op("Pad", b.input("image", (1, 18, 18, 3)), [0, 0, 0, 0, 0, 1, 1, 0]), 16, 3, strides=2)
    scale, shift = (rng.standard_normal(16).astype(np.float32) for _ in range(2))
    y = y * scale + shift
    y = y * y.sigmoid()
    gate = b.op("ReduceMean", y, axes=[1, 2], keepdims=0).reshape((1, 1, 1, 16))
    gate = conv(conv(gate, 4, 1).relu(), 16, 1).sigmoid()
    y = conv(y * gate, 24, 1)
    y = y + conv(y.clip(0, 6), 24, 3, pads=1)
    up = b.op("Resize", y.transpose(first), np.empty(0, np.float32), np.array([1, 1, 2, 2], np.float32)).transpose(last)
    b.output("mask", conv(b.concat([up, up.relu()], axis=3), 5, 1).softmax(axis=3))
    return b


def test_gates_and_masks_of_keras_move_nothing_between() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    b = from_keras_with_gates()
    simple = model.simplify(model.read(b))
    kinds = [node.op_type for node in simple.nodes]
    assert kinds.count("Transpose") == 2  # one at each border
    assert kinds[0] == kinds[-1] == "Transpose"
    feed = {"image": nets.random_input((1, 18, 18, 3))}
    peer = onnxruntime.InferenceSession(b.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    [expected] = peer.run(None, feed)
    for policy in POLICIES:
        session = bl.load(b, layout=policy)
        np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-4, atol=1e-5)
        assert not session.plan.plain_steps


def test_the_simplified_graph_is_a_model_for_others(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    b = from_keras()
    graph = model.simplify(model.read(b))
    model.write(graph, tmp_path / "simple.onnx")
    written = onnx.load(str(tmp_path / "simple.onnx"))
    onnx.checker.check_model(written, full_check=True)
    assert written.opset_import[0].version == graph.opset
    assert "Transpose" not in [node.op_type for node in written.graph.node][1:]
    feed = {"image": nets.random_input((1, 16, 16, 3))}
    ours, theirs = (
        onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
        for proto in (written, b.to_onnx())
    )
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-6)
