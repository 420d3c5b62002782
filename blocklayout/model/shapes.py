"""Concrete extents: those given by the caller, those declared by the model, and all that follow."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from blocklayout.dtypes import to_numpy
from blocklayout.errors import BlockLayoutError, InputError, ModelError, did_you_mean
from blocklayout.ir.value import Value
from blocklayout.model.graph import Branch, DependsOnDataError, Graph, Node, constant_value, fresh_name, live_nodes
from blocklayout.model.infer import evaluate
from blocklayout.model.onnx_read import REPORT_KEY
from blocklayout.model.scales import check_scales
from blocklayout.model.types import from_numpy
from blocklayout.resource_limits import check_affordable

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.model.onnx_read import DeclaredValue, OnnxModel

Shapes = Mapping[str, Sequence[int]]

_REWRITTEN = frozenset(("QLinearConv", "QLinearMatMul"))
"""ONNX's own operators of quantised tensors, which are written in those of real ones between changes of type."""


def set_shapes(
    model: OnnxModel,
    shapes: Shapes | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    undecided: Container[str] = (),
) -> Graph:
    """The graph of a model as :func:`~blocklayout.model.read` makes it; of ``undecided`` Ifs both branches run.

    Those are named by their first outputs. An extent whose name the model uses twice follows from either.

    Raises:
        InputError: An unknown input, a wrong rank, a contradiction, or an extent left free.
        ModelError: A node contradicts the operator's specification.
        UnsupportedError: An extent depends on data computed at run time.
    """
    known = constants or {}
    signature = model.signature
    fed = (*signature.inputs, *(info for info in signature.defaults if info.name in known))
    extents = concrete_extents(fed, {**(shapes or {}), **{name: array.shape for name, array in known.items()}})
    values = {}
    for name, array in model.constants.items():
        values[name] = constant_value(name, array)
    for info in fed:
        check_affordable(extents[info.name], to_numpy(info.dtype).itemsize, f"input {info.name!r}")
        values[info.name] = Value(info.name, extents[info.name], info.dtype, _contents(info, known.get(info.name)))
    outputs = tuple(info.name for info in signature.outputs)
    nodes = walk(live_nodes(model.nodes, outputs), values, model.opset, undecided)
    for info in signature.outputs:
        computed = values[info.name].dtype
        if info.dtype and computed != info.dtype:
            raise ModelError(f"the output {info.name!r} is declared {info.dtype}, but its node computes {computed}")
    inputs = tuple(info.name for info in signature.inputs if info.name not in known)
    graph = Graph(model.name, model.opset, nodes, values, inputs, outputs, demands=model.demands)
    graph = graph.replace(precision_report=model.metadata.get(REPORT_KEY, ""))
    return graph.opened()


def _contents(info: DeclaredValue, array: np.ndarray | None) -> np.ndarray | None:
    if array is not None and from_numpy(array.dtype, f"input {info.name!r}") != info.dtype:
        raise InputError(f"input {info.name!r} is declared {info.dtype}, not {array.dtype}; convert it with .astype")
    return array


def walk(
    nodes: Iterable[Node], values: dict[str, Value], opset: int, undecided: Container[str] = ()
) -> tuple[Node, ...]:
    """Evaluate ``nodes`` into ``values``; returns those to run, with names. Both branches of ``undecided`` Ifs run."""
    pending = deque((node, node) for node in nodes)
    choices: dict[str, Node] = {}
    taken = {node.name for node, _ in pending if node.name}
    kept: list[Node] = []
    seen: set[str] = set()
    origin: Node | None = None

    def put_back(parts: Iterable[Node]) -> None:
        pending.extendleft(reversed([(part, origin) for part in parts]))  # type: ignore[misc]  # of a node in hand

    try:
        while pending:
            node, origin = pending.popleft()
            named = _with_name(node, len(kept), taken, seen)
            if node.op_type == "If":
                is_known = values[node.inputs[0]].is_constant or node.outputs[0] not in undecided
                put_back((branch_taken if is_known else both_branches)(named, values))
                choices |= {} if is_known else dict.fromkeys(filter(None, node.outputs), named)
                continue
            parts = _written_out(named, values, opset) if is_rewritten(named) else None
            if parts is not None:
                put_back(parts)
                seen.discard(named.name)  # the node that computes its output has its name
                continue
            if node.outputs[0] in choices:
                shapes = (values[name].shape for name in node.inputs[1:])
                _check_choice(choices[node.outputs[0]], node.outputs[0], *shapes)
            check_scales(named, values, opset)
            outputs = _evaluate(named, [values[name] if name else None for name in node.inputs], opset)
            values.update({value.name: value for value in outputs if value is not None})
            if any(value is not None and not value.is_constant for value in outputs):
                kept.append(named)
    except DependsOnDataError as error:
        error.origin = origin or error.node
        raise
    return tuple(kept)


