"""One node at a time: its outputs from its inputs.

Every extent is known before the walk begins, so one walk in topological order reaches the fixed point
of shape inference and constant folding: all that a node's shape may depend on is a constant by then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from blocklayout.dtypes import to_numpy
from blocklayout.errors import BlockLayoutError, LimitError, ModelError, UnsupportedError
from blocklayout.ir.node import NodeInfo
from blocklayout.ir.value import Value
from blocklayout.model.graph import DependsOnDataError, Node, branches_of, constant_value
from blocklayout.model.onnx_read import convert_nodes
from blocklayout.model.reference import evaluator_of, is_wrong_there
from blocklayout.model.schemas import find_schema, schema_or_none, to_proto, value_info, with_named_outputs
from blocklayout.model.types import from_elem_type, onnx_type_name, type_proto
from blocklayout.resource_limits import check_affordable, check_time, interrupted

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TypeProto
    from onnx.defs import OpSchema

Operands: TypeAlias = "Sequence[Value | None]"
Results: TypeAlias = "tuple[Value | None, ...]"

_MAX_INFERENCE_ELEMENTS = 512
"""Constants that shapes depend on (pads, axes, scales) are small; weights stay out of protobuf."""
_MAX_FOLDED_NBYTES = 4 << 30
_MISREAD_DEFAULTS = {"STFT": {"onesided": 1}}
"""Attributes that shape inference takes to be something else where a node leaves them out."""


def evaluate(node: Node, inputs: Operands, opset: int) -> Results:
    """The outputs of ``node``: computed if its inputs are constants, else their extents and types.

    A registered operator is not run for constants.

    Raises:
        ModelError: The node contradicts the operator's specification.
        UnsupportedError: The extents of an output depend on data, or it is no tensor.
    """
    check_time(f"node {node.name!r}")
    _check_itself(node)
    if node.domain:
        return _of_other_domain(node, inputs, opset)
    if branches_of(node):
        raise DependsOnDataError(f"node {node.name!r}: {node.op_type} runs a subgraph as often as its data say", node)
    if node.op_type == "Range":
        inputs = _as_scalars(inputs)
    spelled_out = node.replace(attrs=_MISREAD_DEFAULTS.get(node.op_type, {}) | dict(node.attrs))
    proto = to_proto(with_named_outputs(spelled_out))
    schema = find_schema(node, opset)
    _check_types(node, schema, inputs)
    types = _infer_types(node, proto, schema, inputs, opset)
    if node.op_type == "Range" and not _inferred_nbytes(types):
        _count_again(node, inputs, opset)
    folded = _fold(node, proto, inputs, types, opset)
    if folded is not None:
        return folded
    outputs = tuple(_value(node, name, types.get(name)) if name else None for name in node.outputs)
    if node.op_type == "Reshape":
        _check_n_elements(node, inputs[0], outputs[0])
    return outputs


def _check_itself(node: Node) -> None:
    """Refuse nodes for which shape inference ends the process."""
    n_outputs = node.attr("num_outputs", len(node.outputs)) if node.op_type == "Split" else len(node.outputs)
    if n_outputs != len(node.outputs):
        raise ModelError(f"node {node.name!r}: Split has num_outputs={n_outputs} and {len(node.outputs)} outputs")
    if node.op_type == "GatherND" and node.attr("batch_dims", 0) < 0:
        raise ModelError(f"node {node.name!r}: attribute batch_dims is {node.attrs['batch_dims']}; give 0 or more")


def _of_other_domain(node: Node, inputs: Operands, opset: int) -> Results:
    from blocklayout.ops.registered import result_of

    found = node.facts.inferred(NodeInfo(node.name, node.op_type, node.attrs, tuple(inputs), (), opset))
    if found is not None:
        named = zip(node.outputs, found, strict=False)
        return tuple(Value(name, *each) if name else None for name, each in named)
    if len(node.outputs) != 1:
        raise ModelError(f"node {node.name!r}: {node.op_type} has {len(node.outputs)} outputs; a class computes one")
    return (result_of(node.op_type, node.name, node.attrs, inputs, node.outputs[0]),)


def _as_scalars(inputs: Operands) -> list[Value | None]:
    """Single elements as scalars: other runtimes, and function bodies of ONNX's own, also give them with rank 1."""
    return [
        Value(value.name, (), value.dtype, value.data.reshape(()))
        if value is not None and value.data is not None and value.data.size == 1
        else value
        for value in inputs
    ]


