"""Functions of elements: of one tensor, of two with broadcasting, and choices among them."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx.node import map_arg

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import TABLE, Writer, dtype_name, lowers, lowers_alike, times

Operand = BuildValue | float

_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp HardSwish Log Mish Neg Reciprocal Relu Sigmoid Sign Sin Sinh
    Sqrt Tan Tanh
"""
_UNARY_OPS = {name.lower(): name for name in _UNARY.split()}


# Of one tensor.


@lowers_alike(*_UNARY_OPS)
def _unary(w: Writer, x: BuildValue) -> Any:
    op_type = _UNARY_OPS[w.packet]
    if w.dtype.startswith("u") or w.dtype == "bool":
        if op_type in ("Abs", "Relu") or (op_type == "Sign" and w.dtype == "bool"):
            return x
        if op_type == "Neg":
            return 0 - x
    return w.op(op_type, x)


lowers("ceil", "floor", "round")(lambda w, x: w.op(w.packet.title(), x) if w.dtype in FLOATS else x)
lowers("trunc")(lambda w, x: _truncated(w, x) if w.dtype in FLOATS else x)


def _truncated(w: Writer, x: BuildValue) -> Any:
    return w.where(x < 0, x.ceil(), x.floor())


@lowers("round.decimals")
def _rounded(w: Writer, x: BuildValue, decimals: int) -> BuildValue:
    power = 10.0 ** abs(decimals)
    rounded = (x * power).round() / power if decimals >= 0 else (x / power).round() * power
    return rounded if w.dtype in FLOATS else x


def _expm1(x: BuildValue) -> BuildValue:
    return (x * 0.5).tanh() * (x.exp() + 1)  # the identity keeps the digits of small ones, which exp(x) - 1 loses


@lowers_alike("log1p")
def _log1p(w: Writer, x: BuildValue) -> Any:
    of_small = w.op("Atanh", x / (x + 2)) * 2  # log(1 + x) loses the digits of small ones
    return w.where(abs(x) < 0.5, of_small, (x + 1).log())


@lowers_alike("elu")
def _elu(w: Writer, x: BuildValue, alpha: float, scale: float, input_scale: float) -> Any:
    if input_scale == 1:
        return times(x.elu(alpha), scale)
    return times(x.relu() + _expm1(w.op("Min", x, 0) * input_scale) * alpha, scale)


@lowers_alike("softplus")
def _softplus(w: Writer, x: BuildValue, beta: float, threshold: float) -> Any:
    steeper = times(x, beta)
    y = times(steeper.softplus(), 1 / beta)
    return y if threshold >= 20 else w.where(steeper > threshold, x, y)  # from 20 on the two are equal in f32


lowers_alike("erfc")(lambda w, x: 1 - w.op("Erf", x))
lowers_alike("exp2")(lambda _, x: 2**x)
lowers_alike("expm1")(lambda _, x: _expm1(x))
lowers_alike("gelu")(lambda w, x, approximate: w.op("Gelu", x, approximate=approximate))
lowers_alike("hardsigmoid")(lambda _, x: x.hard_sigmoid(1 / 6))
lowers_alike("leaky_relu")(lambda _, x, negative_slope: x.leaky_relu(negative_slope))
lowers_alike("log10")(lambda _, x: x.log() * (1 / math.log(10)))
lowers_alike("log2")(lambda _, x: x.log() * (1 / math.log(2)))
lowers_alike("rsqrt")(lambda _, x: x.sqrt().reciprocal())
lowers_alike("silu")(lambda _, x: x.swish())
lowers("prelu", "_prelu_kernel")(
    lambda w, x, weight: x.prelu(w.reshape(weight, (math.prod(weight.shape), *(1,) * (len(x.shape) - 2))))
)
lowers("isnan")(lambda w, x: w.op("IsNaN", x if x.dtype in FLOATS else w.cast(x, "f32")))
lowers("isinf")(lambda w, x: w.op("IsInf", x if x.dtype in FLOATS else w.cast(x, "f32")))
lowers("logical_not")(lambda w, x: w.op("Not", w.cast(x, "bool")))
lowers("bitwise_not")(lambda w, x: w.op("Not" if w.dtype == "bool" else "BitwiseNot", x))


@lowers_alike("clamp", "clamp.Tensor", "hardtanh", "relu6")
def _clamp(w: Writer, x: BuildValue, low: Operand | None = 0, high: Operand | None = 6) -> Any:
    if not isinstance(low, BuildValue) and not isinstance(high, BuildValue):
        return w.op("Clip", x, low, high)
    for op_type, limit in (("Max", low), ("Min", high)):
        x = x if limit is None else w.op(op_type, x, limit)
    return x


