"""Integers that stand for real numbers by a scale and a zero point; their products and convolutions, exact.

Primitives multiply bytes in sums of 32 bits, and take each operand's zero point away. These are the constants
``zero_point_src`` and ``zero_point_weights``, or ``src_zero`` and ``weights_zero``, which are computed at run time.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.lib.stride_tricks import sliding_window_view

from blocklayout import dnnl, ir
from blocklayout.dnnl import own
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.ir.result_format import dominating, row_major
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import always, beside_axis, optimised_impl
from blocklayout.ops._layouts import Follower, argument, has_argument, plain
from blocklayout.ops._window import read_window
from blocklayout.ops.conv import Conv
from blocklayout.ops.matmul import MatMul

_EXACT_IN_F32 = 1 << 24
_MIDDLE_OF_U8 = 128
_OPERANDS = ("src", "weights")
_SCALES = ("src_scale", "weights_scale")


def have_one_number(node: ir.NodeInfo) -> ir.Refusal | None:
    """The zero points, inputs 2 and 3, are a number each, or a known one several times."""
    for value in filter(None, (node.input(2), node.input(3))):
        is_one = prod(value.shape) == 1 or (value.data is not None and value.data.size and not np.ptp(value.data))
        if not is_one:
            what = f"{value.name} has extents {list(value.shape)}"
            return node.refused(what, "its primitive takes one number for all")
    return None


def of_signed(value: ir.Value, zero: ir.Value | None) -> int | None:
    """A known zero point of weights that are made signed; ``None`` of an unknown one."""
    if zero is not None and zero.data is None:
        return None
    return _number(zero) - (_MIDDLE_OF_U8 if value.dtype == "u8" else 0)


def _in_common(zero: ir.Value | None) -> ir.Value | None:
    """A known zero point as one number where all are equal, and ``None`` where they are 0."""
    if zero is None or zero.data is None or not zero.data.size or np.ptp(zero.data):
        return zero
    return ir.Value(zero.name, (1,), zero.dtype, zero.data.reshape(-1)[:1]) if zero.data.flat[0] else None


def exact_floats(n_products: int) -> Any:
    """The type that holds every sum of so many products of bytes, each less its zero point."""
    return np.float32 if n_products << 16 < _EXACT_IN_F32 else np.float64


class ByteProduct(ir.BaseOperator, frozen=True):
    """Products of bytes in sums of 32 bits: of ``product``, after each operand's zero point was taken away.

    Or as floats: these sums times the operands' scales, plus a bias.
    """

    role = ir.Role.CHOOSER

    product: ir.BaseOperator

    @classmethod
    def with_zeros(cls, product: ir.Lowered, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        """The operator bound as the other is, to its zero points, scales and bias; constant weights are made signed."""
        sources, constants = dict(product.sources), dict(product.constants)
        weights, zeros = node.required(1, "B"), dict(zip(_OPERANDS, (node.input(2), node.input(3)), strict=True))
        for name, zero in zeros.items():
            if zero is not None and zero.data is None:
                sources[f"{name}_zero"] = zero
                continue
            known = of_signed(weights, zero) if name == "weights" else _number(zero)
            if known:
                constants[f"zero_point_{name}"] = np.full(1, known, np.int32)
        if weights.dtype == "u8":
            constants["weights"] = (constants["weights"].astype(np.int16) - _MIDDLE_OF_U8).astype(np.int8)
        for name, value in zip((*_SCALES, "bias"), map(node.input, (4, 5, 6)), strict=True):
            if value is not None and value.data is not None:
                constants[name] = value.data.reshape(-1)
            elif value is not None:
                sources[name] = value
        found, dst = ir.Lowered(cls(product.operator), sources, constants), node.result
        if cls.is_exact(found, ir.TensorInfo(dst.dims, dst.dtype)):
            return found
        if dnnl.sums_bytes_exactly():
            return node.refused(f"{weights.name} has a zero point", "its primitive takes weights around 0")
        return node.refused(f"sums of two products saturate on {dnnl.isa()}", "those of other operands are exact")

    @classmethod
    def is_exact(cls, lowered: ir.Lowered, dst: ir.TensorInfo) -> bool:
        """Whether an implementation sums products exactly: any of a CPU that does so, or one beside references."""
        return dnnl.sums_bytes_exactly() or bool(optimised_impl(lowered, dst))

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops and problem.dst.dtype == "s32":
            return None
        recipe = self.product.lower(problem, wish, self._with_numbers(attr, problem))
        return None if recipe is None else _with_operands(recipe, problem)

    def _with_numbers(self, attr: dnnl.Attr, problem: ir.Problem) -> dnnl.Attr:
        zeros, scales = tuple((name, 0) for name in _shifted(problem)), []
        for name in _scaled(problem):
            is_for_all = argument(problem, f"{name}_scale").dims == (1,)
            scales.append((name, 0 if is_for_all else self.product.scale_mask(argument(problem, name))))
        return replace(attr, zero_points=zeros, scales=tuple(scales))

    def meant(self, wish: ir.Wish) -> ir.Wish:
        return self.product.meant(wish)

    def likeness(self, problem: ir.Problem) -> object:
        return type(self), _shifted(problem), _scaled(problem), self.product.likeness(problem)


def _number(zero: ir.Value | None) -> int:
    return 0 if zero is None or zero.data is None else int(zero.data.flat[0])


def _with_operands(recipe: ir.Recipe, problem: ir.Problem) -> ir.Recipe:
    """The recipe of such a primitive, behind copies of computed zero points as 32 bits."""
    steps, temporaries = [], []
    for name in _OPERANDS:
        given = problem.sources.get(f"{name}_zero")
        if given is not None:
            narrow, wide = plain(given), MemoryDesc(given.dims, "s32")
            spec = dnnl.reorder(narrow, wide, n_threads=problem.n_threads)
            steps.append(ir.RecipeStep(spec, (("dst", f"zero_point_{name}"), ("src", f"{name}_zero"))))
            temporaries.append((f"zero_point_{name}", wide))
    [product] = recipe.steps
    zeros = {f"zero_point_{name}": f"zero_point_{name}" for name in _shifted(problem)}
    scales = {f"scale_{name}": f"{name}_scale" for name in _scaled(problem)}
    steps.append(replace(product, operands=tuple((dict(product.operands) | zeros | scales).items())))
    return replace(recipe, steps=tuple(steps), temporaries=(*recipe.temporaries, *temporaries))


def _shifted(problem: ir.Problem) -> tuple[str, ...]:
    given = {*problem.sources, *problem.constants}
    return tuple(name for name in _OPERANDS if given & {f"{name}_zero", f"zero_point_{name}"})


def _scaled(problem: ir.Problem) -> tuple[str, ...]:
    return tuple(name for name in _OPERANDS if has_argument(problem, f"{name}_scale"))


def _has_signed_weights(node: ir.NodeInfo) -> ir.Refusal | None:
    """Constants are made so, and so is their zero point."""
    weights = node.required(1, "B")
    if weights.dtype == "s8" or (weights.data is not None and of_signed(weights, node.input(3)) is not None):
        return None
    what = f"B ({weights.name}) is u8, and it or its zero point computed at run time"
    return node.refused(what, "its primitive takes s8")


def exact_product(a: np.ndarray, b: np.ndarray, a_zero: ir.Given = None, b_zero: ir.Given = None) -> np.ndarray:
    """By floats, which the library behind numpy multiplies fast, wide enough for every sum."""
    wide = exact_floats(a.shape[-1])
    first, second = a.astype(wide), b.astype(wide)
    if a_zero is not None:
        first -= a_zero[..., None] if a_zero.ndim == a.ndim - 1 and a_zero.size > 1 else a_zero
    if b_zero is not None:
        second -= b_zero
    product: np.ndarray = np.matmul(first, second)
    return product


def _scaled_sums(sums: Any, behind: tuple[int, ...]) -> ir.NumpyFunction:
    """The sums of a function as floats; ``behind`` the channels, which have scales, are as many ones."""

    def compute(*given: Any, out: np.ndarray) -> None:
        operands, numbers = given[:4], [1 if each is None else each for each in given[4:6]]
        scale, bias = (np.reshape(each, (-1, *behind)) for each in (numbers[0] * numbers[1], *given[6:], 0.0)[:2])
        out[...] = sums(*operands) * scale.astype(np.float32) + bias

    return compute


class IntegerProduct(ByteProduct, frozen=True):
    """A product of matrices of bytes."""

    op_types = ("MatMulInteger",)
    needs = (have_one_number, _has_signed_weights)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        product = MatMul.from_onnx(node)
        return product if isinstance(product, ir.Refusal) else cls.with_zeros(product, node)

    in_numpy = staticmethod(always(lambda *operands, out: np.copyto(out, exact_product(*operands), casting="unsafe")))
    result_format = staticmethod(row_major)


class ScaledProduct(IntegerProduct, frozen=True):
    """A product of matrices of bytes as floats; inputs 4 to 6 are the scales of both, and a bias."""

    op_types = ("blocklayout.ScaledMatMulInteger",)

    in_numpy = staticmethod(always(_scaled_sums(exact_product, ())))

    @classmethod
    def is_exact(cls, lowered: ir.Lowered, dst: ir.TensorInfo) -> bool:
        """Only code of our own was tried with scales that are computed."""
        return own.implementation(optimised_impl(lowered, dst)) is not None


def _has_known_weights(node: ir.NodeInfo) -> ir.Refusal | None:
    weights = node.required(1, "W")
    if weights.data is not None and of_signed(weights, node.input(3)) is not None:
        return None
    return node.refused(f"W ({weights.name}) or its zero point is computed at run time", "its primitive packs weights")


class IntegerConvolution(ByteProduct, frozen=True):
    """A convolution of bytes."""

    op_types = ("ConvInteger",)
    needs = (have_one_number, _has_known_weights)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        return cls.with_zeros(Conv.from_onnx(replace(node, inputs=node.inputs[:2])), node)

    @classmethod
    def is_exact(cls, lowered: ir.Lowered, dst: ir.TensorInfo) -> bool:
        """The library convolves by weights around 0 alone; code of ours by others."""
        if "zero_point_weights" in lowered.constants:
            return bool(optimised_impl(lowered, dst))
        return super().is_exact(lowered, dst)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        convolve = exact_convolution(node, node.shape(1))

        return lambda *operands, out: np.copyto(out, convolve(*operands), casting="unsafe")

    result_format = staticmethod(dominating)


class ScaledConvolution(IntegerConvolution, frozen=True):
    """A convolution of bytes as floats, likewise."""

    op_types = ("blocklayout.ScaledConvInteger",)
    is_exact = ScaledProduct.is_exact

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        return _scaled_sums(exact_convolution(node, node.shape(1)), (1,) * (len(node.shape(1)) - 2))


def exact_convolution(node: ir.NodeInfo, weights: tuple[int, ...]) -> Any:
    """A function of arrays ``x``, ``w`` and their zero points, by floats wide enough for every sum."""
    window = read_window(node, weights[2:], node.shape(0)[2:])
    groups = node.int_attr("group", 1)

    def convolve(x: np.ndarray, w: np.ndarray, x_zero: ir.Given = None, w_zero: ir.Given = None) -> np.ndarray:
        wide = exact_floats(prod(w.shape[1:]))
        x, w = x.astype(wide), w.astype(wide)
        if x_zero is not None:
            x -= x_zero
        if w_zero is not None:
            w -= w_zero.reshape(-1, *(1,) * (w.ndim - 1))
        return _convolved(x, w, window, groups)

    return convolve


def _convolved(x: np.ndarray, w: np.ndarray, window: ir.Window, groups: int) -> np.ndarray:
    """As one product of matrices for each group, of windows side by side."""
    n_spatial = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(window.pads_begin, window.pads_end, strict=True)])
    seen = sliding_window_view(padded, window.reach, tuple(range(2, x.ndim)))
    steps: Any = (slice(None, None, step) for step in window.strides + window.dilations)
    seen = seen[(..., *steps)]
    parts = zip(np.split(seen, groups, 1), np.split(w, groups), strict=True)
    summed = (1, *range(2 + n_spatial, 2 + 2 * n_spatial))
    found = [np.tensordot(part, weights, (summed, range(1, w.ndim))) for part, weights in parts]
    return np.moveaxis(np.concatenate(found, -1), -1, 1)


class Quantized(ir.BaseOperator, frozen=True):
    """To integers and back, by numbers for the whole tensor, for each index along a dimension, or for each block."""

    is_elementwise = True

    axis: int = 0

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        is_for_all = all(prod(node.shape(index)) == 1 for index in range(1, len(node.inputs)))
        return rows == {0} and (is_for_all or (beside_axis(node, rows, 1) and not node.attrs.get("block_size", 0)))

    @classmethod
    def bound(cls, node: ir.NodeInfo, integers: ir.Value) -> ir.Lowered | ir.Refusal:
        """The operator with its scale and zero point, where these are known, of bytes, and fit a reorder."""
        scale, zero = node.required(1, "scale"), node.input(2)
        if integers.dtype not in BYTE_DTYPES:
            return node.refused(f"{integers.name} is {integers.dtype}", "primitives convert u8 and s8")
        for value in filter(None, (scale, zero)):
            if value.data is None:
                return node.refused(f"{value.name} is computed at run time", "primitives convert by known numbers")
        if scale.dtype != "f32":
            return node.refused(f"{scale.name} is {scale.dtype}", "primitives take scales in f32")
        if len(scale.shape) > 1:
            return node.refused(f"{scale.name} is of blocks", "primitives convert whole tensors, or along an axis")
        zero = _in_common(zero)
        if zero is not None and prod(zero.shape) != 1:
            return node.refused(f"{zero.name} has several numbers", "primitives take one zero point for all")
        arrays = {"scale": node.known(scale, "scale").reshape(-1)}
        if zero is not None and zero.data is not None:
            arrays["zero_point"] = zero.data.astype(np.int32)
        src = node.required(0, "x")
        axis = node.axis_attr("axis", len(src.shape), 1) if arrays["scale"].size > 1 else 0
        return cls(axis).bind({"src": src}, arrays)

    def mask(self, n_scales: int) -> int:
        """The mask of so many scales of the whole, or along the axis."""
        return 1 << self.axis if n_scales > 1 else 0


class Dequantize(Quantized, frozen=True):
    """Real numbers that are left as the bytes that stand for them; readers take bytes and scale, or have a reorder."""

    op_types = ("DequantizeLinear",)
    role = ir.Role.VIEW

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        refusal = node.of_other_dtype(node.result)
        return refusal or cls.bound(node, node.required(0, "x"))

    @classmethod
    def quantization(cls, node: ir.NodeInfo) -> ir.Quantization | None:
        src, scale, zero = node.input(0), node.input(1), node.input(2)
        if src is None or src.dtype not in BYTE_DTYPES or node.attrs.get("block_size", 0) or scale is None:
            return None
        if any(value is not None and value.data is None for value in (scale, zero)) or scale.dtype != "f32":
            return None
        zero, axis = _in_common(zero), node.int_attr("axis", 1) % max(len(src.shape), 1)
        around_zero = None if src.data is None else _around_zero(src, src.data, zero, axis)
        if around_zero is not None:
            return ir.Quantization("s8", scale, None, axis, around_zero)
        if zero is not None and prod(zero.shape) != 1:
            return None
        return ir.Quantization(src.dtype, scale, zero, axis, None if src.data is None else src)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        return partial(_dequantize, axis=node.int_attr("axis", 1), block=node.int_attr("block_size", 0))

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc

    back = through


class Quantize(Quantized, frozen=True):
    """The nearest bytes: of the primitive that computes the real numbers, or by a quotient, or by a reorder."""

    op_types = ("QuantizeLinear",)
    role = ir.Role.CHOOSER  # a reorder writes any layout
    byte_operands = ("src",)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        bound = node.of_other_dtype(node.required(0, "x")) or cls.bound(node, node.result)
        if isinstance(bound, ir.Refusal):
            return bound
        scale = bound.constants["scale"]
        if scale.size == 1 or np.abs(scale).min() < np.finfo(np.float32).tiny:
            return bound
        axis = node.axis_attr("axis", len(node.result.shape), 1)
        # The scale of a primitive's result is one number; of several, it is multiplied by their reciprocals before.
        extents = np.where(np.arange(len(node.result.shape)) == axis, -1, 1)
        factor = (1 / scale).reshape(extents)
        return replace(bound, constants={**bound.constants, "factor": factor})

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        return partial(_quantize, axis=node.int_attr("axis", 1), block=node.int_attr("block_size", 0))

    def as_post_op(self, arg: str, problem: ir.Problem) -> ir.PostOpUse | None:
        del arg
        if "factor" in problem.constants:
            return ir.PostOpUse(dnnl.Binary("mul"), "factor", writes_bytes=True)
        return ir.PostOpUse(None, writes_bytes=True) if problem.constants["scale"].dims == (1,) else None

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        src, dst = (wish.src_desc(problem.sources["src"]), wish.dst_desc(problem.dst))
        if attr.post_ops or not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc):
            return None
        if not attr.scales and (recipe := self._as_quotient(src, dst, problem)):
            return recipe
        shifted = (("dst", 0),) if "zero_point" in problem.constants else ()
        mask = self.mask(problem.constants["scale"].dims[0])
        attr = replace(attr, scales=(*attr.scales, ("dst", mask)), zero_points=(*attr.zero_points, *shifted))
        names = {"scale_dst": "scale"} | ({"zero_point_dst": "zero_point"} if shifted else {})
        return ir.Recipe.single(dnnl.reorder(src, dst, attr=attr, n_threads=problem.n_threads), names)

    def _as_quotient(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem) -> ir.Recipe | None:
        """Where no byte changes its place and one scale is for all: in a third to two thirds of a reorder's time."""
        stays = src.with_dtype(dst.dtype) == dst and dst.is_dense and not dst.n_padding
        if not stays or src.dtype == "f16" or problem.constants["scale"].dims != (1,):
            return None
        numbers, integers = (MemoryDesc((1, dst.nbytes), desc.dtype) for desc in (src, dst))
        shift = (dnnl.Binary("add", MemoryDesc((1, 1), "s32")),) if "zero_point" in problem.constants else ()
        given: Any = {"attr": dnnl.Attr(shift), "n_threads": problem.n_threads}
        spec = dnnl.binary(numbers, MemoryDesc((1, 1)), integers, "div", **given)
        names = {"dst": "dst", "src_0": "src", "src_1": "scale"}
        names |= {"post_op_0_src_1": "zero_point"} if shift else {}
        step = ir.RecipeStep(spec, tuple(sorted(names.items())))
        whole = ("src", src), ("dst", dst), *((name, plain(info)) for name, info in problem.constants.items())
        return ir.Recipe((step,), whole=whole)


