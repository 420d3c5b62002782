"""The graph form: a network in ONNX words, and subgraphs of its nodes, as plain frozen data."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout.encoding import PLAIN, Either
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Demands, Facts, NodeInfo
from blocklayout.ir.value import Value
from blocklayout.model.types import from_numpy

if TYPE_CHECKING:
    AttributeField = Any
else:
    AttributeField = Either.of(np.ndarray, *PLAIN)


class Node(Struct, frozen=True, eq=False):
    """One operator of the network.

    Attributes:
        name: Unique in its graph; a nameless node gets ``conv_3`` when it is read.
        op_type: ``Conv``, ``Relu``, ...; of another domain than ONNX's with that before it, ``my.domain.Foo``.
        inputs: Names of values, in ONNX order; ``""`` where an optional one is absent.
        outputs: Likewise.
        attrs: Integers, floats, strings, tuples of them, and arrays; of an ``If``, its branches.
        domain: The domain of a registered operator; empty is ONNX's own.
        absorbed: Names of nodes that a pass folded into this one.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttributeField] = field(default_factory=dict)
    domain: str = ""
    absorbed: tuple[str, ...] = ()

    @property
    def facts(self) -> type[Facts]:
        """Answers about its operator."""
        from blocklayout import ops  # only where passes run: a file that is remembered needs none

        return ops.facts_of(self.op_type)

    @property
    def elements_read(self) -> tuple[str, ...]:
        """The inputs whose elements its outputs follow from."""
        read = self.facts.elements_read
        return tuple([name for i, name in enumerate(self.inputs) if name and (read is None or i in read)])

    def info(self, values: Mapping[str, Value], opset: int) -> NodeInfo:
        """The node as its operator reads it, among ``values``."""
        inputs = tuple([values[name] if name else None for name in self.inputs])
        outputs = tuple([values[name] if name else None for name in self.outputs])
        return NodeInfo(self.name, self.op_type, self.attrs, inputs, outputs, opset)

    def attr(self, name: str, default: Any) -> Any:
        """An attribute, or ``default`` where the node does not set it."""
        return self.attrs.get(name, default)

    def replace(self, **changes: Any) -> Node:
        """A node that differs in ``changes``."""
        return replace(self, **changes)

    def renamed(self, names: Mapping[str, str]) -> Node:
        """The node with other names for some of the values that it and its subgraphs read and write."""
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        changes: dict[str, Any] = {key: tuple(names.get(name, name) for name in side) for key, side in sides.items()}
        if branches := {key: branch.renamed(names) for key, branch in branches_of(self).items()}:
            changes["attrs"] = {**self.attrs, **branches}
        return self if changes == sides else self.replace(**changes)

    def __str__(self) -> str:
        attrs = ", ".join(f"{key}={value!r}" for key, value in self.attrs.items())
        inputs = ", ".join(name or "-" for name in self.inputs)
        outputs = ", ".join(name or "-" for name in self.outputs)
        return f"{outputs} = {self.op_type}({inputs}{'; ' if attrs else ''}{attrs})  # {self.name}"


class Branch(Struct, frozen=True, eq=False):
    """A subgraph of a node, which also reads values of the graph around it.

    Attributes:
        nodes: In topological order, without ``Constant`` nodes.
        constants: By name.
        outputs: Names of its results.
        inputs: Names of its arguments; an ``If`` has none.
        results: Results without rows, of a node that runs the subgraph once a row where there are none.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    results: tuple[np.ndarray, ...] = ()

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of the values that it reads of the graph around it."""
        own = {"", *self.constants, *self.inputs, *(name for node in self.nodes for name in node.outputs)}
        read = (*(name for node in self.nodes for name in node.inputs), *self.outputs)
        return tuple(dict.fromkeys(name for name in read if name not in own))

    def renamed(self, names: Mapping[str, str]) -> Branch:
        """The same with other names for some values."""
        nodes = tuple(node.renamed(names) for node in self.nodes)
        constants = {names.get(name, name): array for name, array in self.constants.items()}
        outputs, inputs = (tuple(names.get(name, name) for name in side) for side in (self.outputs, self.inputs))
        return Branch(nodes, constants, outputs, inputs, self.results)


if not TYPE_CHECKING:
    AttributeField.take(Branch)


def branches_of(node: Node) -> dict[str, Branch]:
    """The subgraphs of a node, by attribute; values that they read of the graph around it are its last inputs."""
    return {name: value for name, value in node.attrs.items() if isinstance(value, Branch)}


def captured_by(node: Node) -> tuple[str, ...]:
    """Names of the values that a node's subgraphs read of the graph around it: its last inputs."""
    return tuple(dict.fromkeys(name for branch in branches_of(node).values() for name in branch.captured))


class NodeAsRead(Struct, frozen=True):
    """A node before any pass: its operator, and the extents of its outputs by name."""

    op_type: str
    outputs: Mapping[str, tuple[int, ...]]

    @property
    def rounds(self) -> bool:
        """Whether it computes results that their data type rounds."""
        from blocklayout import ops  # as of a node's facts

        return ops.facts_of(self.op_type).rounds(self.op_type)


