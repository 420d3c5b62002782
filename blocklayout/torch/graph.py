"""FX graphs of ATen's core operators as networks of a Builder."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import BlockLayoutError, LimitError, ModelError, UnsupportedError
from blocklayout.model import Builder, BuildValue
from blocklayout.torch import aten_elementwise, aten_layers, aten_reductions, aten_sampling, aten_shapes  # noqa: F401
from blocklayout.torch.aten_attention import encoder_layer
from blocklayout.torch.aten_writer import TABLE, NodeWriter, Result, dtype_name, fresh, module_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

OPSET = 22
"""The first in which convolutions and pooling take bf16."""

_SAYING_NO_VALUE = frozenset(("memory_format", "layout", "device", "pin_memory", "non_blocking", "generator"))
"""Arguments that say where and how bytes lie, which is for plans to choose."""

_LEARNING = ("aten.batch_norm.default", "aten.instance_norm.default")
"""Overloads that write running statistics in training."""


def read_exported(program: ExportedProgram) -> Read:
    """The network of a ``torch.export`` program, decomposed to core ATen where it is not yet.

    Parameters and buffers become constants that share the module's memory.

    Args:
        program: Of fixed extents; it changes no buffer and no input.

    Raises:
        UnsupportedError: An ATen overload that is not in the table, or in a use for which ONNX has no words; an extent
            that is a symbol; a program that writes to its buffers or inputs. The message names overload and module.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> program = torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))  # doctest: +SKIP
        >>> print(read_exported(program).builder.to_graph())  # doctest: +SKIP
    """
    return read_fx(graph_of(program))


def graph_of(program: ExportedProgram) -> GraphModule:
    """A program's graph in overloads that are lowered, without writes. Parameters are its attributes."""
    from torch.fx.graph import CodeGen

    if not all(is_lowered(node) for node in program.graph.nodes if node.op == "call_function"):
        program = program.run_decompositions(decompositions())
    specs = program.graph_signature.output_specs
    if written := [str(spec.target) for spec in specs if spec.kind.name.endswith("MUTATION")]:
        names = ", ".join(written)
        raise UnsupportedError(f"the module writes to {names}; inference mode only: call module.eval() before")
    module: GraphModule = program.module(check_guards=False)
    module.graph.set_codegen(CodeGen())  # so that it takes tensors one by one, not in the program's structure
    return module


def read_fx(graph_module: GraphModule, constants: Mapping[str, tuple[str, torch.Tensor]] = {}) -> Read:
    """The network of an FX graph of core ATen operators, as AOTAutograd hands it to an inference compiler.

    Args:
        graph_module: Each node has its tensors' extents and types in ``meta["val"]``, as tracing leaves them.
        constants: By the names of placeholders that stand for them, the name that each constant is to have in plans,
            ``layer1.0.conv2.weight``, and the tensor. All other placeholders are inputs.

    Raises:
        UnsupportedError: As :func:`read_exported`.
    """
    read = Read(graph_module, constants)
    for error in read.errors.values():
        raise error
    return read