# Of two tensors, or a tensor and a number.

_BINARY = {"mul": ("Mul", "And"), "maximum": ("Max", "Or"), "minimum": ("Min", "And")}
_BINARY |= {f"{of}_{op.lower()}": (f"Bitwise{op}", op) for of in ("bitwise", "logical") for op in ("And", "Or", "Xor")}
"""Operators of numbers, and of truth."""

_TENSORS = ("maximum", "minimum", "logical_and", "logical_or", "logical_xor")
_SCALARS = (f"{name}.{kind}" for name in {*_BINARY}.difference(_TENSORS) for kind in ("Tensor", "Scalar"))

lowers_alike(*_TENSORS, *_SCALARS)(lambda w, a, b: w.op(_BINARY[w.packet][w.dtype == "bool"], a, b))


@lowers_alike("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar")
def _add(w: Writer, a: BuildValue, b: Any, alpha: float) -> Any:
    if w.dtype == "bool":
        return w.op("Or", a, b) if alpha else a
    if w.packet == "rsub":
        return b - times(a, alpha)
    return a + times(b, alpha) if w.packet == "add" else a - times(b, alpha)


@lowers_alike("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _div(w: Writer, a: BuildValue, b: Any, rounding_mode: str | None = None) -> Any:
    is_float = w.dtype in FLOATS
    if rounding_mode is None or (rounding_mode == "trunc" and not is_float):
        return a / b
    if rounding_mode == "trunc":
        return _truncated(w, a / b)
    rest = w.op("Mod", a, b, fmod=int(is_float))
    if not is_float:
        return (a - rest) / b
    whole = ((a - rest) / b).round()  # the quotient may be a whole number that is too large by rounding
    return w.where(w.cast(b, w.dtype) == 0, a / b, w.where(_is_opposed(w, rest, b), whole - 1, whole))


def _is_opposed(w: Writer, rest: BuildValue, divisor: Operand) -> Any:
    """Where a rest is not 0, and its sign differs from the divisor's."""
    return w.op("And", rest != 0, w.op("Xor", rest < 0, divisor < 0))


lowers_alike("fmod.Tensor", "fmod.Scalar")(lambda w, a, b: w.op("Mod", a, b, fmod=1))


@lowers_alike("remainder.Tensor", "remainder.Scalar")
def _remainder(w: Writer, a: BuildValue, b: Operand) -> Any:
    rest = w.op("Mod", a, b, fmod=int(w.dtype in FLOATS))
    return w.where(_is_opposed(w, rest, b), rest + b, rest) if w.dtype in FLOATS else rest


@lowers("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(w: Writer, a: Operand, b: Operand) -> Any:
    if w.dtype in FLOATS:
        return w.cast(a, w.dtype) ** w.cast(b, w.dtype)
    base, exponent = w.cast(a, "s64"), w.cast(b, "s64")
    power = base ** abs(exponent)
    if isinstance(b, BuildValue):  # where it is negative, all powers are 0 but those of 1 and -1
        power = w.op("Where", w.op("And", exponent < 0, abs(base) != 1), w.array(0, "s64"), power)
    return w.cast(power, w.dtype)


@lowers_alike("atan2")
def _atan2(w: Writer, y: BuildValue, x: BuildValue) -> Any:
    def is_negative(value: BuildValue) -> Any:  # of zeros, too
        return w.op("Or", value < 0, value.reciprocal() < 0)

    rise, run = abs(y), abs(x)
    diagonal = w.where(rise == 0, 0, math.pi / 4)
    angle = w.where(rise == run, diagonal, w.op("Atan", rise / run))
    upper = w.where(is_negative(x), math.pi - angle, angle)
    return w.where(is_negative(y), -upper, upper)


@lowers(*(f"{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")))
def _comparison(w: Writer, *operands: Operand) -> Any:
    dtype = dtype_name(torch.result_type(*map_arg(w.node.args, lambda node: node.meta["val"])))
    if dtype == "bool" and w.packet not in ("eq", "ne"):
        dtype = "u8"
    return getattr(operator, w.packet)(*(w.cast(each, dtype) for each in operands))


# Choices and conversions.

lowers("where.self")(lambda w, condition, a, b: w.where(w.cast(condition, "bool"), a, b))
lowers("masked_fill.Scalar", "masked_fill.Tensor")(lambda w, x, mask, value: w.where(mask, value, x))
TABLE["prims.convert_element_type.default"] = lowers("_to_copy")(lambda w, x: w.cast(x, w.dtype))
lowers("_assert_tensor_metadata")(lambda *_, **__: (None,))  # stands before casts
