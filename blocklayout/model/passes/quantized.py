"""Quantised tensors: bytes stay bytes through operators that only move them, and numbers are made of them behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dtypes import BYTE_DTYPES, to_numpy
from blocklayout.model.graph import Graph, Node, live_nodes, resolve
from blocklayout.model.lowering import is_native
from blocklayout.model.passes.merge_clips import bounds_of
from blocklayout.model.passes.one_walk import FoldConstants
from blocklayout.model.passes.rewrite import Draft, bypass
from blocklayout.model.scales import nearest_bytes, numbers_of

_LARGEST_SCALE = 1e30
"""Up to it, and from the smallest normal number on, numbers in f32 are those of one integer each."""


class Scheme(Struct, frozen=True):
    """Bytes of a type for a whole tensor, each for the number ``scale * (byte - zero_point)`` in f32."""

    dtype: str
    scale: float
    zero_point: int

    @classmethod
    def of_dequantizing(cls, graph: Graph, node: Node) -> Self | None:
        """That of a DequantizeLinear by constants."""
        return cls._of(graph, node, *node.inputs[:1], *node.outputs) if node.op_type == "DequantizeLinear" else None

    @classmethod
    def of_quantizing(cls, graph: Graph, node: Node) -> Self | None:
        """That of a QuantizeLinear by constants."""
        return cls._of(graph, node, *node.outputs, *node.inputs[:1]) if node.op_type == "QuantizeLinear" else None

    @classmethod
    def _of(cls, graph: Graph, node: Node, quantized: str, real: str) -> Self | None:
        dtype, scale = graph.values[quantized].dtype, graph.constant(node.inputs[1])
        zero = graph.constant(node.inputs[2]) if any(node.inputs[2:]) else np.zeros(1)
        is_plain = not any(node.attr(name, 0) for name in ("block_size", "precision"))
        if not is_plain or dtype not in BYTE_DTYPES or graph.values[real].dtype != "f32":
            return None
        if scale is None or zero is None or scale.size != 1 or zero.size != 1:
            return None
        is_usable = np.finfo(np.float32).tiny <= scale.item() <= _LARGEST_SCALE
        return cls(dtype, float(scale.item()), int(zero.item())) if is_usable else None

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest number."""
        integers = np.iinfo(to_numpy(self.dtype))
        lowest, highest = self.numbers(np.array([integers.min, integers.max])).tolist()
        return lowest, highest

    def exact(self, numbers: np.ndarray) -> np.ndarray | None:
        """The bytes for numbers; ``None`` if one of them has none."""
        found = self.nearest(numbers)
        return found.astype(to_numpy(self.dtype)) if np.array_equal(self.numbers(found), numbers) else None

    def nearest(self, numbers: np.ndarray) -> np.ndarray:
        """As QuantizeLinear rounds and saturates."""
        return nearest_bytes(numbers, self.dtype, np.float32(self.scale), self.zero_point)

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """The numbers that they stand for."""
        return numbers_of(integers, np.float32(self.scale), self.zero_point)


_Inputs = Mapping[int, np.ndarray | None]
"""By index, the bytes for a constant; ``None`` for an input of a scheme."""


def _selected(graph: Graph, node: Node, schemes: Mapping[str, Scheme]) -> tuple[Scheme, _Inputs] | None:
    """The scheme that all elements of a node's results are of, and the inputs whose elements they are.

    An absent one is 0.
    """
    indices = node.facts.selects(graph.info(node))
    if indices is None or any(graph.values[name].dtype != "f32" for name in node.outputs if name):
        return None
    names = {index: node.inputs[index] if index < len(node.inputs) else "" for index in indices}
    found = {schemes[name] for name in names.values() if name in schemes}
    if len(found) != 1:
        return None
    [scheme] = found
    inputs: dict[int, np.ndarray | None] = {}
    for index, name in names.items():
        array = graph.constant(name) if name else np.zeros((), np.float32)
        inputs[index] = None if name in schemes or array is None else scheme.exact(array)
        if name not in schemes and inputs[index] is None:
            return None
    return scheme, inputs


