"""Nodes computed by ``onnx.reference``: as plain steps of a plan, and, of any extents, between plans."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import to_numpy
from blocklayout.errors import LimitError, ModelError, UnsupportedError
from blocklayout.ir import Compute, HostSpec, arguments, row_major_descs
from blocklayout.ir.value import Value
from blocklayout.model.graph import branches_of
from blocklayout.model.schemas import schema_or_none, to_proto, value_info, with_named_outputs
from blocklayout.model.types import from_elem_type
from blocklayout.resource_limits import interrupted

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto
    from onnx.reference import ReferenceEvaluator

    from blocklayout.model.graph import Node

_FIRST_OPSET_OF_DEQUANTIZING = 19
_WRONG_THERE: Mapping[str, Callable[[Node, int], bool]] = {
    "GatherElements": lambda _node, _opset: True,
    "LRN": lambda _node, _opset: True,
    "BatchNormalization": lambda _node, opset: opset < 14,
    "ConvTranspose": lambda node, _opset: node.attr("group", 1) != 1,
}
"""Operators that ``onnx.reference`` 1.23 computes against ONNX's specification (and unlike onnxruntime).

GatherElements takes indices out of range modulo the extent, by subtracting that as often as it takes.
"""


def plain_spec(node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value | None], opset: int) -> HostSpec:
    """The step that computes ``node`` by the reference evaluator; of ``outputs``, those that are not read are ``None``.

    Raises:
        UnsupportedError: The evaluator does not have the operator, or has it wrong.
    """
    if is_wrong_there(node, opset):
        raise UnsupportedError(f"node {node.name!r}: onnx.reference's {node.op_type} is not what ONNX specifies")
    from onnx import defs, helper
    from onnx.reference import ReferenceEvaluator

    version = opset if schema_or_none(node.op_type, opset) else defs.onnx_opset_version()
    infos = [value_info(value) for value in arguments(inputs).values()]
    read = [value_info(value) for value in outputs if value is not None]
    graph = helper.make_graph([to_proto(with_named_outputs(node))], "plain", infos, read)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    where = f"node {node.name!r}"
    with _naming(f"{where}: onnx.reference cannot compute {node.op_type}"), interrupted(where):
        ReferenceEvaluator(model)
    text = base64.b64encode(model.SerializeToString(deterministic=True)).decode()
    return HostSpec("plain", row_major_descs(inputs, outputs), node.op_type, text)


@contextmanager
def _naming(what: str, *, shows_class: bool = False) -> Iterator[None]:
    """Begin the message of an error with ``what``: the evaluator raises anything."""
    try:
        yield
    except LimitError:
        raise
    except Exception as error:
        kind = f"{type(error).__name__}: " if shows_class else ""
        raise UnsupportedError(f"{what}: {kind}{error}") from error


def evaluator_of(
    nodes: Sequence[NodeProto],
    inputs: Iterable[str],
    outputs: Iterable[str],
    opset: int,
    constants: Sequence[TensorProto] = (),
) -> ReferenceEvaluator:
    """The evaluator of nodes in a version of ONNX's operator set; of a node on its own it would be the newest."""
    from onnx import GraphProto, ValueInfoProto
    from onnx.reference import ReferenceEvaluator

    infos, results = ([ValueInfoProto(name=name) for name in side if name] for side in (inputs, outputs))
    graph = GraphProto(name="nodes", node=nodes, input=infos, output=results, initializer=constants)
    return ReferenceEvaluator(graph, opsets={"": opset}, new_ops=_missing_there(opset))


def _missing_there(opset: int) -> list[Any] | None:
    """Operators that ``onnx.reference`` has from a later version on, which computes the same."""
    if opset >= _FIRST_OPSET_OF_DEQUANTIZING:
        return None
    from onnx.reference.ops import op_dequantize_linear

    name, latest = "DequantizeLinear", op_dequantize_linear.DequantizeLinear_25
    return [type(name, (latest,), {"op_domain": ""})]


