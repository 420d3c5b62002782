"""Functions of two elements or more, with numpy's broadcasting, in every dense layout.

The library is fast where only its second source is broadcast, along one stretch of the dimensions, and where zeros in
padding stay zeros. Everything else is brought to that: the bytes are seen under extents in which the broadcast
dimensions lie together, a first source is spread out before, and padding is zeroed behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.dtypes import BYTE_DTYPES, FLOATS, PRIMITIVE_FLOATS
from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import always, are_floats, bind_broadcast, broadcast_dims
from blocklayout.ops._gradients import same
from blocklayout.ops._layouts import (
    are_eltwise,
    argument,
    broadcast_views,
    digits,
    followed,
    keep_zero,
    like,
    n_lanes,
    with_padding,
)
from blocklayout.ops.eltwise import Eltwise
from blocklayout.ops.expand import Expand
from blocklayout.ops.views import Identity, same_if_alone

COMMUTATIVE = frozenset({"binary_add", "binary_mul", "binary_min", "binary_max"})
_NEGATED = dnnl.Eltwise("linear", -1.0)
_SPREAD = "spread"


class Operand(Struct, frozen=True):
    """One of two sources, or the result: its name in the recipe, and its extents, each the result's, or 1."""

    name: str
    dims: tuple[int, ...]


class Combination(Struct, frozen=True):
    """One function of two operands, computed into ``dst``, whose layout they share as far as their extents go."""

    algorithm: str
    dst: MemoryDesc
    attr: dnnl.Attr
    n_threads: int

    def steps(self, first: Operand, second: Operand) -> list[ir.RecipeStep] | None:
        """The primitives; the operand ``spread``, where one of them reads it, is a temporary like ``dst``."""
        parts = digits(self.dst)
        if not are_eltwise(self.attr.post_ops) or parts is None:
            return [self.step(self.dst, self._desc(second), first, second)] if self._is_full(first) else None
        is_zeroed = not self._keeps_zero(first, second)
        before: list[ir.RecipeStep] = []
        function = self
        if not self._is_full(first):
            is_better = self._is_full(second) or first.dims[parts[-1].dim] == 1  # rows are copied faster than numbers
            turned = self._reversed() if is_better else None
            if turned is not None:
                function, first, second = turned, second, first
        if not self._is_full(first):
            before += self._spread(first, "dst")
            first = Operand("dst", self.dst.dims)
        views = self._views(second)
        if views is None:
            before += self._spread(second, _SPREAD)
            second = Operand(_SPREAD, self.dst.dims)
            views = self._views(second) or (self.dst, self.dst)
        after = [ir.zero_padding_step(self.dst)] if is_zeroed else []
        return [*before, function.step(*views, first, second), *after]

    def _is_full(self, operand: Operand) -> bool:
        return operand.dims == self.dst.dims

    def _desc(self, operand: Operand) -> MemoryDesc:
        return like(self.dst, ir.TensorInfo(operand.dims, self.dst.dtype))

    def _reversed(self) -> Combination | None:
        """The same function with its operands exchanged, if there is one: a - b is -(b - a)."""
        if self.algorithm in COMMUTATIVE:
            return self
        if self.algorithm != "binary_sub":
            return None
        return replace(self, attr=replace(self.attr, post_ops=(_NEGATED, *self.attr.post_ops)))

    def _keeps_zero(self, first: Operand, second: Operand) -> bool:
        padded = [dim for dim, n in enumerate(self.dst.dims) if self.dst.padded_dims[dim] != n]
        if not padded:
            return True
        both = all(operand.dims[dim] == self.dst.dims[dim] for dim in padded for operand in (first, second))
        return both and self.algorithm != "binary_div" and keep_zero(self.attr.post_ops)

    def _spread(self, operand: Operand, name: str) -> list[ir.RecipeStep]:
        infos = ir.TensorInfo(operand.dims, self.dst.dtype), ir.TensorInfo(self.dst.dims, self.dst.dtype)
        problem = ir.Problem({"src": infos[0]}, {}, infos[1], self.n_threads)
        recipe = Expand().lower(problem, ir.Wish(self.dst, self.dst), dnnl.Attr())
        names = {"src": operand.name, "dst": name}
        steps = recipe.steps if recipe else ()
        return [replace(step, operands=tuple((arg, names[own]) for arg, own in step.operands)) for step in steps]

    def _views(self, second: Operand) -> tuple[MemoryDesc, MemoryDesc] | None:
        """The result and the second source under extents the library is fast on, where there are some."""
        is_blocked = self.dst.inner_idxs == (1,) and self.dst.inner_blks == (n_lanes(),) and n_lanes() >= 8
        if is_blocked and second.dims[1] > 1 and all(extent == 1 for extent in second.dims[2:]):
            return with_padding(self.dst), with_padding(self._desc(second))  # (C/8, pixels, 8) takes ten times as long
        views = broadcast_views(self.dst, second.dims, _PATTERNS)
        return views and (MemoryDesc(views[0], self.dst.dtype), MemoryDesc(views[1], self.dst.dtype))

    def step(self, dst: MemoryDesc, src_1: MemoryDesc, first: Operand, second: Operand) -> ir.RecipeStep:
        """The primitive alone, on a first source and a result seen as ``dst``."""
        spec = dnnl.binary(dst, src_1, dst, self.algorithm, attr=self.attr, n_threads=self.n_threads)
        return ir.RecipeStep(spec, (("dst", "dst"), ("src_0", first.name), ("src_1", second.name)))