def is_rewritten(node: Node) -> bool:
    """Whether :func:`walk` writes a node by others, unless it is of another domain and its operator is known here."""
    return bool(node.domain) or node.op_type in _REWRITTEN


def _written_out(node: Node, values: dict[str, Value], opset: int) -> tuple[Node, ...] | None:
    """The nodes that compute the same as one of onnxruntime's own; ``None`` of an operator that is known as it is."""
    from blocklayout import ir, ops
    from blocklayout.model.microsoft import nodes_of

    return nodes_of(node, values, opset) if ops.facts_of(node.op_type) is ir.Facts else None


def _check_choice(node: Node, output: str, then: tuple[int, ...], otherwise: tuple[int, ...]) -> None:
    if then != otherwise:
        what = f"node {node.name!r}: the extents of this If's output {output!r} depend on data computed at run time"
        raise DependsOnDataError(f"{what}: its branches give {list(then)} and {list(otherwise)}", node)


def _evaluate(node: Node, inputs: Sequence[Value | None], opset: int) -> tuple[Value | None, ...]:
    try:
        return evaluate(node, inputs, opset)
    except DependsOnDataError as error:
        error.node = node  # and not one inside of its function body
        raise


def _with_name(node: Node, index: int, taken: set[str], seen: set[str]) -> Node:
    if not node.name:
        node = node.replace(name=fresh_name(f"{node.op_type.lower()}_{index}", taken))
    elif node.name in seen:
        node = node.replace(name=fresh_name(node.name, taken))
    taken.add(node.name)
    seen.add(node.name)
    return node


_SIDE, _LENGTH = 224, 128
"""Of images, and of sequences and volumes, in examples."""


