"""Graphs of ATen operators, compiled: parts that sessions run, and nodes between them that PyTorch runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import count
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import replace
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support
from torch.utils._python_dispatch import _disable_current_modes

from blocklayout import dnnl
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import LimitError, ModelError, UnsupportedError
from blocklayout.forking import Lock
from blocklayout.garbage import nothing_collected
from blocklayout.layout.ordering import named_format
from blocklayout.layout.permutation import inverse
from blocklayout.layout.tag import LETTERS
from blocklayout.loading.from_model import load_model
from blocklayout.loading.options import Options
from blocklayout.model import Builder
from blocklayout.runtime import MAX_PLANS
from blocklayout.session import Session
from blocklayout.torch import graph as reading
from blocklayout.torch.aten_writer import dtype_name

Named = Mapping[str, tuple[str, torch.Tensor]]

MIN_NODES = 6
"""Least number of nodes of a part beside nodes that PyTorch runs, unless it has a heavy one: entering takes time."""

N_AT_ONCE = 4
"""Sets of numbers in a dynamic graph that are compiled as they come: that takes as long as thousands of runs."""

MAX_SEEN = 1024
"""Of these that are known again."""

_HEAVY = ("conv", "mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "scaled_dot_product", "lstm", "gru", "rnn")


class Fallback(NamedTuple):
    """A node that PyTorch runs, and why."""

    node: str
    reason: str


class Running(Struct, frozen=True):
    """A compiled graph with its constants.

    Attributes:
        call: Takes a list of tensors, a place for each placeholder, and returns the outputs.
        sessions: Those of its parts, in order.
        fallbacks: The nodes that PyTorch runs.
        versions: Those of its constants when they were packed.
    """

    call: Callable[[Sequence[Any]], Sequence[Any]]
    sessions: tuple[Session, ...]
    fallbacks: tuple[Fallback, ...]
    versions: Sequence[int] = ()

    def __str__(self) -> str:
        lines = []
        for number, session in enumerate(self.sessions):
            for plan in session.plans:
                moved = f"{len(plan.reorders)} reorders ({plan.reorder_nbytes / 1e3:.0f} kB)"
                lines.append(f"part {number}: {len(plan.steps)} steps, {moved}")
                lines += (f"  reorder: {each.reason}" for each in plan.reorders)
        return "\n".join([*lines, *(f"PyTorch: {each.reason}" for each in self.fallbacks)])


class Compiled:
    """A graph of ATen operators; parameters are packed once, and again where they have changed since.

    Args:
        graph_module: The graph. ``meta["val"]`` of each node has its tensors' extents, types and strides.
        names: The name of each parameter and buffer, by the place of its placeholder.
        tensors: What placeholders stand for; only those of parameters and buffers are looked at.
        options: As for :func:`blocklayout.load`.
        break_reason: Why the program is cut behind this graph; empty where it is not.
    """

    _boxed_call: ClassVar[bool] = True  # so AOTAutograd asks whether it takes a list

    def __init__(
        self,
        graph_module: GraphModule,
        names: Mapping[int, str],
        tensors: Sequence[Any],
        options: Mapping[str, Any],
        break_reason: str = "",
    ) -> None:
        self.graph_module = graph_module
        self.break_reason = break_reason
        self._names = names
        self._options = options
        self._held: Callable[[Sequence[Any]], tuple[Any, ...]] = (
            itemgetter(*names) if len(names) > 1 else lambda args: tuple(args[place] for place in names)
        )
        self._running: dict[tuple[int, ...], Running] = {}
        self._lock = Lock()
        self.latest = self._made(tensors)

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        """The outputs; ``args`` has a tensor for each placeholder."""
        held = self._held(args)
        running = self._running.get(tuple(map(id, held)))
        if running is None or running.versions != _versions(held):
            running = self._made(args)
        return running.call(args)

    def _made(self, args: Sequence[Any]) -> Running:
        with self._lock:
            held = self._held(args)
            key, versions = tuple(map(id, held)), _versions(held)
            found = self._running.get(key)
            if found is not None and found.versions == versions:
                return found
            placeholders = self.graph_module.graph.find_nodes(op="placeholder")
            constants = {placeholders[place].name: (name, args[place]) for place, name in self._names.items()}
            self._running.pop(key, None)  # its packed weights make room
            made = run_by_parts(self.graph_module, constants, self._options)
            if found is None:
                for tensor in held:
                    weakref.finalize(tensor, _forget, weakref.ref(self), key).atexit = False
            self._running[key] = self.latest = replace(made, versions=versions)
            return self.latest

    def __str__(self) -> str:
        return f"{self.latest}\ngraph break: {self.break_reason}" if self.break_reason else str(self.latest)


def _forget(compiled: weakref.ref[Compiled], key: tuple[int, ...]) -> None:
    """Let go of what was packed of a tensor that is no more; another may have its identity."""
    if (alive := compiled()) is not None:
        alive._running.pop(key, None)  # noqa: SLF001 - a part of it


@nothing_collected()
def compile_dynamo(
    graph_module: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any], graphs: list[Compiled]
) -> Callable[..., Any]:
    """The function of the inputs of a graph of Dynamo's; ``graphs`` gets what is compiled.

    Raises:
        UnsupportedError: Gradients are recorded.
    """
    if torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in inputs):
        raise UnsupportedError(
            "blocklayout compiles inference: call the model inside torch.inference_mode() or torch.no_grad(). Training "
            "takes the functions on Tensors and their gradients (docs/how-to/train.md)"
        )
    options = {"dtype": computed_in(inputs), **options}
    is_free = any(isinstance(each, torch.SymInt | torch.SymFloat) for each in inputs)
    if is_free or _numbers_held(graph_module):
        return _compiled_by_numbers(graph_module, inputs, options, graphs)
    if (aten := reading.as_aten(graph_module)) is not None:
        compiled = Compiled(aten, _parameters(graph_module), inputs, options, _break_reason(graph_module))
        if not compiled.latest.fallbacks:
            graphs.append(compiled)
            return lambda *args: compiled(args)
    return _aot_compiled(graph_module, inputs, options, graphs)


def _aot_compiled(
    graph_module: GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any],
    graphs: list[Compiled],
    traced: GraphModule | None = None,
) -> Callable[..., Any]:
    """The same of fixed extents, by way of AOTAutograd; ``traced`` if the graph is to be read from there."""

    def compile_inference(aten: GraphModule, fakes: Sequence[Any]) -> Compiled:
        metadata: Any = getattr(TracingContext.try_get(), "fw_metadata", None)
        constant: dict[int, str] = {}
        if metadata is not None and len(fakes) == len(inputs):
            read = {place for place, info in enumerate(metadata.input_info) if not info.mutates_data}
            constant = {place: name for place, name in _parameters(graph_module).items() if place in read}
            reading.rename_inputs(graph_module.graph, aten.graph)
        graphs.append(Compiled(aten, constant, inputs, options, _break_reason(graph_module)))
        return graphs[-1]

    compilers: dict[str, Any] = dict.fromkeys(("fw_compiler", "inference_compiler"), compile_inference)
    made: Callable[..., Any] = aot_module_simplified(
        traced or graph_module, inputs, **compilers, decompositions=reading.decompositions()
    )
    return made


def _compiled_by_numbers(
    graph_module: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any], graphs: list[Compiled]
) -> Callable[..., Any]:
    """The same of extents that are symbols, and numbers that tensors hold, compiled for each set of them.

    Those that were used last are kept. After a few sets another one is compiled when it comes again, and the first time
    PyTorch runs it: a text that grows word by word has extents that never come again.
    """
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    places = [place for place, each in enumerate(inputs) if isinstance(each, torch.SymInt | torch.SymFloat)]
    held = {node: placeholders.index(node.args[0]) for node in _numbers_held(graph_module)}
    made: dict[tuple[Any, ...], Callable[..., Any]] = {}
    times = lru_cache(MAX_SEEN)(lambda _: count(1))  # that numbers come
    lock = Lock()

    def call(*args: Any) -> Any:
        known = {node: args[place].item() for node, place in held.items()}
        numbers = (*(args[place] for place in places), *known.values())
        if next(times(numbers)) == 1 and times.cache_info().misses > N_AT_ONCE:
            return graph_module(*args)
        run = made.pop(numbers, None)
        if run is None:
            with lock, tracing(TracingContext(FakeTensorMode())):
                run = made.pop(numbers, None)  # another thread's
                if run is None:
                    run = _aot_compiled(graph_module, args, options, graphs, _with_numbers(graph_module, known))
                while len(made) >= MAX_PLANS:
                    del made[next(iter(made))]
        made[numbers] = run  # behind all others
        return run(*args)

    return call


def _numbers_held(graph_module: GraphModule) -> list[Node]:
    """The nodes that take a number out of an input, as Dynamo hands over floats that may change."""
    items = graph_module.graph.find_nodes(op="call_method", target="item")
    return [node for node in items if node.args[0].op == "placeholder"]


def _with_numbers(graph_module: GraphModule, known: Mapping[Node, Any]) -> GraphModule:
    """A graph with numbers in place of the nodes that take them out."""
    graph = Graph()
    graph.output(graph.graph_copy(graph_module.graph, {**known}))
    return GraphModule(graph_module, graph)


def _break_reason(graph_module: GraphModule) -> str:
    """Why Dynamo ended a graph where it did, and where; empty where that is the end of the function."""
    found: Any = getattr(graph_module, "compile_subgraph_reason", None)
    if found is None or not found.graph_break:
        return ""
    words = [line.strip() for line in str(found.reason).splitlines() if line.strip()]
    where = "".join(f" ({frame.filename}:{frame.lineno})" for frame in found.user_stack[-1:])
    return " ".join(words[:2]) + where  # what follows are hints


def _parameters(graph_module: GraphModule) -> dict[int, str]:
    """Paths of a Dynamo graph's inputs that are parameters and buffers, by their places."""
    inputs = enumerate(graph_module.graph.find_nodes(op="placeholder"))
    is_static = "_dynamo_static_input_type"
    return {place: reading.path_of(node) for place, node in inputs if is_static in node.meta.get("tensor_dict", {})}