class DependsOnDataError(UnsupportedError):
    """An extent of ``node``, or the way through it, depends on data; ``origin`` is the model's node around it."""

    def __init__(self, message: str, node: Node) -> None:
        super().__init__(message)
        self.node = self.origin = node


class Graph(Struct, frozen=True, eq=False, tag=True):
    """A network: nodes in topological order over values whose extents are all known.

    Attributes:
        name: The model's name.
        opset: Version of ONNX's operator set that the nodes are written in.
        nodes: Each reads only inputs, constants and outputs of earlier nodes.
        values: By name, each value that is read, written, fed or returned.
        inputs: Names of the values that the caller feeds.
        outputs: Names of the values that the caller gets.
        as_read: The nodes before any pass, by name.
        renamed: Values that passes took out, and the equal ones in their places.
        demands: Those that the model's file or builder states.
        formats: Memory formats that constants were given in, by name, where not row-major. For files; plans choose
            their own.
        precision_report: Of the file, where it was quantised under a budget of error, as JSON.

    Example:
        >>> x, y = Value("x", (2, 3), "f32"), Value("y", (2, 3), "f32")
        >>> graph = Graph("net", 20, (Node("relu_0", "Relu", ("x",), ("y",)),), {"x": x, "y": y}, ("x",), ("y",))
        >>> print(graph)
        net, opset 20
        x: f32 (2, 3) input
        y = Relu(x)  # relu_0
        y: f32 (2, 3) output
    """

    name: str
    opset: int
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    as_read: Mapping[str, NodeAsRead] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    demands: Demands = field(default_factory=Demands)
    formats: Mapping[str, str] = field(default_factory=dict)
    precision_report: str = ""

    def opened(self) -> Graph:
        """This graph as one that passes have not seen, if it is well-formed.

        Raises:
            ModelError: As :meth:`validate`.
        """
        as_read = {
            node.name: NodeAsRead(node.op_type, {name: self.shape(name) for name in node.outputs if name})
            for node in self.validate().nodes
        }
        return replace(self, as_read=as_read, renamed={})

    def replace(self, **changes: Any) -> Graph:
        """A graph that differs in ``changes``, without the values that nothing names any more."""
        graph = replace(self, **changes)
        named = set(_named(graph))
        if graph.values.keys() <= named:
            return graph
        return replace(graph, values={name: value for name, value in graph.values.items() if name in named})

    def with_renamed(self, names: Mapping[str, str]) -> Graph:
        """This graph, which has no values of these names any more, but equal ones in their places."""
        renamed = {old: new for old, new in {**self.renamed, **names}.items() if old not in self.values}
        return replace(self, renamed=renamed)

    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, once for each time they do."""
        found: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in node.inputs:
                if name:
                    found[name].append(node)
        return found

    def producers(self) -> dict[str, Node]:
        """The node that writes each value; inputs and constants have none."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    def info(self, node: Node) -> NodeInfo:
        """A node of the graph as its operator reads it."""
        return node.info(self.values, self.opset)

    def constant(self, name: str) -> np.ndarray | None:
        """The contents of a constant; ``None`` for an absent or computed value."""
        return self.values[name].data if name else None

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a value."""
        return self.values[name].shape

    def validate(self) -> Graph:
        """This graph, if it is well-formed.

        Raises:
            ModelError: A value is written twice or read before it is written, a name dangles, or two
                nodes share a name.
        """
        self._check_names()
        ready = set(self.inputs) | {name for name, value in self.values.items() if value.is_constant}
        for node in self.nodes:
            for name in node.inputs:
                if name and name not in ready:
                    raise ModelError(f"node {node.name!r} reads {name!r} before any node writes it; order the nodes")
            for name in filter(None, node.outputs):
                if name in ready:
                    raise ModelError(f"node {node.name!r} writes {name!r}, which already exists; use another name")
                ready.add(name)
        for name in self.outputs:
            if name not in ready:
                raise ModelError(f"no node writes the output {name!r}")
        return self

    def _check_names(self) -> None:
        for name in _named(self):
            if name not in self.values:
                raise ModelError(f"graph {self.name!r} names {name!r} but has no such value")
            if self.values[name].name != name:
                raise ModelError(f"the value under {name!r} calls itself {self.values[name].name!r}")
        _check_unique((node.name for node in self.nodes), "node")
        _check_unique(self.inputs, "input")

    def __str__(self) -> str:
        lines = [f"{self.name}, opset {self.opset}"]
        lines += [f"{name}: {self.values[name].dtype} {self.values[name].shape} input" for name in self.inputs]
        lines += [str(node) for node in self.nodes]
        lines += [f"{name}: {self.values[name].dtype} {self.values[name].shape} output" for name in self.outputs]
        return "\n".join(lines)


def live_nodes(nodes: Sequence[Node], outputs: Iterable[str]) -> tuple[Node, ...]:
    """The nodes that ``outputs`` depend on; their unread outputs become ``""``."""
    wanted = set(outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        read = tuple(name if name in wanted else "" for name in node.outputs)
        if any(read):
            kept.append(node if read == node.outputs else node.replace(outputs=read))
            wanted.update(name for name in node.inputs if name)
    return tuple(reversed(kept))


def former_names(graph: Graph, nodes: Sequence[Node]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The names that passes took out: by the node whose result they stand for now, and reasons why others do not."""
    writers = {name: node for node in nodes for name in node.outputs if name}
    heirs = {name: node for node in nodes for name in (*node.absorbed, node.name)}
    read_values = {value for read in graph.as_read.values() for value in read.outputs}
    aliases: dict[str, list[str]] = {}
    gone: dict[str, str] = {}
    for name, read in graph.as_read.items():
        for number, (value, shape) in enumerate(read.outputs.items()):
            now = resolve(graph.renamed, value)
            absorbing = heirs.get(name) if number == 0 else None
            heir = writers.get(now, absorbing)
            former = (value, name) if number == 0 and name not in heirs else (value,)
            if heir is None:
                gone |= dict.fromkeys(former, f"the network is computed without it ({read.op_type} {name})")
            elif now not in writers and heir.outputs[0] not in read_values:
                why = f"{heir.name} computes it in another order of dimensions, as {heir.outputs[0]}: name that"
                gone |= dict.fromkeys((value, name), why)
            elif graph.shape(now if now in writers else heir.outputs[0]) != shape:
                gone |= dict.fromkeys(former, f"{name} became part of {heir.name}, whose result has other extents")
            else:
                aliases.setdefault(heir.name, []).extend(each for each in former if each not in writers)
    return aliases, gone


