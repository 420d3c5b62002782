"""Pooling of maxima, means and norms, windowed and global, and max unpooling."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm
from blocklayout.ops._answers import MOVED, always, is_known, is_source, of_source, per_channel
from blocklayout.ops._layouts import Follower, are_eltwise, argument, with_roles_swapped
from blocklayout.ops._window import (
    check_extents,
    combined,
    n_seen,
    padded_window,
    read_kernel_shape,
    read_window,
    sliding,
)
from blocklayout.ops.binary import Combination, Operand, temporaries_of, whole_of

_FIRST_OPSET_OF_BYTES = 12
_GLOBAL = {"GlobalAveragePool": "pooling_avg_exclude_padding", "GlobalMaxPool": "pooling_max"}


class Pooling(Follower, frozen=True):
    """The maximum or the mean of every window.

    Maxima are computed by code of our own, which keeps NaN; by the library's, which does not, where there is none.

    Attributes:
        is_shared: Whether means are multiplied by the constant ``share``: that of the window that counts.
        numbering: Of the elements that ``indices`` names; empty where these are not read.
    """

    op_types: ClassVar[tuple[str, ...]] = ("AveragePool", "MaxPool", *_GLOBAL)
    needs = (is_source(3, 5, MOVED),)
    byte_operands: ClassVar[tuple[str, ...]] = ("src",)

    algorithm: str
    window: ir.Window
    is_shared: bool = False
    numbering: str = ""

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "X")
        windows = pooling_windows(node, src)
        if isinstance(windows, ir.Refusal):
            return windows
        if node.op_type in _GLOBAL:
            return cls(_GLOBAL[node.op_type], windows[0]).bind({"src": src})
        window, covering = windows
        if any(node.outputs[1:]) and src.dtype in PRIMITIVE_FLOATS:
            numbering = "column_major" if node.int_attr("storage_order", 0) else "row_major"
            lowered = cls("pooling_max", covering, numbering=numbering).bind({"src": src})
            return replace(lowered, others={"indices": node.outputs[1]})
        algorithm = _algorithm(node, window, covering)
        if algorithm != "pooling_avg_include_padding" or covering == window:
            return cls(algorithm, covering).bind({"src": src})
        # ONNX counts pads, but not those that ceil_mode adds behind; oneDNN counts the whole window.
        shares = _shares(window, covering, src.shape[2:])
        return cls(algorithm, covering, is_shared=True).bind({"src": src}, {"share": shares})

    keeps_rows = staticmethod(of_source)
    rounds = staticmethod(lambda op_type: "Max" not in op_type)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        if any(node.outputs[1:]):
            return None
        src = node.required(0, "X")
        window, covering = windows_of(node, src)
        is_padding_counted = _algorithm(node, window, covering) == "pooling_avg_include_padding"

        def largest(x: np.ndarray, out: np.ndarray) -> None:
            lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
            out[...] = combined(x, covering, out.shape[2:], np.maximum, lowest)

        def mean(x: np.ndarray, out: np.ndarray) -> None:
            wide = x.astype(np.result_type(x.dtype, np.float32), copy=False)
            total = combined(wide, covering, out.shape[2:], np.add, 0)
            for d, (n_windows, extent) in enumerate(zip(out.shape[2:], x.shape[2:], strict=True)):
                begin, end = window.pads_begin[d], window.pads_begin[d] + extent
                counted = (window.pads_end[d] + end, 0) if is_padding_counted else (end, begin)
                total = total / n_seen(window, d, n_windows, *counted).reshape(-1, *(1,) * (x.ndim - 3 - d))
            out[...] = total

        return largest if node.op_type.endswith("MaxPool") else mean

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, bl, x, desc = call.node, call.bl, call.sources[0], call.sources[0].desc
        window, covering = windows_of(node, node.required(0, "X"))
        given: Any = (window.kernel, window.strides, covering.pads)
        if node.op_type.endswith("MaxPool"):
            return (lambda grad, *_: bl.max_pool_backward(grad, x, *given, dilations=window.dilations),)
        if node.op_type == "GlobalAveragePool":
            return (lambda grad: bl.global_average_pool_backward(grad, desc),)
        if max(window.dilations) > 1:
            return "means over dilated windows have no gradient here"
        counts = _algorithm(node, window, covering) == "pooling_avg_include_padding"
        shares = _shares(window, covering, desc.dims[2:]) if counts and covering != window else 1
        return (lambda grad: bl.average_pool_backward(grad * shares, desc, *given, count_include_pad=counts),)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        return per_channel(node, perm) if node.op_type in _GLOBAL else None

    not_negative_if = staticmethod(always((0,)))

    @classmethod
    def selects(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        takes_bytes = node.op_type == "MaxPool" and node.opset >= _FIRST_OPSET_OF_BYTES and not any(node.outputs[1:])
        is_padded = takes_bytes and isinstance(pooling_windows(node, node.required(0, "X")), ir.Refusal)
        return (0,) if takes_bytes and not is_padded else None

    @classmethod
    def padded(cls, node: ir.NodeInfo, padding: ir.Padding, *, is_lowest: bool) -> Mapping[str, Any] | None:
        if node.op_type in _GLOBAL or node.attrs.get("ceil_mode", 0) or any(node.outputs[1:]):
            return None
        attrs = padded_window(node, padding)
        kernel = tuple(node.attrs.get("kernel_shape", ()))
        dilations = tuple(node.attrs.get("dilations", (1,) * len(kernel)))
        reach = [(extent - 1) * dilation + 1 for extent, dilation in zip(kernel, dilations, strict=True)]
        if attrs is None or any(pad >= extent for pad, extent in zip(attrs["pads"], reach * 2, strict=True)):
            return None
        if node.op_type == "MaxPool":
            return attrs if is_lowest else None
        counts = bool(node.attrs.get("count_include_pad", 0)) or not any(node.attrs.get("pads", ()))
        if padding.value != 0 or not counts:
            return None
        return {**attrs, "count_include_pad": 1}

    def post_ops_of_bytes(self, sources: Mapping[str, tuple[float, int]]) -> tuple[dnnl.PostOp, ...]:
        scale, zero = sources["src"]
        if self.algorithm != "pooling_avg_exclude_padding" and (zero or self.algorithm == "pooling_max"):
            raise UnsupportedError(f"{self.algorithm} of bytes takes no zero point, and maxima no scale")
        return (dnnl.Eltwise("linear", scale, -scale * zero),)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.scales and (self.is_shared or self.numbering or dst.dtype != src.dtype):
            return None
        attr = replace(attr, scales=(), zero_points=())
        if self.is_shared:
            return self._with_shares(src, dst, problem, attr) if are_eltwise(attr.post_ops) else None
        slides: Any = {"kernel": self.window.kernel, **sliding(self.window), "n_threads": problem.n_threads}
        if self.algorithm == "pooling_max" and src.dtype in PRIMITIVE_FLOATS:
            places = dst.with_dtype("s64") if self.numbering else None
            largest = dnnl.max_pooling(src, dst, places, numbering=self.numbering or "row_major", **slides)
            if dnnl.has_optimised(largest):
                return None if attr.post_ops else ir.Recipe.single(largest)
        if self.numbering:
            return None
        seen, window = self._seen((src, dst), attr)
        slides |= {"kernel": window.kernel, **sliding(window)}
        spec = dnnl.pooling(*seen, self.algorithm, attr=attr, **slides)
        return ir.Recipe.single(spec, whole=(("src", src), ("dst", dst)))

    def _seen(
        self, descs: tuple[MemoryDesc, MemoryDesc], attr: dnnl.Attr
    ) -> tuple[tuple[MemoryDesc, MemoryDesc], ir.Window]:
        """Both under extents that have vectors: images innermost, or untouched last dimensions, are channels."""
        swapped = with_roles_swapped(*descs) if are_eltwise(attr.post_ops) else None
        if swapped is not None:
            return (swapped[0], swapped[1]), self.window
        window, ndims = self.window, descs[0].ndims
        untouched = zip(window.kernel, window.strides, window.pads_begin, window.pads_end, strict=True)
        sliding = [each != (1, 1, 0, 0) for each in untouched]
        n_sliding = max((i + 1 for i, is_sliding in enumerate(sliding) if is_sliding), default=0)
        is_plain = all(desc.is_contiguous() and not desc.inner_blks for desc in descs)
        if not 0 < n_sliding < ndims - 2 or not is_plain or not are_eltwise(attr.post_ops):
            return descs, window
        last = 2 + n_sliding
        letters = "abcde"[:last]
        tag = letters[0] + letters[2:] + letters[1]
        extents = [(prod(desc.dims[:2]), prod(desc.dims[last:]), *desc.dims[2:last]) for desc in descs]
        src, dst = (MemoryDesc(dims, desc.dtype, tag) for dims, desc in zip(extents, descs, strict=True))
        parts = (window.kernel, window.strides, window.pads_begin, window.pads_end, window.dilations)
        return (src, dst), ir.Window(*(part[:n_sliding] for part in parts))

    def _with_shares(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        slides: Any = {"kernel": self.window.kernel, **sliding(self.window), "n_threads": problem.n_threads}
        mean = dnnl.pooling(src, dst, self.algorithm, **slides)
        dims = {"share": argument(problem, "share").dims}
        shared = Combination("binary_mul", dst, attr, problem.n_threads)
        product = shared.steps(Operand("dst", dst.dims), Operand("share", dims["share"]))
        if product is None:
            return None
        steps = (*ir.Recipe.single(mean).steps, *product)
        return ir.Recipe(steps, temporaries_of(dst, product), (("src", src), *whole_of(dst, dims)))


def pooling_windows(node: ir.NodeInfo, src: ir.Value) -> tuple[ir.Window, ir.Window] | ir.Refusal:
    """The window, and it with the pads that ``ceil_mode`` adds; a refusal where one sees nothing but padding."""
    if 0 in src.shape[2:]:
        return node.refused(f"{src.name} has extents {list(src.shape)}", "a window must see at least one element")
    window, covering = windows_of(node, src)
    reach, dilations, spatial = covering.reach, covering.dilations, src.shape[2:]
    # oneDNN and ONNX fill windows of nothing but padding differently.
    if any(pad >= extent for extent, pad in zip(reach * 2, covering.pads, strict=True)):
        what = f"pads {list(covering.pads)} reach past windows of {list(reach)}"
    elif any(dilation > extent for dilation, extent in zip(dilations, spatial, strict=True)):
        what = f"dilations {list(dilations)} exceed the source's {list(spatial)}"
    else:
        return window, covering
    return node.refused(what, "a window must see at least one element of the source")


def windows_of(node: ir.NodeInfo, src: ir.Value) -> tuple[ir.Window, ir.Window]:
    """The same windows, also of nothing but padding."""
    spatial = src.shape[2:]
    if node.op_type.startswith("Global"):
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        window = ir.Window(spatial, ones, zeros, zeros, ones)
    else:
        window = read_window(node, read_kernel_shape(node, len(spatial)), spatial)
    covering = _covering(node, window, spatial) if node.flag_attr("ceil_mode") else window
    check_extents(node, covering.extents(spatial))
    return window, covering


def _covering(node: ir.NodeInfo, window: ir.Window, spatial: tuple[int, ...]) -> ir.Window:
    """The window with end pads that make room for the last, incomplete one of ``ceil_mode``."""
    n_windows = node.result.shape[2:]
    if len(n_windows) != len(spatial):
        raise node.wrong(f"output {node.result.name} has rank {2 + len(n_windows)}", f"{2 + len(spatial)} is right")
    end = []
    for d, n in enumerate(n_windows):
        step, extent = window.strides[d], spatial[d] + window.pads_begin[d]
        needed = (n - 1) * step + window.reach[d] - extent
        # At most one incomplete window; the comparison of extents refuses a model with more.
        end.append(max(window.pads_end[d], min(needed, window.pads_end[d] + step - 1)))
    return ir.Window(window.kernel, window.strides, window.pads_begin, tuple(end), window.dilations)


def _algorithm(node: ir.NodeInfo, window: ir.Window, covering: ir.Window) -> str:
    if node.op_type == "MaxPool":
        return "pooling_max"
    if not node.flag_attr("count_include_pad") or not any(covering.pads):
        return "pooling_avg_exclude_padding"
    # Nothing but pads of ceil_mode, which are not counted either way.
    return "pooling_avg_include_padding" if any(window.pads) else "pooling_avg_exclude_padding"


def _shares(window: ir.Window, covering: ir.Window, spatial: tuple[int, ...]) -> np.ndarray:
    """By how much a mean over a whole window is too small, where its end lies behind the pads."""
    shares = np.ones(())
    for d, n_windows in enumerate(covering.extents(spatial)):
        counted = n_seen(window, d, n_windows, spatial[d] + window.pads_begin[d] + window.pads_end[d])
        shares = np.multiply.outer(shares, window.kernel[d] / counted)
    return shares.astype(np.float32)[None, None]


def _exponent(node: ir.NodeInfo) -> float:
    p = node.float_attr("p", 2)
    if p <= 0:
        raise node.wrong(f"attribute p is {p}", "it must be above 0")
    return p


class LpPooling(Follower, frozen=True):
    """The norm of every window: the root of the sum of its elements' powers ``p``."""

    op_types = ("GlobalLpPool", "LpPool")
    needs = (is_source(3, 5),)

    window: ir.Window
    p: float

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "X")
        windows = pooling_windows(node, src)
        return windows if isinstance(windows, ir.Refusal) else cls(windows[1], _exponent(node)).bind({"src": src})

    keeps_rows = staticmethod(of_source)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction:
        p, (_, window) = _exponent(node), windows_of(node, node.required(0, "X"))

        def norm(x: np.ndarray, out: np.ndarray) -> None:
            powers = np.abs(x.astype(np.result_type(x.dtype, np.float32), copy=False)) ** p
            out[...] = combined(powers, window, out.shape[2:], np.add, 0) ** (1 / p)

        return norm

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x,), (y,), bl, p = call.sources, call.results, call.bl, _exponent(call.node)
        _, window = windows_of(call.node, call.node.required(0, "X"))

        def gradient(grad: Any) -> Any:
            """By the sum of powers, and then by each element; 0 where all of a window are 0."""
            of_sum = grad * float(prod(window.kernel)) / bl.max(y ** (p - 1), 1e-30)
            given = (x.desc, window.kernel, window.strides, window.pads)
            of_power = bl.average_pool_backward(of_sum, *given, count_include_pad=True)
            return of_power * bl.op("Sign", x) * abs(x) ** (p - 1)

        return (gradient,)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        return per_channel(node, perm) if node.op_type == "GlobalLpPool" else None

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        source, steps = "src", []
        powers, roots = self._functions()
        for function in powers:
            given = function.algorithm, function.alpha, function.beta
            power = dnnl.eltwise(src, src, *given, n_threads=problem.n_threads)
            steps.append(ir.RecipeStep(power, (("dst", "powers"), ("src", source))))
            source = "powers"
        # The mean counts pads, which are zeros, so that it is the sum over as many elements everywhere.
        total = dnnl.Eltwise("linear", prod(self.window.kernel))
        slides: Any = {"kernel": self.window.kernel, **sliding(self.window), "n_threads": problem.n_threads}
        after = dnnl.Attr((total, *roots, *attr.post_ops))
        mean = dnnl.pooling(src, dst, "pooling_avg_include_padding", **slides, attr=after)
        steps.append(ir.RecipeStep(mean, (("dst", "dst"), ("src", source))))
        return ir.Recipe(tuple(steps), (("powers", src),))

    def _functions(self) -> tuple[tuple[dnnl.Eltwise, ...], tuple[dnnl.Eltwise, ...]]:
        """Functions of each element before the sum, and of each sum."""
        if self.p == 2:
            return (dnnl.Eltwise("square"),), (dnnl.Eltwise("sqrt"),)
        if self.p == 1:
            return (dnnl.Eltwise("abs"),), ()
        return (dnnl.Eltwise("abs"), dnnl.Eltwise("pow", 1.0, self.p)), (dnnl.Eltwise("pow", 1.0, 1 / self.p),)


