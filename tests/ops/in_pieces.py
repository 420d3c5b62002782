"""Models that run in pieces, against ``onnx.reference``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from tests import nets

NODE = helper.make_node
F32, S64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)
IMAGE = nets.random_input((1, 3, 8, 8))
ROW = RNG.standard_normal(600).astype(np.float32)
"""More elements than an input has whose contents may decide extents."""
CONSTANTS: dict[str, Any] = {
    "w": RNG.standard_normal((8, 3, 3, 3)).astype(np.float32),
    "square": RNG.standard_normal((8, 8, 1, 1)).astype(np.float32) / 4,
    "zero": np.float32(0),
    "none": np.array(0),
    "one": np.array(1),
    "last": np.array(-1),
    "minus": np.array([-1]),
    "ones": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "yes": np.array(True),
    "sizes": np.array([30, 50, 20]),
}
PLACES = [
    NODE("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
    NODE("Greater", ["c", "zero"], ["m"]),
    NODE("NonZero", ["m"], ["p"], name="nz"),
]
"""A convolution, and the places where it is positive."""


def graph_of(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """A subgraph; floats by their extents, scalars of other types by these."""
    given, returned = (
        [helper.make_tensor_value_info(name, *((F32, of) if isinstance(of, tuple) else (of, ()))) for name, of in each]
        for each in (inputs.items(), outputs.items())
    )
    return helper.make_graph(nodes, "body", given, returned)


def model_of(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int] | None = None, **constants: Any
) -> ModelProto:
    """Inputs by their arrays; outputs by their types."""
    given = {name: np.asarray(array) for name, array in inputs.items()}
    kinds = {"f": F32, "l": S64, "?": BOOL}
    read = {name for node in nodes for name in node.input}
    read |= {name for node in nodes for each in node.attribute for inner in each.g.node for name in inner.input}
    arrays = {name: np.asarray(array) for name, array in (CONSTANTS | constants).items() if name in read - given.keys()}
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, kinds[array.dtype.char], [None] * array.ndim)
            for name, array in given.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (outputs or {"y": F32}).items()],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@dataclass(frozen=True)
class Case:
    """Nodes, some feeds after each other, and the operators at which the model is cut."""

    nodes: list[Any]
    feeds: list[dict[str, Any]]
    cut: list[str]
    outputs: dict[str, int] = field(default_factory=lambda: {"y": F32})
    expected: Callable[..., Any] | None = None

    def model(self) -> ModelProto:
        return model_of(self.nodes, self.feeds[0], self.outputs)


def reference(model: ModelProto, **feed: np.ndarray) -> Any:
    """Outputs by ``onnx.reference``."""
    return ReferenceEvaluator(model).run(None, feed)


def check(case: Case) -> None:
    """Run it twice on each feed: as it should, and cut where it should be."""
    session = bl.load(case.model())
    for feed in case.feeds * 2:
        wanted = case.expected(**feed) if case.expected else reference(case.model(), **feed)
        for output, expected in zip(session.run(None, feed), wanted, strict=True):
            assert (output.dtype, output.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
    assert session.pieces is not None
    assert all(f"{name} by " in str(session.pieces) for name in case.cut), session.pieces