def computed_in(tensors: Sequence[Any]) -> str:
    """The data type of activations where nobody asked for one."""
    found = {each.dtype for each in tensors if isinstance(each, torch.nn.Parameter) and each.is_floating_point()}
    if torch.is_autocast_enabled("cpu"):
        found = {torch.get_autocast_dtype("cpu")}
    dtype = {torch.bfloat16: "bf16", torch.float16: "f16"}.get(found.pop(), "f32") if len(found) == 1 else "f32"
    return "f32" if dtype != "f32" and dnnl.missing_isa(dtype) else dtype


def run_by_parts(graph_module: GraphModule, constants: Named, options: Mapping[str, Any]) -> Running:
    """Sessions for a graph: one for the whole of it, where all of it can be read, else one for each part.

    Args:
        graph_module: As :class:`Compiled` takes it. It is not changed.
        constants: By placeholders' names, the name of each constant and its tensor.
        options: As for :func:`blocklayout.load`.

    Raises:
        LimitError: It would take more than is allowed.
        PlanError: An option that no plan can have.
    """
    with nothing_collected(), _disable_current_modes():  # constants are no fake tensors
        try:
            run, session = _loaded(graph_module, constants, options)
            return Running(run, (session,), ())
        except LimitError:
            raise
        except (UnsupportedError, ModelError) as error:
            why = str(error)
        copy = GraphModule(graph_module, deepcopy(graph_module.graph))
        attributes = graph_module.graph.find_nodes(op="get_attr")
        tensors = {node.name: (node.target, attrgetter(node.target)(graph_module)) for node in attributes}
        constants = {**constants, **tensors}
        errors = reading.Read(copy, constants).errors.items()
        reasons = {node.name: str(error) for node, error in errors if node.op == "call_function"}
        if not reasons:  # all can be read, and not be planned
            reasons = {node.name: why for node in copy.graph.nodes if node.op == "call_function"}
        sessions = _replace_parts(copy, constants, options, reasons)
    fallbacks = [Fallback(name, reason) for name, reason in reasons.items() if reason]
    return Running(lambda args: copy.forward(*args), sessions, tuple(fallbacks))


