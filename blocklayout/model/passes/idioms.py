"""Idioms: several nodes that are one operator, whichever version of ONNX has it.

The merged node is for kernels, in any operator set; files are written without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dtypes import FLOATS, PRIMITIVE_FLOATS, to_numpy
from blocklayout.errors import PlanError
from blocklayout.layout.permutation import Perm, inverse, permuted
from blocklayout.model.graph import Graph, Node, live_nodes
from blocklayout.model.lowering import is_native
from blocklayout.model.passes.decompose import has_known_factor
from blocklayout.model.passes.expressions import Expressions, scale_and_shift
from blocklayout.model.passes.patterns import Match, calls, parsed, roots
from blocklayout.model.passes.rewrite import Draft
from blocklayout.model.types import to_elem_type

_FIRST_OPSET_OF_CHANNELS = 21
_LARGE = 16.0
"""From here on Softplus(x) and x are the same number in f32."""

_VARIANCE = "mean((x - mean(x, axes)) ** 2, axes)"

Attrs = Mapping[str, Any]


class Merging(Draft):
    """A graph in which groups of nodes become one each; ``expressions`` is its arithmetic as polynomials."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.expressions = Expressions(graph)

    def merge(
        self,
        root: str,
        nodes: AbstractSet[str],
        op_type: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Any],
        perm: Perm = (),
        first: Sequence[Node] = (),
    ) -> bool:
        """Compute ``root`` by one node in place of ``nodes``, unless one was merged, or others read values between.

        Returns whether it did. ``perm`` is another order of dimensions of the new node's first input and output, and
        nodes that come ``first`` compute others of its inputs.
        """
        last = self.expressions.producers.get(root)
        if last is None or last.name not in nodes or not self._is_closed(root, nodes):
            return False
        others = [node for node in self.graph.nodes if node.name in nodes and node is not last]
        absorbed = (*last.absorbed, *(name for node in others for name in (node.name, *node.absorbed)))
        for node in others:
            self.replace(node)
        x, *others_read = inputs
        if not perm:
            self.replace(last, *first, Node(last.name, op_type, (x, *others_read), (root,), attrs, absorbed=absorbed))
            return True
        before, behind = self._permuted(x, perm), self._permuted(root, perm)
        self.replace(
            last,
            *first,
            Node(self.fresh_name(f"{before}.transpose"), "Transpose", (x,), (before,), {"perm": perm}),
            Node(last.name, op_type, (before, *others_read), (behind,), attrs, absorbed=absorbed),
            Node(self.fresh_name(f"{behind}.transpose"), "Transpose", (behind,), (root,), {"perm": inverse(perm)}),
        )
        return True

    def _permuted(self, name: str, perm: Perm) -> str:
        """A new value: another one with its dimensions in this order."""
        old = self.values[name]
        return self.value(f"{name}.permuted", permuted(old.shape, perm), old.dtype)

    def _is_closed(self, root: str, nodes: AbstractSet[str]) -> bool:
        if not self._replaced.keys().isdisjoint(nodes):
            return False
        inside = [name for each in nodes for name in self.nodes[each].outputs if name and name != root]
        if any(name in self.graph.outputs for name in inside):
            return False
        return all(reader.name in nodes for name in inside for reader in self.expressions.readers[name])


class Idiom(Struct, frozen=True):
    """An operator and an expression for it (see ``patterns``); ``attrs`` of its numbers, ``None`` if it is none."""

    name: str
    pattern: str
    attrs: Callable[..., Attrs | None] = dict

    @property
    def op_types(self) -> tuple[str, ...]:
        """Types of the nodes to begin at."""
        call = parsed(self.pattern).call
        return call.op_types if call is not None else ()

    def merge(self, merging: Merging, node: Node) -> None:
        """Merge nodes around ``node`` if they spell the operator."""
        for root, match in roots(merging.expressions, node, parsed(self.pattern)):
            attrs = self.attrs(**match.numbers)
            if attrs is not None and len(match.nodes) > 1:
                merging.merge(root, match.nodes, self.name, (match.x,), attrs)