def _count_again(node: Node, inputs: Operands, opset: int) -> None:
    """Refuse ranges that shape inference takes for empty: of more elements than 64 bits count, and of NaN."""
    compute = node.facts.on_arrays(NodeInfo(node.name, node.op_type, node.attrs, (), (), opset))
    data = [value.data for value in inputs if value is not None and value.data is not None]
    if compute is not None and len(data) == len(inputs):
        compute(*data)


def _check_types(node: Node, schema: OpSchema, inputs: Operands) -> None:
    """Inference alone would let Relu of integers or a sum of f32 and f64 pass."""
    bound: dict[str, str] = {}
    formals = _formal_inputs(schema)
    for formal, value in zip(formals + formals[-1:] * max(0, len(inputs) - len(formals)), inputs, strict=False):
        if value is None:
            continue
        onnx_type = onnx_type_name(value.dtype)
        what = f"node {node.name!r}: {node.op_type}'s input {formal.name!r} is {value.name!r} of {onnx_type}"
        if onnx_type not in formal.types:
            raise ModelError(f"{what}; it takes {', '.join(sorted(formal.types))}")
        if formal.is_homogeneous and bound.setdefault(formal.type_str, onnx_type) != onnx_type:
            other = bound[formal.type_str]
            raise ModelError(f"{what}, but an earlier input of the same type parameter is {other}; cast one of them")


@lru_cache(maxsize=1024)
def _formal_inputs(schema: OpSchema) -> list[Any]:
    return list(schema.inputs)


def _infer_types(node: Node, proto: NodeProto, schema: OpSchema, inputs: Operands, opset: int) -> dict[str, TypeProto]:
    from onnx import checker, helper, numpy_helper, shape_inference

    present = [value for value in inputs if value is not None]
    arrays = {value.name: value.data for value in present if value.data is not None}
    if node.op_type == "Reshape":
        arrays |= _target_of_empty(node, inputs)
    small = {name: array for name, array in arrays.items() if array.size <= _MAX_INFERENCE_ELEMENTS}
    data = {name: numpy_helper.from_array(array, name) for name, array in small.items()}
    known = {value.name: type_proto(value.dtype, value.shape) for value in present}
    opsets = [helper.make_opsetid("", opset)]
    try:
        types = shape_inference.infer_node_outputs(schema, proto, known, data, opset_imports=opsets)
        if not all(_is_complete(types.get(name)) for name in node.outputs if name):
            types |= _infer_through_body(node, inputs, opset) | _said(node, inputs)
    except BlockLayoutError:
        raise  # of a function's body
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, LookupError) as error:
        given = ", ".join(f"{value.name!r} {value.shape}" for value in present)
        reason = str(error).strip().partition("\n")[0] or "it does not say why"
        raise ModelError(f"node {node.name!r}: {node.op_type} of {given}: {reason}") from error
    if node.attr("ceil_mode", 0) and present:
        _forget_windows_behind(node, present[0].shape[2:], types.values())
    return dict(types)


def _forget_windows_behind(node: Node, spatial: Sequence[int], types: Iterable[TypeProto]) -> None:
    """Leave out a last window that would begin behind the source: before opset 22, shape inference counts it."""
    begin = node.attr("pads", ())[: len(spatial)] or (0,) * len(spatial)
    strides = node.attr("strides", ()) or (1,) * len(spatial)
    for type_ in types:
        for extent, *axis in zip(type_.tensor_type.shape.dim[2:], spatial, begin, strides, strict=False):
            n_source, n_before, stride = axis
            if (extent.dim_value - 1) * stride >= n_source + n_before:
                extent.dim_value -= 1