_PATTERNS: Mapping[tuple[bool, ...], tuple[int, ...]] = {
    (): (-1, -1),
    (True,): (-1, 0),
    (False,): (-1, 0),
    (False, True): (0, 1),
    (True, False): (-1, 0, 1),
    (False, True, False): (0, 1, 2),
    (True, False, True): (0, 1, 2),
}
"""The extents to see, by whether the second source varies along each run of digits: the run (-1: an extent of 1)."""


def whole_of(dst: MemoryDesc, operands: Mapping[str, tuple[int, ...]]) -> tuple[tuple[str, MemoryDesc], ...]:
    """The layouts of the result and of sources of these extents, for a recipe."""
    named = {name: like(dst, ir.TensorInfo(dims, dst.dtype)) for name, dims in operands.items()}
    return (*named.items(), ("dst", dst))


def temporaries_of(dst: MemoryDesc, steps: list[ir.RecipeStep]) -> tuple[tuple[str, MemoryDesc], ...]:
    """The temporaries that the steps use."""
    is_spread = any(operand == _SPREAD for step in steps for _, operand in step.operands)
    return ((_SPREAD, dst),) if is_spread else ()


_IN_NUMPY: Mapping[str, ir.NumpyFunction] = {
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


class Binary(ir.BaseOperator, frozen=True):
    """One function of each pair of elements, by oneDNN's name for it."""

    op_types = ("Add", "Sub", "Mul", "Div")
    is_quick_on_arrays = True
    broadcasts_from = 0

    byte_operands = ("src_0", "src_1")
    mixes_bytes = True

    algorithm: str

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        return _of_a_number(node) or bind_broadcast(cls(f"binary_{node.op_type.lower()}"), node)

    @classmethod
    def affine(cls, node: ir.NodeInfo) -> ir.Affine | None:
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
            return None if function is None else ir.Affine(1 - place, *np.broadcast_arrays(*function(vector)))

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        is_exact = node.op_type == "Div" and node.result.dtype not in FLOATS
        return _divide_integers if is_exact else _IN_NUMPY[node.op_type]

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, y), result = call.sources, call.results[0]
        return {
            "Add": (same, same),
            "Sub": (same, lambda grad: -grad),
            "Mul": (lambda grad: grad * y, lambda grad: grad * x),
            "Div": (lambda grad: grad / y, lambda grad: -grad * result / y),
        }[call.node.op_type]

    def post_ops_of_bytes(self, sources: Mapping[str, tuple[float, int]]) -> tuple[dnnl.PostOp, ...]:
        (first, zero), (second, other_zero) = (sources.get(name, (1.0, 0)) for name in _OTHER)
        if self.algorithm in ("binary_add", "binary_sub"):
            excess = first * zero + (second if self.algorithm == "binary_add" else -second) * other_zero
            return (dnnl.Eltwise("linear", 1.0, -excess),) if excess else ()
        if not zero and not other_zero:
            return ()
        if self.algorithm == "binary_mul" and 0 in (zero, other_zero):
            scale = first * second
        elif self.algorithm == "binary_div" and not other_zero:
            scale = first / second
        else:
            raise UnsupportedError(f"{self.algorithm} of bytes takes no such zero points")
        return dnnl.Eltwise("linear", scale, -scale * (zero or other_zero)), dnnl.Binary(self.algorithm)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        descs = followed(problem, wish, problem.dst)
        if descs is None:
            return None
        dst = descs[1]
        if attr.scales:
            return self._of_bytes(problem, dst, attr)
        dims = {name: argument(problem, name).dims for name in _OTHER}
        first, second = (Operand(name, extents) for name, extents in dims.items())
        steps = Combination(self.algorithm, dst, attr, problem.n_threads).steps(first, second)
        if steps is None:
            return None
        return ir.Recipe(tuple(steps), temporaries_of(dst, steps), whole_of(dst, dims))

    def _of_bytes(self, problem: ir.Problem, dst: MemoryDesc, attr: dnnl.Attr) -> ir.Recipe | None:
        infos = {name: argument(problem, name) for name in _OTHER}
        is_shifted = not are_eltwise(attr.post_ops)
        if is_shifted and len(attr.zero_points) != 1:
            return None  # a follower that reads more than the result
        if is_shifted:
            [(first, _)] = attr.zero_points
        else:
            is_turned = infos["src_0"].dims != dst.dims and self.algorithm in COMMUTATIVE
            first = "src_1" if is_turned else "src_0"
        second = _OTHER[first]
        views = broadcast_views(dst, infos[second].dims, _PATTERNS)
        if views is None or infos[first].dims != dst.dims or dst.n_padding or dst.dtype not in BYTE_DTYPES:
            return None
        dims, other = views[0], MemoryDesc(views[1], infos[second].dtype)
        read, before, n_threads = second, [], problem.n_threads
        n_copies = _n_copies(*views)
        if n_copies > 1:
            dims, other = (dims[0] // n_copies, dims[1] * n_copies), MemoryDesc((1, dims[1] * n_copies), other.dtype)
            read, before = _SPREAD, [_copied(second, other, n_copies, n_threads)]
        src, result = MemoryDesc(dims, infos[first].dtype), MemoryDesc(dims, dst.dtype)
        if is_shifted:
            names = {"src_0": first, "src_1": first, "post_op_1_src_1": read}
            own = dnnl.Attr(_with_src1(attr.post_ops, other))
            spec = dnnl.binary(src, src, result, "max", attr=own, n_threads=n_threads)
        else:
            scaled = {arg: name for arg, name in (("src_0", first), ("src_1", second)) if name in dict(attr.scales)}
            names = {"src_0": first, "src_1": read} | {f"scale_{arg}": f"scale_{name}" for arg, name in scaled.items()}
            own = dnnl.Attr(attr.post_ops, tuple((arg, 0) for arg in scaled))
            spec = dnnl.binary(src, other, result, self.algorithm, attr=own, n_threads=n_threads)
        step = ir.RecipeStep(spec, (("dst", "dst"), *names.items()))
        whole = *((name, like(dst, info)) for name, info in infos.items()), ("dst", dst)
        return ir.Recipe((*before, step), ((_SPREAD, other),) if before else (), whole)

    def as_post_op(self, arg: str, problem: ir.Problem) -> ir.PostOpUse | None:
        if arg not in problem.sources or not (arg == "src_0" or self.algorithm in COMMUTATIVE):
            return None
        chain, operand = argument(problem, arg), argument(problem, _OTHER[arg])
        if chain.dims != problem.dst.dims or not _is_post_op_operand(operand, problem.dst):
            return None
        is_sum = self.algorithm == "binary_add" and operand == problem.dst and operand.dtype in _SUMMABLE_DTYPES
        return ir.PostOpUse(dnnl.Binary(self.algorithm), _OTHER[arg], is_sum)


_MAX_COPIED = 2048


def _n_copies(dims: tuple[int, ...], others: tuple[int, ...]) -> int:
    """How often a short row, read again for each of some rows, is to lie there, for fewer and longer rows."""
    if len(dims) != 2 or others != (1, dims[1]):
        return 1
    return max(n for n in range(1, max(_MAX_COPIED // dims[1], 1) + 1) if dims[0] % n == 0)


def _copied(row: str, wide: MemoryDesc, n_copies: int, n_threads: int) -> ir.RecipeStep:
    dims = n_copies, wide.dims[1] // n_copies
    once, often = MemoryDesc(dims, wide.dtype, strides=(0, 1)), MemoryDesc(dims, wide.dtype)
    return ir.RecipeStep(dnnl.reorder(once, often, n_threads=n_threads), (("dst", _SPREAD), ("src", row)))


def _with_src1(post_ops: tuple[dnnl.PostOp, ...], src1: MemoryDesc) -> tuple[dnnl.PostOp, ...]:
    return tuple(replace(each, src1=src1) if isinstance(each, dnnl.Binary) else each for each in post_ops)


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
"""Of known numbers: one for each channel, or one for all."""
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


def _of_a_number(node: ir.NodeInfo) -> ir.Lowered | ir.Refusal | None:
    """An operation with one known number as a function of each element: faster, and a post-op anywhere."""
    first, second, dst = node.inputs[0], node.inputs[1], node.result
    if first is None or second is None or first.is_constant == second.is_constant:
        return None
    known, src = (first, second) if first.is_constant else (second, first)
    if known.data is None or known.data.size != 1 or src.shape != dst.shape:
        return None
    number = known.data.reshape(()).astype(np.float64)
    is_divisor = node.op_type == "Div" and known is second
    if not np.isfinite(number) or (is_divisor and (src.quantization is None or not number)):
        return None  # a product with 1 / number is another, but of bytes hardly ever another byte
    if node.op_type == "Div" and known is first:
        function = Eltwise("eltwise_pow", float(number), -1.0)
    else:
        scale, shift = (_FIRST_KNOWN if known is first else _SECOND_KNOWN)[node.op_type](number)
        function = Eltwise("eltwise_linear", float(scale), float(shift))
    return node.of_other_dtype(src) or function.bind({"src": src})


def _is_post_op_operand(operand: ir.TensorInfo, dst: ir.TensorInfo) -> bool:
    """Whether primitives are fast on it: as large as the result, or one value for each channel, or for each column."""
    if operand.dims == dst.dims:
        return True
    if len(operand.dims) != len(dst.dims):
        return False
    varying = [dim for dim, extent in enumerate(operand.dims) if extent != 1]
    return varying in ([], [1], [len(dst.dims) - 1])


def _divide_integers(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    if np.issubdtype(out.dtype, np.signedinteger):
        x = x - np.fmod(x, y)
    np.floor_divide(x, y, out=out)


class NumpyBinary(ir.Facts, frozen=True):
    """Functions of elements in the same place that no primitive computes."""

    op_types = ("BitShift", "Mod", *(op_type for op_type in _IN_NUMPY if op_type not in Binary.op_types))
    is_quick_on_arrays = True
    broadcasts_from = 0

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        if node.op_type == "BitShift":
            return {"LEFT": np.left_shift, "RIGHT": np.right_shift}[node.string_attr("direction", ("LEFT", "RIGHT"))]
        if node.op_type == "Mod":
            return np.fmod if node.flag_attr("fmod") else np.mod
        return _IN_NUMPY[node.op_type]


def _choose(condition: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """By their bits: several times as fast as a masked copy, whose branches nobody predicts."""
    bits = f"u{out.itemsize}"
    first, second, result = (array.view(bits) for array in (x, y, out))
    np.bitwise_xor(first, second, out=result)
    np.bitwise_and(result, np.negative(condition.astype(bits)), out=result)
    np.bitwise_xor(result, second, out=result)


class Where(ir.Facts, frozen=True):
    """Elements of one of two sources, as a condition says."""

    op_types = ("Where",)
    is_quick_on_arrays = True
    broadcasts_from = 0
    rounds = staticmethod(always(False))

    @classmethod
    def same_as(cls, node: ir.NodeInfo) -> int | None:
        condition = node.constant(0)
        if condition is None or not condition.size or bool(condition.any()) != bool(condition.all()):
            return None
        chosen = 1 if condition.all() else 2
        return chosen if node.shape(chosen) == node.result.shape else None

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        condition = call.sources[0]
        chosen = (condition.astype, lambda dtype: 1 - condition.astype(dtype))
        return None, *(lambda grad, choice=choice: grad * choice(grad.dtype) for choice in chosen)

    in_numpy = staticmethod(always(_choose))


_FOLDED: Mapping[str, str] = {"Sum": "binary_add", "Min": "binary_min", "Max": "binary_max"}
_UFUNCS: Mapping[str, np.ufunc] = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum}


def _folded(node: ir.NodeInfo) -> ir.NumpyFunction:
    """A function of two, applied to one source after the other."""
    function = _UFUNCS[node.op_type]

    def fold(first: np.ndarray, *others: np.ndarray, out: np.ndarray) -> None:
        if not others:
            np.copyto(out, first)
        for other in others:
            first = function(first, other, out=out)

    return fold


class Nary(ir.BaseOperator, frozen=True):
    """One function of two, by oneDNN's name, folded over ``n_srcs`` sources: ``src_0`` and so on."""

    op_types = tuple(_FOLDED)
    is_quick_on_arrays = True
    broadcasts_from = 0
    rounds = staticmethod(lambda op_type: op_type == "Sum")

    algorithm: str
    n_srcs: int

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        algorithm, n_srcs = _FOLDED[node.op_type], len(node.inputs)
        if n_srcs == 1:
            return are_floats(node) or Identity().bind({"src": node.required(0, "input 0")})
        if n_srcs == 2:
            return bind_broadcast(Binary(algorithm), node)
        return bind_broadcast(cls(algorithm, n_srcs), node)

    in_numpy = staticmethod(_folded)
    same_as = staticmethod(same_if_alone)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        sources, result = call.sources, call.results[0]
        if call.node.op_type == "Sum":
            return (same,) * len(sources)

        def of_extreme(_: Any, grad: Any) -> Iterator[Any]:
            """Each element's goes to the first source that it is of."""
            for each in sources:
                own = grad * (result == each).astype(grad.dtype)
                yield own
                grad = grad - own

        return of_extreme

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
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
            return ir.Recipe.single(spec, whole=whole)
        steps = _fold(Combination(self.algorithm, dst, attr, problem.n_threads), dims)
        return None if steps is None else ir.Recipe(tuple(steps), temporaries_of(dst, steps), whole)


def _fold(combination: Combination, dims: Mapping[str, tuple[int, ...]]) -> list[ir.RecipeStep] | None:
    # The full extents first: broadcast ones come second.
    first, *others = sorted((Operand(*item) for item in dims.items()), key=lambda op: op.dims != combination.dst.dims)
    steps: list[ir.RecipeStep] = []
    for other in others:
        added = combination.steps(first, other)
        if added is None:
            return None
        steps += added
        first = Operand("dst", combination.dst.dims)
    return steps


class Mean(ir.Facts, frozen=True):
    """The mean of elements in the same place."""

    op_types = ("Mean",)
    is_quick_on_arrays = True
    broadcasts_from = 0

    backward = staticmethod(lambda call: (lambda grad: grad / len(call.node.inputs),) * len(call.node.inputs))
    same_as = staticmethod(same_if_alone)
