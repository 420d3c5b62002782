"""Networks before and after, by the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from blocklayout.model import Builder, Graph, to_model

Run = Callable[[Graph], list[np.ndarray]]


def _feeds(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}


@pytest.fixture
def run() -> Run:
    """What a graph computes from seeded input, by the reference."""

    def run_reference(graph: Graph) -> list[np.ndarray]:
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(to_model(graph)).run(None, _feeds(graph)))

    return run_reference


@pytest.fixture
def run_in_onnxruntime() -> Run:
    """What a graph computes from the same seeded input, by another runtime."""
    onnxruntime = pytest.importorskip("onnxruntime")

    def run_session(graph: Graph) -> list[np.ndarray]:
        contents = to_model(graph).SerializeToString()
        session = onnxruntime.InferenceSession(contents, providers=["CPUExecutionProvider"])
        return list(session.run(None, _feeds(graph)))

    return run_session


def _check(run: Run, before: Graph, after: Graph) -> None:
    assert after.inputs == before.inputs
    assert after.outputs == before.outputs
    for expected, actual in zip(run(before), run(after.validate()), strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * scale)


@pytest.fixture
def assert_same(run: Run) -> Callable[[Graph, Graph], None]:
    """Asserts that two graphs have the same interface and compute the same."""
    return lambda before, after: _check(run, before, after)


@pytest.fixture
def assert_same_in_onnxruntime(run_in_onnxruntime: Run) -> Callable[[Graph, Graph], None]:
    """The same where the reference has no answer."""
    return lambda before, after: _check(run_in_onnxruntime, before, after)


@pytest.fixture
def op_types() -> Callable[[Graph], list[str]]:
    return lambda graph: [node.op_type for node in graph.nodes]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture
def small_net(rng: np.random.Generator) -> Builder:
    """Convolution, normalisation, pooling and a classifier."""

    def array(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    b = Builder("small")
    x = b.input("x", (2, 3, 8, 8))
    y = x.conv(array(4, 3, 3, 3), pads=1, name="stem")
    y = y.batch_norm(array(4), array(4), array(4), np.abs(array(4)) + 0.5, name="norm").relu().max_pool(2)
    y = y.global_average_pool().flatten().gemm(array(5, 4), array(5), trans_b=True, name="classes")
    b.output("y", y.softmax())
    return b


@pytest.fixture
def light_models() -> Path:
    onnx = pytest.importorskip("onnx")
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
