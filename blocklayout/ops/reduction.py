"""Reductions: one value out of all along some dimensions, or out of all up to each element; the first when sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct, field

from blocklayout import dnnl, ir
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm, without
from blocklayout.ops._answers import along_axis, beside_axis, is_known, is_source, with_axes
from blocklayout.ops._layouts import Run, argument, digits, has_argument, is_padded, n_elements, runs, seen_as
from blocklayout.ops.views import Reshape

_POOLINGS: Mapping[str, str] = {
    "reduction_max": "pooling_max",
    "reduction_mean": "pooling_avg_include_padding",
    "reduction_sum": "pooling_avg_include_padding",
}

_SUMS = ("reduction_sum", "reduction_mean")

_SHORT = 1024
"""Elements of a row at most to be summed faster as a product with ones: a reduction takes 60 ns for each row."""


class Steps(Struct):
    """Primitives in a row, each reading ``source``, the last result; results are temporaries, the last is ``dst``.

    The constant ``ones`` has ``n_ones`` rows.
    """

    dtype: str
    n_threads: int
    n_ones: int = 0
    source: str = "src"
    done: list[ir.RecipeStep] = field(default_factory=list)

    def add(self, spec: dnnl.Spec, reads: str = "src", others: tuple[tuple[str, str], ...] = ()) -> None:
        """Append a primitive that reads the last result as its argument ``reads``, and operands of ``others``."""
        result = f"partial_{len(self.done)}"
        self.done.append(ir.RecipeStep(spec, (("dst", result), (reads, self.source), *others)))
        self.source = result

    def finished(self) -> tuple[tuple[ir.RecipeStep, ...], tuple[tuple[str, MemoryDesc], ...]]:
        """The steps, and the temporaries between them."""
        *before, last = self.done
        temporaries = tuple((f"partial_{index}", step.spec.memory_desc("dst")) for index, step in enumerate(before))
        operands = tuple((arg, "dst" if arg == "dst" else operand) for arg, operand in last.operands)
        return (*before, ir.RecipeStep(last.spec, operands)), temporaries

    def add_eltwise(self, n: int, function: dnnl.Eltwise) -> None:
        """Append a function of each of ``n`` elements."""
        desc, given = self._rows(n), (function.algorithm, function.alpha, function.beta)
        self.add(dnnl.eltwise(desc, desc, *given, n_threads=self.n_threads))

    def add_reduction(self, found: Sequence[Run], algorithm: str, functions: tuple[dnnl.Eltwise, ...]) -> None:
        """Append the reduction of all marked runs, of which there is one at least, and functions of each result."""
        extents = [run.extent for run in found]
        marked = [index for index, run in enumerate(found) if run.is_marked]
        for index in reversed(marked):
            lead, window, inner = prod(extents[:index]), extents[index], prod(extents[index + 1 :])
            extents[index] = 1
            self._reduce(lead, window, inner, algorithm, functions if index == marked[0] else ())

    def _reduce(self, lead: int, window: int, inner: int, algorithm: str, functions: tuple[dnnl.Eltwise, ...]) -> None:
        if inner == 1 and window == self.n_ones and algorithm in _SUMS:
            functions = (dnnl.Eltwise("linear", 1 / window), *functions) if algorithm == "reduction_mean" else functions
            descs = self._rows(lead, window), self._rows(window, 1), self._rows(lead, 1)
            product = dnnl.matmul(*descs, attr=dnnl.Attr(functions), n_threads=self.n_threads)
            self.add(product, others=(("weights", "ones"),))
            return
        if inner != 1 and algorithm in _POOLINGS:
            self._pool(lead, window, inner, algorithm, functions)
            return
        if inner != 1:
            turned = MemoryDesc((lead, inner, window), self.dtype, strides=(window * inner, 1, inner))
            self.add(dnnl.reorder(turned, self._rows(lead, inner, window), n_threads=self.n_threads))
        src, dst = self._rows(lead * inner, window), self._rows(lead * inner, 1)
        self.add(dnnl.reduction(src, dst, algorithm, attr=dnnl.Attr(functions), n_threads=self.n_threads))

    def _pool(self, lead: int, window: int, inner: int, algorithm: str, functions: tuple[dnnl.Eltwise, ...]) -> None:
        """A window of the whole height, with the digits behind it as channels."""
        if algorithm == "reduction_sum":
            functions = (dnnl.Eltwise("linear", window), *functions)
        src = MemoryDesc((lead, inner, window, 1), self.dtype, "nhwc")
        dst = MemoryDesc((lead, inner, 1, 1), self.dtype, "nhwc")
        attr = dnnl.Attr(functions)
        self.add(dnnl.pooling(src, dst, _POOLINGS[algorithm], kernel=(window, 1), attr=attr, n_threads=self.n_threads))

    def _rows(self, *extents: int) -> MemoryDesc:
        return MemoryDesc(extents, self.dtype)


class Formula(Struct, frozen=True):
    """The computation of a reduction.

    Attributes:
        before: A function of each element.
        after: Functions of each result, one after the other.
        alone: Of an element that is alone; ``None`` where that is the result.
        keeps_zero: Whether zeros give zero.
    """

    algorithm: str
    before: dnnl.Eltwise | None = None
    after: tuple[dnnl.Eltwise, ...] = ()
    alone: dnnl.Eltwise | None = None
    keeps_zero: bool = True


_ABS, _SQUARE, _LOG, _SQRT = (dnnl.Eltwise(name) for name in ("abs", "square", "log", "sqrt"))

# The library's maximum begins with the lowest finite number and never gives -inf (a masked row's). Of halves, that
# number can only be the beginning: doubled it overflows to -inf, and all others are as they were.
_HALVED, _DOUBLED = (dnnl.Eltwise("linear", factor) for factor in (0.5, 2.0))

_FORMULAS: Mapping[str, Formula] = {
    "ReduceL1": Formula("reduction_sum", before=_ABS, alone=_ABS),
    "ReduceL2": Formula("reduction_sum", before=_SQUARE, after=(_SQRT,), alone=_ABS),
    "ReduceLogSum": Formula("reduction_sum", after=(_LOG,), alone=_LOG, keeps_zero=False),
    "ReduceMax": Formula("reduction_max", before=_HALVED, after=(_DOUBLED,)),
    "ReduceMean": Formula("reduction_mean"),
    "ReduceMin": Formula("reduction_min", before=_HALVED, after=(_DOUBLED,)),
    "ReduceProd": Formula("reduction_mul"),
    "ReduceSum": Formula("reduction_sum"),
    "ReduceSumSquare": Formula("reduction_sum", before=_SQUARE, alone=_SQUARE),
}


def _reduced_axes(node: ir.NodeInfo) -> tuple[int, ...] | None:
    given, ndims = node.integers(1, "axes"), len(node.shape(0))
    if given is None and node.has_input(1):
        return None
    if not given:
        return () if node.flag_attr("noop_with_empty_axes") else tuple(range(ndims))
    return tuple(sorted({axis % ndims for axis in given}))


def _transposed(node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
    gone = _reduced_axes(node)
    if gone is None:
        return None
    result = perm if node.attrs.get("keepdims", 1) else without(perm, set(gone))
    if not node.integers(1, "axes"):
        return ir.Transposed(result, node.attrs)
    return with_axes(node, 1, tuple(sorted(perm[axis] for axis in gone)), result)


def _keeps_rows(node: ir.NodeInfo, rows: frozenset[int]) -> bool:
    gone = _reduced_axes(node)
    return rows == {0} and gone is not None and 0 not in gone


def _is_filled(node: ir.NodeInfo) -> ir.Refusal | None:
    src = node.required(0, "data")
    if 0 not in src.shape:
        return None
    return node.refused(f"{src.name} has extents {list(src.shape)}", "its primitive needs at least one element")


def _backward(call: ir.Called) -> Any:
    axes, x, y, bl, kind = _reduced_axes(call.node), call.sources[0], call.results[0], call.bl, call.node.op_type[6:]
    if axes is None:
        return "its axes are computed; give numbers"
    kept, desc = tuple(1 if dim in axes else extent for dim, extent in enumerate(x.shape)), x.desc

    def column(t: Any) -> Any:
        return t.reshape(kept).to(memory_format=desc)

    def of_product() -> Any:
        """By a zero, the product of all others; by others beside one, 0."""
        zeros = (x == 0).astype(x.dtype)
        n_zeros = zeros.reduce_sum(axes).expand(x.shape)
        shares = zeros * (n_zeros == 1).astype(x.dtype) + (n_zeros == 0).astype(x.dtype) / (x + zeros)
        return shares * (x + zeros).reduce_prod(axes)

    def of_extreme() -> Any:
        """Shared among equal ones."""
        chosen = (x == column(y).expand(x.shape)).astype(x.dtype)
        return chosen / chosen.reduce_sum(axes)

    if kind in ("Mean", "Sum"):
        share = prod(kept) / desc.n_elements if kind == "Mean" else 1
        return (lambda grad: column(grad * share).expand(desc.dims),)
    slope: Callable[[], Any] = {
        "L1": lambda: bl.op("Sign", x),
        "L2": lambda: x / bl.max(column(y), 1e-30),  # of zeros alone it is 0
        "LogSum": lambda: bl.exp(-column(y)),
        "LogSumExp": lambda: bl.exp(x - column(y)),
        "Max": of_extreme,
        "Min": of_extreme,
        "Prod": of_product,
        "SumSquare": lambda: x * 2,
    }[kind]
    return (lambda grad: (slope() * column(grad)).expand(desc.dims),)


class Reduce(ir.BaseOperator, frozen=True):
    """Sums, means, extremes, products and norms along dimensions of extents above 1, in any dense layout."""

    op_types = tuple(_FORMULAS)
    is_quick_on_arrays = True
    needs = (is_source(1, 12), _is_filled, is_known(1, "axes"))

    formula: Formula
    axes: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src = node.required(0, "data")
        given, ndims = node.integers(1, "axes") or (), len(src.shape)
        if any(not -ndims <= axis < ndims for axis in given):
            raise node.wrong(f"axes are {list(given)}", f"rank {ndims} allows {-ndims} to {ndims - 1}")
        formula = _FORMULAS[node.op_type]
        wide = tuple(axis for axis in _reduced_axes(node) or () if src.shape[axis] != 1)
        if not wide and formula.alone is None:
            return Reshape(node.result.dims).bind({"src": src})
        n = prod(src.shape[axis] for axis in wide)
        is_short = wide and n <= _SHORT and formula.algorithm in _SUMS
        return cls(formula, wide).bind({"src": src}, {"ones": np.ones((n, 1), np.float32)} if is_short else {})

    backward = staticmethod(_backward)
    reduced_axes = staticmethod(_reduced_axes)
    keeps_rows = staticmethod(_keeps_rows)
    transposed = staticmethod(_transposed)
    in_numpy = staticmethod(lambda node: _along_axes(node, _IN_NUMPY[node.op_type]))

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        src = wish.src_desc(argument(problem, "src"))
        if not isinstance(src, MemoryDesc) or attr.post_ops:
            return None
        n_ones = argument(problem, "ones").dims[0] if has_argument(problem, "ones") else 0
        steps = self._steps(src, problem.n_threads, n_ones)
        if steps is None:
            return None
        kept = src.resized(1 if dim in self.axes else extent for dim, extent in enumerate(src.dims))
        dst = seen_as(kept, problem.dst.dims)
        if dst is None:
            # Blocks exist at some ranks only; the result is little to move.
            steps.add(dnnl.reorder(kept, MemoryDesc(kept.dims, kept.dtype), n_threads=problem.n_threads))
            dst = MemoryDesc(problem.dst.dims, kept.dtype)
        # One name or descriptor on both sides asks to be followed; the rank may be another one behind.
        wished = dst if wish.dst in (wish.src, "any") else wish.dst_desc(problem.dst)
        if not isinstance(wished, MemoryDesc) or not wished.physically_equal(dst):
            return None
        done, temporaries = steps.finished()
        if dst.n_padding and not self.formula.keeps_zero:
            done = (*done, ir.zero_padding_step(dst))
        return ir.Recipe(done, temporaries, (("src", src), ("dst", dst)))

    def _steps(self, src: MemoryDesc, n_threads: int, n_ones: int) -> Steps | None:
        parts = digits(src)
        if parts is None:
            return None
        steps, formula = Steps(src.dtype, n_threads, n_ones), self.formula
        if not self.axes:
            steps.add_eltwise(n_elements(parts), formula.alone or dnnl.Eltwise("linear", 1.0))
            return steps
        algorithm, functions = formula.algorithm, formula.after
        if is_padded(src, self.axes):
            if algorithm not in _SUMS:
                return None
            if algorithm == "reduction_mean":
                n = prod(src.dims[axis] for axis in self.axes)
                algorithm, functions = "reduction_sum", (dnnl.Eltwise("linear", 1 / n),)
        if formula.before:
            steps.add_eltwise(n_elements(parts), formula.before)
        steps.add_reduction(runs(parts, self.axes), algorithm, functions)
        return steps


def _along_axes(node: ir.NodeInfo, function: ir.NumpyFunction) -> ir.NumpyFunction:
    given = node.integers(1, "axes") if not node.has_input(1) else None
    nothing = () if node.flag_attr("noop_with_empty_axes") else None
    keepdims = bool(node.int_attr("keepdims", 1))

    def reduce(x: np.ndarray, axes: np.ndarray | None = None, *, out: np.ndarray) -> None:
        read = given if axes is None else tuple(axes.ravel().tolist())
        function(x, axis=read or nothing, keepdims=keepdims, out=out)

    return reduce


def _extreme(x: np.ndarray, out: np.ndarray, function: np.ufunc, *, is_lowest: bool, **how: Any) -> None:
    if x.size:
        function.reduce(x, out=out, **how)
    elif out.dtype.kind in "iu":
        out[...] = getattr(np.iinfo(out.dtype), "min" if is_lowest else "max")
    elif out.dtype.kind == "b":
        out[...] = not is_lowest
    else:
        out[...] = -np.inf if is_lowest else np.inf


def _mean(x: np.ndarray, out: np.ndarray, **how: Any) -> None:
    total = np.add.reduce(x, dtype=np.float64 if x.dtype.kind in "iu" else None, **how)
    np.copyto(out, total / (x.size // max(out.size, 1)), casting="unsafe")


def _sum_of(x: np.ndarray, out: np.ndarray, function: np.ufunc, **how: Any) -> None:
    np.add.reduce(function(x), dtype=out.dtype, out=out, **how)


def _log_of_sum(x: np.ndarray, out: np.ndarray, **how: Any) -> None:
    np.add.reduce(x, dtype=out.dtype, out=out, **how)
    np.log(out, out=out)


def _log_of_exponentials(x: np.ndarray, out: np.ndarray, axis: Any, *, keepdims: bool) -> None:
    """Of the differences from the largest element, so that nothing overflows."""
    largest = np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf)
    largest[~np.isfinite(largest)] = 0
    shifted = x - largest
    _log_of_sum(np.exp(shifted, out=shifted), out, axis=axis, keepdims=keepdims)
    out += largest.reshape(out.shape)


_IN_NUMPY: Mapping[str, ir.NumpyFunction] = {
    "ReduceL1": partial(_sum_of, function=np.absolute),
    "ReduceL2": lambda x, out, **how: np.copyto(out, np.sqrt(np.sum(np.square(x), **how)), casting="unsafe"),
    "ReduceLogSum": _log_of_sum,
    "ReduceMax": partial(_extreme, function=np.maximum, is_lowest=True),
    "ReduceMean": _mean,
    "ReduceMin": partial(_extreme, function=np.minimum, is_lowest=False),
    "ReduceProd": np.multiply.reduce,
    "ReduceSum": np.add.reduce,
    "ReduceSumSquare": partial(_sum_of, function=np.square),
}


class ReduceLogSumExp(ir.Facts, frozen=True):
    """The logarithm of the sum of exponentials along some dimensions."""

    op_types = ("ReduceLogSumExp",)
    is_quick_on_arrays = True

    backward = staticmethod(_backward)
    reduced_axes = staticmethod(_reduced_axes)
    keeps_rows = staticmethod(_keeps_rows)
    transposed = staticmethod(_transposed)
    in_numpy = staticmethod(lambda node: _along_axes(node, _log_of_exponentials))


class ArgReduce(ir.Facts, frozen=True):
    """The index of the largest or smallest element along one dimension."""

    op_types = ("ArgMax", "ArgMin")
    is_quick_on_arrays = True

    keeps_rows = staticmethod(partial(beside_axis, default=0))

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        return along_axis(node, perm, keeps_axis=bool(node.attrs.get("keepdims", 1)))

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        function: ir.NumpyFunction = np.argmax if node.op_type == "ArgMax" else np.argmin
        axis = node.axis_attr("axis", len(node.shape(0)), 0)
        how: dict[str, Any] = {"axis": axis, "keepdims": bool(node.int_attr("keepdims", 1))}
        if not node.flag_attr("select_last_index"):
            return partial(function, **how)

        def last(x: np.ndarray, out: np.ndarray) -> None:
            function(np.flip(x, axis), **how, out=out)
            np.subtract(x.shape[axis] - 1, out, out=out)

        return last


class Cumulative(ir.Facts, frozen=True):
    """Sums and products of all elements up to each one, with or without that, from either end of a dimension."""

    op_types = ("CumProd", "CumSum")
    is_quick_on_arrays = True

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        axis = node.constant(1)
        return rows == {0} and axis is not None and int(axis.item()) % len(node.shape(0)) != 0

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, op, axes = call.node, call.bl.op, call.node.integers(1, "axis")
        flags = {"exclusive": node.int_attr("exclusive", 0), "reverse": 1 - node.int_attr("reverse", 0)}
        is_known = node.op_type == "CumSum" and axes
        return (lambda grad: op("CumSum", grad, axes, **flags),) if is_known else super().backward(call)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        function, nothing = (np.add, 0) if node.op_type == "CumSum" else (np.multiply, 1)
        is_exclusive, is_reversed = node.flag_attr("exclusive"), node.flag_attr("reverse")

        def accumulate(x: np.ndarray, axis: np.ndarray, out: np.ndarray) -> None:
            src, dst = (np.moveaxis(array, int(axis.item()), 0)[:: -1 if is_reversed else 1] for array in (x, out))
            if is_exclusive:
                dst[:1] = nothing
                src, dst = src[:-1], dst[1:]
            if src.size:
                function.accumulate(src, axis=0, dtype=out.dtype, out=dst)

        return accumulate


# --- the largest or smallest elements along one dimension

_WORTH_PARTING = 4
"""How many times as many elements there must be as are wanted, for parting them before sorting to pay."""


class TopK(ir.Facts, frozen=True):
    """The first of the sorted elements, and their places; of equal ones that with the lower index comes first."""

    op_types = ("TopK",)
    is_quick_on_arrays = True

    keeps_rows = staticmethod(beside_axis)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = node.axis_attr("axis", len(node.shape(0)), -1)
        is_largest = bool(node.int_attr("largest", 1))

        def top(x: np.ndarray, k: ir.Given = None, *, out: tuple[ir.Given, ir.Given]) -> None:
            del k  # is the results' extent
            [extent, *_] = (each.shape[axis] for each in out if each is not None)
            for written, found in zip(out, _top(x, extent, axis, is_largest=is_largest), strict=True):
                if written is not None:
                    written[...] = found

        return top

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        is_largest = bool(node.int_attr("largest", 1))

        def top(x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            axis, n = node.axis_attr("axis", x.ndim, -1), int(k.item())
            if not 0 <= n <= x.shape[axis]:
                raise node.wrong(f"k is {n}", f"axis {axis} has {x.shape[axis]} elements")
            return _top(x, n, axis, is_largest=is_largest)

        return top


def _top(x: np.ndarray, n: int, axis: int, *, is_largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The first ``n`` elements along a dimension, and their places."""
    source = np.moveaxis(x, axis, -1)
    places = _first(source, n, is_largest=is_largest) if n else np.zeros((*source.shape[:-1], 0), np.int64)
    values = np.take_along_axis(source, places, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


def _first(x: np.ndarray, n: int, *, is_largest: bool) -> np.ndarray:
    extent = x.shape[-1]
    if extent <= n * _WORTH_PARTING:
        return _sorted(x, is_largest=is_largest)[..., :n]
    rank = extent - n if is_largest else n - 1
    last = np.partition(x, rank, -1)[..., rank, None]
    within = x >= last if is_largest else x <= last
    if (np.count_nonzero(within, -1) != n).any():  # others are equal to the last one, or something is NaN
        return _sorted(x, is_largest=is_largest)[..., :n]
    found = (np.flatnonzero(within) % extent).reshape(*x.shape[:-1], n)
    return np.take_along_axis(found, _sorted(np.take_along_axis(x, found, -1), is_largest=is_largest), -1)


def _sorted(x: np.ndarray, *, is_largest: bool) -> np.ndarray:
    order = np.argsort(x if not is_largest else x[..., ::-1], -1, kind="stable")
    return np.subtract(x.shape[-1] - 1, order[..., ::-1]) if is_largest else order
