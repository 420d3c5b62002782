"""Functions of elements: of one tensor, of two with broadcasting, and choices among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers

Operand = BuildValue | float

_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp HardSwish Log Mish Neg Reciprocal Relu Sigmoid Sign Sin Sinh
    Sqrt Tan Tanh
"""
_UNARY_OPS = {name.lower(): name for name in _UNARY.split()}
_ROUNDING = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
_BITWISE = {"and": "And", "or": "Or", "xor": "Xor"}


def _name(w: NodeWriter) -> str:
    """The operator's name without its namespace and overload."""
    return w.overload.split(".")[1]


# Of one tensor.


@lowers(*(f"aten.{name}.default" for name in _UNARY_OPS))
def _unary(w: NodeWriter, x: BuildValue) -> Any:
    op_type = _UNARY_OPS[_name(w)]
    if w.dtype.startswith("u") or w.dtype == "bool":
        if op_type in ("Abs", "Relu") or (op_type == "Sign" and w.dtype == "bool"):
            return x
        if op_type == "Neg":
            return w.op("Sub", w.constant(0, w.dtype), x)
    return w.op(op_type, w.cast(x, w.dtype))


@lowers(*(f"aten.{name}.default" for name in _ROUNDING))
def _rounding(w: NodeWriter, x: BuildValue) -> Any:
    return w.op(_ROUNDING[_name(w)], x) if w.dtype in FLOATS else x


@lowers("aten.trunc.default")
def _trunc(w: NodeWriter, x: BuildValue) -> Any:
    if w.dtype not in FLOATS:
        return x
    return w.op("Where", w.op("Less", x, w.constant(0, w.dtype)), w.op("Ceil", x), w.op("Floor", x))


@lowers("aten.round.decimals")
def _round_to_decimals(w: NodeWriter, x: BuildValue, *, decimals: int) -> Any:
    if w.dtype not in FLOATS:
        return x
    power = w.constant(10.0 ** abs(decimals), w.dtype)
    there, back = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return w.op(back, w.op("Round", w.op(there, x, power)), power)


_COMPOSED: dict[str, Callable[[NodeWriter, BuildValue], Any]] = {
    "erfc": lambda w, x: w.op("Sub", w.constant(1, w.dtype), w.op("Erf", x)),
    "exp2": lambda w, x: w.op("Pow", w.constant(2, w.dtype), x),
    "rsqrt": lambda w, x: w.op("Reciprocal", w.op("Sqrt", x)),
    "log2": lambda w, x: w.op("Mul", w.op("Log", x), w.constant(1 / math.log(2), w.dtype)),
    "log10": lambda w, x: w.op("Mul", w.op("Log", x), w.constant(1 / math.log(10), w.dtype)),
    "silu": lambda w, x: w.op("Mul", x, w.op("Sigmoid", x)),
    "hardsigmoid": lambda w, x: w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5),
}


@lowers(*(f"aten.{name}.default" for name in _COMPOSED))
def _composed(w: NodeWriter, x: BuildValue) -> Any:
    return _COMPOSED[_name(w)](w, w.cast(x, w.dtype))


@lowers("aten.expm1.default")
def _expm1(w: NodeWriter, x: BuildValue) -> Any:
    x = w.cast(x, w.dtype)  # the identity keeps the digits of small ones, which exp(x) - 1 loses
    half = w.op("Tanh", w.op("Mul", x, w.constant(0.5, w.dtype)))
    return w.op("Mul", half, w.op("Add", w.op("Exp", x), w.constant(1, w.dtype)))


@lowers("aten.log1p.default")
def _log1p(w: NodeWriter, x: BuildValue) -> Any:
    x = w.cast(x, w.dtype)
    quotient = w.op("Div", x, w.op("Add", x, w.constant(2, w.dtype)))
    of_small = w.op("Mul", w.op("Atanh", quotient), w.constant(2, w.dtype))  # log(1 + x) loses the digits of small ones
    is_small = w.op("Less", w.op("Abs", x), w.constant(0.5, w.dtype))
    return w.op("Where", is_small, of_small, w.op("Log", w.op("Add", x, w.constant(1, w.dtype))))


@lowers("aten.isnan.default", "aten.isinf.default")
def _is_special(w: NodeWriter, x: BuildValue) -> Any:
    floats = w.cast(x, "f32") if x.dtype not in FLOATS else x
    return w.op("IsNaN" if _name(w) == "isnan" else "IsInf", floats)


@lowers("aten.logical_not.default", "aten.bitwise_not.default")
def _not(w: NodeWriter, x: BuildValue) -> Any:
    if _name(w) == "bitwise_not" and x.dtype != "bool":
        return w.op("BitwiseNot", x)
    return w.op("Not", w.cast(x, "bool"))


# Activations.


