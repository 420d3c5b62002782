"""Batch normalisation, and other scaling and shifting of channels, into the node that computes the channels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout.dnnl import default_threads
from blocklayout.dtypes import FLOATS
from blocklayout.errors import ModelError
from blocklayout.ir import Affine
from blocklayout.model.graph import Graph, Node
from blocklayout.model.origins import scaled
from blocklayout.model.passes.rewrite import Draft
from blocklayout.side_by_side import side_by_side


class FoldAffine(Struct, frozen=True):
    """Folds BatchNormalization, and Mul, Div, Add and Sub by constants per channel, into the node before.

    That node must have constant weights and no other reader. All that follows one node is composed in
    float64, and its new weights are rounded once.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        chains: dict[str, _Chain] = {}  # behind a node, by its name
        bases: dict[str, Node] = {}  # whose chain writes a value
        draft = Draft(graph)
        for node in graph.nodes:
            affine = _affine(graph, node)
            source = "" if affine is None else node.inputs[affine.source]
            base = bases.get(source)
            if affine is None or base is None or len(readers[source]) != 1 or source in graph.outputs:
                base = node if _takes_affine(graph, node) else None
            else:
                chains.setdefault(base.name, _Chain()).append(node, affine)
                draft.replace(node)
            if base is not None:
                bases[node.outputs[0]] = base
        products: dict[str, np.ndarray] = {}

        def scale(node: Node) -> None:
            products[node.name] = _product(graph, node, chains[node.name])

        taking = [node for node in graph.nodes if node.name in chains]
        with side_by_side(scale, taking, default_threads()):
            pass
        for node in taking:
            draft.replace(node, _folded(draft, node, chains[node.name], products[node.name]))
        return draft.result()


def _affine(graph: Graph, node: Node) -> Affine | None:
    """The scale and shift that a node is, if folding them keeps numbers numbers."""
    if not _has_channels(graph, node):
        return None
    affine = node.facts.affine(graph.info(node))
    if affine is None or not (np.isfinite(affine.scale).all() and np.isfinite(affine.shift).all()):
        return None
    return affine


def _takes_affine(graph: Graph, node: Node) -> bool:
    if not _has_channels(graph, node) or any(node.outputs[1:]):
        return False
    if any(graph.constant(name) is None for name in node.inputs[1:3] if name):
        return False
    ones = np.ones(graph.shape(node.outputs[0])[1])
    return node.facts.aligned_scale(graph.info(node), ones) is not None


def _has_channels(graph: Graph, node: Node) -> bool:
    value = graph.values.get(node.outputs[0])
    return value is not None and value.dtype in FLOATS and len(value.shape) >= 2


class _Chain(Struct):
    """Nodes in a row that scale and shift, and their scale and shift together."""

    nodes: list[Node] = field(default_factory=list)
    scale: np.ndarray = field(default_factory=lambda: np.ones(()))
    shift: np.ndarray = field(default_factory=lambda: np.zeros(()))

    def append(self, node: Node, affine: Affine) -> None:
        self.nodes.append(node)
        self.scale, self.shift = self.scale * affine.scale, self.shift * affine.scale + affine.shift


def _product(graph: Graph, node: Node, chain: _Chain) -> np.ndarray:
    """The weights of a node with the scale behind it."""
    weights, scale = graph.constant(node.inputs[1]), node.facts.aligned_scale(graph.info(node), chain.scale)
    if weights is None or scale is None:
        raise ModelError(f"node {node.name!r}: its weights take no scale")
    with np.errstate(all="ignore"):  # weights that are not finite to begin with are their owner's affair
        return scaled(weights, scale)


def _folded(draft: Draft, node: Node, chain: _Chain, product: np.ndarray) -> Node:
    """A node that also computes the chain behind it, and writes the result of its last."""
    bias = draft.contents(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(())
    with np.errstate(all="ignore"):
        bias = bias.astype(np.float64) * node.attr("beta", 1.0) * chain.scale + chain.shift
        shifted = _stored(draft, node, 2, bias)
    weights, aligned = _stored(draft, node, 1, product), node.facts.aligned_scale(draft.graph.info(node), chain.scale)
    quantization = draft.values[node.inputs[1]].quantization
    if quantization is not None and aligned is not None:  # its bytes stay those of the product
        draft.values[weights] = replace(draft.values[weights], quantization=quantization.scaled(aligned))
    return node.replace(
        inputs=(node.inputs[0], weights, shifted, *node.inputs[3:]),
        outputs=chain.nodes[-1].outputs[:1],
        attrs={name: value for name, value in node.attrs.items() if name != "beta"},
        absorbed=(*node.absorbed, *(name for each in chain.nodes for name in (each.name, *each.absorbed))),
    )


def _stored(draft: Draft, node: Node, index: int, array: np.ndarray) -> str:
    """The name of a new constant that takes the place of the node's input ``index``."""
    old = node.inputs[index] if index < len(node.inputs) else ""
    dtype = draft.contents(old or node.inputs[1]).dtype
    return draft.constant(f"{old}.folded" if old else f"{node.name}.bias", array.astype(dtype, copy=False))
