"""Decompositions: nodes that no primitive computes as they are, or not well, as others in a row."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS, PRIMITIVE_FLOATS, to_numpy
from blocklayout.errors import ModelError
from blocklayout.layout.permutation import permuted
from blocklayout.model.graph import Graph, Node, fresh_name
from blocklayout.model.lowering import is_native
from blocklayout.model.passes.rewrite import Draft
from blocklayout.model.types import to_elem_type

_FIRST_OPSET_OF_SLICE_INPUTS = 10
_FIRST_OPSET_OF_AXES_INPUT = 13
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


class Decompose(Struct, frozen=True):
    """Writes nodes of the types in :data:`DECOMPOSITIONS` as others, unless they run as they are (``is_native``)."""

    is_native: Callable[[Graph, Node], bool] = is_native

    def __call__(self, graph: Graph) -> Graph:
        draft = Draft(graph)
        for node in graph.nodes:
            write = DECOMPOSITIONS.get(node.op_type)
            if write is None:
                continue
            if write not in _FALLBACKS or (_is_float(graph, node) and not self.is_native(graph, node)):
                steps = Steps(draft, node)
                write(steps, node)
                steps.finish()
        return draft.result()


def _is_float(graph: Graph, node: Node) -> bool:
    return graph.values[node.outputs[0]].dtype in FLOATS


class Steps:
    """The nodes that take the place of one, written step by step; the last gets its name and its output."""

    def __init__(self, draft: Draft, node: Node) -> None:
        self.graph = draft.graph
        self._draft = draft
        self._node = node
        self._nodes: list[Node] = []

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The extents of the node's output."""
        return self.graph.shape(self._node.outputs[0])

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a value of the graph or of a step."""
        return self._draft.values[name].shape

    def add(
        self, op_type: str, inputs: Sequence[str], shape: tuple[int, ...], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """A step that computes a value of these extents; returns the value's name."""
        name = self._draft.value(f"{self._node.name}.{op_type.lower()}", shape, self._dtype)
        self._nodes.append(self._step(name, op_type, inputs, name, attrs))
        return name

    def constant(self, array: np.ndarray, what: str) -> str:
        """The name of a new constant."""
        return self._draft.constant(f"{self._node.name}.{what}", array)

    def contents(self, name: str) -> np.ndarray:
        """The array of a value of the graph that must be a constant."""
        return self._draft.contents(name)

    def number(self, number: float, what: str) -> str:
        """The name of a new scalar of the node's data type."""
        return self.constant(np.asarray(number).astype(to_numpy(self._dtype)), what)

    def cast(self, name: str) -> str:
        """The same numbers in the node's data type."""
        return self.add("Cast", (name,), self.shape(name), {"to": to_elem_type(self._dtype)})

    def reshape(self, name: str, shape: tuple[int, ...]) -> str:
        """The same elements with other extents."""
        if self.shape(name) == shape:
            return name
        new, node = self._draft.reshaped(name, shape, f"{self._node.name}.reshaped")
        self._nodes += [] if node is None else [node.replace(absorbed=(self._node.name, *self._node.absorbed))]
        return new

    def transpose(self, name: str, perm: tuple[int, ...]) -> str:
        """The dimensions in another order."""
        data = self._draft.values[name].data
        if data is not None:
            return self.constant(data.transpose(perm), "transposed")
        return self.add("Transpose", (name,), permuted(self.shape(name), perm), {"perm": perm})

    def slice(self, start: int, end: int, axis: int) -> str:
        """A part of the node's source."""
        source, shape = self._node.inputs[0], self.shape(self._node.inputs[0])
        inputs, attrs = self._bounds(self._node.name, start, end, axis)
        return self.add("Slice", (source, *inputs), (*shape[:axis], end - start, *shape[axis + 1 :]), attrs)

    def slices(self, sizes: Sequence[int], axis: int) -> None:
        """For each output that is read a part of the node's source: a kernel computes one value."""
        start, nodes = 0, []
        for index, (size, output) in enumerate(zip(sizes, self._node.outputs, strict=False)):
            if output:
                name = fresh_name(f"{self._node.name}.{index}", self._draft.nodes)
                inputs, attrs = self._bounds(name, start, start + size, axis)
                nodes.append(self._step(name, "Slice", (self._node.inputs[0], *inputs), output, attrs))
            start += size
        self._draft.replace(self._node, *nodes)

    def finish(self) -> None:
        """Give the last step, if there is one, the node's name and output."""
        if self._nodes:
            last = self._nodes[-1].replace(
                name=self._node.name, outputs=self._node.outputs[:1], absorbed=self._node.absorbed
            )
            self._draft.replace(self._node, *self._nodes[:-1], last)

    def _step(
        self, name: str, op_type: str, inputs: Sequence[str], output: str, attrs: Mapping[str, Any] | None
    ) -> Node:
        absorbed = (self._node.name, *self._node.absorbed)
        return Node(name, op_type, tuple(inputs), (output,), attrs or {}, absorbed=absorbed)

    def _bounds(self, name: str, *bounds: int) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
        """Inputs and attributes of a Slice in the words of this operator set."""
        keys = ("starts", "ends", "axes")
        if self.graph.opset < _FIRST_OPSET_OF_SLICE_INPUTS:
            return (), {key: (value,) for key, value in zip(keys, bounds, strict=True)}
        arrays = (np.array([value], np.int64) for value in bounds)
        return tuple(self._draft.constant(f"{name}.{key}", array) for key, array in zip(keys, arrays, strict=True)), {}

    @property
    def _dtype(self) -> str:
        return self.graph.values[self._node.outputs[0]].dtype


