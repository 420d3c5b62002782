"""FX graphs of ATen's operators: those of Dynamo and of exported programs, and their networks."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch._decomp import get_decompositions
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen
from torch.fx.node import map_arg
from torch.fx.traceback import preserve_node_meta

from blocklayout.dtypes import to_numpy
from blocklayout.errors import BlockLayoutError, LimitError, ModelError, UnsupportedError
from blocklayout.model import BuildValue
from blocklayout.torch import aten_elementwise, aten_layers, aten_reductions, aten_shapes  # noqa: F401
from blocklayout.torch.aten_writer import TABLE, Result, Writer, dtype_name, module_of

_NOT_LOWERED = frozenset(("dtype", "memory_format", "layout", "device", "pin_memory", "non_blocking"))
"""Arguments that say what the traced result says, too, or where and how bytes lie, which is for plans to choose."""


# Graphs in overloads that are lowered


def as_aten(graph_module: GraphModule) -> GraphModule | None:
    """A graph of Dynamo's in ATen overloads that are lowered; ``None`` where AOTAutograd, which takes longer, has to.

    That is for overloads that are not known here, for writes that others see, and where outputs share memory with
    inputs or with each other. ``meta["val"]`` of the nodes has extents, types and strides.
    """
    aten = _traced(graph_module)
    if aten is None or not is_lowered(aten.graph):
        return None
    outputs, given = (each.graph.output_node().args[0] for each in (aten, graph_module))
    inputs = aten.graph.find_nodes(op="placeholder")
    if not all(isinstance(each, Node) for each in outputs):
        return None
    memories = {_memory(each) for each in (*inputs, *outputs)}
    if len(memories) < len({*map(_memory, inputs)}) + len(outputs):
        return None
    if [*map(_kind, outputs)] != [*map(_kind, given)]:
        return None  # by an autocast around
    rename_inputs(graph_module.graph, aten.graph)
    return aten


def _traced(graph_module: GraphModule) -> GraphModule | None:
    """A graph's overloads as its calls come to them; ``None`` where a node is no call that returns tensors."""
    for node in graph_module.graph.nodes:
        is_known = node.op in ("placeholder", "call_function", "call_method") and "example_value" in node.meta
        if not (is_known or node.op == "output" or node.target is torch._C._log_api_usage_once):  # noqa: SLF001 - torchvision's
            return None
    inputs = [node.meta["example_value"] for node in graph_module.graph.find_nodes(op="placeholder")]
    if not inputs or not all(isinstance(each, FakeTensor) for each in inputs):
        return None
    try:
        with inputs[0].fake_mode, preserve_node_meta():
            given = [each.detach() for each in inputs]
            return make_fx(Interpreter(graph_module).run, decompositions(), pre_dispatch=True)(*given)
    except Exception:  # noqa: BLE001 - AOTAutograd says what is wrong
        return None


def _kind(node: Node) -> Any:
    tensor = node.meta["val"] if "val" in node.meta else node.meta["example_value"]
    return tensor.dtype, tensor.shape, tensor.stride()


def rename_inputs(outer: Graph, inner: Graph) -> None:
    """Name a graph's inputs as those of Dynamo's that it was made of."""
    for given, node in zip(*(each.find_nodes(op="placeholder") for each in (outer, inner)), strict=True):
        node._rename(path_of(given))  # noqa: SLF001 - FX has no other way


def path_of(node: Node) -> str:
    """The path of a parameter or buffer of Dynamo's in its module, or the name of another input."""
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        return str(node.name)
    words = re.findall(r"\w+", source.name)[1:]  # behind L, for locals, or G
    inner = [word for word in words if word not in ("_modules", "_parameters", "_buffers")]
    return ".".join(inner[1:] if inner != words else inner)  # without the variable that the module is in


def graph_of(program: ExportedProgram) -> GraphModule:
    """A program's graph in overloads that are lowered, decomposed where it is not; parameters are its attributes.

    An UnsupportedError where it writes to its buffers or inputs.
    """
    module: GraphModule = program.module(check_guards=False)
    if not is_lowered(module.graph):
        program = program.run_decompositions(decompositions())
        module = program.module(check_guards=False)
    specs = program.graph_signature.output_specs
    if written := [str(spec.target) for spec in specs if spec.kind.name.endswith("MUTATION")]:
        names = ", ".join(written)
        raise UnsupportedError(f"the module writes to {names}; inference mode only: call module.eval() before")
    module.graph.set_codegen(CodeGen())  # so that it takes tensors one by one, not in the program's structure
    return module