class RaiseQuantizing(Struct, frozen=True):
    """Quantises, and back, also before an operator that only moves elements, where its results are read quantised.

    That changes no byte, and as bytes these can be moved. So it is where nothing else reads the numbers that are moved,
    or where these are made of bytes, but not of one scheme: those are moved before they are brought to another. Where
    one primitive does both, bytes are left to it.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        draft, readers, producers = Draft(graph), graph.readers(), graph.producers()
        added: dict[str, tuple[Scheme, Node]] = {}
        for node in reversed(graph.nodes):
            found = _quantized_by(graph, node, readers, added)
            indices = None if found is None else node.facts.selects(graph.info(node))
            if found is None or indices is None:
                continue
            names = dict.fromkeys(node.inputs[index] for index in indices if any(node.inputs[index : index + 1]))
            before = {name: Scheme.of_dequantizing(graph, producers[name]) for name in names if name in producers}
            are_alone = all(
                scheme is not None or (name not in graph.outputs and all(reader is node for reader in readers[name]))
                for name, scheme in before.items()
            )
            is_of_many = None in before.values() or len({*before.values()}) > 1
            if are_alone and is_of_many and not {*names} & {*graph.inputs}:
                are_read_once = all(len(readers[name]) == 1 for name in filter(None, node.outputs))
                if before.keys() == names.keys() and are_read_once and node.facts.requantizes(graph.info(node)):
                    names = {name: None for name in names if before[name] is None}
                draft.replace(node, *_between_bytes(draft, node, names, found))
                added |= dict.fromkeys(names, found)
        return draft.result()


def _quantized_by(
    graph: Graph, node: Node, readers: Mapping[str, list[Node]], added: Mapping[str, tuple[Scheme, Node]]
) -> tuple[Scheme, Node] | None:
    """The scheme in which all readers of a node's results quantise them, and one of these; ``None`` if some do not."""
    found: dict[Scheme | None, Node] = {}
    for name in filter(None, node.outputs):
        of_readers = [(Scheme.of_quantizing(graph, reader), reader) for reader in readers[name]]
        found |= dict([added[name]] if name in added else of_readers)
    [(scheme, quantizing), *others] = found.items() or [(None, node)]
    is_seen = not {*graph.outputs}.isdisjoint(node.outputs)
    return None if scheme is None or others or is_seen else (scheme, quantizing)


def _between_bytes(draft: Draft, node: Node, sources: Iterable[str], found: tuple[Scheme, Node]) -> Iterator[Node]:
    """The node behind changes to bytes and back of its sources; constants become those of bytes at once."""
    scheme, quantizing = found
    names: dict[str, str] = {}
    for name in sources:
        value = draft.values[name]
        if value.data is not None:
            names[name] = draft.constant(f"{name}.{scheme.dtype}", scheme.numbers(scheme.nearest(value.data)))
            continue
        quantized = draft.value(f"{name}.quantized", value.shape, scheme.dtype)
        names[name] = draft.value(f"{name}.dequantized", value.shape, value.dtype)
        parameters = quantizing.inputs[1:]
        yield Node(quantized, "QuantizeLinear", (name, *parameters), (quantized,), quantizing.attrs)
        yield Node(names[name], "DequantizeLinear", (quantized, *parameters), (names[name],))
    yield node.replace(inputs=tuple(names.get(name, name) for name in node.inputs))


class SinkScales(Struct, frozen=True):
    """Averages the numbers that bytes stand for, and not these times a constant, which the scale of the result takes.

    So bytes are averaged, where others read the product as well. It is where nothing but quantising reads the average.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        draft, readers, producers = Draft(graph), graph.readers(), graph.producers()
        for node in graph.nodes:
            scaling = producers.get(node.inputs[0]) if node.op_type == "GlobalAveragePool" else None
            if scaling is None or node.outputs[0] in graph.outputs:
                continue
            affine = scaling.facts.affine(graph.info(scaling))
            if affine is None or affine.shift.any() or np.unique(affine.scale).size != 1:
                continue
            before = producers.get(scaling.inputs[affine.source])
            if before is None or not Scheme.of_dequantizing(graph, before):
                continue
            found = [(reader, Scheme.of_quantizing(graph, reader)) for reader in readers[node.outputs[0]]]
            with np.errstate(divide="ignore"):
                scales = [scheme.scale / affine.scale.flat[0] for _, scheme in found if scheme is not None]
            are_usable = all(np.finfo(np.float32).tiny <= each <= _LARGEST_SCALE for each in scales)
            if len(scales) == len(found) and are_usable:
                draft.replace(node, node.replace(inputs=before.outputs))
                for (reader, _), scale in zip(found, scales, strict=True):
                    name = draft.constant(f"{reader.name}.scale", np.array(scale, np.float32))
                    draft.replace(reader, reader.replace(inputs=(node.outputs[0], name, *reader.inputs[2:])))
        return draft.result()


class DropRequantizing(Struct, frozen=True):
    """Takes out what changes no number: quantising and back of numbers that are of the same scheme, and clips.

    That is a clip whose bounds such numbers do not reach, and one before quantising that saturates there anyway.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        schemes: dict[str, Scheme] = {}
        quantized: dict[str, tuple[Scheme, str]] = {}
        dropped: dict[str, str] = {}
        for node in graph.nodes:
            scheme = Scheme.of_dequantizing(graph, node)
            if scheme is not None:
                schemes[node.outputs[0]] = scheme
                before, source = quantized.get(node.inputs[0], (None, ""))
                if before == scheme:
                    dropped[node.outputs[0]] = source
                continue
            scheme = Scheme.of_quantizing(graph, node)
            if scheme is not None:
                if schemes.get(node.inputs[0]) == scheme:
                    quantized[node.outputs[0]] = scheme, node.inputs[0]
                continue
            source = _changes_nothing(graph, node, readers[node.outputs[0]] if node.outputs[0] else [], schemes)
            if source:
                dropped[node.outputs[0]] = source
            selected = _selected(graph, node, schemes) if schemes and not source else None
            if source in schemes:
                schemes[node.outputs[0]] = schemes[source]
            elif selected is not None:
                schemes |= {name: selected[0] for name in node.outputs if name}
        if not dropped:
            return graph
        graph = bypass(graph, dropped)
        return graph.replace(nodes=live_nodes(graph.nodes, graph.outputs))