# --- only where no primitive computes the node whole


def _clip(steps: Steps, node: Node) -> None:
    """A maximum and a minimum, where limits are computed at run time."""
    result = ""
    for op_type, limit in zip(("Max", "Min"), node.inputs[1:], strict=False):
        if limit:
            result = steps.add(op_type, (result or node.inputs[0], limit), steps.result_shape)


def _selu(steps: Steps, node: Node) -> None:
    elu = steps.add("Elu", node.inputs, steps.result_shape, {"alpha": node.attr("alpha", _SELU_ALPHA)})
    steps.add("Mul", (elu, steps.number(node.attr("gamma", _SELU_GAMMA), "gamma")), steps.result_shape)


def _softsign(steps: Steps, node: Node) -> None:
    shape = steps.result_shape
    size = steps.add("Add", (steps.add("Abs", node.inputs, shape), steps.number(1.0, "one")), shape)
    steps.add("Div", (node.inputs[0], size), shape)


def _shrink(steps: Steps, node: Node) -> None:
    """The distance beyond the limits, where the node is a soft shrink."""
    limit, shape = node.attr("lambd", 0.5), steps.result_shape
    if node.attr("bias", 0.0) == limit and limit >= 0:
        upper = steps.add("Max", (node.inputs[0], steps.number(-limit, "lower")), shape)
        inner = steps.add("Min", (upper, steps.number(limit, "upper")), shape)
        steps.add("Sub", (node.inputs[0], inner), shape)


def _gemm(steps: Steps, node: Node) -> None:
    shape = steps.result_shape
    named = zip(node.inputs, ("transA", "transB"), strict=False)
    a, b = (steps.transpose(name, (1, 0)) if node.attr(key, 0) else name for name, key in named)
    result = _scaled(steps, steps.add("MatMul", (a, b), shape), node.attr("alpha", 1.0), "alpha")
    beta = node.attr("beta", 1.0)
    if len(node.inputs) > 2 and node.inputs[2] and beta:
        c = steps.shape(node.inputs[2])
        matrix = steps.reshape(node.inputs[2], (1,) * (2 - len(c)) + c)
        steps.add("Add", (result, _scaled(steps, matrix, beta, "beta")), shape)


def _scaled(steps: Steps, name: str, scale: float, what: str) -> str:
    return name if scale == 1 else steps.add("Mul", (name, steps.number(scale, what)), steps.shape(name))


def has_known_factor(graph: Graph, node: Node) -> bool:
    """Whether floats compute a ``Scaled`` product of bytes: of two matrices or images, the second one known."""
    _, weights, x_zero, w_zero, *_ = node.inputs
    is_known = all(graph.constant(name) is not None for name in (weights, w_zero) if name)
    has_matrices = min(len(graph.shape(name)) for name in node.inputs[:2]) > 1
    return is_known and has_matrices and (not x_zero or prod(graph.shape(x_zero)) == 1)


