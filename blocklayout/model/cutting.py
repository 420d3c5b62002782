"""Models in pieces: straight ones, and between them the nodes that only data settle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.errors import BlockLayoutError, InputError, ModelError, UnsupportedError
from blocklayout.ir import NodeInfo, Role
from blocklayout.model.graph import Branch, branches_of, live_nodes, resolve
from blocklayout.model.onnx_read import Declaration, DeclaredValue, OnnxModel
from blocklayout.model.reference import NodeByNode, is_wrong_there
from blocklayout.model.schemas import schema_or_none
from blocklayout.model.types import from_numpy
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blocklayout.ir import ArraysFunction
    from blocklayout.model.graph import Node


class Cut(Struct, frozen=True, eq=False):
    """Nodes that run together, or one cut for a ``reason``; others write ``inputs``, and read ``outputs``."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str = ""

    def constants(self, model: OnnxModel) -> dict[str, np.ndarray]:
        """Those of the whole that its nodes read, by name."""
        read = {name for node in self.nodes for name in node.inputs}
        return {name: array for name, array in model.constants.items() if name in read}


class NodeNames(Struct, frozen=True):
    """Names by which nodes can be meant, subgraphs' included: those of nodes and their results, and op types."""

    names: frozenset[str]
    op_types: frozenset[str]

    @classmethod
    def of(cls, nodes: Iterable[Node], inputs: Iterable[str] = ()) -> NodeNames:
        """Those of some nodes."""
        every = [*_with_inner(nodes)]
        names = (name for node in every for name in (node.name, *node.outputs) if name)
        return cls(frozenset((*names, *inputs)), frozenset(node.op_type for node in every))

    def has(self, key: str) -> bool:
        """Whether a name, a pattern of names or an operator type means any of them."""
        return key in self.names or key in self.op_types or any(fnmatchcase(name, key) for name in self.names)


