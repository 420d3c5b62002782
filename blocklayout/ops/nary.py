"""Functions of any number of elements: sums, means, minima and maxima of tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Facts,
    Lowered,
    NodeInfo,
    NumpyFunction,
    Problem,
    Recipe,
    RecipeStep,
    Refusal,
    Wish,
)
from blocklayout.ops._broadcast import bind_broadcast, broadcasts_as_numpy
from blocklayout.ops._combining import Combination, Operand, temporaries_of, whole_of
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._needs import are_floats
from blocklayout.ops._padded import with_padding
from blocklayout.ops.binary import Binary
from blocklayout.ops.views import Identity, same_if_alone

_ALGORITHMS: Mapping[str, str] = {"Sum": "binary_add", "Min": "binary_min", "Max": "binary_max"}
_UFUNCS: Mapping[str, np.ufunc] = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum, "Mean": np.add}


class Nary(BaseOperator, frozen=True):
    """One function folded over three or more sources.

    Attributes:
        algorithm: oneDNN's name of the function of two.
        n_srcs: How many; the arguments are ``src_0`` and so on.
    """

    op_types = tuple(_ALGORITHMS)
    is_quick_on_arrays = True
    broadcasts_from = 0

    algorithm: str
    n_srcs: int

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        algorithm, n_srcs = _ALGORITHMS[node.op_type], len(node.inputs)
        if n_srcs == 0:
            raise node.wrong("it has no inputs", "it needs at least one")
        if n_srcs == 1:
            return are_floats(node) or Identity().bind({"src": node.required(0, "input 0")})
        if n_srcs == 2:
            return bind_broadcast(Binary(algorithm), node)
        return bind_broadcast(cls(algorithm, n_srcs), node)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        return _folding(node) if broadcasts_as_numpy(node) else None

    same_as = staticmethod(same_if_alone)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        # Post-ops would have to go to the last of several primitives, and the sum primitive takes none.
        descs = followed(problem, wish, problem.dst)
        if attr.post_ops or descs is None:
            return None
        dst = descs[1]
        dims = {f"src_{index}": argument(problem, f"src_{index}").dims for index in range(self.n_srcs)}
        whole = whole_of(dst, dims)
        if self.algorithm == "binary_add" and dst.is_dense and all(extents == dst.dims for extents in dims.values()):
            lanes = with_padding(dst)
            spec = dnnl.sum([lanes] * self.n_srcs, lanes, n_threads=problem.n_threads)
            return Recipe.single(spec, whole=whole)
        steps = _fold(Combination(self.algorithm, dst, attr, problem.n_threads), dims)
        return None if steps is None else Recipe(tuple(steps), temporaries_of(dst, steps), whole)


def _fold(combination: Combination, dims: Mapping[str, tuple[int, ...]]) -> list[RecipeStep] | None:
    """Binary primitives in a row, each adding a source to what the one before left in the result."""
    # The full extents first: what is broadcast comes second.
    first, *others = sorted((Operand(*item) for item in dims.items()), key=lambda op: op.dims != combination.dst.dims)
    steps: list[RecipeStep] = []
    for other in others:
        added = combination.steps(first, other)
        if added is None:
            return None
        steps += added
        first = Operand("dst", combination.dst.dims)
    return steps


class Mean(Facts, frozen=True):
    """The mean of elements in the same place."""

    op_types = ("Mean",)
    is_quick_on_arrays = True
    broadcasts_from = 0

    same_as = staticmethod(same_if_alone)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        if not broadcasts_as_numpy(node):
            return None
        total, count = _folding(node), len(node.inputs)

        def mean(*sources: np.ndarray, out: np.ndarray) -> None:
            total(*sources, out=out)
            np.divide(out, out.dtype.type(count), out=out)

        return mean


def _folding(node: NodeInfo) -> NumpyFunction:
    """A function of two, applied to one source after the other."""
    function = _UFUNCS[node.op_type]

    def fold(first: np.ndarray, *others: np.ndarray, out: np.ndarray) -> None:
        if not others:
            np.copyto(out, first)
        for other in others:
            first = function(first, other, out=out)

    return fold