def _scaled_product(steps: Steps, node: Node) -> None:
    """A product of floats: of the bytes less their zero points, times their scales where these are one or known."""
    x, weights, x_zero, w_zero, x_scale, w_scale, bias, *_ = (*node.inputs, *[""] * 3)
    op_type = node.op_type.removeprefix("blocklayout.Scaled").removesuffix("Integer")
    is_image, shape, wanted = op_type == "Conv", steps.shape(x), steps.result_shape
    of_weights = (-1, *(1,) * (len(shape) - 1)) if is_image else (-1,)
    numbers = steps.contents(weights).astype(np.float32)
    numbers -= steps.contents(w_zero).reshape(of_weights) if w_zero else 0
    if w_scale and steps.graph.constant(w_scale) is not None:
        numbers, w_scale = numbers * steps.contents(w_scale).reshape(of_weights), ""
    x = steps.cast(x)
    if x_zero:
        x = steps.add("Sub", (x, steps.cast(x_zero)), shape)
    is_one = bool(w_scale) and prod(steps.shape(w_scale)) == 1
    for scale in (x_scale, w_scale if is_one else ""):
        x = steps.add("Mul", (x, scale), shape) if scale else x
    y = steps.add(op_type, (x, steps.constant(numbers, "weights")), wanted, node.attrs)
    behind = (1,) * (len(shape) - 2) if is_image else ()
    for function, vector in (("Mul", "" if is_one else w_scale), ("Add", bias)):
        if vector:
            y = steps.add(function, (y, steps.reshape(vector, (prod(steps.shape(vector)), *behind))), wanted)


_FALLBACKS = (_clip, _selu, _softsign, _shrink, _gemm, _scaled_product)


# --- always


def _mean(steps: Steps, node: Node) -> None:
    """A sum, and a share of it."""
    if len(node.inputs) == 1:
        steps.add("Identity", node.inputs, steps.result_shape)
    elif _is_float(steps.graph, node):
        total = steps.add("Sum", node.inputs, steps.result_shape)
        steps.add("Mul", (total, steps.number(1 / len(node.inputs), "share")), steps.result_shape)


def _matmul(steps: Steps, node: Node) -> None:
    """Operands of the product's rank: vectors become matrices of one row or column. No byte moves for that."""
    a, b = (steps.shape(name) for name in node.inputs)
    matrix_a, matrix_b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    batch = np.broadcast_shapes(matrix_a[:-2], matrix_b[:-2])
    ndims = len(batch) + 2
    if len(a) == len(b) == ndims:
        return
    matrices = zip(node.inputs, (matrix_a, matrix_b), strict=True)
    operands = [steps.reshape(name, (1,) * (ndims - len(shape)) + shape) for name, shape in matrices]
    product = steps.add("MatMul", operands, (*batch, matrix_a[-2], matrix_b[-1]))
    steps.reshape(product, steps.result_shape)


def _image_reduction(steps: Steps, node: Node) -> None:
    """A global pool, where all spatial dimensions are reduced: it keeps its source's layout, a reduction does not."""
    shape = steps.shape(node.inputs[0])
    if _is_of_images(steps, node) and node.facts.reduced_axes(steps.graph.info(node)) == tuple(range(2, len(shape))):
        pooled = steps.add(_GLOBAL_POOLS[node.op_type], node.inputs[:1], (*shape[:2], *(1,) * (len(shape) - 2)))
        steps.reshape(pooled, steps.result_shape)


def _pool(steps: Steps, node: Node) -> None:
    """A global pool, where one window sees the whole image."""
    spatial = steps.shape(node.inputs[0])[2:]
    is_padded = any(node.attr("pads", ())) or any(each != 1 for each in node.attr("dilations", ()))
    if is_padded or any(node.outputs[1:]) or tuple(node.attr("kernel_shape", ())) != spatial:
        return
    if _is_of_images(steps, node) and steps.result_shape[2:] == (1,) * len(spatial):
        steps.add(_GLOBAL_POOLS[node.op_type], node.inputs[:1], steps.result_shape)


_GLOBAL_POOLS = {
    "AveragePool": "GlobalAveragePool",
    "MaxPool": "GlobalMaxPool",
    "ReduceMax": "GlobalMaxPool",
    "ReduceMean": "GlobalAveragePool",
}


def _is_of_images(steps: Steps, node: Node) -> bool:
    source = steps.graph.values[node.inputs[0]]
    return source.dtype in PRIMITIVE_FLOATS and 3 <= len(source.shape) <= 5 and 0 not in source.shape


def _gather(steps: Steps, node: Node) -> None:
    """A Slice, where constant indices are neighbours in order; of one number a Reshape behind it: ``x[:, 0]``."""
    shape, indices = steps.shape(node.inputs[0]), steps.graph.constant(node.inputs[1])
    axis = int(node.attr("axis", 0)) % len(shape)
    if indices is None or indices.ndim > 1 or not indices.size or 0 in shape:
        return
    chosen = np.where(indices < 0, indices + shape[axis], indices).reshape(-1).astype(np.int64)
    start, end = int(chosen[0]), int(chosen[-1]) + 1
    if start >= 0 and end <= shape[axis] and np.array_equal(chosen, np.arange(start, end)):
        steps.reshape(steps.slice(start, end, axis), steps.result_shape)