def _said(node: Node, inputs: Operands) -> dict[str, TypeProto]:
    """The result's type by the extents that a MaxUnpool reads, which shape inference does not look at."""
    if node.op_type != "MaxUnpool" or len(inputs) < 3:
        return {}
    first, _, extents, *_ = inputs
    if first is None or extents is None or extents.data is None:
        return {}
    return {node.outputs[0]: type_proto(first.dtype, tuple(map(int, extents.data)))}


def _infer_through_body(node: Node, inputs: Operands, opset: int) -> dict[str, TypeProto]:
    """Of operators that are specified only by a function body of simpler ones."""
    body = function_body(node, inputs, opset)
    if body is None:
        return {}
    nodes, constants = body
    values = {value.name: value for value in (*inputs, *constants) if value is not None}
    for each in nodes:
        outputs = evaluate(each, [values[name] if name else None for name in each.inputs], opset)
        values.update({value.name: value for value in outputs if value is not None})
    return {name: type_proto(values[name].dtype, values[name].shape) for name in node.outputs if name}


def _is_complete(type_: TypeProto | None) -> bool:
    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return False
    return all(extent.HasField("dim_value") for extent in type_.tensor_type.shape.dim)


def _value(node: Node, name: str, type_: TypeProto | None) -> Value:
    if type_ is not None and type_.WhichOneof("value") not in (None, "tensor_type"):
        kind = str(type_.WhichOneof("value")).removesuffix("_type")
        raise DependsOnDataError(f"node {node.name!r}: {node.op_type}'s output {name!r} is a {kind}, no tensor", node)
    if type_ is None or not _is_complete(type_):
        message = (
            f"node {node.name!r}: the extents of {node.op_type}'s output {name!r} depend on data computed at run time; "
            "every extent must follow from the extents of the inputs"
        )
        raise DependsOnDataError(message, node)
    shape = tuple(extent.dim_value for extent in type_.tensor_type.shape.dim)
    if any(extent < 0 for extent in shape):
        raise ModelError(f"node {node.name!r}: {node.op_type}'s output {name!r} would have the extents {shape}")
    what = f"node {node.name!r}: {node.op_type}'s output {name!r}"
    dtype = from_elem_type(type_.tensor_type.elem_type, what)
    check_affordable(shape, to_numpy(dtype).itemsize, what)
    return Value(name, shape, dtype)


def _fold(node: Node, proto: NodeProto, inputs: Operands, types: dict[str, TypeProto], opset: int) -> Results | None:
    feeds = _feeds(node, inputs)
    if feeds is None or _inferred_nbytes(types) > _MAX_FOLDED_NBYTES:
        return None
    if node.facts.is_random or is_wrong_there(node, opset):
        return None
    try:
        with interrupted(f"node {node.name!r}"):
            computed = evaluator_of([proto], feeds, node.outputs, opset).run(None, feeds)
    except LimitError:
        raise
    except Exception:  # noqa: BLE001  # the reference lacks operators and raises anything; the node then stays
        return None
    outputs = [name for name in node.outputs if name]
    named = zip(outputs, computed, strict=False)
    folded = {name: _as_constant(name, result, types.get(name)) for name, result in named}
    if any(folded.get(name) is None for name in outputs):
        return None
    results = tuple(folded[name] if name else None for name in node.outputs)
    quantization = node.facts.quantization(NodeInfo(node.name, node.op_type, node.attrs, tuple(inputs), results, opset))
    if quantization is None:
        return results
    return tuple(value and replace(value, quantization=quantization) for value in results)


def _feeds(node: Node, inputs: Operands) -> dict[str, np.ndarray] | None:
    """Inputs of the reference; ``None`` where something is only known at run time."""
    present = [value for value in inputs if value is not None]
    if any(value.data is None and value.name in node.elements_read for value in present):
        return None
    unread = {value.name: np.broadcast_to(np.zeros((), to_numpy(value.dtype)), value.shape) for value in present}
    return unread | {value.name: value.data for value in present if value.data is not None}


