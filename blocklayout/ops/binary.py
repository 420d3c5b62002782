"""Functions of two elements, with numpy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import FLOATS, PRIMITIVE_FLOATS
from blocklayout.ir import (
    Affine,
    BaseOperator,
    Facts,
    Lowered,
    NodeInfo,
    NumpyFunction,
    PostOpUse,
    Problem,
    Recipe,
    Refusal,
    TensorInfo,
    Wish,
)
from blocklayout.ops._broadcast import bind_broadcast, broadcast_dims, broadcasts_as_numpy
from blocklayout.ops._combining import COMMUTATIVE, Combination, Operand, temporaries_of, whole_of
from blocklayout.ops._descs import argument, followed
from blocklayout.ops.eltwise import Eltwise

_ALGORITHMS: Mapping[str, str] = {
    "Add": "binary_add",
    "Sub": "binary_sub",
    "Mul": "binary_mul",
    "Div": "binary_div",
}
_IN_NUMPY: Mapping[str, NumpyFunction] = {
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Div": np.divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
_SUMMABLE_DTYPES = frozenset(PRIMITIVE_FLOATS)
_OTHER = {"src_0": "src_1", "src_1": "src_0"}


class Binary(BaseOperator, frozen=True):
    """One function of each pair of elements.

    Attributes:
        algorithm: oneDNN's name for it.
    """

    op_types = tuple(_ALGORITHMS)
    is_quick_on_arrays = True
    broadcasts_from = 0

    algorithm: str

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        if len(node.inputs) != 2:
            raise node.wrong(f"it has {len(node.inputs)} inputs", "it needs 2")
        return _of_a_number(node) or bind_broadcast(cls(_ALGORITHMS[node.op_type]), node)

    @classmethod
    def affine(cls, node: NodeInfo) -> Affine | None:
        known = [node.constant(index) for index in (0, 1)]
        if (known[0] is None) == (known[1] is None):
            return None
        place = 1 if known[0] is None else 0
        shape, operand = node.result.shape, known[place]
        vector = None if operand is None else _per_channel(operand, shape)
        if vector is None or node.shape(1 - place) != shape:
            return None
        with np.errstate(all="ignore"):
            function = (_SECOND_KNOWN if place else _FIRST_KNOWN).get(node.op_type)
            return None if function is None else Affine(1 - place, *np.broadcast_arrays(*function(vector)))

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        if not broadcasts_as_numpy(node):
            return None
        is_exact = node.op_type == "Div" and node.result.dtype not in FLOATS
        return _divide_integers if is_exact else _IN_NUMPY[node.op_type]

    @property
    def is_commutative(self) -> bool:
        """Whether the sources may change places."""
        return self.algorithm in COMMUTATIVE

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, problem.dst)
        if descs is None:
            return None
        dst = descs[1]
        dims = {name: argument(problem, name).dims for name in _OTHER}
        first, second = (Operand(name, extents) for name, extents in dims.items())
        steps = Combination(self.algorithm, dst, attr, problem.n_threads).steps(first, second)
        if steps is None:
            return None
        return Recipe(tuple(steps), temporaries_of(dst, steps), whole_of(dst, dims))

    def as_post_op(self, arg: str, problem: Problem) -> PostOpUse | None:
        if arg not in problem.sources or not (arg == "src_0" or self.is_commutative):
            return None
        chain, operand = argument(problem, arg), argument(problem, _OTHER[arg])
        if chain.dims != problem.dst.dims or not _is_post_op_operand(operand, problem.dst):
            return None
        is_sum = self.algorithm == "binary_add" and operand == problem.dst and operand.dtype in _SUMMABLE_DTYPES
        return PostOpUse(dnnl.Binary(self.algorithm), _OTHER[arg], is_sum)


def _per_channel(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand as one number for each channel of ``shape``; ``None`` where it varies otherwise.

    Example:
        >>> _per_channel(np.array([[[1.0]], [[2.0]]]), (5, 2, 7, 7))
        array([1., 2.])
    """
    extents = broadcast_dims(array.shape, shape)
    if extents is None or len(shape) < 2 or any(extent != 1 for dim, extent in enumerate(extents) if dim != 1):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (shape[1],))


