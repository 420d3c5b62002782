"""Networks as channels-last frameworks export them: each operator between Transposes, and no byte more moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import model
from blocklayout.model import BuildValue
from blocklayout.plan import POLICIES
from tests import nets

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
def test_transposes_around_every_operator_move_no_byte(rank: int) -> None:
    plain = bl.load(network(SPATIAL[rank], _as_it_is)).plan
    wrapped = bl.load(network(SPATIAL[rank], _wrapped)).plan
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