def _inferred_nbytes(types: dict[str, TypeProto]) -> int:
    complete = (type_.tensor_type.shape.dim for type_ in types.values() if _is_complete(type_))
    return sum(8 * math.prod(extent.dim_value for extent in dims) for dims in complete)


def _as_constant(name: str, result: Any, type_: TypeProto | None) -> Value | None:
    if type_ is None or not type_.HasField("tensor_type") or not isinstance(result, (np.ndarray, np.generic)):
        return None
    try:
        dtype = from_elem_type(type_.tensor_type.elem_type, name)
    except UnsupportedError:
        return None
    # the reference computes some operators in a wider type than it should return
    array = np.asarray(result).astype(to_numpy(dtype), copy=False)
    return Value(name, array.shape, dtype, array)


def _target_of_empty(node: Node, inputs: Operands) -> dict[str, np.ndarray]:
    """The target of a Reshape of a batch of 0, with -1, which ONNX leaves open there, as of any other batch."""
    source, target = inputs
    if source is None or target is None or target.data is None or target.data.ndim != 1 or 0 not in source.shape:
        return {}
    copied = not node.attr("allowzero", 0)
    extents = [
        source.shape[axis] if extent == 0 and copied and axis < len(source.shape) else int(extent)
        for axis, extent in enumerate(target.data)
    ]
    if 0 not in extents or extents.count(-1) != 1:
        return {}
    n_elements, n_known = (math.prod(filter(None, shape)) for shape in (source.shape, extents))
    free = n_elements // -n_known  # n_known has the -1 in it
    return {target.name: np.array([free if extent == -1 else extent for extent in extents], np.int64)}


def _check_n_elements(node: Node, source: Value | None, result: Value | None) -> None:
    """Complain where a Reshape would make or lose elements: shape inference does not."""
    if source is None or result is None:
        return
    n, n_wanted = math.prod(source.shape), math.prod(result.shape)
    if n != n_wanted:
        what = f"node {node.name!r}: Reshape of {source.name!r} {source.shape} to {result.shape}"
        raise ModelError(f"{what}: the first has {n} elements and the second {n_wanted}; they must be equally many")


def has_body(node: Node, opset: int) -> bool:
    """Whether ONNX defines the operator of a node by simpler ones, with these attributes or with some."""
    schema: Any = schema_or_none(node.op_type, opset)
    if schema is None or schema.deprecated:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def function_body(node: Node, inputs: Operands, opset: int) -> tuple[tuple[Node, ...], tuple[Value, ...]] | None:
    """The nodes and constants of ONNX's body for ``node``, named after it inside; ``None`` where there is none."""
    model = _inlined(node, inputs, opset) if has_body(node, opset) else None
    if model is None or any(each.op_type == node.op_type for each in model.graph.node):
        return None
    if any(attribute.HasField("g") for each in model.graph.node for attribute in each.attribute):
        return None
    nodes, arrays = convert_nodes(model.graph, None)
    outside = {"", *node.inputs, *node.outputs}
    inside = [*arrays, *(name for each in nodes for name in each.outputs)]
    names = {name: f"{node.name}.{name}" for name in inside if name not in outside}
    constants = tuple(constant_value(names.get(name, name), array) for name, array in arrays.items())
    return tuple(each.renamed(names).replace(name="") for each in nodes), constants


def _inlined(node: Node, inputs: Operands, opset: int) -> ModelProto | None:
    from onnx import TypeProto, helper, inliner

    schema = find_schema(node, opset)
    whole = to_proto(node)
    present = {attribute.name for attribute in whole.attribute}
    defaults = (formal.default_value for name, formal in schema.attributes.items() if name not in present)
    # a body refers to attributes that the node leaves to their defaults
    whole.attribute.extend(default for default in defaults if default.name)
    infos = {value.name: value_info(value) for value in inputs if value is not None}
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.outputs if name]
    graph = helper.make_graph([whole], "body", [*infos.values()], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        return inliner.inline_selected_functions(model, [("", node.op_type)], inline_schema_functions=True)
    except RuntimeError:  # all that the inliner says of bodies that depend on absent inputs
        return None