def _replace_parts(
    graph_module: GraphModule, constants: Named, options: Mapping[str, Any], reasons: dict[str, str]
) -> tuple[Session, ...]:
    """Put functions that run sessions in the places of parts; ``reasons`` gets the nodes that stay."""
    support = create_op_support(lambda _, node: node.op == "call_function" and node.name not in reasons)
    partitioner = CapabilityBasedPartitioner(graph_module, support, allows_single_node_partition=True)

    def leave(nodes: Iterable[Node], why: object) -> None:
        calls = [node for node in nodes if node.op == "call_function"]
        reasons.update({node.name: f"{node.target} (node {node.name!r}): {why}" for node in calls})

    worth = []
    for partition in partitioner.propose_partitions():
        names = [str(node.target).removeprefix("aten.").lstrip("_") for node in partition.nodes]
        if len(names) >= MIN_NODES or any(name.startswith(_HEAVY) for name in names):
            worth.append(partition)
        else:
            leave(partition.nodes, f"only {len(names)} cheap nodes between others that PyTorch runs")
    partitioner.fuse_partitions(worth)
    sessions = []
    for node in graph_module.graph.find_nodes(op="call_module"):
        part = getattr(graph_module, node.target)
        names = [each.target for each in part.graph.find_nodes(op="placeholder")]
        try:
            run, session = _loaded(part, {name: constants[name] for name in names if name in constants}, options)
        except LimitError:
            raise
        except (UnsupportedError, ModelError) as error:
            leave(part.graph.nodes, error)
            continue
        sessions.append(session)
        graph_module.delete_submodule(node.target)
        setattr(graph_module, node.target, lambda *args, run=run: run(args))
    graph_module.recompile()
    return tuple(sessions)