def concrete_extents(inputs: Sequence[DeclaredValue], shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The extents of every input, given by the caller or declared by the model."""
    known = [info.name for info in inputs]
    for name in shapes:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise InputError(f"the model has no input {name!r}; its inputs are {', '.join(map(repr, known))}{hint}")
    given = {name: as_shape(name, shape) for name, shape in shapes.items()}
    by_symbol: dict[str, tuple[int, str]] = {}
    for info in inputs:
        if info.name in given:
            _check_against(info, given[info.name], by_symbol)
    extents = {info.name: given[info.name] if info.name in given else _declared(info, by_symbol) for info in inputs}
    free = [info for info in inputs if any(not isinstance(extent, int) for extent in extents[info.name])]
    if free:
        raise InputError(_how_to_set(free))
    return extents  # type: ignore[return-value] # all of them are integers


def as_shape(name: str, shape: Sequence[int], error: type[BlockLayoutError] = InputError) -> tuple[int, ...]:
    """A caller's extents of an input; ``error`` where they are none."""
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError as cause:
        raise error(f"the shape of input {name!r} must be integers such as (1, 3, 224, 224), not {shape!r}") from cause
    if any(extent < 0 for extent in extents):
        raise error(f"the shape of input {name!r} is {extents}; no extent can be negative")
    return extents


def _check_against(info: DeclaredValue, shape: tuple[int, ...], by_symbol: dict[str, tuple[int, str]]) -> None:
    if info.extents is None:
        return
    if len(shape) != len(info.extents):
        what = f"input {info.name!r} has {len(info.extents)} dimensions, {_show(info.extents)}"
        raise InputError(f"{what}; the given shape {shape} has {len(shape)}")
    for axis, (extent, declared) in enumerate(zip(shape, info.extents, strict=True)):
        if isinstance(declared, int) and extent != declared:
            what = f"input {info.name!r} is declared {_show(info.extents)}"
            raise InputError(f"{what}: extent {axis} is fixed to {declared}, not {extent}")
        if isinstance(declared, str):
            first, owner = by_symbol.setdefault(declared, (extent, info.name))
            if first != extent:
                what = f"input {info.name!r}: extent {axis} is {declared!r}"
                raise InputError(f"{what}, which is {first} in {owner!r}, not {extent}")


def _declared(info: DeclaredValue, by_symbol: dict[str, tuple[int, str]]) -> tuple[int | str | None, ...]:
    if info.extents is None:
        raise InputError(
            f"the model does not declare the shape of input {info.name!r}; give it with "
            f"shapes={{{info.name!r}: (1, ...)}} or --shape {info.name}=1x..."
        )
    return tuple(by_symbol[each][0] if isinstance(each, str) and each in by_symbol else each for each in info.extents)


def _how_to_set(free: Sequence[DeclaredValue]) -> str:
    """An error's text: the extents of inputs that are free, and options that would set them."""
    declared = [f"input {info.name!r} has free extents, {_show(info.extents or ())}" for info in free]
    examples = {info.name: _example(info.extents or ()) for info in free}
    options = " ".join(f"--shape {name}={'x'.join(map(str, each))}" for name, each in examples.items())
    return f"{'; '.join(declared)}; set them with shapes={examples} or {options}"


def _example(extents: Sequence[int | str | None]) -> tuple[int, ...]:
    """Extents that an input may well have: a single sample, an image of 224 pixels a side, 128 steps or words.

    Example:
        >>> _example(("n", 3, "h", "w")), _example((None, "h", "w", 3)), _example(("n", "words"))
        ((1, 3, 224, 224), (1, 224, 224, 3), (1, 128))
    """
    is_image = len(extents) == len("nchw")
    usual = [1, *(_SIDE if is_image else _LENGTH for _ in extents[1:])]
    if is_image and extents[-1] not in (1, 3):
        usual[1] = 3
    return tuple(known if isinstance(known, int) else each for known, each in zip(extents, usual, strict=False))


def _show(extents: Sequence[int | str | None]) -> str:
    return "(" + ", ".join("?" if extent is None else str(extent) for extent in extents) + ")"


# --- an ``If`` in a straight list: the branch that it takes, or both where that is known at run time


def branch_taken(node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
    """The nodes of the branch that an ``If`` takes; ``values`` around it grow by the constants of the branch.

    Raises:
        ModelError: The condition is not one element, or the branch has another number of outputs than the node.
        DependsOnDataError: The condition is computed at run time.
    """
    condition = values[node.inputs[0]]
    if condition.data is None:
        what = f"node {node.name!r}: which branch this If takes depends on {condition.name!r}, computed at run time"
        raise DependsOnDataError(f"{what}; export the model without control flow", node)
    _check_condition(node, condition)
    return _nodes_of("then_branch" if condition.data.item() else "else_branch", node, values)


def _check_condition(node: Node, condition: Value) -> None:
    if prod(condition.shape) != 1:
        what = f"node {node.name!r}: the condition {condition.name!r}"
        raise ModelError(f"{what} must be one bool, not {condition.shape}")


def both_branches(node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
    """The nodes that compute both branches of an ``If`` and choose from their outputs, likewise."""
    condition = values[node.inputs[0]]
    _check_condition(node, condition)
    nodes: list[Node] = []
    sides: list[list[str]] = []
    one_bool = condition.name
    if condition.shape:
        one_bool = fresh_name(f"{node.name}.condition", values)
        nodes.append(Node("", "Squeeze", (condition.name,), (one_bool,)))
    for key in ("then_branch", "else_branch"):
        sides.append([fresh_name(f"{name}.{key}", values) if name else "" for name in node.outputs])
        nodes += _nodes_of(key, node.replace(outputs=tuple(sides[-1])), values, f"{node.outputs[0]}.{key}.")
    chosen = (names for names in zip(*sides, node.outputs, strict=True) if all(names))
    choices = (Node("", "Where", (one_bool, one, other), (name,)) for one, other, name in chosen)
    return (*nodes, *choices)


def _nodes_of(key: str, node: Node, values: dict[str, Value], prefix: str = "") -> tuple[Node, ...]:
    branch: Branch = node.attrs[key]
    if len(branch.outputs) != len(node.outputs):
        raise ModelError(f"node {node.name!r} has {len(node.outputs)} outputs, its branch has {len(branch.outputs)}")
    # two Ifs side by side may use the same names inside
    inside = [*branch.constants, *(name for each in branch.nodes for name in each.outputs if name)]
    own = branch.renamed({name: fresh_name(prefix + name, values) for name in inside})
    values.update({name: constant_value(name, array) for name, array in own.constants.items()})
    given = zip(own.outputs, node.outputs, strict=True)
    copies = tuple(Node("", "Identity", (inner,), (outer,)) for inner, outer in given if outer)
    return live_nodes((*own.nodes, *copies), node.outputs)