class MaxUnpooling(Follower, frozen=True):
    """Zeros, and each element at its index, counted in the extents ``numbered``; a larger result ends in zeros."""

    op_types: ClassVar[tuple[str, ...]] = ("MaxUnpool",)
    needs = (is_source(3, 5), is_known(2, "output_shape"))

    numbered: tuple[int, ...]

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        op, indices = call.bl.op, call.sources[1]
        return (lambda grad: op("Gather", grad.reshape((-1,)), indices),)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, indices = node.required(0, "X"), node.required(1, "I")
        spatial = src.shape[2:]
        kernel = read_kernel_shape(node, len(spatial))
        strides = node.ints_attr("strides", len(spatial), 1, at_least=1)
        pads = node.ints_attr("pads", 2 * len(spatial), 0, at_least=0)
        numbered = src.shape[:2] + tuple(
            (extent - 1) * stride + reach - begin - end
            for extent, stride, reach, begin, end in zip(
                spatial, strides, kernel, pads[: len(spatial)], pads[len(spatial) :], strict=True
            )
        )
        if indices.shape != src.shape:
            raise node.wrong(f"I has extents {list(indices.shape)}", f"X has {list(src.shape)}")
        dims = node.result.shape
        fits = len(dims) == len(numbered) and all(0 < n <= d for n, d in zip(numbered, dims, strict=True))
        if not fits or dims[:2] != numbered[:2]:
            raise node.wrong(f"the result has extents {list(dims)}", f"the window makes them {list(numbered)} or more")
        return cls(numbered).bind({"src": src, "indices": indices})

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        spec = dnnl.max_unpooling(src, src.with_dtype("s64"), dst, self.numbered, n_threads=problem.n_threads)
        return ir.Recipe.single(spec)
