"""Problems as values: a node with its arguments, and what ONNX's reference makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from blocklayout import ops
from blocklayout.errors import UnsupportedError
from blocklayout.ir import Lowered, NodeInfo, Problem, Refusal, TensorInfo, Value

_DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "int64": "s64",
    "int32": "s32",
    "int8": "s8",
    "uint8": "u8",
    "bool": "bool",
}
_ALWAYS_F32 = frozenset({"bias", "mean", "variance", "scale", "shift", "weights_peephole"})


@dataclass(frozen=True)
class Weights:
    """A constant input of random values.

    Attributes:
        low: Lower bound of the values.
    """

    shape: tuple[int, ...]
    low: float = -1.0


Input = tuple[int, ...] | Weights | np.ndarray | None
"""Extents of a value computed at run time, a constant, or nothing."""


@dataclass(frozen=True, eq=False)
class OpCase:
    """One node.

    Attributes:
        inputs: In ONNX order.
        low: Lower bound of the random values fed at run time; the upper bound is 1.
        high: Upper bound of them.
        fed: Data type of the values fed at run time; random ones of integers are rounded towards 0.
        is_reference_wrong: ONNX's reference fails or contradicts the specification here, so
            onnxruntime says what is right.
    """

    op_type: str
    inputs: tuple[Input, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    low: float = -1.0
    high: float = 1.0
    n_outputs: int = 1
    seed: int = 0
    fed: str = "float32"
    is_reference_wrong: bool = False

    def __str__(self) -> str:
        shapes = [f"const{v.shape}" if isinstance(v, (Weights, np.ndarray)) else str(v) for v in self.inputs]
        return f"{self.op_type}-{self.opset}({', '.join(shapes)}) {dict(self.attrs) or ''}"

    @cached_property
    def arrays(self) -> tuple[np.ndarray | None, ...]:
        """The contents of every input."""
        rng = np.random.default_rng(self.seed)

        def make(value: Input) -> np.ndarray | None:
            if value is None or isinstance(value, np.ndarray):
                return value
            if isinstance(value, Weights):
                return rng.uniform(value.low, 1.0, value.shape).astype(np.float32)
            return rng.uniform(self.low, self.high, value).astype(self.fed)

        return tuple(make(value) for value in self.inputs)

    @cached_property
    def model(self) -> onnx.ModelProto:
        """A model of this node alone, its shapes inferred."""
        names: list[str] = [f"in_{i}" if array is not None else "" for i, array in enumerate(self.arrays)]
        outputs = [f"out_{i}" for i in range(self.n_outputs)]
        node = helper.make_node(self.op_type, names, outputs, name="tested", **self.attrs)
        fed, constants = [], []
        for name, array, value in zip(names, self.arrays, self.inputs, strict=True):
            if array is None:
                continue
            if isinstance(value, tuple):
                elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
                fed.append(helper.make_tensor_value_info(name, elem_type, array.shape))
            else:
                constants.append(numpy_helper.from_array(array, name))
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "case", fed, infos, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)

    @cached_property
    def feeds(self) -> dict[str, np.ndarray]:
        """Arrays fed at run time."""
        return {
            f"in_{i}": array
            for i, (array, value) in enumerate(zip(self.arrays, self.inputs, strict=True))
            if isinstance(value, tuple) and array is not None
        }

    @cached_property
    def expected(self) -> np.ndarray:
        """The first output, by ONNX's reference."""
        if self.is_reference_wrong:
            return self._by_onnxruntime()
        results: Any = ReferenceEvaluator(self.model).run(None, self.feeds)
        return np.asarray(results[0])

    def _by_onnxruntime(self) -> np.ndarray:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(self.model.SerializeToString(), options)
        return np.asarray(session.run(None, self.feeds)[0])

    @cached_property
    def node(self) -> NodeInfo:
        """The node as an operator reads it, its shapes inferred by ONNX."""
        shapes = [tuple(d.dim_value for d in info.type.tensor_type.shape.dim) for info in self.model.graph.output]
        return self.node_with(*shapes)

    def node_with(self, *shapes: tuple[int, ...]) -> NodeInfo:
        """The node as an operator reads it, with outputs of these extents."""
        outputs = tuple(Value(f"out_{i}", shape, "f32") for i, shape in enumerate(shapes))
        inputs = tuple(self._value(i) for i in range(len(self.inputs)))
        return NodeInfo("tested", self.op_type, dict(self.attrs), inputs, outputs, self.opset)

    def _value(self, index: int) -> Value | None:
        array, value = self.arrays[index], self.inputs[index]
        if array is None:
            return None
        data = None if isinstance(value, tuple) else array
        return Value(f"in_{index}", array.shape, _DTYPES[array.dtype.name], data)

    def lowered(self) -> Lowered:
        """The node bound by its operator."""
        return bind(self.node)

    def uninferred(self, *shapes: tuple[int, ...]) -> Lowered:
        """The node bound by its operator, for nodes that ONNX's shape inference refuses."""
        return bind(self.node_with(*shapes))


def bind(node: NodeInfo) -> Lowered:
    """The node bound by its operator.

    Raises:
        UnsupportedError: The operator refuses it.
    """
    operator = ops.find(node.op_type)
    assert operator is not None, node.op_type
    lowered = operator.accept(node)
    if isinstance(lowered, Refusal):
        raise UnsupportedError(lowered.reason)
    return lowered


def problem_of(lowered: Lowered, dst_shape: tuple[int, ...], dtype: str = "f32") -> Problem:
    """The arguments of a lowered node, computed in ``dtype`` by one thread."""
    return Problem(
        sources={
            arg: TensorInfo(value.shape or (1,), dtype if value.dtype == "f32" else value.dtype)
            for arg, value in lowered.sources.items()
        },
        constants={
            arg: TensorInfo(array.shape or (1,), "f32" if arg in _ALWAYS_F32 else dtype)
            for arg, array in lowered.constants.items()
        },
        dst=TensorInfo(dst_shape or (1,), dtype),
        n_threads=1,
    )