def is_lowered(graph: Graph) -> bool:
    """Whether all calls are in the table, and none writes to what is read behind it.

    Calls that write to what is not are replaced by those that do not write.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    sharing: dict[int, list[Node]] = {}  # nodes whose results lie in the same memory
    for node in graph.nodes:
        before = sharing.setdefault(_memory(node), [])
        if node.op == "call_function" and node.target is not operator.getitem:
            if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
                is_read = any(order[user] > order[node] for each in before for user in each.users)
                if is_read or not before or before[0].op != "call_function":
                    return False
                packet, _, overload = str(node.target).removeprefix("aten.").partition(".")
                node.target = getattr(getattr(torch.ops.aten, packet[:-1], None), overload, node.target)
            name = str(node.target)
            has_statistics = (
                name in ("aten.batch_norm.default", "aten.instance_norm.default") and node.args[3] is not None
            )
            if name not in TABLE or (has_statistics and node.args[5]):  # in training they are written to
                return False
        before.append(node)
    return True


def _memory(node: Node) -> int:
    """A number that nodes have in common if and only if their results are tensors in the same memory."""
    val = node.meta.get("val")
    return val.untyped_storage()._cdata if isinstance(val, torch.Tensor) else id(node)  # noqa: SLF001 - PyTorch's own


@cache
def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of overloads that are not lowered, to core ATen and further, and one of ours."""
    aten = torch.ops.aten
    more = get_decompositions([aten.adaptive_max_pool2d, aten.adaptive_max_pool3d])
    table = {each: how for each, how in (dict(default_decompositions()) | more).items() if str(each) not in TABLE}
    return table | {aten._transformer_encoder_layer_fwd.default: aten_layers.encoder_layer}  # noqa: SLF001 - PyTorch's own


# Networks


def read_fx(graph_module: GraphModule, constants: Mapping[str, tuple[str, torch.Tensor]] = {}) -> Read:
    """The network of an FX graph of core ATen operators, as AOTAutograd hands it to an inference compiler.

    Args:
        graph_module: Each node has its tensors' extents and types in ``meta["val"]``, as tracing leaves them.
        constants: By the names of placeholders that stand for them, the name that each constant is to have in plans,
            ``layer1.0.conv2.weight``, and the tensor. All other placeholders are inputs.

    Raises:
        UnsupportedError: An ATen overload that is not in the table, or in a use for which ONNX has no words; an extent
            that is a symbol. The message names overload and module.

    Example:
        >>> program = torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))
        >>> print(read_fx(graph_of(program)).builder.to_graph())  # doctest: +ELLIPSIS
        model, opset 22
        ...
    """
    read = Read(graph_module, constants)
    for error in read.errors.values():
        raise error
    return read


_UNKNOWN = object()
"""A value that no network can hold."""