def _changes_nothing(graph: Graph, node: Node, readers: list[Node], schemes: Mapping[str, Scheme]) -> str:
    """The source of a clip that changes nothing, or nothing that its readers see; empty of other nodes."""
    clip = bounds_of(graph, node)
    if clip is None:
        return ""
    source, (low, high) = clip
    lowest, highest = schemes[source].limits if source in schemes else (-np.inf, np.inf)
    if low <= lowest and highest <= high:
        return source
    if not readers or node.outputs[0] in graph.outputs:
        return ""
    bounds = np.array([low, high])
    for reader in readers:
        scheme = Scheme.of_quantizing(graph, reader)
        if scheme is None or reader.inputs[0] != node.outputs[0] or np.isnan(bounds).any():
            return ""
        if not np.array_equal(scheme.nearest(bounds), scheme.nearest(np.array([-np.inf, np.inf]))):
            return ""
    return source


class SinkDequantizing(Struct, frozen=True):
    """Lets operators that only move, repeat or choose elements read bytes, and makes numbers of their results.

    Bytes that quantising would make of such numbers again are these bytes. Numbers that others read as well stay.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        draft = Draft(graph)
        changes: dict[str, Node] = {}
        schemes: dict[str, Scheme] = {}
        first: dict[tuple[str, Scheme], Node] = {}
        dropped: dict[str, str] = {}
        nodes: list[Node] = []
        has_constants = False

        def add_change(change: Node, scheme: Scheme) -> None:
            source, result = resolve(dropped, change.inputs[0]), change.outputs[0]
            nodes.append(change)
            schemes[result], changes[result] = scheme, change
            kept = first.setdefault((source, scheme), change)
            if kept is not change:
                dropped[result] = kept.outputs[0]

        for node in graph.nodes:
            scheme = Scheme.of_dequantizing(graph, node)
            if scheme is not None:
                add_change(node, scheme)
                continue
            scheme = Scheme.of_quantizing(graph, node) if schemes else None
            if scheme is not None and schemes.get(node.inputs[0]) == scheme:
                dropped[node.outputs[0]] = changes[node.inputs[0]].inputs[0]
            selected = _selected(graph, node, schemes) if schemes and scheme is None else None
            moved = None if selected is None else _on_bytes(draft, node, changes, selected)
            if selected is None or moved is None:
                nodes.append(node)
                continue
            scheme, given = selected
            change = next(changes[node.inputs[index]] for index, array in given.items() if array is None)
            has_constants |= all(draft.values[name].is_constant for name in moved.elements_read)
            nodes.append(moved)
            for source, result in zip(moved.outputs, node.outputs, strict=True):
                if result:
                    name = draft.fresh_name(f"{result}.dequantized")
                    inputs = (source, *change.inputs[1:])
                    add_change(Node(name, "DequantizeLinear", inputs, (result,), change.attrs), scheme)
        if not dropped and len(nodes) == len(graph.nodes):
            return graph
        graph = bypass(graph.replace(nodes=tuple(nodes), values=draft.values), dropped)
        graph = graph.replace(nodes=live_nodes(graph.nodes, graph.outputs))
        return FoldConstants()(graph) if has_constants else graph


def _on_bytes(draft: Draft, node: Node, changes: Mapping[str, Node], selected: tuple[Scheme, _Inputs]) -> Node | None:
    """The node on the bytes of its inputs, with results of bytes; ``None`` if primitives compute it on numbers only."""
    inputs, dtype = list(node.inputs), selected[0].dtype
    for index, array in selected[1].items():
        inputs += [""] * (index + 1 - len(inputs))
        name = inputs[index]
        inputs[index] = changes[name].inputs[0] if array is None else draft.constant(f"{node.name}.{dtype}", array)
    shapes = {name: draft.values[name].shape for name in node.outputs if name}
    outputs = tuple(draft.value(f"{name}.{dtype}", shapes[name], dtype) if name else "" for name in node.outputs)
    moved = node.replace(inputs=tuple(inputs), outputs=outputs)
    is_slower = is_native(draft.graph, node) and not is_native(replace(draft.graph, values=draft.values), moved)
    return None if is_slower else moved