def constant_value(name: str, array: np.ndarray) -> Value:
    """A value whose contents are known.

    Raises:
        UnsupportedError: No graph holds elements of this type.
    """
    return Value(name, array.shape, from_numpy(array.dtype, f"the constant {name!r}"), array)


def fresh_name(wanted: str, taken: Container[str]) -> str:
    """``wanted``, with a number behind it if the name is taken.

    Example:
        >>> fresh_name("w", {"w", "w_1"})
        'w_2'
    """
    if wanted not in taken:
        return wanted
    n = 1
    while f"{wanted}_{n}" in taken:
        n += 1
    return f"{wanted}_{n}"


def resolve(names: Mapping[str, str], name: str) -> str:
    """The name that stands for a value in the end, where names may stand for others in turn."""
    while name in names:
        name = names[name]
    return name


def _named(graph: Graph) -> Iterator[str]:
    yield from graph.inputs
    yield from graph.outputs
    for node in graph.nodes:
        yield from filter(None, (*node.inputs, *node.outputs))


def _check_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"two {what}s are named {name!r}; names must be unique")
        seen.add(name)


# --- nodes as records for people and JSON

MAX_TEXT = 120
"""Characters of an attribute that are shown."""


def described_nodes(graph: Graph) -> list[dict[str, Any]]:
    """The nodes of a graph that no pass has seen, in order.

    Each has its name, its operator, its attributes as pairs of a name and a text, and its operands; one that is
    absent is ``null``.

    Example:
        >>> from blocklayout.model import Builder
        >>> b = Builder()
        >>> b.output("y", b.input("x", (1, 3, 8, 8)).max_pool(2, strides=2))
        >>> [record] = described_nodes(b.to_graph())
        >>> record["op_type"], record["attributes"][0], record["outputs"][0]["dims"]
        ('MaxPool', ('kernel_shape', '2, 2'), (1, 3, 4, 4))
    """
    return [
        {
            "name": node.name,
            "op_type": node.op_type,
            "attributes": [(name, attribute_text(value)) for name, value in node.attrs.items()],
            "inputs": _operands(graph, node.inputs),
            "outputs": _operands(graph, node.outputs),
        }
        for node in graph.nodes
    ]


def attribute_text(value: Any) -> str:
    """An attribute in a few words: numbers as they are, of an array its type and extents.

    Example:
        >>> [attribute_text(value) for value in ((1, 2), 0.1, "SAME_UPPER", np.zeros((2, 3), np.float32))]
        ['1, 2', '0.1', 'SAME_UPPER', 'float32 2x3']
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape)) or 'scalar'}"
    if isinstance(value, Branch):
        return f"a graph of {len(value.nodes)} nodes"
    if isinstance(value, tuple):
        text = ", ".join(map(attribute_text, value))
    else:
        text = f"{value:.7g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _operands(graph: Graph, names: tuple[str, ...]) -> list[dict[str, Any] | None]:
    return [
        {"name": name, "dtype": value.dtype, "dims": value.shape, "is_constant": value.is_constant} if value else None
        for name, value in ((name, graph.values.get(name)) for name in names)
    ]
