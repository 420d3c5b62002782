"""ONNX files, checked and taken out of protobuf; extents may still be free."""

from __future__ import annotations

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from msgspec import Struct, field

from blocklayout.dtypes import to_numpy
from blocklayout.errors import ModelError, PlanError, UnsupportedError
from blocklayout.ir import Demands
from blocklayout.layout_events import warn_caller
from blocklayout.model.graph import Branch, Node, captured_by
from blocklayout.model.tensors import FORMAT_KEY, split_raw_data, to_array
from blocklayout.model.types import from_elem_type
from blocklayout.regular_file import open_regular

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

OLDEST_OPSET = 7
"""Of ONNX's own operator sets that are read as they are."""
OWN_DOMAINS = ("", "ai.onnx")
_RENAMED_IN = {"Scatter": 11}
"""Operator sets in which an operator got another name; the reference knows the new one only."""
_FIRST_IR_WITH_DEFAULTS = 4
"""Before it every initializer had to be an input as well, which said nothing about who may change it."""
_MAX_PROTO_NBYTES = 2**31 - 1
DEMANDS_KEY = "blocklayout.demands"
"""Key of the entry among a model's ``metadata_props`` that other runtimes pass over: demands, as JSON by option."""

REPORT_KEY = "blocklayout.precision"
"""Likewise: which layers were quantised under a budget of error, and why, a ``PrecisionReport`` as JSON."""

_Option = Literal["pin", "expect", "precision"]
MAX_INLINED_NODES = 1 << 20
"""Nodes of a model once its functions are inlined; a few functions that call one another are any number."""

_UNKNOWN = re.compile(r"(\?+|\*|-?\d+|none|null|nan|(unk|unknown|undefined|dynamic)[_\d]*)", re.IGNORECASE)
"""Names by which exporters say that they know nothing of an extent: two of the same name need not be equal."""
_ONNXRUNTIME = "com.microsoft"
_ADDED_BY_ONNXRUNTIME: Mapping[str, float] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": math.inf}
"""Operators that it has in ONNX's set before the version from which on ``onnx`` has, or computes, them."""


class DeclaredValue(Struct, frozen=True):
    """One input or output as a model declares it.

    Attributes:
        dtype: By our names.
        extents: A number, the name of a free extent, or ``None`` for a nameless free one, such as "?" and "unk__12"
            stand for; ``None`` altogether where not even the rank is declared.
        container: Empty for a tensor; ``sequence`` for a list of tensors, ``optional`` for a tensor or ``None``.
    """

    name: str
    dtype: str
    extents: tuple[int | str | None, ...] | None
    container: str = ""


class Declaration(Struct, frozen=True):
    """The inputs and outputs that a model declares.

    Attributes:
        inputs: Those that must be fed; an input with an initializer is a constant.
        outputs: In the model's order.
        defaults: Initializers that a caller may put others in the place of: those that are inputs as well,
            from version 4 of the format on.
        n_unpacked: Constants of four bits or fewer, which are unpacked to bytes, or to floats.
    """

    inputs: tuple[DeclaredValue, ...]
    outputs: tuple[DeclaredValue, ...]
    defaults: tuple[DeclaredValue, ...] = ()
    n_unpacked: int = 0

    def warn(self) -> None:
        """Warn the caller if the model takes more memory than its file."""
        if self.n_unpacked:
            what = f"the model's constants of four bits or fewer, {self.n_unpacked} in number, are unpacked"
            warn_caller(f"{what}: they take twice the memory as bytes, and eight times as f32", UserWarning)


class OnnxModel(Struct, frozen=True, eq=False, tag=True):
    """A checked model whose inputs may have free extents; holds no protobuf.

    Attributes:
        opset: Version of ONNX's own operator set.
        nodes: In topological order, without ``Constant`` nodes.
        constants: Initializers and ``Constant`` nodes, by name.
        signature: As declared; outputs have the extents that nodes compute.
        has_external_data: Whether weights lie in other files.
        demands: Those that its metadata states.
        formats: Memory formats that initializers were given in, by name, as the file has them.
        metadata: The texts that the file has about itself, by key.
    """

    name: str
    opset: int
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    signature: Declaration
    has_external_data: bool = False
    demands: Demands = field(default_factory=Demands)
    formats: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def open_onnx(source: Any) -> OnnxModel:
    """Read and check a model.

    Args:
        source: A path, the bytes of a file, or a ``ModelProto`` (which is not changed).

    Raises:
        ModelError: No such file, damaged, not ONNX, or against ONNX's specification.
        UnsupportedError: Foreign operators, too old or too new an operator set, loops, unusual types.
    """
    from onnx import ModelProto

    if isinstance(source, ModelProto):
        model = _converted(source, {}, None, "the ModelProto")
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = open_contents(bytes(source))
    elif not isinstance(source, (str, os.PathLike)):
        raise ModelError(f"cannot read a model from {type(source).__name__}; give a path, bytes or an onnx.ModelProto")
    else:
        model = open_contents(_file_contents(Path(source)), Path(source))
    model.signature.warn()
    return model