class DynamicQuantize(Follower, frozen=True):
    """The nearest bytes, by the scale and zero point that spread these over the numbers; ``results`` are these too."""

    op_types = ("DynamicQuantizeLinear",)

    results: tuple[str, ...] = ()

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "x")
        named = zip(("scale", "zero_point"), node.outputs[1:], strict=False)
        others = {name: value for name, value in named if value is not None}
        operator, numbers = cls((*others,)), MemoryDesc(src.dims, src.dtype)
        if src.dtype != "f32" or not dnnl.has_optimised(operator._spec(numbers, dnnl.default_threads())):
            return node.refused("nothing here finds a scale as it runs", "give scales to QuantizeLinear")
        return operator.bind({"src": src}, others=others)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        del dst
        return None if attr.post_ops or src.dtype != "f32" else ir.Recipe.single(self._spec(src, problem.n_threads))

    def _spec(self, src: MemoryDesc, n_threads: int) -> dnnl.Spec:
        numbers = {name: MemoryDesc((1,), "f32" if name == "scale" else "u8") for name in self.results}
        return dnnl.dynamic_quantization(src, src.with_dtype("u8"), **numbers, n_threads=n_threads)


def _around_zero(integers: ir.Value, array: np.ndarray, zero: ir.Value | None, axis: int) -> ir.Value | None:
    """Constant bytes less their zero points, as signed ones; ``None`` where some of these are beyond them."""
    if integers.dtype == "s8" and zero is None:
        return integers
    wide = array.astype(np.int16) - (0 if zero is None else _spread(zero.data, array, axis, 0).astype(np.int16))
    signed = wide.astype(np.int8)
    return ir.Value(f"{integers.name}.signed", integers.shape, "s8", signed) if (signed == wide).all() else None


