"""Passes that look at one node after the other, and ask each about its operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dtypes import FLOATS
from blocklayout.ir import Padding
from blocklayout.model.graph import Graph, Node, live_nodes, resolve
from blocklayout.model.passes.rewrite import Draft, bypass
from blocklayout.model.shapes import is_rewritten, walk

_FIRST_OPSET_OF_TRAINING_INPUT = 12
_MAX_DEPTH = 8
"""Of producers that are asked for signs."""


class FoldConstants(Struct, frozen=True):
    """Computes, with the reference evaluator, every node that reads nothing but constants and extents.

    Operators of quantised tensors are written out, as they are where a file is read.
    """

    def __call__(self, graph: Graph) -> Graph:
        if not any(
            is_rewritten(node) or all(graph.constant(name) is not None for name in node.elements_read)
            for node in graph.nodes
        ):
            return graph
        values = dict(graph.values)
        nodes = walk(graph.nodes, values, graph.opset)
        return graph.replace(nodes=nodes, values=values)


class RemoveDead(Struct, frozen=True):
    """Removes nodes that no output depends on; unread outputs of the others become ``""``."""

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        return graph.replace(nodes=live_nodes(graph.nodes, graph.outputs))


class DropNoOps(Struct, frozen=True):
    """Takes out nodes that compute nothing: an Identity, a Reshape to the same shape, a Concat of one."""

    def __call__(self, graph: Graph) -> Graph:
        read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
        dropped: dict[str, str] = {}
        for node in graph.nodes:
            is_alone = node.outputs[0] and read.isdisjoint(node.outputs[1:])
            index = node.facts.same_as(graph.info(node)) if is_alone else None
            if index is not None and node.inputs[index]:
                dropped[node.outputs[0]] = node.inputs[index]
        return bypass(graph, dropped) if dropped else graph


class DropExpands(Struct, frozen=True):
    """Takes out an Expand whose readers all broadcast, to the same extents without it."""

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        dropped: dict[str, str] = {}
        for node in graph.nodes:
            if node.op_type != "Expand" or node.outputs[0] in graph.outputs:
                continue
            tried = dropped | {node.outputs[0]: node.inputs[0]}
            if all(_broadcasts(graph, reader, tried) for reader in readers[node.outputs[0]]):
                dropped = tried
        return bypass(graph, dropped) if dropped else graph


def _broadcasts(graph: Graph, node: Node, dropped: dict[str, str]) -> bool:
    first = node.facts.broadcasts_from
    if first is None or any(name in dropped for name in node.inputs[:first]):
        return False
    shapes = [graph.shape(resolve(dropped, name)) for name in node.inputs]
    return np.broadcast_shapes(*shapes) == graph.shape(node.outputs[0])


class FoldMasks(Struct, frozen=True):
    """Makes a constant of the mask of a Dropout that drops nothing: all of it is true."""

    def __call__(self, graph: Graph) -> Graph:
        values = dict(graph.values)
        nodes: list[Node] = []
        for node in graph.nodes:
            mask = node.outputs[1] if node.op_type == "Dropout" and len(node.outputs) > 1 else ""
            has_input = graph.opset >= _FIRST_OPSET_OF_TRAINING_INPUT
            if mask and has_input and node.facts.same_as(graph.info(node)) == 0:
                values[mask] = replace(values[mask], data=np.ones(values[mask].shape, bool))
                nodes += [node.replace(outputs=node.outputs[:1])] if node.outputs[0] else []
            else:
                nodes.append(node)
        return graph.replace(nodes=tuple(nodes), values=values)


class ChainConcats(Struct, frozen=True):
    """Reads the result of an earlier concatenation in place of the inputs that both begin with.

    Networks that concatenate all features so far before each layer become chains: each concatenation reads the one
    before and the new features, so the features so far can stay where they are. The bytes are the same.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        written: dict[tuple[int, tuple[str, ...]], str] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.op_type != "Concat":
                nodes.append(node)
                continue
            axis = int(node.attr("axis", 1)) % len(graph.shape(node.outputs[0]))
            lengths = range(len(node.inputs) - 1, 1, -1)
            n_shared = next((n for n in lengths if (axis, node.inputs[:n]) in written), 0)
            before = (written[axis, node.inputs[:n_shared]],) if n_shared else ()
            nodes.append(node.replace(inputs=(*before, *node.inputs[n_shared:])))
            written.setdefault((axis, node.inputs), node.outputs[0])
        return graph.replace(nodes=tuple(nodes))


