"""A graph in ONNX words as kernels, which the planner takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from blocklayout import ir, ops
from blocklayout.errors import LimitError, UnsupportedError, close_names
from blocklayout.model.graph import Graph, Node, former_names, fresh_name, live_nodes
from blocklayout.model.reference import plain_spec
from blocklayout.ops import functions


def lower(graph: Graph) -> ir.Program:
    """Every node as a kernel: an operator bound to its sources and constants, or a plain kernel that says why not.

    Any graph gives a program with the same results. Legalize it first (:func:`blocklayout.model.legalize`) for speed:
    nodes that this rewrites become plain kernels otherwise, or several kernels where one would do.

    Raises:
        ModelError: A node contradicts its operator's specification.
        UnsupportedError: Neither a primitive nor the reference computes a node.
    """
    graph = _with_quantizations(graph)
    constants = _Constants()
    nodes = live_nodes(graph.nodes, graph.outputs)
    aliases, gone = former_names(graph, nodes)
    kernels = []
    for node in nodes:
        read = {name: graph.as_read[name] for name in (node.name, *node.absorbed) if name in graph.as_read}
        op_types = tuple(dict.fromkeys((node.op_type, *(each.op_type for each in read.values()))))
        rounding = tuple(name for name, each in read.items() if each.rounds)
        known = {"op_types": op_types, "aliases": tuple(aliases.get(node.name, ())), "rounding": rounding}
        kernels.append(replace(_kernel(graph, node, constants), **known))
    inputs, outputs = (tuple(graph.values[name] for name in side) for side in (graph.inputs, graph.outputs))
    return ir.Program(graph.name, tuple(kernels), inputs, outputs, gone, graph.precision_report)


def _with_quantizations(graph: Graph) -> Graph:
    """The graph with each value that bytes stand for saying how; so does what is nothing but a view of one."""
    values = dict(graph.values)
    for node in graph.nodes:
        found = node.facts.quantization(node.info(values, graph.opset))
        if found is None and getattr(node.facts, "role", None) is ir.Role.VIEW:
            given = values[node.inputs[0]].quantization
            found = given if given is not None and given.is_of_whole else None
        if found is not None and found.integers is None and node.outputs[0]:
            values[node.outputs[0]] = replace(values[node.outputs[0]], quantization=found)
    return graph.replace(values=values)


def is_native(graph: Graph, node: Node) -> bool:
    """Whether a primitive, or a view, computes a node as it is."""
    return isinstance(_accepted(node, graph.info(node)), ir.Lowered)


def is_computed(graph: Graph, node: Node) -> bool:
    """Whether something computes a node that is not the reference: a primitive, a view, or a function in numpy."""
    return is_native(graph, node) or functions.operator_of(graph.info(node)) is not None


def _kernel(graph: Graph, node: Node, constants: _Constants) -> ir.Kernel:
    info = graph.info(node)
    lowered = _accepted(node, info)
    if isinstance(lowered, ir.Refusal):
        return _plain(node, info, constants, lowered.reason)
    as_plain = partial(_plain, node, info, constants, f"no primitive on this CPU computes {node.op_type}")
    return _bound(node, info, lowered, constants, as_plain=as_plain)


def _accepted(node: Node, info: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
    """The answer of the operator that claims the node."""
    operator = ops.find(node.op_type)
    if operator is None:
        return ir.Refusal(f"node {node.name!r}: {_no_operator(node.op_type)}")
    read = [value for value in info.outputs if value is not None]
    names = ", ".join(repr(value.name) for value in read)
    refusal = ir.Refusal(f"node {node.name!r}: {node.op_type}'s outputs {names} are read; it computes its first")
    if info.outputs[0] is None and not operator.any_output:
        return refusal
    if 0 in read[0].shape:
        return operator.accept(info) if len(read) == 1 else refusal
    empty = ir.Refusal(f"node {node.name!r}: primitives compute nothing of tensors without elements")
    if any(0 in value.shape for value in info.inputs if value is not None and value.data is None):
        return empty
    lowered = operator.accept(info)
    if isinstance(lowered, ir.Refusal):
        return lowered
    if len(read) != 1 + len(lowered.others):
        return refusal
    if lowered.operator.role is ir.Role.VIEW and not lowered.sources:
        return ir.Refusal(f"node {node.name!r}: {node.op_type} is a view of a constant, which was not folded")
    # An empty constant may be an argument left out: only those that the operator took are computed with.
    return empty if any(0 in array.shape for array in lowered.constants.values()) else lowered


def _plain(node: Node, info: ir.NodeInfo, constants: _Constants, reason: str) -> ir.Kernel:
    """The kernel that numpy or the reference evaluator computes; ``reason`` is why."""
    operator = functions.operator_of(info)
    try:
        operator = operator or ir.Plain(plain_spec(node, info.inputs, info.outputs, info.opset))
    except LimitError:
        raise
    except UnsupportedError as error:
        raise UnsupportedError(f"{reason}; nor can the reference: {error}") from None
    _, *others = ir.results(info.outputs).items()
    lowered = ir.Lowered(operator, ir.arguments(info.inputs), others=dict(others))
    return _bound(node, info, lowered, constants, reason=reason)


def _bound(node: Node, info: ir.NodeInfo, lowered: ir.Lowered, constants: _Constants, **how: Any) -> ir.Kernel:
    """The kernel of an operator with its sources, its constants and ``how`` it came about."""
    arrays = {arg: value.data for arg, value in lowered.sources.items() if value.data is not None}
    arrays |= lowered.constants
    dst = next(value for value in info.outputs if value is not None)
    if lowered.operator.role is ir.Role.VIEW and dst.quantization is not None:  # for whom a reorder makes numbers of it
        arrays |= _numbers(dst.quantization)
    in_bytes = _in_bytes(node, info, lowered, constants)
    return ir.Kernel(
        name=node.name,
        operator=lowered.operator,
        sources=tuple((arg, value) for arg, value in lowered.sources.items() if value.data is None),
        constants=_named(arrays, node, info.inputs, constants),
        dst=dst,
        nodes=(node.name, *node.absorbed),
        others=tuple(lowered.others.items()),
        in_bytes=None if isinstance(in_bytes, str) else in_bytes,
        in_floats=in_bytes if isinstance(in_bytes, str) else "",
        **how,
    )


def _named(
    arrays: Mapping[str, np.ndarray], node: Node, inputs: Iterable[ir.Value | None], constants: _Constants
) -> tuple[tuple[str, ir.Constant], ...]:
    given = [value for value in inputs if value is not None and value.data is not None]
    given += [value.quantization.scale for value in inputs if value is not None and value.quantization is not None]
    named = []
    for arg, array in arrays.items():
        known = ((value.name, value.data) for value in given if value.data is not None)
        owners = (name for name, data in known if data is array or np.may_share_memory(data, array))
        named.append((arg, constants.of(array, next(owners, f"{node.name}.{arg}"))))
    return tuple(named)


def _numbers(quantization: ir.Quantization) -> dict[str, np.ndarray]:
    """Scale and zero point as primitives take them; no zero point where that is 0."""
    given = {"scale": quantization.scale, "zero_point": quantization.zero_point}
    wide = {"scale": np.float32, "zero_point": np.int32}
    known = {arg: value.data for arg, value in given.items() if value is not None and value.data is not None}
    return {arg: array.reshape(-1).astype(wide[arg], copy=False) for arg, array in known.items()}


def _in_bytes(node: Node, info: ir.NodeInfo, lowered: ir.Lowered, constants: _Constants) -> ir.ByteOperands | str:
    """The operands of a kernel that reads bytes; why it reads none, empty if they stand for no operand."""
    args, operator = lowered.operator.byte_operands, node.facts
    if lowered.operator.mixes_bytes:
        args = tuple(arg for arg in args if arg in lowered.sources)
    values = {arg: lowered.sources.get(arg, value) for arg, value in zip(args, info.inputs, strict=False)}
    quantizations = {arg: value.quantization for arg, value in values.items() if value and value.quantization}
    if not quantizations or not lowered.sources or not issubclass(operator, ir.BaseOperator):
        return "" if args else _no_byte_operands(node, info, lowered)
    named = {arg: repr(value.name) if value else arg for arg, value in values.items()}
    for arg in args:
        if arg not in quantizations:
            return f"{named[arg]} is not in bytes with one zero point, and a scale for all or for each output channel"
    inputs = tuple(
        value.quantization.integers or value if value in values.values() and value and value.quantization else value
        for value in info.inputs
    )
    bound = operator.from_onnx(replace(info, inputs=inputs))
    if isinstance(bound, ir.Refusal):
        return bound.reason
    axes = {arg: operator.channel_axis(info) for arg in args[1:]}
    if operator.sums_channels_apart(info):
        axes[args[0]] = 1
    for arg, each in quantizations.items():
        reason = _refused(each, bound.constants.get(arg), axes.get(arg))
        if reason:
            return f"{named[arg]} {reason}"
    arrays = {arg: bound.constants[arg] for arg, each in quantizations.items() if each.integers is not None}
    numbers = {arg: _numbers(each) for arg, each in quantizations.items()}
    scales = {f"scale_{arg}": each["scale"] for arg, each in numbers.items()}
    zeros = {f"zero_point_{arg}": each["zero_point"] for arg, each in numbers.items() if "zero_point" in each}
    source, *weights = (f"scale_{arg}" for arg in args)
    if scales[source].size > 1:  # each is that of one channel's weights too
        scales[weights[0]] = scales[weights[0]] * scales.pop(source)
    given = (*inputs, *info.inputs)
    of_scales, of_zeros = (_named(each, node, given, constants) for each in (scales, zeros))
    return ir.ByteOperands(
        _named(arrays, node, given, constants),
        tuple((arg.removeprefix("scale_"), constant) for arg, constant in of_scales),
        tuple((arg.removeprefix("zero_point_"), constant) for arg, constant in of_zeros),
    )


def _no_byte_operands(node: Node, info: ir.NodeInfo, lowered: ir.Lowered) -> str:
    """Why a kernel whose primitive takes no bytes computes with numbers where they stand for those it reads."""
    if lowered.operator.role is ir.Role.VIEW or not any(value.quantization for value in lowered.sources.values()):
        return ""
    if node.facts.selects(info) is not None:
        return "only bytes of one scale and zero point are moved as they are, where a primitive does so"
    return f"no primitive computes this {node.op_type} with bytes"


def _refused(quantization: ir.Quantization, array: np.ndarray | None, axis: int | None) -> str:
    """Why primitives do not take an argument so: scales along another axis, or constants that are not as stored.

    ``array`` are the bytes as the kernel has them: signed, around 0, and not made of others.
    """
    if not quantization.is_of_whole and quantization.axis != axis:
        where = "" if axis is None else f", and its primitive takes them along dimension {axis}"
        return f"has a scale for each index of dimension {quantization.axis}{where}"
    if quantization.integers is None:
        return ""
    stored, zero = quantization.integers.data, quantization.zero_point
    if quantization.dtype != "s8" or zero is not None:
        number = 0 if zero is None or zero.data is None else zero.data.flat[0]
        return f"is in {quantization.dtype} around {number}, and its primitive takes weights in s8 around 0"
    is_stored = array is not None and stored is not None and np.may_share_memory(array, stored)
    return "" if is_stored else "is not the stored bytes, but computed of them"


@cache
def _no_operator(op_type: str) -> str:
    """Why nothing computes it; looking for similar names takes milliseconds, and that is asked often."""
    close = close_names(op_type, ops.op_types())
    hint = f"; the closest that run are {', '.join(close)}" if close else ""
    return f"no primitive computes {op_type!r}{hint}"


class _Constants:
    """The constants of a program: a name stands for one array, seen one way."""

    def __init__(self) -> None:
        self._by_view: dict[tuple[object, ...], ir.Constant] = {}
        self._taken: set[str] = set()

    def of(self, array: np.ndarray, wanted: str) -> ir.Constant:
        """The constant that ``array`` is: called ``wanted``, or numbered where another view has that name."""
        view = (wanted, array.__array_interface__["data"][0], array.dtype, array.shape, array.strides)
        if view not in self._by_view:
            name = fresh_name(wanted, self._taken)
            self._taken.add(name)
            self._by_view[view] = ir.Constant(name, array)
        return self._by_view[view]