def is_wrong_there(node: Node, opset: int) -> bool:
    """Whether ``onnx.reference`` computes something else than ONNX specifies."""
    return node.op_type in _WRONG_THERE and _WRONG_THERE[node.op_type](node, opset)


def compute_of(spec: HostSpec) -> Compute:
    """The function that runs a plain step.

    Raises:
        ModelError: The step holds no model of one node.
    """
    from onnx import ModelProto
    from onnx.reference import ReferenceEvaluator

    try:
        model = ModelProto.FromString(base64.b64decode(spec.node, validate=True))
        with interrupted(f"a step of {spec.label}"):
            evaluator = ReferenceEvaluator(model)
    except LimitError:
        raise
    except Exception as error:  # protobuf and the evaluator raise anything
        raise ModelError(f"the plain step of {spec.label} holds no model of one node: {error}") from error
    sources = [arg for arg, _ in spec.descs if arg.startswith("src")]
    results = [arg for arg, _ in spec.descs if arg.startswith("dst")]
    inputs = [(info.name, *_shape_and_dtype(info)) for info in model.graph.input]
    outputs = [_shape_and_dtype(info) for info in model.graph.output]
    where = f"node {model.graph.node[0].name!r}: onnx.reference's {spec.label}"

    def compute(arrays: Mapping[str, np.ndarray]) -> None:
        feed = {name: arrays[arg].reshape(shape) for (name, shape, _), arg in zip(inputs, sources, strict=True)}
        with _naming(f"{where} failed", shows_class=True), np.errstate(all="ignore"):
            computed = evaluator.run(None, feed)
        for arg, result, output in zip(results, computed, outputs, strict=True):
            shape, dtype = output
            # the evaluator computes some operators in a wider type than it should return
            array = np.asarray(result).astype(dtype, copy=False)
            if array.shape != shape:
                raise UnsupportedError(f"{where} gave extents {list(array.shape)} where {list(shape)} were inferred")
            arrays[arg][...] = array.reshape(arrays[arg].shape)

    return compute


def _shape_and_dtype(info: ValueInfoProto) -> tuple[tuple[int, ...], np.dtype]:
    tensor = info.type.tensor_type
    return tuple(extent.dim_value for extent in tensor.shape.dim), to_numpy(from_elem_type(tensor.elem_type, info.name))


class NodeByNode(Struct, frozen=True, eq=False, dict=True):
    """Nodes that ``onnx.reference`` computes in turn, of any extents; ``inputs`` are the values read of others."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    opset: int

    def __call__(self, names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
        """Outputs by their names, of arrays by name."""
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in self._evaluator.run(list(names), dict(values))]

    @cached_property
    def _evaluator(self) -> ReferenceEvaluator:
        from onnx import numpy_helper

        nodes = [to_proto(with_named_outputs(node)) for node in self.nodes]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        outputs = [name for node in nodes for name in node.output]
        return evaluator_of(nodes, self.inputs, outputs, self.opset, tensors)


def by_reference(node: Node, opset: int) -> Callable[..., Any]:
    """The function that computes a node by ``onnx.reference``, of any extents of its results.

    Raises:
        UnsupportedError: The evaluator does not have the operator.
    """
    if branches_of(node) or node.domain:
        raise UnsupportedError(f"node {node.name!r}: {node.op_type} cannot be computed where its extents are unknown")
    proto, where = to_proto(with_named_outputs(node)), f"node {node.name!r}"
    with _naming(f"{where}: onnx.reference cannot compute {node.op_type}"), interrupted(where):
        evaluator = evaluator_of([proto], dict.fromkeys(node.inputs), proto.output, opset)

    def compute(*given: Any) -> tuple[Any, ...]:
        feed = {name: value for name, value in zip(node.inputs, given, strict=True) if name}
        with _naming(f"{where}: onnx.reference's {node.op_type} failed", shows_class=True), interrupted(where):
            return tuple(evaluator.run(None, feed))

    return compute