class Structure(Struct, frozen=True):
    """An operator that no expression alone spells: ``merge`` merges nodes around one of ``op_types`` into it."""

    name: str
    op_types: tuple[str, ...]
    merge: Callable[[Merging, Node], None]


class MergeIdioms(Struct, frozen=True):
    """Makes one node of each idiom in :data:`IDIOMS`, but of those named in ``without``.

    Raises:
        PlanError: There is no idiom of such a name.
    """

    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = dict.fromkeys(idiom.name for idiom in IDIOMS)
        unknown = [name for name in self.without if name not in known]
        if unknown:
            raise PlanError(f"without names no idiom: {', '.join(unknown)}; there are {', '.join(known)}")

    def __call__(self, graph: Graph) -> Graph:
        for idiom in IDIOMS:
            if idiom.name not in self.without:
                graph = _merged(graph, idiom)
        return graph


def _merged(graph: Graph, idiom: Idiom | Structure) -> Graph:
    op_types = idiom.op_types
    nodes = [node for node in graph.nodes if node.op_type in op_types and graph.values[node.outputs[0]].dtype in FLOATS]
    if not nodes:
        return graph
    merging = Merging(graph)
    for node in nodes:
        idiom.merge(merging, node)
    merged = merging.result()
    return merged if merged is graph else merged.replace(nodes=live_nodes(merged.nodes, merged.outputs))


def _normalization(merging: Merging, root: Node) -> None:
    """``(x - mean) / sqrt(variance + epsilon) * scale + shift``.

    A LayerNormalization reduces trailing dimensions, and each number along them has a scale and a shift; or channels
    alone, between two Transposes that are views of channels-last. Where scales belong to channels, and all spatial
    dimensions are reduced, it is an InstanceNormalization.
    """
    s = root.outputs[0]
    for pattern in ("({} + epsilon) ** 0.5", "{} ** 0.5"):
        for reading, deviation in calls(merging.expressions, s, parsed(pattern.format(_VARIANCE)).call, Match()):
            _scaled_normalization(merging, s if reading.is_inverse else f"1/{s}", deviation)


def _scaled_normalization(merging: Merging, inverse: str, deviation: Match) -> None:
    """Merge a normalisation, of which the deviation and its inverse are known."""
    graph, x = merging.graph, deviation.x
    s, _, m = deviation.calls
    shape = graph.shape(x)
    normal = tuple(tuple(sorted((each, inverse))) for each in (x, m))
    for root in merging.expressions.after(s):
        if graph.shape(root) != shape:
            continue
        result = merging.expressions.of(root, (x, m, s))
        for op_type, axes, others, perm in _normalizations(deviation.numbers["axes"], len(shape)):
            found = scale_and_shift(graph, result, normal, shape, axes)
            if found is None:
                continue
            inputs = x, *_constants(merging, root, found)
            attrs = {"epsilon": deviation.numbers.get("epsilon", 0.0), **others}
            if merging.merge(root, deviation.nodes | result.nodes, op_type, inputs, attrs, perm):
                return


def _normalizations(axes: tuple[int, ...], ndims: int) -> Iterator[tuple[str, tuple[int, ...], Attrs, tuple[int, ...]]]:
    """The operators that reduce these dimensions, along which they scale, attributes, and the order they take."""
    if ndims >= 3 and axes == tuple(range(2, ndims)):
        yield "InstanceNormalization", (1,), {}, ()
    if axes == tuple(range(axes[0], ndims)):
        yield "LayerNormalization", axes, {"axis": axes[0]}, ()
    elif axes == (1,):
        yield "LayerNormalization", axes, {"axis": ndims - 1}, (0, *range(2, ndims), 1)