def _with_inner(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for branch in branches_of(node).values():
            yield from _with_inner(branch.nodes)


def is_cut_at(node: Node, opset: int, *, is_piece: bool) -> bool:
    """Whether a node whose extents depend on data is computed between pieces, and not planned for contents."""
    if branches_of(node):
        return False  # both branches of an If may be computed
    return node.facts.counts_elements or (is_piece and function_of(node, opset, {}) is not None)


def has_much_to_do(node: Node) -> bool:
    """Whether a subgraph of a node holds operators that choose layouts: running one branch costs less than both."""
    inner = [each for branch in branches_of(node).values() for each in branch.nodes]
    return any(getattr(each.facts, "role", None) is Role.CHOOSER or has_much_to_do(each) for each in inner)


def function_of(node: Node, opset: int, bodies: Mapping[str, Any]) -> ArraysFunction | None:
    """The function that computes a node apart from plans, if its operator has one; ``bodies`` are of its subgraphs."""
    info = NodeInfo(node.name or node.op_type, node.op_type, {**node.attrs, **bodies}, (), (), opset)
    return node.facts.on_arrays(info)


def carried_in(node: Node, opset: int, branch: Branch) -> dict[str, str]:
    """Computed results of a subgraph, by the arguments as which they come next; not those returned twice."""
    info = NodeInfo(node.name or node.op_type, node.op_type, node.attrs, (), (), opset)
    written = {name for each in branch.nodes for name in each.outputs}
    pairs = node.facts.carried(info, branch.inputs, branch.outputs)
    return {name: result for name, result in pairs if result in written and branch.outputs.count(result) == 1}


def always_cut(model: OnnxModel) -> dict[str, str]:
    """Reasons to cut at nodes for any extents, by their first outputs: subgraphs that loop, and sequences."""
    held = {info.name for info in model.signature.inputs if info.container}
    reasons = {}
    for node in model.nodes:
        schema = None if node.domain else schema_or_none(node.op_type, model.opset)
        given, made = ((), ()) if schema is None else (_containers(schema.inputs), _containers(schema.outputs))
        first = _first_output(node)
        if node.op_type != "If" and branches_of(node):
            reasons[first] = f"{node.op_type} runs its subgraph as often as its data say"
        elif any(made) or any(given) or held.intersection(node.inputs):
            reasons[first] = f"{node.op_type} reads or writes a value that is no tensor"
        held.update(name for name, is_container in zip(node.outputs, made, strict=False) if is_container)
    return reasons


def _containers(formals: Iterable[Any]) -> tuple[bool, ...]:
    return tuple(all(str(type_).startswith(("seq(", "optional(")) for type_ in formal.types) for formal in formals)


def _first_output(node: Node) -> str:
    return next(filter(None, node.outputs))


def reasons_of(model: OnnxModel, node: Node, message: str) -> dict[str, str]:
    """The reason to cut a model at a node, by the first output of that among its nodes which ``node`` stands for."""
    written = {*filter(None, node.outputs)}
    return {_first_output(each): message for each in model.nodes if written.intersection(each.outputs)}


def pieces_of(model: OnnxModel, reasons: Mapping[str, str]) -> tuple[Cut, ...]:
    """The model as the fewest pieces that can run in order, cut for ``reasons``, by first outputs of nodes."""
    outputs = [info.name for info in model.signature.outputs]
    nodes = live_nodes(model.nodes, outputs)
    levels: dict[str, int] = {}
    straight: dict[int, list[Node]] = {}
    cut: dict[int, list[tuple[Node, str]]] = {}
    origins = {name: _first_output(node) for node in model.nodes for name in node.outputs if name}
    for node in nodes:
        level = max((levels.get(name, 0) for name in node.inputs), default=0)
        why = reasons.get(origins[_first_output(node)], "")
        if why:
            cut.setdefault(level, []).append((node, why))
        else:
            straight.setdefault(level, []).append(node)
        levels.update(dict.fromkeys(filter(None, node.outputs), level + bool(why)))
    groups: list[tuple[tuple[Node, ...], str]] = []
    for level in range(max((*straight, *cut), default=-1) + 1):
        if level in straight:
            groups.append((tuple(straight[level]), ""))
        groups += [((node,), why) for node, why in cut.get(level, ())]
    return tuple(_cuts(groups, model.constants, outputs))


def _cuts(
    groups: Sequence[tuple[tuple[Node, ...], str]], constants: Mapping[str, np.ndarray], outputs: Sequence[str]
) -> list[Cut]:
    wanted = set(outputs)
    found = []
    for nodes, why in reversed(groups):
        written = [name for node in nodes for name in node.outputs if name]
        read = dict.fromkeys(name for node in nodes for name in node.inputs if name)
        inputs = tuple(name for name in read if name not in written and name not in constants)
        # one that a node is cut at returns all of its results, in their places
        crossing = nodes[0].outputs if why else tuple(name for name in written if name in wanted)
        found.append(Cut(nodes, inputs, crossing, why))
        wanted.update(inputs)
    return found[::-1]


def passed_on(pieces: Sequence[Cut], outputs: Collection[str]) -> dict[str, int]:
    """Values, none of ``outputs``, that one straight piece writes and one other alone reads: the place of that."""
    readers: dict[str, list[int]] = {}
    for place, piece in enumerate(pieces):
        for name in piece.inputs:
            readers.setdefault(name, []).append(place)
    straight = [piece for piece in pieces if not piece.reason]
    written = [name for piece in straight for name in piece.outputs if name not in outputs]
    alone = ((name, readers[name]) for name in written)
    return {name: places[0] for name, places in alone if len(places) == 1 and not pieces[places[0]].reason}


def straight_model(model: OnnxModel, piece: Cut, inputs: Sequence[DeclaredValue], name: str) -> OnnxModel:
    """A piece of a model as a model of its own, with inputs of its own."""
    declared = {info.name: info for info in model.signature.outputs}
    outputs = tuple(declared.get(each) or DeclaredValue(each, "", None) for each in piece.outputs if each)
    return _part(model, name, piece.nodes, piece.constants(model), Declaration(tuple(inputs), outputs))


def without_copies(branch: Branch) -> Branch:
    """A subgraph that returns values themselves in place of copies, such as a condition that nothing changes."""
    copied = {node.outputs[0]: node.inputs[0] for node in branch.nodes if node.op_type == "Identity"}
    outputs = tuple(resolve(copied, name) for name in branch.outputs)
    return replace(branch, nodes=live_nodes(branch.nodes, outputs), outputs=outputs)


def by_arrays(piece: Cut, model: OnnxModel, max_nbytes: int) -> NodeByNode | None:
    """A function that computes a piece node by node; ``None`` if slow, or if constants exceed ``max_nbytes``."""
    constants = piece.constants(model)
    is_small = sum(array.nbytes for array in constants.values()) <= max_nbytes
    if not is_small or any(node.domain or is_wrong_there(node, model.opset) for node in piece.nodes):
        return None
    if not all(node.facts.is_quick_on_arrays for node in piece.nodes):
        return None
    return NodeByNode(piece.nodes, piece.inputs, constants, model.opset)


def body_model(branch: Branch, inputs: Sequence[DeclaredValue], model: OnnxModel, name: str) -> OnnxModel:
    """A subgraph of ``model`` as a model of the results that it computes; ``inputs`` are arguments and captures."""
    written = {each for node in branch.nodes for each in node.outputs}
    outputs = tuple(DeclaredValue(each, "", None) for each in dict.fromkeys(branch.outputs) if each in written)
    return _part(model, name, branch.nodes, branch.constants, Declaration(tuple(inputs), outputs))


def _part(
    whole: OnnxModel, name: str, nodes: tuple[Node, ...], constants: Mapping[str, np.ndarray], signature: Declaration
) -> OnnxModel:
    demands = whole.demands.among(NodeNames.of(nodes).has)
    return OnnxModel(name, whole.opset, nodes, constants, signature, demands=demands)


def info_of(name: str, value: Any, declared: DeclaredValue | None = None) -> DeclaredValue:
    """The input that a value, as it is between pieces, can be fed to.

    Raises:
        UnsupportedError: An array of strings, or of another type of which there are no tensors.
    """
    if declared is not None and declared.dtype and not declared.container:
        return declared
    if value is None or isinstance(value, list):
        return DeclaredValue(name, "", None, "optional" if value is None else "sequence")
    dtype = value.dtype if isinstance(value, Tensor) else from_numpy(value.dtype, f"the value {name!r}")
    return DeclaredValue(name, dtype, None)


def checked_call(node: Node, function: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
    """The results of a node's function, as a list.

    Raises:
        InputError: The function fails; its own errors of ours stay.
        ModelError: It has fewer results than the node.
        UnsupportedError: Memory does not suffice.
    """
    try:
        with np.errstate(all="ignore"):
            results = function(*given)
    except BlockLayoutError:
        raise
    except MemoryError as error:
        raise UnsupportedError(f"node {node.name!r}: memory does not suffice for its results: {error}") from error
    except Exception as error:  # indices out of range, and the like
        shapes = ", ".join(_shown(each) for each in given)
        raise InputError(f"node {node.name!r}: {node.op_type} of {shapes}: {error}") from error
    results = results if isinstance(results, tuple) else (results,)
    if len(results) < len(node.outputs):
        what = f"node {node.name!r}: {node.op_type} has {len(node.outputs)} outputs"
        raise ModelError(f"{what}; it computes {len(results)} of what it is given")
    return [each if each is None or isinstance(each, list) else np.asarray(each) for each in results]


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"a sequence of {len(value)}" if isinstance(value, list) else f"{value.dtype} {list(value.shape)}"