_ScaleAndShift = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Of what is known: one number for each channel, or one for all."""
_SECOND_KNOWN: Mapping[str, _ScaleAndShift] = {
    "Add": lambda vector: (np.ones(()), vector),
    "Sub": lambda vector: (np.ones(()), -vector),
    "Mul": lambda vector: (vector, np.zeros(())),
    "Div": lambda vector: (1 / vector, np.zeros(())),
}
_FIRST_KNOWN: Mapping[str, _ScaleAndShift] = {
    "Add": _SECOND_KNOWN["Add"],
    "Sub": lambda vector: (-np.ones(()), vector),
    "Mul": _SECOND_KNOWN["Mul"],
}


def _of_a_number(node: NodeInfo) -> Lowered | Refusal | None:
    """An operation with one known number as a function of each element: faster, and a post-op anywhere."""
    first, second, dst = node.inputs[0], node.inputs[1], node.result
    if first is None or second is None or first.is_constant == second.is_constant:
        return None
    known, src = (first, second) if first.is_constant else (second, first)
    if known.data is None or known.data.size != 1 or src.shape != dst.shape:
        return None
    number = known.data.reshape(()).astype(np.float64)
    if not np.isfinite(number) or (node.op_type == "Div" and known is second):  # a product with 1 / number is another
        return None
    if node.op_type == "Div":
        function = Eltwise("eltwise_pow", float(number), -1.0)
    else:
        scale, shift = (_FIRST_KNOWN if known is first else _SECOND_KNOWN)[node.op_type](number)
        function = Eltwise("eltwise_linear", float(scale), float(shift))
    return node.of_other_dtype(src) or function.bind({"src": src})


def _is_post_op_operand(operand: TensorInfo, dst: TensorInfo) -> bool:
    """Any other broadcast makes every primitive fall to a reference kernel.

    One value for each channel suits most; one for each column those that see all rows of a batch as one matrix.
    """
    if operand.dims == dst.dims:
        return True
    if len(operand.dims) != len(dst.dims):
        return False
    varying = [dim for dim, extent in enumerate(operand.dims) if extent != 1]
    return varying in ([], [1], [len(dst.dims) - 1])


def _divide_integers(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """The quotient without its fraction, whatever the signs."""
    if np.issubdtype(out.dtype, np.signedinteger):
        x = x - np.fmod(x, y)
    np.floor_divide(x, y, out=out)


class NumpyBinary(Facts, frozen=True):
    """Functions of elements in the same place that no primitive computes."""

    op_types = (
        *("And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Mod", "Or", "Xor"),
    )
    is_quick_on_arrays = True
    broadcasts_from = 0

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        if not broadcasts_as_numpy(node):
            return None
        if node.op_type == "BitShift":
            return {"LEFT": np.left_shift, "RIGHT": np.right_shift}[node.string_attr("direction", ("LEFT", "RIGHT"))]
        if node.op_type == "Mod":
            return np.fmod if node.flag_attr("fmod") else np.mod
        return _IN_NUMPY[node.op_type]


class Where(Facts, frozen=True):
    """Elements of one of two sources, as a condition says."""

    op_types = ("Where",)
    is_quick_on_arrays = True
    broadcasts_from = 0

    @classmethod
    def same_as(cls, node: NodeInfo) -> int | None:
        condition = node.constant(0)
        if condition is None or not condition.size or bool(condition.any()) != bool(condition.all()):
            return None
        chosen = 1 if condition.all() else 2
        return chosen if node.shape(chosen) == node.result.shape else None

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        del node
        return _choose


def _choose(condition: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """By their bits: several times as fast as a masked copy, whose branches nobody predicts."""
    bits = f"u{out.itemsize}"
    first, second, result = (array.view(bits) for array in (x, y, out))
    np.bitwise_xor(first, second, out=result)
    np.bitwise_and(result, np.negative(condition.astype(bits)), out=result)
    np.bitwise_xor(result, second, out=result)
