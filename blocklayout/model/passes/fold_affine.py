"""Batch normalisation, and other scaling and shifting of channels, into what computes the channels."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from blocklayout.dnnl import default_threads
from blocklayout.model.graph import Graph, Node
from blocklayout.model.origins import scaled
from blocklayout.model.passes.affine import Affine, read_affine
from blocklayout.model.passes.rewrite import Draft
from blocklayout.side_by_side import side_by_side


class FoldAffine(Struct, frozen=True):
    """Folds BatchNormalization, and Mul, Div, Add and Sub by constants per channel, into the node before.

    That node must have constant weights and no other reader. Whatever follows one node is composed in
    float64, and its new weights are rounded once.

    Attributes:
        into: Op types that take a scale and shift in, out of BatchNormalization, Conv, ConvTranspose and Gemm.
    """

    into: frozenset[str] = frozenset(("BatchNormalization", "Conv", "ConvTranspose", "Gemm"))

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        chains: dict[str, _Chain] = {}  # what follows a node, by its name
        bases: dict[str, Node] = {}  # whose chain writes a value
        gone: set[str] = set()
        for node in graph.nodes:
            affine = read_affine(graph, node)
            base = bases.get(affine.source) if affine is not None and affine.is_finite else None
            if affine is None or base is None or len(readers[affine.source]) != 1 or affine.source in graph.outputs:
                base = node if self._takes_affine(graph, node) else None
            else:
                chains.setdefault(base.name, _Chain()).append(node, affine)
                gone.add(node.name)
            if base is not None:
                bases[node.outputs[0]] = base
        draft = Draft(graph)
        products: dict[str, np.ndarray] = {}

        def scale(node: Node) -> None:
            products[node.name] = _product(draft, node, chains[node.name])

        with side_by_side(scale, [node for node in graph.nodes if node.name in chains], default_threads()):
            pass
        nodes = []
        for node in graph.nodes:
            if node.name in chains:
                nodes.append(_folded(draft, node, chains[node.name], products[node.name]))
            elif node.name not in gone:
                nodes.append(node)
        return graph.replace(nodes=tuple(nodes), values=draft.values)

    def _takes_affine(self, graph: Graph, node: Node) -> bool:
        if node.op_type not in self.into or any(node.outputs[1:]) or not node.outputs[0]:
            return False
        if any(graph.constant(name) is None for name in node.inputs[1:3] if name):
            return False
        return node.op_type != "BatchNormalization" or read_affine(graph, node) is not None


class _Chain(Struct):
    """Nodes in a row that scale and shift, and what they do together."""

    nodes: list[Node] = field(default_factory=list)
    scale: np.ndarray = field(default_factory=lambda: np.ones(()))
    shift: np.ndarray = field(default_factory=lambda: np.zeros(()))

    def append(self, node: Node, affine: Affine) -> None:
        self.nodes.append(node)
        self.scale, self.shift = self.scale * affine.scale, self.shift * affine.scale + affine.shift


def _product(draft: Draft, node: Node, chain: _Chain) -> np.ndarray:
    """The weights of a node with the scale of what follows it."""
    weights = _weights(draft, node)
    with np.errstate(all="ignore"):  # weights that are not finite to begin with are their owner's affair
        return scaled(weights, _aligned(node, weights, chain.scale))


def _folded(draft: Draft, node: Node, chain: _Chain, product: np.ndarray) -> Node:
    """A node that also computes what followed it, writing what the last of the chain wrote."""
    bias = _weights(draft, node, 2) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(())
    with np.errstate(all="ignore"):
        bias = bias.astype(np.float64) * node.attr("beta", 1.0) * chain.scale + chain.shift
        shifted = _stored(draft, node, 2, bias)
    return node.replace(
        inputs=(node.inputs[0], _stored(draft, node, 1, product), shifted, *node.inputs[3:]),
        outputs=chain.nodes[-1].outputs[:1],
        attrs={name: value for name, value in node.attrs.items() if name != "beta"},
        absorbed=(*node.absorbed, *(name for each in chain.nodes for name in (each.name, *each.absorbed))),
    )


def _aligned(node: Node, weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """``scale`` in a shape that meets the output channels of ``weights``."""
    if node.op_type == "Conv" or node.attr("transB", 0):
        return scale.reshape(-1, *(1,) * (weights.ndim - 1))
    if node.op_type != "ConvTranspose":
        return scale
    # input channels come first, group by group; each group computes its own slice of the output channels
    n_inputs, n_outputs = weights.shape[:2]
    group = node.attr("group", 1)
    of_input = np.repeat(scale.reshape(group, n_outputs), n_inputs // group, axis=0)
    return of_input.reshape(n_inputs, n_outputs, *(1,) * (weights.ndim - 2))


def _weights(draft: Draft, node: Node, index: int = 1) -> np.ndarray:
    return draft.contents(node.inputs[index])


def _stored(draft: Draft, node: Node, index: int, array: np.ndarray) -> str:
    """The name of a new constant that takes the place of the node's input ``index``."""
    old = node.inputs[index] if index < len(node.inputs) else ""
    dtype = _weights(draft, node, index if old else 1).dtype
    return draft.constant(f"{old}.folded" if old else f"{node.name}.bias", array.astype(dtype, copy=False))