class Read:
    """A graph as a network, by one walk over its nodes.

    Behind a node that cannot be read the walk goes on, with inputs for its results.

    Attributes:
        graph_module: The graph.
        builder: The network; ``bl.load`` takes it.
        inputs: Names of its inputs, in the order of the graph's.
        outputs: For each output of the graph the name of the network's, or the number or ``None`` that it is.
        errors: Why nodes cannot be read; of parts of a result the source has the reason.
    """

    def __init__(self, graph_module: GraphModule, constants: Mapping[str, tuple[str, torch.Tensor]]) -> None:
        self.graph_module = graph_module
        self.constants = constants
        self.builder = Writer()
        self.inputs: list[str] = []
        self.outputs: tuple[Any, ...] = ()
        self.values: dict[Node, Any] = {}
        self.errors: dict[Node, BlockLayoutError] = {}
        for node in graph_module.graph.nodes:
            try:
                self.values[node] = getattr(self, f"_{node.op}")(node)
            except BlockLayoutError as error:
                self.errors[node] = error
                self.values[node] = self._standing_in(node)

    def _placeholder(self, node: Node) -> BuildValue | None:
        known = self.constants.get(node.name) or self.constants.get(node.target)
        if known is not None:
            return self._constant(*known) if node.users else None
        results = _results(node, f"input {node.name!r}")
        if len(results) != 1:
            raise UnsupportedError(f"input {node.name!r} is no tensor; give numbers as constants of the module")
        self.inputs.append(self.builder.fresh(node.name))
        return self.builder.input(self.inputs[-1], *results[0])

    def _get_attr(self, node: Node) -> BuildValue | None:
        tensor = operator.attrgetter(node.target)(self.graph_module)
        return self._constant(node.target, tensor) if node.users else None

    def _constant(self, name: str, tensor: Any) -> BuildValue:
        return self.builder.constant(as_array(tensor, f"constant {name!r}"), self.builder.fresh(name))

    def _output(self, node: Node) -> None:
        returned = node.args[0]
        names: list[Any] = []
        for each in returned if isinstance(returned, tuple | list) else (returned,):
            names.append(self._of(each))
            if isinstance(value := names[-1], BuildValue):
                names[-1] = self.builder.fresh(f"output_{len(names) - 1}")
                self.builder.output(names[-1], value)
        self.outputs = tuple(names)

    def _of(self, arg: Any) -> Any:
        """An argument with values in the places of nodes."""
        return map_arg(arg, self.values.__getitem__)

    def _call_function(self, node: Node) -> Any:
        if node.target is operator.getitem:
            return self._getitem(node)
        for source in node.all_input_nodes:
            if self.values[source] is _UNKNOWN:
                raise UnsupportedError(f"{_where(node)} takes {source.name}, which is no tensor of a network")
        lowering = TABLE.get(str(node.target))
        if lowering is None:
            raise UnsupportedError(f"{_where(node)} is not among the ATen overloads that are lowered")
        (operands, attrs), results = _bound(node), _results(node, _where(node))
        self.builder.begin(node, results)
        try:
            lowered = lowering(self.builder, *self._of(operands), **attrs)
        except LimitError:
            raise
        except (BlockLayoutError, OverflowError) as error:
            raise UnsupportedError(f"{_where(node)}: {error}") from error
        if isinstance(lowered, BuildValue):
            lowered = (lowered, *[None] * (len(results) - 1))
        if len(lowered) != len(results):
            raise ModelError(f"{_where(node)} was lowered to {len(lowered)} results, and has {len(results)}")
        fitted = tuple(self._fitted(node, *each) for each in zip(lowered, results, strict=True))
        return fitted if isinstance(node.meta.get("val"), tuple | list) else fitted[0]

    def _getitem(self, node: Node) -> Any:
        source, index = node.args
        if source in self.errors:
            raise UnsupportedError("")
        value = self.values[source][index]
        if value is None and node.users:
            raise UnsupportedError(f"result {index} of {_where(source)} has no words in ONNX")
        return value

    def _fitted(self, node: Node, value: BuildValue | None, result: Result) -> BuildValue | None:
        """A value in the extents of PyTorch's result, which may differ by extents of 1: no wrong lowering must pass."""
        if value is None:
            return None
        extents, wanted = ([each for each in shape if each != 1] for shape in (value.shape, result.shape))
        if (extents, value.dtype) != (wanted, result.dtype):
            found, right = f"{value.dtype} {value.shape}", f"{result.dtype} {result.shape}"
            raise ModelError(f"{_where(node)} was lowered to {found}; PyTorch's result is {right}")
        return self.builder.reshape(value, result.shape)

    def _standing_in(self, node: Node) -> Any:
        """Inputs in the places of a call's results."""
        if node.op != "call_function":
            return _UNKNOWN
        if node.target is operator.getitem:
            found, index = self.values[node.args[0]], node.args[1]
            return found[index] if isinstance(found, list) else _UNKNOWN
        try:
            made = [self.builder.input(self.builder.fresh(node.name), *each) for each in _results(node, "")]
        except BlockLayoutError:
            return _UNKNOWN
        return made if isinstance(node.meta["val"], tuple | list) else made[0]


def _bound(node: Node) -> tuple[list[Any], dict[str, Any]]:
    """A call's operands, and its other arguments by name, defaults included."""
    operands, attrs = [], {}
    for place, each in enumerate(node.target._schema.arguments):  # noqa: SLF001 - PyTorch's own
        value = node.args[place] if place < len(node.args) else node.kwargs.get(each.name, each.default_value)
        kind = str(each.type)
        if "Tensor" in kind or ("number" in kind and not each.kwarg_only):
            operands.append(value)
        elif each.name not in _NOT_LOWERED:
            attrs[each.name] = value
    return operands, attrs


def as_array(tensor: Any, what: str) -> np.ndarray:
    """A tensor as a numpy array over the same bytes.

    Raises:
        UnsupportedError: It is sparse, quantised or on another device, or numpy has no such type.
    """
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"{what} is a {type(tensor).__name__}, no tensor")
    dtype = dtype_name(tensor.dtype)
    plain = tensor.detach()
    try:
        array: np.ndarray = plain.view(torch.int16).numpy() if dtype == "bf16" else plain.numpy()
    except (RuntimeError, TypeError) as error:
        raise UnsupportedError(f"{what}: {error}") from error
    return array.view(to_numpy(dtype)) if dtype == "bf16" else array


def _results(node: Node, what: str) -> tuple[Result, ...]:
    """The extents and data types of a node's results, as PyTorch traced them."""
    vals = node.meta.get("val")
    results = []
    for val in vals if isinstance(vals, tuple | list) else (vals,):
        if val is None:
            results.append(Result((), ""))
            continue
        if not isinstance(val, torch.Tensor):
            raise UnsupportedError(f"{what} is {type(val).__name__}, no tensor")
        if not all(isinstance(extent, int) for extent in val.shape):
            raise UnsupportedError(f"{what} has the extents {tuple(val.shape)}; give fixed ones, no dynamic shapes")
        results.append(Result(tuple(val.shape), dtype_name(val.dtype)))
    return tuple(results)


def _where(node: Node) -> str:
    path, _ = module_of(node)
    return f"{node.target} in {path or 'the module itself'} (node {node.name!r})"