def unreadable(graph_module: GraphModule, constants: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """The nodes of an FX graph that :func:`read_fx` has no words for, by their names, each with the reason."""
    errors = Read(graph_module, constants).errors
    return {node.name: str(error) for node, error in errors.items() if node.op == "call_function"}


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
        self.builder = Builder(opset=OPSET)
        self.inputs: list[str] = []
        self.outputs: tuple[Any, ...] = ()
        self.values: dict[Node, Any] = {}
        self.transposed: dict[str, BuildValue] = {}
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
        self.inputs.append(fresh(self.builder, node.name))
        return self.builder.input(self.inputs[-1], *results[0])

    def _get_attr(self, node: Node) -> BuildValue | None:
        return self._constant(*attribute(self.graph_module, node)) if node.users else None

    def _constant(self, name: str, tensor: Any) -> BuildValue:
        return self.builder.constant(as_array(tensor, f"constant {name!r}"), name=fresh(self.builder, name))

    def _output(self, node: Node) -> None:
        returned = node.args[0]
        names: list[Any] = []
        for each in returned if isinstance(returned, tuple | list) else (returned,):
            value = self._of(each)
            if isinstance(value, BuildValue):
                names.append(fresh(self.builder, f"output_{len(names)}"))
                self.builder.output(names[-1], value)
            else:
                names.append(value)
        self.outputs = tuple(names)

    def _of(self, arg: Any) -> Any:
        """An argument with values in the places of nodes."""
        from torch.fx.node import map_arg

        return map_arg(arg, self.values.__getitem__)

    def _call_function(self, node: Node) -> Any:
        sources = node.all_input_nodes
        if node.target is operator.getitem and sources[0] in self.errors:
            raise UnsupportedError("")
        for source in sources:
            if self.values[source] is _UNKNOWN:
                raise UnsupportedError(f"{_where(node)} takes {source.name}, which is no tensor of a network")
        if node.target is operator.getitem:
            values, index = map(self._of, node.args)
            if values[index] is None and node.users:
                raise UnsupportedError(f"result {index} of {_where(sources[0])} has no words in ONNX")
            return values[index]
        overload = pure_overload(node)
        lowering = TABLE.get(overload)
        if lowering is None:
            raise UnsupportedError(f"{_where(node)} is not among the ATen overloads that are lowered")
        args, kwargs = _bound(node)
        writer = NodeWriter(self.builder, node, overload, args, _results(node, _where(node)), self.transposed)
        try:
            lowered = lowering(writer, *self._of(args), **self._of(kwargs))
        except LimitError:
            raise
        except (BlockLayoutError, OverflowError) as error:
            raise UnsupportedError(f"{_where(node)}: {error}") from error
        if isinstance(lowered, BuildValue) and len(writer.results) > 1:
            lowered = (lowered, *[None] * (len(writer.results) - 1))
        self._check(node, writer.results, lowered)
        return lowered

    def _check(self, node: Node, results: Sequence[Result], lowered: Any) -> None:
        """Compare extents and types with PyTorch's: a lowering that is wrong must not pass."""
        values = [lowered] if isinstance(lowered, BuildValue) else lowered
        if len(values) != len(results):
            raise ModelError(f"{_where(node)} was lowered to {len(values)} results, and has {len(results)}")
        for value, result in zip(values, results, strict=True):
            if value is not None and (value.shape, value.dtype) != result:
                found, right = f"{value.dtype} {value.shape}", f"{result.dtype} {result.shape}"
                raise ModelError(f"{_where(node)} was lowered to {found}; PyTorch's result is {right}")

    def _standing_in(self, node: Node) -> Any:
        """Inputs in the places of a call's results."""
        if node.op != "call_function":
            return _UNKNOWN
        if node.target is operator.getitem:
            found, index = self.values[node.args[0]], node.args[1]
            return found[index] if isinstance(found, list) else _UNKNOWN
        try:
            made = [self.builder.input(fresh(self.builder, node.name), *each) for each in _results(node, "")]
        except BlockLayoutError:
            return _UNKNOWN
        return made if isinstance(node.meta["val"], tuple | list) else made[0]


def _bound(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments in the order of its schema, defaults included, and those that it takes by name alone."""
    kwargs = {key: each for key, each in node.kwargs.items() if key not in _SAYING_NO_VALUE}
    places = [each for each in node.target._schema.arguments if not each.kwarg_only]  # noqa: SLF001 - PyTorch's own
    behind = [kwargs.pop(each.name, each.default_value) for each in places[len(node.args) :]]
    return (*node.args, *behind), kwargs


def as_array(tensor: Any, what: str) -> np.ndarray:
    """A tensor as a numpy array over the same bytes.

    Raises:
        UnsupportedError: It is sparse, quantised or on another device, or numpy has no such type.
    """
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"{what} is a {type(tensor).__name__}, no tensor")
    dtype = dtype_name(tensor.dtype)
    plain = tensor.detach()
    try:
        array: np.ndarray = plain.view(torch.int16).numpy() if dtype == "bf16" else plain.numpy()
    except (RuntimeError, TypeError) as error:
        raise UnsupportedError(f"{what}: {error}") from error
    return array.view(to_numpy(dtype)) if dtype == "bf16" else array


def attribute(graph_module: GraphModule, node: Node) -> tuple[str, torch.Tensor]:
    """The name and tensor of a node that reads an attribute."""
    return node.target, operator.attrgetter(node.target)(graph_module)


def is_lowered(node: Node) -> bool:
    """Whether a call is in the table, and writes to nothing that others read."""
    if node.target is operator.getitem:
        return True
    overload = pure_overload(node)
    if overload in _LEARNING:
        _, _, _, mean, _, is_training, *_ = _bound(node)[0]
        return mean is None or not is_training
    return overload in TABLE


def pure_overload(node: Node) -> str:
    """The overload of a node; ``aten.relu.default`` of ``aten.relu_.default`` where nothing else reads its input."""
    name = str(node.target)
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    if name in TABLE or not packet.endswith("_"):
        return name
    x = node.args[0]
    return f"{namespace}.{packet[:-1]}.{overload}" if packet == "dropout_" or _is_temporary(x) else name


def _is_temporary(node: Any) -> bool:
    """Whether a tensor lies in memory of its own, and has one reader."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or len(node.users) != 1:
        return False
    return not shares_memory(node.target) or all(
        each.alias_info and each.alias_info.is_write for each in schema.returns
    )


def shares_memory(target: Any) -> bool:
    """Whether the results of an overload may lie in the memory of its first argument."""
    if target is operator.getitem or str(target) in ("aten.dropout.default", "aten._unsafe_view.default"):
        return True
    return any(each.alias_info is not None for each in target._schema.returns)  # noqa: SLF001 - PyTorch's own


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions to core ATen, but of overloads that are lowered as they are, and :func:`further`."""
    from torch.export import default_decompositions

    table: dict[Any, Any] = default_decompositions()
    for overload in [each for each in table if str(each) in TABLE]:
        table.pop(overload)
    return dict(table) | further()


def further() -> dict[Any, Any]:
    """Decompositions of core ATen's own overloads that are not lowered."""
    import torch
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    table: dict[Any, Any] = get_decompositions([aten.adaptive_max_pool2d, aten.adaptive_max_pool3d])
    return table | {aten._transformer_encoder_layer_fwd.default: encoder_layer}  # noqa: SLF001 - PyTorch's own


def _results(node: Node, what: str) -> tuple[Result, ...]:
    """The extents and data types of a node's results, as PyTorch traced them."""
    import torch

    vals = node.meta.get("val")
    results = []
    for val in vals if isinstance(vals, tuple | list) else (vals,):
        if not isinstance(val, torch.Tensor):
            if val is None:
                results.append(Result((), ""))
                continue
            raise UnsupportedError(f"{what} is {type(val).__name__}, no tensor")
        if not all(isinstance(extent, int) for extent in val.shape):
            raise UnsupportedError(
                f"{what} has the extents {tuple(val.shape)}; give fixed ones, without dynamic shapes"
            )
        results.append(Result(tuple(val.shape), dtype_name(val.dtype)))
    return tuple(results)


def _where(node: Node) -> str:
    path, _ = module_of(node)
    return f"{node.target} in {path or 'the module itself'} (node {node.name!r})"