def _group_normalization(merging: Merging, norm: Node) -> None:
    """Reshape, InstanceNormalization and Reshape, and scale and shift behind.

    The node is GroupNormalization as of the graph's operator set: from 21 on there is a scale and a shift for
    each channel. Before, they are for groups, and those for channels stay behind the node.
    """
    graph = merging.graph
    reshapes = _between_reshapes(merging, norm)
    per_group = [graph.constant(name) for name in norm.inputs[1:3]]
    if reshapes is None or any(each is None for each in per_group):
        return
    apart, together = reshapes
    x, y = apart.inputs[0], together.outputs[0]
    shape, groups = graph.shape(x), graph.shape(norm.inputs[0])[:2]
    if len(shape) < 3 or graph.shape(y) != shape or groups[0] != shape[0] or not groups[1] or shape[1] % groups[1]:
        return
    nodes = {apart.name, norm.name, together.name}
    attrs = {"num_groups": groups[1], "epsilon": norm.attr("epsilon", 1e-5)}
    if graph.opset < _FIRST_OPSET_OF_CHANNELS:
        merging.merge(y, nodes, "GroupNormalization", (x, *norm.inputs[1:3]), attrs)
        return
    scale, shift = (np.repeat(each.astype(np.float64), shape[1] // groups[1]) for each in per_group if each is not None)
    for root in merging.expressions.after(y):
        result = merging.expressions.of(root, (y,))
        found = scale_and_shift(graph, result, ((y,),), shape, (1,)) if graph.shape(root) == shape else None
        if found is None:
            continue
        vectors = _constants(merging, root, (scale * found[0], shift * found[0] + found[1]))
        if merging.merge(root, nodes | result.nodes, "GroupNormalization", (x, *vectors), attrs):
            return


def _constants(merging: Merging, root: str, scale_and_shift: tuple[np.ndarray, np.ndarray]) -> list[str]:
    """Names of new constants, of the data type of ``root``."""
    dtype = to_numpy(merging.graph.values[root].dtype)
    arrays = zip(("scale", "shift"), scale_and_shift, strict=True)
    return [merging.constant(f"{root}.{name}", array.astype(dtype)) for name, array in arrays]


def _shuffle(merging: Merging, transpose: Node) -> None:
    """Reshape, Transpose and Reshape that interleave the channels of groups: in any layout, where those are not.

    A Concat that brings the groups together is part of it, and a Split of its result into equal parts then takes the
    parts from where they are dense.
    """
    graph = merging.graph
    reshapes = _between_reshapes(merging, transpose)
    if reshapes is None or graph.values[transpose.outputs[0]].dtype not in PRIMITIVE_FLOATS:
        return
    apart, together = reshapes
    x, y = apart.inputs[0], together.outputs[0]
    groups = _n_groups(graph.shape(x), graph.shape(apart.outputs[0]), tuple(transpose.attr("perm", ())))
    if not groups or graph.shape(x) != graph.shape(y):
        return
    nodes = {apart.name, transpose.name, together.name}
    concat = merging.expressions.producer(x, "Concat")
    if concat is None or not _are_groups(merging, concat, groups):
        merging.merge(y, nodes, "ChannelShuffle", (x,), {"groups": groups})
    elif merging.merge(y, nodes | {concat.name}, "ChannelShuffle", concat.inputs, {"groups": groups}):
        _take_apart(merging, together, groups)


def _are_groups(merging: Merging, concat: Node, groups: int) -> bool:
    """Whether a Concat joins as many groups of channels, equal in number, for a single reader."""
    graph, (x,) = merging.graph, concat.outputs
    shapes = {graph.shape(name) for name in concat.inputs}
    is_along_channels = int(concat.attr("axis", 0)) % len(graph.shape(x)) == 1
    is_inner = len(merging.expressions.readers[x]) == 1 and x not in graph.outputs
    return is_inner and is_along_channels and len(concat.inputs) == groups and len(shapes) == 1


def _take_apart(merging: Merging, shuffle: Node, groups: int) -> None:
    """Cut the result of a merged shuffle into the parts that a Split, its only reader, takes from it."""
    graph, (y,) = merging.graph, shuffle.outputs
    (n, channels, *spatial), readers = graph.shape(y), merging.expressions.readers[y]
    if len(readers) != 1 or readers[0].op_type != "Split" or y in graph.outputs:
        return
    (split,) = readers
    shapes, n_parts = {graph.shape(name) for name in split.outputs if name}, len(split.outputs)
    if channels % (groups * n_parts) or shapes != {(n, channels // n_parts, *spatial)}:
        return
    dtype = graph.values[y].dtype
    whole = merging.value(f"{y}.parts", (n, n_parts, channels // n_parts, *spatial), dtype)
    parts = [merging.value(f"{each}.part", (n, 1, channels // n_parts, *spatial), dtype) for each in split.outputs]
    *_, merged = merging.replacement(shuffle)
    merging.replace(shuffle, merged.replace(outputs=(whole,), attrs={**merged.attrs, "parts": n_parts}))
    axis = merging.constant(f"{whole}.axis", np.array([1], np.int64))
    squeezed = (
        Node(merging.fresh_name(f"{part}.squeeze"), "Squeeze", (part, axis), (each,))
        for part, each in zip(parts, split.outputs, strict=True)
    )
    merging.replace(split, split.replace(inputs=(whole,), outputs=tuple(parts), attrs={"axis": 1}), *squeezed)


def _between_reshapes(merging: Merging, node: Node) -> tuple[Node, Node] | None:
    """The Reshape whose result a node reads first, and the one that alone reads its result."""
    before = merging.expressions.producer(node.inputs[0], "Reshape")
    behind = merging.expressions.readers[node.outputs[0]]
    if before is None or len(behind) != 1 or behind[0].op_type not in ("Reshape", "Flatten"):
        return None
    return before, behind[0]


def _n_groups(shape: tuple[int, ...], apart: tuple[int, ...], perm: tuple[int, ...]) -> int:
    """How many groups of channels become the inner dimension of two; 0 if they do not.

    Example:
        >>> _n_groups((2, 6, 4, 4), (2, 3, 2, 4, 4), (0, 2, 1, 3, 4)), _n_groups((2, 6, 4), (2, 3, 2, 4), (0, 1, 3, 2))
        (3, 0)
    """
    if len(shape) < 2 or 0 in shape or len(apart) < 3 or len(perm) != len(apart):
        return 0
    # the batch may be part of the outer dimensions, or be left out where it is 1
    for axis in range(len(apart) - 1):
        outer = math.prod(apart[:axis])
        if outer == shape[0] and apart[axis] * apart[axis + 1] == shape[1]:
            swapped = [*range(axis), axis + 1, axis, *range(axis + 2, len(apart))]
            return apart[axis] if list(perm) == swapped else 0
    return 0


_CHANNELS = {"MatMulInteger": -1, "ConvInteger": 1}
"""The dimension of results that scales and biases are counted along."""


def _scaled_sums(merging: Merging, cast: Node) -> None:
    """Sums of products of bytes as floats, times the operands' scales, plus a bias.

    It is merged where one primitive computes that, or where none computes the sums, and floats do instead.
    """
    graph, expressions = merging.graph, merging.expressions
    product, summed = (expressions.producer(cast.inputs[0], *types) for types in (_CHANNELS, ("Add",)))
    bias = ""
    if summed is not None:  # a bias in 32 bits
        is_last = expressions.producer(summed.inputs[0], *_CHANNELS) is None
        sums, bias = reversed(summed.inputs) if is_last else summed.inputs
        product = expressions.producer(sums, *_CHANNELS)
    scaled = _behind(merging, cast, "Mul")
    if product is None or scaled is None or graph.shape(product.outputs[0]) != graph.shape(cast.outputs[0]):
        return
    (last, scale), axis = scaled, _CHANNELS[product.op_type]
    nodes = {each.name for each in (product, summed, cast, last) if each is not None}
    factors = expressions.producer(scale, "Mul")
    scales = ["", scale] if factors is None else sorted(factors.inputs, key=lambda name: math.prod(graph.shape(name)))
    numbers = [name and _as_vector(merging, name, cast, axis) for name in scales]
    if None in numbers or (scales[0] and math.prod(graph.shape(scales[0])) > 1):
        return
    of_channels = (graph.shape(last.outputs[0])[axis],)
    first: list[Node] = []
    if bias:
        vector, factor = (_as_vector(merging, name, cast, axis) for name in (bias, scale))
        if not vector or not factor or merging.values[vector].shape != of_channels:
            return
        real, before = merging.value(f"{bias}.real", of_channels, "f32"), expressions.producer(vector, "Cast")
        wide = before.inputs[0] if before is not None else ""
        if expressions.producer(wide, "Floor", "Round") is None:
            wide = merging.value(f"{bias}.f32", of_channels, "f32")
            first.append(Node(wide, "Cast", (vector,), (wide,), {"to": to_elem_type("f32")}))
        first.append(Node(real, "Mul", (wide, factor), (real,)))
        numbers.append(real)
    elif added := _behind(merging, last, "Add"):
        vector = _as_vector(merging, added[1], cast, axis)
        if vector and merging.values[vector].shape == of_channels:
            last = added[0]
            nodes.add(last.name)
            numbers.append(vector)
    inputs = *product.inputs, *[""] * (4 - len(product.inputs)), *(name or "" for name in numbers)
    node = Node(last.name, f"blocklayout.Scaled{product.op_type}", inputs, last.outputs, product.attrs)
    is_in_floats = has_known_factor(graph, node) and not is_native(graph, product)
    if is_in_floats or is_native(replace(graph, values=merging.values), node):
        merging.merge(last.outputs[0], nodes, node.op_type, inputs, node.attrs, first=first)


def _behind(merging: Merging, node: Node, op_type: str) -> tuple[Node, str] | None:
    """The only reader of a node's result, of this type and with a result of its extents, and its other input."""
    name, graph = node.outputs[0], merging.graph
    readers = merging.expressions.readers[name]
    if len(readers) != 1 or readers[0].op_type != op_type or graph.shape(readers[0].outputs[0]) != graph.shape(name):
        return None
    first, second = readers[0].inputs
    return readers[0], second if first == name else first


def _as_vector(merging: Merging, name: str, node: Node, axis: int) -> str | None:
    """A value one number for each index along a dimension of a result, or one for all; ``None`` if it is neither."""
    shape, dims = merging.graph.shape(name), merging.graph.shape(node.outputs[0])
    aligned = (1,) * (len(dims) - len(shape)) + shape
    if any(extent != 1 for dim, extent in enumerate(aligned) if dim != axis % len(dims)):
        return None
    array = merging.graph.constant(name)
    if len(shape) > 1 and array is None and (before := merging.expressions.producer(name, "Reshape", "Unsqueeze")):
        name = before.inputs[0]
    if len(merging.values[name].shape) <= 1:
        return name
    return None if array is None else merging.constant(f"{name}.vector", array.reshape(-1))


IDIOMS: tuple[Idiom | Structure, ...] = (
    Idiom("LeakyRelu", "Max(x, alpha * x)", lambda alpha: {"alpha": alpha} if 0 <= alpha < 1 else None),
    Idiom("LeakyRelu", "alpha * x if x < 0 else x"),
    Idiom("Softplus", "Softplus(x) if x < limit else x", lambda limit: {} if limit >= _LARGE else None),
    Idiom("HardSigmoid", "unit(alpha * x + beta)"),
    Idiom("HardSwish", "x * unit(x / 6 + 0.5)"),
    Idiom("Swish", "x * Sigmoid(alpha * x)", lambda alpha: {} if alpha == 1 else {"alpha": alpha}),
    Idiom("Mish", "x * Tanh(Softplus(x))"),
    Idiom("Mish", "x * Tanh(Log(1 + Exp(x)))"),
    Idiom("Gelu", "x * (1 + Erf(x / 2 ** 0.5)) / 2"),
    Idiom("Gelu", "x * (1 + Tanh((2 / pi) ** 0.5 * (x + 0.044715 * x ** 3))) / 2", lambda: {"approximate": "tanh"}),
    Structure("LayerNormalization", ("Sqrt", "Pow"), _normalization),
    Structure("GroupNormalization", ("InstanceNormalization",), _group_normalization),
    Idiom(
        "LRN",
        "x / (bias + alpha * across(share * x * x, size)) ** beta",
        lambda alpha, share, **others: {"alpha": alpha * share, **others},
    ),
    Structure("ChannelShuffle", ("Transpose",), _shuffle),
    Structure("ScaledSums", ("Cast",), _scaled_sums),
)
"""In an order in which one round is enough: a later one may have an earlier one in it."""