def open_contents(contents: bytes | memoryview, path: Path | None = None) -> OnnxModel:
    """Read and check a file's bytes, as :func:`open_onnx` does; its external data lie beside ``path``."""
    origin = "the given bytes" if path is None else f"{path}"
    rest, raw_data = split_raw_data(memoryview(contents))
    proto = _from_bytes(rest, origin)
    if raw_data and _is_outdated(proto):
        proto, raw_data = _from_bytes(contents, origin), {}
    del contents, rest  # copied by protobuf, they may take as much memory as the weights
    return _converted(proto, raw_data, path, origin)


def whole_contents(path: Path) -> bytes:
    """The bytes of a model's file, with the weights that lie in files beside it.

    Raises:
        ModelError: No such file, damaged, not ONNX, or with its weights over protobuf's 2 GiB.
    """
    proto = _from_bytes(_file_contents(path), f"{path}")
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
    from onnx.external_data_helper import load_external_data_for_model

    with refuse_missing(path):
        load_external_data_for_model(proto, str(path.parent))
        try:
            return bytes(proto.SerializeToString())
        except EncodeError as error:
            raise ModelError(f"{path} with its weights is over protobuf's 2 GiB") from error


@contextmanager
def refuse_missing(path: Path) -> Iterator[None]:
    """A :class:`ModelError` that names the path where there is no such file, or one that cannot be read."""
    if path.is_dir():
        raise ModelError(f"{path} is a directory; give the path of an .onnx file")
    try:
        yield
    except FileNotFoundError as error:
        raise ModelError(f"no such file: {path}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _file_contents(path: Path) -> bytes:
    with refuse_missing(path), open_regular(path) as file:
        return file.read()


def _converted(
    proto: ModelProto, raw_data: Mapping[int, memoryview], model_path: Path | None, origin: str
) -> OnnxModel:
    """Out of protobuf; contents of initializers may lie beside it, by their number."""
    try:
        return _convert(proto, raw_data, model_path, origin)
    except UnicodeDecodeError as error:
        message = f"not an ONNX model: {origin} has the text {error.object[:100]!r}, which is not UTF-8"
        raise ModelError(f"{message}; the file is damaged") from error


def _from_bytes(contents: bytes | memoryview, origin: str) -> ModelProto:
    _import_in_parts()
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    if not contents:
        raise ModelError(f"not an ONNX model: {origin} is empty")
    if len(contents) > _MAX_PROTO_NBYTES:
        raise ModelError(f"{origin} is over protobuf's 2 GiB; save it with external data")
    try:
        model: ModelProto = ModelProto.FromString(contents)
    except DecodeError as error:
        raise ModelError(f"not an ONNX model: {origin} is damaged, cut short or of another format") from error
    return model


def _convert(proto: ModelProto, raw_data: Mapping[int, memoryview], model_path: Path | None, origin: str) -> OnnxModel:
    from onnx import TensorProto

    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(f"not an ONNX model: {origin} has no graph with outputs")
    if not proto.opset_import:
        why = "it is damaged, cut short or of another format"
        raise ModelError(f"not an ONNX model: {origin} names no operator set; {why}")
    _check_texts(proto)
    entries = ((tensor.name, entry) for tensor in proto.graph.initializer for entry in tensor.metadata_props)
    formats = {name: entry.value for name, entry in entries if entry.key == FORMAT_KEY}
    demands = _demands(proto, origin)
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    proto = _upgraded(proto)
    if proto.graph.sparse_initializer:
        raise UnsupportedError(f"{origin} has sparse initializers; store them dense")
    packed = _dequantized_from_four_bits(proto.graph)
    constants = {}
    for index, each in enumerate(proto.graph.initializer):
        constants[each.name] = to_array(each, model_path, raw_data=raw_data.get(index), unpacks=each.name in packed)
    skeleton = _inlined(_without_weights(proto, constants), origin)
    _check_domains(skeleton)
    opset = _opset(skeleton, origin)
    _check_specification(skeleton, origin)
    nodes, written = convert_nodes(skeleton.graph, model_path)
    constants |= written
    declared = [_info(info, "input") for info in proto.graph.input]
    has_defaults = proto.ir_version >= _FIRST_IR_WITH_DEFAULTS
    signature = Declaration(
        inputs=tuple(info for info in declared if info.name not in constants),
        outputs=tuple(_info(info, "output") for info in proto.graph.output),
        defaults=tuple(info for info in declared if has_defaults and info.name in constants),
        n_unpacked=len(packed | {name for node in nodes for name in _few_bits(node) if name in constants}),
    )
    is_external = any(tensor.data_location == TensorProto.EXTERNAL for tensor in proto.graph.initializer)
    name = proto.graph.name or "model"
    return OnnxModel(name, opset, nodes, constants, signature, is_external, demands, formats, metadata)


def _few_bits(node: Node) -> Sequence[str]:
    """The weights of which it has several in a byte."""
    return node.inputs[1:2] if node.op_type.endswith(".MatMulNBits") and node.attr("bits", 4) < 8 else ()


def _dequantized_from_four_bits(graph: GraphProto) -> set[str]:
    """Constants of four bits that nothing but DequantizeLinear of constants reads, as its bytes or its zero points."""
    from onnx import TensorProto

    constants = {tensor.name for tensor in graph.initializer}
    narrow = (TensorProto.INT4, TensorProto.UINT4)
    found = {tensor.name for tensor in graph.initializer if tensor.data_type in narrow}
    if found:
        found -= {info.name for info in (*graph.input, *graph.output)}
        for node in _with_inner(graph):
            is_known = node.op_type == "DequantizeLinear" and node.domain in OWN_DOMAINS and node.input[0] in constants
            found -= set() if is_known else {*node.input}
    return found


def _demands(proto: ModelProto, origin: str) -> Demands:
    texts = [entry.value for entry in proto.metadata_props if entry.key == DEMANDS_KEY]
    if not texts:
        return Demands()
    try:
        [record] = [msgspec.json.decode(text, type=dict[_Option, dict[str, str]]) for text in texts]
        return Demands.of(record.get("pin"), record.get("expect"), record.get("precision"))
    except (ValueError, RecursionError, PlanError) as error:
        message = f"the entry {DEMANDS_KEY!r} in the metadata of {origin} is damaged: {error}"
        raise ModelError(f"{message}; remove it, or save the model anew") from error


def convert_nodes(graph: GraphProto, model_path: Path | None) -> tuple[tuple[Node, ...], dict[str, np.ndarray]]:
    """The nodes of a graph, and the contents of its ``Constant`` nodes by name.

    Raises:
        ModelError: A constant is damaged.
        UnsupportedError: A loop or an unusual type.
    """
    written = (node for node in graph.node if any(node.output))  # results of others cannot be read
    nodes = tuple(_node(node, model_path) for node in written if not _is_constant(node))
    constants = dict(_constant_node(node, model_path) for node in graph.node if _is_constant(node))
    return nodes, constants


def _check_texts(message: Any) -> None:
    """Decode the texts that protobuf left as bytes, since it could not: the error names the first."""
    if message.DESCRIPTOR.name == "TensorProto":  # to list its fields would copy its elements
        fields = [(each, getattr(message, each.name)) for each in _fields_with_texts(message.DESCRIPTOR)]
    else:
        fields = message.ListFields()
    for each, value in fields:
        values = value if hasattr(value, "extend") else (value,)
        if each.type == each.TYPE_MESSAGE:
            for inner in values:
                _check_texts(inner)
        elif each.type == each.TYPE_STRING:
            for text in values:
                if isinstance(text, bytes):
                    text.decode("utf-8")


@cache
def _fields_with_texts(descriptor: Any) -> tuple[Any, ...]:
    return tuple(each for each in descriptor.fields if each.type in (each.TYPE_MESSAGE, each.TYPE_STRING))


def _without_weights(proto: ModelProto, constants: Mapping[str, np.ndarray]) -> ModelProto:
    """A copy in which initializers are inputs, so that checking does not copy weights around."""
    from onnx import ModelProto, helper

    skeleton = ModelProto()
    for each, value in proto.ListFields():
        if each.name != "graph":
            _copy_field(skeleton, each.name, value)
    for each, value in proto.graph.ListFields():
        if each.name != "initializer":
            _copy_field(skeleton.graph, each.name, value)
    declared = {info.name for info in proto.graph.input}
    for info in (*skeleton.graph.input, *skeleton.graph.output):
        if info.type.HasField("tensor_type"):
            # other runtimes read models that declare no rank; the checker alone does not
            info.type.tensor_type.shape.SetInParent()
    for tensor in proto.graph.initializer:
        if tensor.name not in declared:
            shape = constants[tensor.name].shape
            skeleton.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    return skeleton


def _copy_field(message: Any, name: str, value: Any) -> None:
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif hasattr(value, "MergeFrom"):
        getattr(message, name).MergeFrom(value)
    else:
        setattr(message, name, value)


def _inlined(skeleton: ModelProto, origin: str) -> ModelProto:
    if not skeleton.functions:
        return skeleton
    _check_functions(skeleton, origin)
    from onnx import inliner

    try:
        return inliner.inline_local_functions(skeleton)
    except Exception as error:  # the C++ inliner raises several types
        raise ModelError(f"the model functions of {origin} cannot be inlined: {error}") from error


def _check_functions(skeleton: ModelProto, origin: str) -> None:
    """Refuse functions that call themselves, or one another so often that inlining them would never end."""
    calls = {
        (each.domain, each.name): Counter((node.domain, node.op_type) for node in _with_inner(each))
        for each in skeleton.functions
    }
    sizes: dict[tuple[str, str], int] = {}

    def n_nodes(called: Counter[tuple[str, str]]) -> int:
        return sum(n * sizes.get(key, 1) for key, n in called.items())

    pending = set(calls)
    while pending:
        ready = {key for key in pending if not calls[key].keys() & pending}
        if not ready:
            names = ", ".join(sorted(repr(name) for _, name in pending))
            raise ModelError(f"{origin}: a model function calls itself, directly or through others: among {names}")
        sizes |= {key: n_nodes(calls[key]) for key in ready}
        pending -= ready
    n_inlined = n_nodes(Counter((node.domain, node.op_type) for node in _with_inner(skeleton.graph)))
    if n_inlined > MAX_INLINED_NODES:
        what = f"{origin}: with its functions inlined the model has {n_inlined:,} nodes"
        raise UnsupportedError(f"{what}; {MAX_INLINED_NODES:,} can be read")


def _opset(skeleton: ModelProto, origin: str) -> int:
    from onnx import defs

    versions = [opset.version for opset in skeleton.opset_import if opset.domain in OWN_DOMAINS]
    if not versions:
        raise ModelError(f"{origin} does not import ONNX's own operator set")
    newest = defs.onnx_opset_version()
    if not OLDEST_OPSET <= versions[0] <= newest:
        raise UnsupportedError(
            f"{origin} is written in operator set {versions[0]}; {OLDEST_OPSET} to {newest} can be read with the "
            "installed onnx package; convert it with onnx.version_converter, or upgrade onnx"
        )
    return int(versions[0])


def _check_domains(skeleton: ModelProto) -> None:
    """Refuse unknown operators; those that onnxruntime adds to ONNX's set are put into its own."""
    opset = max((each.version for each in skeleton.opset_import if each.domain in OWN_DOMAINS), default=math.inf)
    for index, node in enumerate(_with_inner(skeleton.graph)):
        if node.domain in OWN_DOMAINS and opset < _ADDED_BY_ONNXRUNTIME.get(node.op_type, 0):
            node.domain = _ONNXRUNTIME
            if _ONNXRUNTIME not in [each.domain for each in skeleton.opset_import]:
                skeleton.opset_import.add(domain=_ONNXRUNTIME, version=1)
        if node.domain in OWN_DOMAINS:
            continue
        from blocklayout.model.microsoft import is_known
        from blocklayout.ops.registered import is_registered, registered_like

        op_type = f"{node.domain}.{node.op_type}"
        if is_known(op_type) or is_registered(op_type):
            continue
        what = f"{_label(node, index)} is of the operator set {node.domain!r}, not of ONNX's own"
        if node.domain == f"{_ONNXRUNTIME}.nchwc":
            raise UnsupportedError(
                f"{what}: its weights are packed for the CPU on which onnxruntime wrote the file; have it written with "
                "graph_optimization_level ORT_ENABLE_EXTENDED in place of ORT_ENABLE_ALL, or take the file before that"
            )
        raise UnsupportedError(f"{what}: {registered_like(op_type)}")


def _with_inner(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a graph, or of a function, and of all subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _with_inner(inner)


def _check_specification(skeleton: ModelProto, origin: str) -> None:
    from onnx import checker

    try:
        checker.check_model(skeleton)
    except checker.ValidationError as error:
        reason = str(error).strip().partition("\n")[0] or "it does not say why"
        if "ir_version" in reason and "higher" in reason:
            raise UnsupportedError(f"{origin} is newer than the installed onnx package: {reason}") from error
        raise ModelError(f"{origin} is against ONNX's specification: {reason}") from error


def _node(proto: NodeProto, model_path: Path | None) -> Node:
    attrs = {
        attribute.name: _branch(attribute.g, model_path) if attribute.HasField("g") else _attribute(attribute, proto)
        for attribute in proto.attribute
        if not attribute.HasField("tp")  # the type of an optional's absent element, which nothing is computed of
    }
    domain = "" if proto.domain in OWN_DOMAINS else proto.domain
    op_type = f"{domain}.{proto.op_type}" if domain else proto.op_type
    node = Node(proto.name, op_type, tuple(proto.input), tuple(proto.output), attrs, domain)
    # behind its own inputs it reads those that its subgraphs read of the graph around it
    return node.replace(inputs=(*node.inputs, *captured_by(node)))


def _is_constant(node: NodeProto) -> bool:
    return bool(node.op_type == "Constant" and node.domain in OWN_DOMAINS)


def _branch(graph: GraphProto, model_path: Path | None) -> Branch:
    if graph.sparse_initializer:
        raise UnsupportedError(f"the subgraph {graph.name!r} has sparse initializers; store them dense")
    constants = {tensor.name: to_array(tensor, model_path) for tensor in graph.initializer}
    nodes, written = convert_nodes(graph, model_path)
    outputs, inputs = (tuple(info.name for info in infos) for infos in (graph.output, graph.input))
    return Branch(nodes, constants | written, outputs, inputs, tuple(_no_rows(info) for info in graph.output))


def _no_rows(info: ValueInfoProto) -> np.ndarray:
    extents = [extent if isinstance(extent, int) else 0 for extent in _extents(info)]
    try:
        dtype = to_numpy(from_elem_type(info.type.tensor_type.elem_type, f"{info.name!r}"))
    except UnsupportedError:  # not declared, or of no type that there are tensors of here
        dtype = np.dtype(np.float32)
    return np.zeros((0, *extents), dtype)


def _attribute(attribute: AttributeProto, node: NodeProto) -> Any:
    from onnx import AttributeProto, helper

    if attribute.type == AttributeProto.TENSOR:
        return to_array(attribute.t, None)
    if attribute.ref_attr_name:
        refers = f"the attribute {attribute.name!r} is that of a function, {attribute.ref_attr_name!r}"
        raise ModelError(f"{_label(node)}: {refers}, outside of any")
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, (int, float)):
        return value
    if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        return tuple(value)
    if attribute.type == AttributeProto.STRINGS:
        return tuple(item.decode("utf-8") for item in value)
    kind = AttributeProto.AttributeType.Name(attribute.type)
    raise UnsupportedError(f"{_label(node)}: the attribute {attribute.name!r} is of the unusual type {kind}")


def _constant_node(node: NodeProto, model_path: Path | None) -> tuple[str, np.ndarray]:
    if len(node.attribute) != 1 or len(node.output) != 1:
        given = f"{len(node.attribute)} attributes and {len(node.output)} outputs"
        raise ModelError(f"{_label(node)} has {given}; a constant has one of each")
    attribute = node.attribute[0]
    if attribute.name == "value":
        return node.output[0], to_array(attribute.t, model_path, default_name=node.output[0])
    value = _attribute(attribute, node)
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    if attribute.name not in kinds:
        raise UnsupportedError(f"{_label(node)}: a constant given as {attribute.name!r} is no dense numeric tensor")
    return node.output[0], np.asarray(value, kinds[attribute.name])


def _info(info: ValueInfoProto, what: str) -> DeclaredValue:
    tensor, container = info.type, ""
    while (kind := tensor.WhichOneof("value")) in ("optional_type", "sequence_type"):
        container = container or kind.removesuffix("_type")
        tensor = getattr(tensor, kind).elem_type
    if container:
        return DeclaredValue(info.name, from_elem_type(tensor.tensor_type.elem_type, f"the {what}"), None, container)
    what = f"the {what} {info.name!r}"
    if kind != "tensor_type":
        described = kind.removesuffix("_type") if kind else "value of no declared type"
        raise UnsupportedError(f"{what} is a {described}; only tensors, sequences and optionals can be")
    extents = tuple(_extents(info)) if tensor.tensor_type.HasField("shape") else None
    return DeclaredValue(info.name, from_elem_type(tensor.tensor_type.elem_type, what), extents)


def _extents(info: ValueInfoProto) -> Iterator[int | str | None]:
    for extent in info.type.tensor_type.shape.dim:
        # some exporters write -1 where they mean a free extent
        if extent.HasField("dim_value") and extent.dim_value >= 0:
            yield extent.dim_value
        else:
            name = extent.dim_param.strip()
            yield None if not name or _UNKNOWN.fullmatch(name) else extent.dim_param


def _label(node: NodeProto, index: int | None = None) -> str:
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    where = f"node {index}" if index is not None else "the nameless node"
    return f"{where} ({node.op_type}, which writes {', '.join(node.output)})"


# --- models of operator sets that are no longer read, or with operators since renamed: converted by ``onnx``


def _upgraded(proto: ModelProto) -> ModelProto:
    """The model in an operator set that can be read; the model itself if it is, or cannot be converted."""
    from onnx import version_converter

    if not _is_outdated(proto):
        return proto
    try:
        return version_converter.convert_version(_with_aligned_slopes(proto), _wanted(proto))
    except Exception:  # noqa: BLE001  # the C++ converter raises several types; the model then stays too old
        return proto


def _is_outdated(proto: ModelProto) -> bool:
    """Whether the model is to be converted, which takes its weights."""
    versions = [opset.version for opset in proto.opset_import if opset.domain in OWN_DOMAINS]
    return bool(versions) and 1 <= versions[0] < _wanted(proto)


def _wanted(proto: ModelProto) -> int:
    """The oldest operator set that can be read, or that has all operators of the model, some by a later name."""
    return max([OLDEST_OPSET, *(_RENAMED_IN.get(node.op_type, 0) for node in proto.graph.node)])


def _with_aligned_slopes(proto: ModelProto) -> ModelProto:
    """A copy whose PRelu slopes, of channels before version 7, broadcast by later rules, which no converter does."""
    from onnx import ModelProto, shape_inference

    if not any(node.op_type == "PRelu" for node in proto.graph.node):
        return proto
    graph = shape_inference.infer_shapes(proto).graph
    infos = [*graph.input, *graph.value_info, *graph.output]
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    copy = ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    for node in proto.graph.node:
        copy.graph.node.extend(_aligned(node, shapes) if node.op_type == "PRelu" else [node])
    return copy


def _aligned(node: NodeProto, shapes: dict[str, list[int]]) -> list[NodeProto]:
    from onnx import helper

    source, slope = node.input
    axes = list(range(1, len(shapes[source]) - 1))
    if not axes or shapes[slope] == [1]:
        return [node]
    name = f"{node.output[0]}_slope"
    aligned = helper.make_node("PRelu", [source, name], list(node.output), name=node.name)
    return [helper.make_node("Unsqueeze", [slope], [name], axes=axes), aligned]


# --- the onnx package, imported part by part: all of it takes as long as a small network takes to plan
#
# Half of that is for parts that reading a model does not take: composing models, writing them as text, metadata.


class _InParts(ModuleType):
    """The package before its own code has run: that runs when it is asked for a name that is none of its parts."""

    def __getattr__(self, name: str) -> Any:
        classes = import_module("onnx.onnx_pb")
        if not name.startswith("__"):
            if hasattr(classes, name):
                setattr(self, name, getattr(classes, name))  # not asked again
                return getattr(classes, name)
            if find_spec(f"onnx.{name}") is not None:
                return import_module(f"onnx.{name}")
        if self.__spec__ is not None and self.__spec__.loader is not None:
            self.__spec__.loader.exec_module(self)
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(self, name)


def _import_in_parts() -> None:
    """Have the package imported part by part, unless it has been imported."""
    spec = find_spec("onnx") if "onnx" not in sys.modules else None
    if spec is not None:
        sys.modules["onnx"] = package = module_from_spec(spec)
        package.__class__ = _InParts
