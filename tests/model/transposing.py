"""Graphs through PushTransposes, computed before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from blocklayout.dtypes import to_numpy
from blocklayout.model import Builder, Graph, to_model
from blocklayout.model.passes.push_transposes import PushTransposes, moved_nbytes

RNG = np.random.default_rng(3)
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
SHAPE = (2, 3, 6, 4)
"""Channels first."""


def vector(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def pushed(b: Builder) -> Graph:
    """The graph after the pass: it computes what it computed before, and its Transposes move no more."""
    before = b.to_graph()
    after = PushTransposes()(before).validate()
    assert moved_nbytes(after) <= moved_nbytes(before)
    feed = {name: vector(*before.shape(name)).astype(to_numpy(before.values[name].dtype)) for name in before.inputs}
    onnx.checker.check_model(to_model(after), full_check=True)
    expected: Any = ReferenceEvaluator(to_model(before)).run(None, feed)
    for given, wanted in zip(ReferenceEvaluator(to_model(after)).run(None, feed), expected, strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-5)
        assert given.shape == wanted.shape
    return after


def n_transposes(graph: Graph) -> int:
    return sum(node.op_type == "Transpose" for node in graph.nodes)


def op_types(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]