@lowers("aten.elu.default")
def _elu(w: NodeWriter, x: BuildValue, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    if input_scale == 1:
        y = w.op("Elu", x, alpha=alpha)
    else:
        zero = w.constant(0, w.dtype)
        steeper = w.op("Mul", w.op("Min", x, zero), w.constant(input_scale, w.dtype))
        y = w.op("Add", w.op("Relu", x), w.op("Mul", _expm1(w, steeper), w.constant(alpha, w.dtype)))
    return y if scale == 1 else w.op("Mul", y, w.constant(scale, w.dtype))


@lowers("aten.leaky_relu.default")
def _leaky_relu(w: NodeWriter, x: BuildValue, negative_slope: float = 0.01) -> Any:
    return w.op("LeakyRelu", x, alpha=negative_slope)


@lowers("aten.prelu.default", "aten._prelu_kernel.default")
def _prelu(w: NodeWriter, x: BuildValue, weight: BuildValue) -> Any:
    if len(weight.shape) == 1 and len(x.shape) > 1:
        weight = w.reshape(weight, (weight.shape[0], *(1,) * (len(x.shape) - 2)))
    return w.op("PRelu", x, weight)


@lowers("aten.gelu.default")
def _gelu(w: NodeWriter, x: BuildValue, *, approximate: str = "none") -> Any:
    return w.op("Gelu", x, approximate=approximate)


@lowers("aten.softplus.default")
def _softplus(w: NodeWriter, x: BuildValue, beta: float = 1, threshold: float = 20) -> Any:
    steeper = x if beta == 1 else w.op("Mul", x, w.constant(beta, w.dtype))
    y = w.op("Softplus", steeper)
    y = y if beta == 1 else w.op("Mul", y, w.constant(1 / beta, w.dtype))
    if threshold >= 20:  # where the two are equal in f32
        return y
    return w.op("Where", w.op("Greater", steeper, w.constant(threshold, w.dtype)), x, y)


@lowers("aten.clamp.default", "aten.clamp.Tensor", "aten.hardtanh.default", "aten.relu6.default")
def _clamp(w: NodeWriter, x: BuildValue, min: Operand | None = None, max: Operand | None = None) -> Any:
    defaults = {"hardtanh": (-1, 1), "relu6": (0, 6)}.get(_name(w), (None, None))
    limits = [given if given is not None else usual for given, usual in zip((min, max), defaults, strict=True)]
    y = w.cast(x, w.dtype)
    if not any(isinstance(limit, BuildValue) for limit in limits):
        return w.op("Clip", y, *(None if limit is None else w.constant(limit, w.dtype) for limit in limits))
    for op_type, limit in zip(("Max", "Min"), limits, strict=True):
        y = y if limit is None else w.op(op_type, y, w.cast(limit, w.dtype))
    return y


# Of two tensors, or a tensor and a number.


@lowers("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Scalar")
def _add(w: NodeWriter, a: BuildValue, b: Operand, alpha: float = 1) -> Any:
    first, second = w.cast(a, w.dtype), w.cast(b, w.dtype)
    if w.dtype == "bool":
        return w.op("Or", first, second) if alpha else first
    if _name(w) == "rsub":
        first, second = second, first
    if alpha != 1:
        second = w.op("Mul", second, w.constant(alpha, w.dtype))
    return w.op("Add" if _name(w) == "add" else "Sub", first, second)


@lowers("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    return w.op("And" if w.dtype == "bool" else "Mul", w.cast(a, w.dtype), w.cast(b, w.dtype))


@lowers("aten.maximum.default", "aten.minimum.default")
def _extreme(w: NodeWriter, a: BuildValue, b: BuildValue) -> Any:
    names = ("Or", "And") if w.dtype == "bool" else ("Max", "Min")
    return w.op(names[_name(w) == "minimum"], w.cast(a, w.dtype), w.cast(b, w.dtype))


@lowers("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div(w: NodeWriter, a: BuildValue, b: Operand, *, rounding_mode: str | None = None) -> Any:
    first, second = w.cast(a, w.dtype), w.cast(b, w.dtype)
    quotient = w.op("Div", first, second)
    if rounding_mode is None or (rounding_mode == "trunc" and w.dtype not in FLOATS):
        return quotient
    if rounding_mode == "trunc":
        return _trunc(w, quotient)
    zero, one = w.constant(0, w.dtype), w.constant(1, w.dtype)
    if w.dtype in FLOATS:  # of what divides, the quotient may be a whole number that is too large by rounding
        rest = w.op("Mod", first, second, fmod=1)
        whole = w.op("Round", w.op("Div", w.op("Sub", first, rest), second))
        floor = w.op("Where", _is_opposed(w, rest, second), w.op("Sub", whole, one), whole)
        return w.op("Where", w.op("Equal", second, zero), quotient, floor)
    rest = w.op("Sub", first, w.op("Mul", quotient, second))
    return w.op("Where", _is_opposed(w, rest, second), w.op("Sub", quotient, one), quotient)


def _is_opposed(w: NodeWriter, rest: BuildValue, divisor: BuildValue) -> Any:
    """Where a rest is not 0, and its sign differs from the divisor's."""
    zero = w.constant(0, rest.dtype)
    if rest.dtype.startswith("u"):
        return w.constant(False)
    differs = w.op("Xor", w.op("Less", rest, zero), w.op("Less", divisor, zero))
    return w.op("And", w.op("Not", w.op("Equal", rest, zero)), differs)


@lowers("aten.fmod.Tensor", "aten.fmod.Scalar", "aten.remainder.Tensor", "aten.remainder.Scalar")
def _mod(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    first, second = w.cast(a, w.dtype), w.cast(b, w.dtype)
    if _name(w) == "fmod":
        return w.op("Mod", first, second, fmod=1)
    if w.dtype not in FLOATS:
        return w.op("Mod", first, second)
    rest = w.op("Mod", first, second, fmod=1)
    return w.op("Where", _is_opposed(w, rest, second), w.op("Add", rest, second), rest)


@lowers("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def _pow(w: NodeWriter, a: Operand, b: Operand) -> Any:
    if w.dtype in FLOATS:
        return w.op("Pow", w.cast(a, w.dtype), w.cast(b, w.dtype))
    base, exponent = w.cast(a, "s64"), w.cast(b, "s64")
    power = w.op("Pow", base, w.op("Abs", exponent))
    if isinstance(b, BuildValue):  # where it is negative, all powers are 0 but those of 1 and -1
        zero, one = w.constant(0, "s64"), w.constant(1, "s64")
        is_fraction = w.op("Not", w.op("Equal", w.op("Abs", base), one))
        power = w.op("Where", w.op("And", w.op("Less", exponent, zero), is_fraction), zero, power)
    return w.cast(power, w.dtype)


@lowers("aten.atan2.default")
def _atan2(w: NodeWriter, y: BuildValue, x: BuildValue) -> Any:
    y, x = w.cast(y, w.dtype), w.cast(x, w.dtype)
    zero, pi = w.constant(0, w.dtype), w.constant(math.pi, w.dtype)

    def is_negative(value: BuildValue) -> Any:  # of zeros, too
        return w.op("Or", w.op("Less", value, zero), w.op("Less", w.op("Reciprocal", value), zero))

    rise, run = w.op("Abs", y), w.op("Abs", x)
    diagonal = w.op("Where", w.op("Equal", rise, zero), zero, w.constant(math.pi / 4, w.dtype))
    angle = w.op("Where", w.op("Equal", rise, run), diagonal, w.op("Atan", w.op("Div", rise, run)))
    upper = w.op("Where", is_negative(x), w.op("Sub", pi, angle), angle)
    return w.op("Where", is_negative(y), w.op("Neg", upper), upper)


@lowers(*(f"aten.{name}.{overload}" for name in (*_COMPARISONS, "ne") for overload in ("Tensor", "Scalar")))
def _comparison(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    name, dtype = _name(w), w.compute_dtype
    if dtype == "bool" and name not in ("eq", "ne"):
        dtype = "u8"
    found = w.op(_COMPARISONS.get(name, "Equal"), w.cast(a, dtype), w.cast(b, dtype))
    return w.op("Not", found) if name == "ne" else found


@lowers(*(f"aten.logical_{name}.default" for name in _BITWISE))
def _logical(w: NodeWriter, a: BuildValue, b: BuildValue) -> Any:
    return w.op(_BITWISE[_name(w).removeprefix("logical_")], w.cast(a, "bool"), w.cast(b, "bool"))


@lowers(*(f"aten.bitwise_{name}.{overload}" for name in _BITWISE for overload in ("Tensor", "Scalar")))
def _bitwise(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    op_type = _BITWISE[_name(w).removeprefix("bitwise_")]
    return w.op(op_type if w.dtype == "bool" else f"Bitwise{op_type}", w.cast(a, w.dtype), w.cast(b, w.dtype))


# Choices and conversions.


@lowers("aten.where.self")
def _where(w: NodeWriter, condition: BuildValue, a: Operand, b: Operand) -> Any:
    return w.op("Where", w.cast(condition, "bool"), w.cast(a, w.dtype), w.cast(b, w.dtype))


@lowers("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(w: NodeWriter, x: BuildValue, mask: BuildValue, value: Operand) -> Any:
    return w.op("Where", mask, w.cast(value, w.dtype), x)


@lowers("aten._to_copy.default", "prims.convert_element_type.default")
def _to_copy(w: NodeWriter, x: BuildValue, *_: Any, **__: Any) -> BuildValue:
    return w.cast(x, w.dtype)