class AlignRanks(Struct, frozen=True):
    """Gives operands of broadcasting operators the result's rank: constants reshaped, others by a Reshape."""

    def __call__(self, graph: Graph) -> Graph:
        draft = Draft(graph)
        reshaped: dict[tuple[str, int], str] = {}
        for node in graph.nodes:
            if node.facts.broadcasts_from is None:
                continue
            views: list[Node] = []
            ndims = len(graph.info(node).result.shape)
            for name in node.inputs:
                if name and len(graph.shape(name)) < ndims and (name, ndims) not in reshaped:
                    reshaped[name, ndims], reshape = draft.of_rank(name, ndims)
                    views += [reshape] if reshape else []
            inputs = tuple(reshaped.get((name, ndims), name) for name in node.inputs)
            if inputs != node.inputs:
                draft.replace(node, *views, node.replace(inputs=inputs))
        return draft.result()


class FoldPads(Struct, frozen=True):
    """Folds spatial padding into every convolution and pooling that reads it, if all can take it.

    A convolution takes zeros. So does an average that counts its padding, or has none of its own. A maximum
    takes negative infinity, and zeros where no element of the source is negative.
    """

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        producers = graph.producers()
        draft = Draft(graph)
        for node in graph.nodes:
            result = graph.values.get(node.outputs[0])
            if result is None or result.name in graph.outputs or result.dtype not in FLOATS or len(result.shape) < 3:
                continue
            padding = node.facts.padding(graph.info(node))
            if padding is None or not padding.is_spatial:
                continue
            # Exporters write the lowest number of a type where they mean negative infinity.
            lowest = -65504.0 if result.dtype == "f16" else float(np.finfo(np.float32).min)
            is_lowest = padding.value <= lowest
            is_lowest = is_lowest or (padding.value == 0 and _is_never_negative(graph, producers, node.inputs[0]))
            takers = readers[result.name]
            padded = [_padded(graph, taker, node, padding, is_lowest=is_lowest) for taker in takers]
            found = {taker.name: taker for taker in padded if taker is not None}
            if found and len(found) == len(takers):
                draft.replace(node)
                for taker in found.values():
                    draft.replace(taker, taker)
        return draft.result()


def _is_never_negative(graph: Graph, producers: Mapping[str, Node], name: str) -> bool:
    """Whether a value has no negative element, as far as its producers tell."""
    waiting = [(name, _MAX_DEPTH)]
    while waiting:
        each, depth = waiting.pop()
        node = producers.get(each)
        sources = None if node is None or depth == 0 else node.facts.not_negative_if(graph.info(node))
        if node is None or sources is None:
            return False
        waiting += [(node.inputs[index], depth - 1) for index in sources]
    return True


def _padded(graph: Graph, node: Node, pad: Node, padding: Padding, *, is_lowest: bool) -> Node | None:
    """A reader of a Pad that pads its source itself."""
    if node.inputs.count(pad.outputs[0]) != 1 or node.inputs[0] != pad.outputs[0]:
        return None
    attrs = node.facts.padded(graph.info(node), padding, is_lowest=is_lowest)
    if attrs is None:
        return None
    absorbed = (pad.name, *pad.absorbed, *node.absorbed)
    return node.replace(inputs=(pad.inputs[0], *node.inputs[1:]), attrs=attrs, absorbed=absorbed)