def _split(steps: Steps, node: Node) -> None:
    axis = int(node.attr("axis", 0)) % len(steps.shape(node.inputs[0]))
    sizes = _sizes(steps.graph, node, axis)
    if sizes is not None:
        steps.slices(sizes, axis)


def _sizes(graph: Graph, node: Node, axis: int) -> list[int] | None:
    """Extents of a Split's parts along ``axis``; ``None`` where an unread part leaves them unknown."""
    if len(node.inputs) > 1 and node.inputs[1]:
        given = graph.constant(node.inputs[1])
        return None if given is None else [int(size) for size in given]
    if "split" in node.attrs:
        return [int(size) for size in node.attrs["split"]]
    extent = graph.shape(node.inputs[0])[axis]
    n_parts = int(node.attr("num_outputs", len(node.outputs)))
    size = -(-extent // n_parts)
    return [min(size, extent - index * size) for index in range(n_parts)]


def _space(steps: Steps, node: Node) -> None:
    """Reshape, Transpose and Reshape: one reorder at most."""
    n, c, h, w = steps.shape(node.inputs[0])
    b = int(node.attr("blocksize", 1))
    is_depth_first = node.attr("mode", "DCR") == "DCR"
    divided = {"height": (h, b), "width": (w, b)} if node.op_type == "SpaceToDepth" else {"channels": (c, b * b)}
    for what, (extent, divisor) in divided.items():
        if extent % divisor:
            given = f"node {node.name!r}: {node.op_type} with blocksize={b} has {what}={extent}"
            raise ModelError(f"{given}; give a multiple of {divisor}")
    if node.op_type == "SpaceToDepth":
        apart, perm = (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4) if is_depth_first else (0, 1, 3, 5, 2, 4)
    elif is_depth_first:
        apart, perm = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    else:
        apart, perm = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    steps.reshape(steps.transpose(steps.reshape(node.inputs[0], apart), perm), steps.result_shape)


# --- Einsum as products of matrices


class Term(Struct, frozen=True):
    """An operand: a value, and a letter for each of its dimensions."""

    name: str
    letters: str


def parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand's dimensions, and of the result's; an ellipsis becomes unused letters.

    Example:
        >>> parsed("...ij, jk", (3, 2))
        (['Aij', 'jk'], 'Aik')
    """
    given, arrow, result = equation.replace(" ", "").partition("->")
    operands = given.split(",")
    unused = [letter for letter in string.ascii_uppercase + string.ascii_lowercase if letter not in equation]
    ranked = zip(operands, ranks, strict=True)
    n_hidden = [rank - len(each.replace("...", "")) if "..." in each else 0 for each, rank in ranked]
    hidden = "".join(unused[: max(n_hidden)])
    letters = [each.replace("...", hidden[len(hidden) - n :]) for each, n in zip(operands, n_hidden, strict=True)]
    if arrow:
        return letters, result.replace("...", hidden)
    named = "".join(letters)
    return letters, hidden + "".join(each for each in sorted(set(named) - set(hidden)) if named.count(each) == 1)


def _einsum(steps: Steps, node: Node) -> None:
    """Sums over dimensions of one operand, then products of two; no steps for repeated letters, or broadcast sums."""
    if not _is_float(steps.graph, node):
        return
    shapes = [steps.shape(name) for name in node.inputs]
    letters, result = parsed(str(node.attr("equation", "")), [len(shape) for shape in shapes])
    extents: dict[str, set[int]] = {}
    for each, shape in zip(letters, shapes, strict=True):
        for letter, extent in zip(each, shape, strict=True):
            extents.setdefault(letter, set()).add(extent)
    _check_letters(node, extents, result)
    summed = [letter for letter in extents if letter not in result]
    if any(len(set(each)) < len(each) for each in letters) or any(len(extents[letter]) > 1 for letter in summed):
        return
    terms = [Term(name, each) for name, each in zip(node.inputs, letters, strict=True)]
    whole, *others = terms
    for index, other in enumerate(others, start=2):
        wanted = set(result).union(*(each.letters for each in terms[index:]))
        whole = _product(steps, _summed(steps, whole, wanted | {*other.letters}), other, wanted)
    whole = _summed(steps, whole, set(result))
    if whole.letters != result:
        steps.transpose(whole.name, tuple(whole.letters.index(each) for each in result))
    elif whole.name == node.inputs[0]:
        steps.add("Identity", (whole.name,), steps.shape(whole.name))


def _check_letters(node: Node, extents: Mapping[str, set[int]], result: str) -> None:
    """Refuse letters that shape inference passes over, by name."""
    where = f"node {node.name!r}: Einsum {node.attr('equation', '')!r}"
    for letter, found in extents.items():
        if len(found - {1}) > 1:
            raise ModelError(f"{where}: {letter!r} has the extents {sorted(found)}; they must be equal, or 1")
    for letter in result:
        if letter not in extents or result.count(letter) > 1:
            raise ModelError(f"{where}: each letter of the result must be one of an operand, once; {letter!r} is not")


def _summed(steps: Steps, term: Term, wanted: set[str]) -> Term:
    """The sum along the dimensions that are not wanted any more."""
    axes = tuple(axis for axis, letter in enumerate(term.letters) if letter not in wanted)
    if not axes:
        return term
    shape = steps.shape(term.name)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    inputs: tuple[str, ...] = (term.name,)
    attrs: dict[str, Any] = {"keepdims": 0}
    if steps.graph.opset < _FIRST_OPSET_OF_AXES_INPUT:
        attrs["axes"] = axes
    else:
        inputs = (term.name, steps.constant(np.array(axes, np.int64), "axes"))
    name = steps.add("ReduceSum", inputs, tuple(shape[axis] for axis in kept), attrs)
    return Term(name, "".join(term.letters[axis] for axis in kept))


def _product(steps: Steps, a: Term, b: Term, wanted: set[str]) -> Term:
    """The product of two operands, summed along the dimensions that are not wanted elsewhere."""
    b = _summed(steps, b, wanted | {*a.letters})
    shared = [letter for letter in a.letters if letter in b.letters]
    batch = "".join(letter for letter in shared if letter in wanted)
    inner = "".join(letter for letter in shared if letter not in wanted)
    rows = "".join(letter for letter in a.letters if letter not in shared)
    columns = "".join(letter for letter in b.letters if letter not in shared)
    if not inner:
        names = [_spread(steps, each, batch + rows + columns) for each in (a, b)]
        shape = np.broadcast_shapes(*(steps.shape(name) for name in names))
        return Term(steps.add("Mul", names, shape), batch + rows + columns)
    left = _matrices(steps, a, batch, rows, inner)
    right = _matrices(steps, b, batch, inner, columns)
    of_batch = np.broadcast_shapes(steps.shape(left)[:-2], steps.shape(right)[:-2])
    product = steps.add("MatMul", (left, right), (*of_batch, steps.shape(left)[-2], steps.shape(right)[-1]))
    extents = {**_extents(steps, a), **_extents(steps, b)}
    shape = (*of_batch, *(extents[letter] for letter in rows + columns))
    return Term(steps.reshape(product, shape), batch + rows + columns)


def _extents(steps: Steps, term: Term) -> dict[str, int]:
    return dict(zip(term.letters, steps.shape(term.name), strict=True))


def _in_order(steps: Steps, term: Term, letters: str) -> str:
    perm = tuple(term.letters.index(letter) for letter in letters)
    return term.name if letters == term.letters else steps.transpose(term.name, perm)


def _matrices(steps: Steps, term: Term, batch: str, rows: str, columns: str) -> str:
    extents = _extents(steps, term)
    sizes = (prod(extents[letter] for letter in side) for side in (rows, columns))
    return steps.reshape(_in_order(steps, term, batch + rows + columns), (*(extents[each] for each in batch), *sizes))


def _spread(steps: Steps, term: Term, letters: str) -> str:
    """An operand with extents of 1 where it has none of these dimensions."""
    extents = _extents(steps, term)
    own = "".join(letter for letter in letters if letter in term.letters)
    return steps.reshape(_in_order(steps, term, own), tuple(extents.get(letter, 1) for letter in letters))


DECOMPOSITIONS: Mapping[str, Callable[[Steps, Node], None]] = {
    "AveragePool": _pool,
    "blocklayout.ScaledConvInteger": _scaled_product,
    "blocklayout.ScaledMatMulInteger": _scaled_product,
    "Clip": _clip,
    "DepthToSpace": _space,
    "Einsum": _einsum,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "Mean": _mean,
    "ReduceMax": _image_reduction,
    "ReduceMean": _image_reduction,
    "Selu": _selu,
    "Shrink": _shrink,
    "Softsign": _softsign,
    "SpaceToDepth": _space,
    "Split": _split,
}
"""By op type, the function that writes a node's steps; none where it had better stay."""