def _returned(graph_module: GraphModule) -> Any:
    return graph_module.graph.output_node().args[0]


def _loaded(
    graph_module: GraphModule, constants: Named, options: Mapping[str, Any]
) -> tuple[Callable[[Sequence[Any]], Any], Session]:
    """The function that runs a graph that can be read whole, and its session."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    known = {node.target: constants.get(node.name) or constants.get(node.target) for node in placeholders}
    known |= {node.target: (node.name, None) for node in placeholders if not node.users}
    read = reading.read_fx(graph_module, {name: each for name, each in known.items() if each is not None})
    places = [place for place, node in enumerate(placeholders) if known[node.target] is None]
    returned = _returned(graph_module)
    is_one = not isinstance(returned, tuple | list)
    entries = _borders(read.inputs, [placeholders[place] for place in places])
    exits = _borders(read.outputs, (returned,) if is_one else returned)
    session = load_model(read.builder, Options.of(**options, io_layout=_tags(entries | exits)))
    run = session.run
    inward = [(place, name, border.to_array()) for place, (name, border) in zip(places, entries.items(), strict=True)]
    outward = [border.to_tensor() for border in exits.values()]
    fixed = [(place, each) for place, each in enumerate(read.outputs) if not isinstance(each, str)]

    def call(args: Sequence[Any]) -> Any:
        arrays = run(None, {name: to_array(args[place]) for place, name, to_array in inward})
        outputs = [to_tensor(array) for to_tensor, array in zip(outward, arrays, strict=True)]
        for place, each in fixed:
            outputs.insert(place, each)
        return outputs[0] if is_one else outputs

    return call, session


def exported_source(program: ExportedProgram) -> tuple[Builder, dict[str, str]]:
    """The network of a ``torch.export`` program, and the formats of its inputs and outputs that are not row-major.

    The module's parameters and buffers are constants that share its memory.
    """
    read = reading.read_fx(reading.graph_of(program))
    inputs = read.graph_module.graph.find_nodes(op="placeholder")
    return read.builder, _tags(_borders((*read.inputs, *read.outputs), (*inputs, *_returned(read.graph_module))))


def _borders(names: Sequence[Any], nodes: Sequence[Node]) -> dict[str, Border]:
    """Of inputs or outputs by their names in a network, which fixed outputs have not."""
    pairs = zip(names, nodes, strict=True)
    return {name: Border.of(node.meta["val"]) for name, node in pairs if isinstance(name, str)}


def _tags(borders: Mapping[str, Border]) -> dict[str, str]:
    """The formats that are not row-major, by name."""
    return {name: border.tag for name, border in borders.items() if border.tag is not None}


class Border(Struct, frozen=True):
    """A tensor as it enters or leaves a network.

    Attributes:
        dtype: oneDNN's name of its type.
        order: The order of its dimensions in memory; where there are holes, of row-major.
    """

    dtype: str
    order: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Border:
        """As its strides have it, also those of extents of 1.

        Raises:
            UnsupportedError: A tensor of another device, or of a type that is not ours.
        """
        if tensor.device.type != "cpu":
            raise UnsupportedError(f"a tensor on {tensor.device}: blocklayout computes on the CPU")
        order = tuple(tensor.dim_order())
        return cls(dtype_name(tensor.dtype), order if tensor.permute(order).is_contiguous() else _plain(order))

    @property
    def tag(self) -> str | None:
        """The format of a network's input or output in this order; ``None`` where row-major is all there is."""
        if self.order == _plain(self.order) or self.dtype not in PRIMITIVE_FLOATS:
            return None
        is_named = 3 <= len(self.order) <= 5
        last = named_format("channels_last", len(self.order)) if is_named else None
        return last.text if last and last.order == self.order else "".join(LETTERS[axis] for axis in self.order)

    def to_array(self) -> Callable[[torch.Tensor], np.ndarray]:
        """Makes the array of a tensor, over its own bytes, in the order of the format."""
        if self.tag is None and self.dtype != "bf16":
            return methodcaller("numpy", force=True)  # also of one that requires gradients
        order = self.order if self.tag else _plain(self.order)
        return lambda tensor: reading.as_array(tensor, "an input").transpose(order)

    def to_tensor(self) -> Callable[[np.ndarray], torch.Tensor]:
        """Makes the tensor of an array in the order of the format, over its bytes."""
        order, back, is_told, is_bf16 = self.order, inverse(self.order), self.tag is not None, self.dtype == "bf16"
        from_numpy: Callable[[np.ndarray], torch.Tensor] = torch.from_numpy
        if order == _plain(order) and not is_bf16:
            return from_numpy

        def wrapped(array: np.ndarray) -> torch.Tensor:
            inner = array if is_told else np.asarray(array.transpose(order), order="C")
            found = inner.transpose(back)
            return from_numpy(found.view(np.int16)).view(torch.bfloat16) if is_bf16 else from_numpy(found)

        return wrapped


def _plain(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(len(order)))


def _versions(tensors: Sequence[Any]) -> list[int]:
    """How often tensors were written to; -1 for those that PyTorch does not count for."""
    try:
        return [tensor._version for tensor in tensors]  # noqa: SLF001 - PyTorch's own
    except RuntimeError:  # some were made in inference mode
        return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]  # noqa: SLF001