def _quantize(x: np.ndarray, scale: np.ndarray, zero: ir.Given = None, *, out: Any, axis: int, block: int) -> None:
    write_rounded(np.divide(x, _spread(scale, x, axis, block)), _spread(zero, x, axis, block), out)


def write_rounded(numbers: np.ndarray, zero: np.ndarray | None, out: np.ndarray) -> None:
    """Write the nearest integers of the result's type, ``zero`` added; ``numbers`` are lost."""
    numbers = np.rint(numbers)
    if zero is not None:
        numbers = numbers + zero
    limits = np.iinfo(out.dtype)
    np.copyto(out, np.clip(numbers, limits.min, limits.max), casting="unsafe")


def _dequantize(x: np.ndarray, scale: np.ndarray, zero: ir.Given = None, *, out: Any, axis: int, block: int) -> None:
    wide = x.astype(np.float32)
    if zero is not None:
        wide -= _spread(zero, x, axis, block).astype(np.float32)
    np.multiply(wide, _spread(scale, x, axis, block), out=out, casting="unsafe")


def _spread(given: np.ndarray | None, x: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to ``x``."""
    if given is None or given.size == 1:
        return given if given is None else given.reshape(())  # type: ignore[return-value]
    if given.ndim == 1:
        extents = [1] * x.ndim
        extents[axis] = given.size
        return given.reshape(extents)
    whole = np.repeat(given, block, axis)
    return np.take(whole, range(x.shape[axis]), axis)
