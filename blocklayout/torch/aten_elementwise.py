"""Functions of elements: of one tensor, of two with broadcasting, and choices among them."""

from __future__ import annotations

import math
from typing import Any

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import TABLE, Lowering, NodeWriter, lowers

Operand = BuildValue | float

_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp HardSwish Log Mish Neg Reciprocal Relu Sigmoid Sign Sin Sinh
    Sqrt Tan Tanh
"""
_UNARY_OPS = {name.lower(): name for name in _UNARY.split()}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


# Of one tensor.


@lowers(*_UNARY_OPS)
def _unary(w: NodeWriter, x: BuildValue) -> Any:
    op_type = _UNARY_OPS[w.name]
    if w.dtype.startswith("u") or w.dtype == "bool":
        if op_type in ("Abs", "Relu") or (op_type == "Sign" and w.dtype == "bool"):
            return x
        if op_type == "Neg":
            return w.op("Sub", 0, x)
    return w.op(op_type, w.cast(x, w.dtype))


lowers("ceil", "floor", "round")(lambda w, x: w.op(w.name.title(), x) if w.dtype in FLOATS else x)
lowers("trunc")(lambda w, x: _truncated(w, x) if w.dtype in FLOATS else x)


def _truncated(w: NodeWriter, x: BuildValue) -> Any:
    return w.op("Where", w.op("Less", x, 0), w.op("Ceil", x), w.op("Floor", x))


@lowers("round.decimals")
def _rounded_to_decimals(w: NodeWriter, x: BuildValue, *, decimals: int) -> Any:
    there, back, power = ("Mul", "Div", 10.0**decimals) if decimals >= 0 else ("Div", "Mul", 10.0**-decimals)
    return w.op(back, w.op("Round", w.op(there, x, power)), power) if w.dtype in FLOATS else x


def _expm1(w: NodeWriter, x: BuildValue) -> Any:
    half = w.op("Tanh", w.op("Mul", x, 0.5))  # the identity keeps the digits of small ones, which exp(x) - 1 loses
    return w.op("Mul", half, w.op("Add", w.op("Exp", x), 1))


def _log1p(w: NodeWriter, x: BuildValue) -> Any:
    quotient = w.op("Div", x, w.op("Add", x, 2))
    of_small = w.op("Mul", w.op("Atanh", quotient), 2)  # log(1 + x) loses the digits of small ones
    is_small = w.op("Less", w.op("Abs", x), 0.5)
    return w.op("Where", is_small, of_small, w.op("Log", w.op("Add", x, 1)))


def _elu(w: NodeWriter, x: BuildValue, alpha: float, scale: float, input_scale: float) -> Any:
    if input_scale == 1:
        y = w.op("Elu", x, alpha=alpha)
    else:
        steeper = w.op("Mul", w.op("Min", x, 0), input_scale)
        y = w.op("Add", w.op("Relu", x), w.op("Mul", _expm1(w, steeper), alpha))
    return y if scale == 1 else w.op("Mul", y, scale)


def _softplus(w: NodeWriter, x: BuildValue, beta: float, threshold: float) -> Any:
    steeper = x if beta == 1 else w.op("Mul", x, beta)
    y = w.op("Softplus", steeper)
    y = y if beta == 1 else w.op("Mul", y, 1 / beta)
    if threshold >= 20:  # where the two are equal in f32
        return y
    return w.op("Where", w.op("Greater", steeper, threshold), x, y)


_COMPOSED: dict[str, Lowering] = {
    "elu": _elu,
    "erfc": lambda w, x: w.op("Sub", 1, w.op("Erf", x)),
    "exp2": lambda w, x: w.op("Pow", 2, x),
    "expm1": _expm1,
    "gelu": lambda w, x, approximate="none": w.op("Gelu", x, approximate=approximate),
    "hardsigmoid": lambda w, x: w.op("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "leaky_relu": lambda w, x, negative_slope: w.op("LeakyRelu", x, alpha=negative_slope),
    "log10": lambda w, x: w.op("Mul", w.op("Log", x), 1 / math.log(10)),
    "log1p": _log1p,
    "log2": lambda w, x: w.op("Mul", w.op("Log", x), 1 / math.log(2)),
    "rsqrt": lambda w, x: w.op("Reciprocal", w.op("Sqrt", x)),
    "silu": lambda w, x: w.op("Mul", x, w.op("Sigmoid", x)),
    "softplus": _softplus,
}


@lowers(*_COMPOSED)
def _composed(w: NodeWriter, x: BuildValue, *args: Any, **kwargs: Any) -> Any:
    return _COMPOSED[w.name](w, w.cast(x, w.dtype), *args, **kwargs)


lowers("isnan")(lambda w, x: w.op("IsNaN", x if x.dtype in FLOATS else w.cast(x, "f32")))
lowers("isinf")(lambda w, x: w.op("IsInf", x if x.dtype in FLOATS else w.cast(x, "f32")))
lowers("logical_not")(lambda w, x: w.op("Not", w.cast(x, "bool")))
lowers("bitwise_not")(lambda w, x: w.op("Not" if w.dtype == "bool" else "BitwiseNot", x))


@lowers("prelu", "_prelu_kernel")
def _prelu(w: NodeWriter, x: BuildValue, weight: BuildValue) -> Any:
    if len(weight.shape) == 1 and len(x.shape) > 1:
        weight = w.reshape(weight, (weight.shape[0], *(1,) * (len(x.shape) - 2)))
    return w.op("PRelu", x, weight)


@lowers("clamp", "clamp.Tensor", "hardtanh", "relu6")
def _clamp(w: NodeWriter, x: BuildValue, low: Operand | None = 0, high: Operand | None = 6) -> Any:
    y = w.cast(x, w.dtype)
    if not isinstance(low, BuildValue) and not isinstance(high, BuildValue):
        return w.op("Clip", y, low, high)
    for op_type, limit in (("Max", low), ("Min", high)):
        y = y if limit is None else w.op(op_type, y, w.cast(limit, w.dtype))
    return y


# Of two tensors, or a tensor and a number.

_BINARY = {"mul": ("Mul", "And"), "maximum": ("Max", "Or"), "minimum": ("Min", "And")}
_BINARY |= {
    f"{kind}_{name.lower()}": (f"Bitwise{name}", name)
    for kind in ("bitwise", "logical")
    for name in ("And", "Or", "Xor")
}
"""Operators of numbers, and of truth."""


@lowers("mul.Tensor", "mul.Scalar", "maximum", "minimum", "logical_and", "logical_or", "logical_xor")
@lowers(*(f"bitwise_{name}.{kind}" for name in ("and", "or", "xor") for kind in ("Tensor", "Scalar")))
def _binary(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    return w.op(_BINARY[w.name][w.dtype == "bool"], *w.alike(a, b))


@lowers("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar")
def _add(w: NodeWriter, a: BuildValue, b: Operand, alpha: float = 1) -> Any:
    first, second = w.alike(a, b)
    if w.dtype == "bool":
        return w.op("Or", first, second) if alpha else first
    if w.name == "rsub":
        first, second = second, first
    if alpha != 1:
        second = w.op("Mul", second, alpha)
    return w.op("Add" if w.name == "add" else "Sub", first, second)


@lowers("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _div(w: NodeWriter, a: BuildValue, b: Operand, *, rounding_mode: str | None = None) -> Any:
    first, second = w.alike(a, b)
    quotient, is_float = w.op("Div", first, second), w.dtype in FLOATS
    if rounding_mode is None or (rounding_mode == "trunc" and not is_float):
        return quotient
    if rounding_mode == "trunc":
        return _truncated(w, quotient)
    if not is_float:
        return w.op("Div", w.op("Sub", first, w.op("Mod", first, second)), second)
    rest = w.op("Mod", first, second, fmod=1)  # the quotient may be a whole number that is too large by rounding
    whole = w.op("Round", w.op("Div", w.op("Sub", first, rest), second))
    floor = w.op("Where", _is_opposed(w, rest, second), w.op("Sub", whole, 1), whole)
    return w.op("Where", w.op("Equal", second, 0), quotient, floor)


def _is_opposed(w: NodeWriter, rest: BuildValue, divisor: BuildValue) -> Any:
    """Where a rest is not 0, and its sign differs from the divisor's."""
    differs = w.op("Xor", w.op("Less", rest, 0), w.op("Less", divisor, 0))
    return w.op("And", w.op("Not", w.op("Equal", rest, 0)), differs)


lowers("fmod.Tensor", "fmod.Scalar")(lambda w, a, b: w.op("Mod", *w.alike(a, b), fmod=1))


@lowers("remainder.Tensor", "remainder.Scalar")
def _remainder(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    first, second = w.alike(a, b)
    if w.dtype not in FLOATS:
        return w.op("Mod", first, second)
    rest = w.op("Mod", first, second, fmod=1)
    return w.op("Where", _is_opposed(w, rest, second), w.op("Add", rest, second), rest)


@lowers("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(w: NodeWriter, a: Operand, b: Operand) -> Any:
    if w.dtype in FLOATS:
        return w.op("Pow", *w.alike(a, b))
    base, exponent = w.cast(a, "s64"), w.cast(b, "s64")
    power = w.op("Pow", base, w.op("Abs", exponent))
    if isinstance(b, BuildValue):  # where it is negative, all powers are 0 but those of 1 and -1
        is_fraction = w.op("Not", w.op("Equal", w.op("Abs", base), 1))
        is_zero = w.op("And", w.op("Less", exponent, 0), is_fraction)
        power = w.op("Where", is_zero, w.constant(0, "s64"), power)
    return w.cast(power, w.dtype)


@lowers("atan2")
def _atan2(w: NodeWriter, y: BuildValue, x: BuildValue) -> Any:
    y, x = w.alike(y, x)

    def is_negative(value: BuildValue) -> Any:  # of zeros, too
        return w.op("Or", w.op("Less", value, 0), w.op("Less", w.op("Reciprocal", value), 0))

    rise, run = w.op("Abs", y), w.op("Abs", x)
    zero, eighth = w.constant(0, w.dtype), w.constant(math.pi / 4, w.dtype)
    diagonal = w.op("Where", w.op("Equal", rise, 0), zero, eighth)
    angle = w.op("Where", w.op("Equal", rise, run), diagonal, w.op("Atan", w.op("Div", rise, run)))
    upper = w.op("Where", is_negative(x), w.op("Sub", math.pi, angle), angle)
    return w.op("Where", is_negative(y), w.op("Neg", upper), upper)


@lowers(*(f"{name}.{overload}" for name in (*_COMPARISONS, "ne") for overload in ("Tensor", "Scalar")))
def _comparison(w: NodeWriter, a: BuildValue, b: Operand) -> Any:
    dtype = w.compute_dtype
    if dtype == "bool" and w.name not in ("eq", "ne"):
        dtype = "u8"
    found = w.op(_COMPARISONS.get(w.name, "Equal"), w.cast(a, dtype), w.cast(b, dtype))
    return w.op("Not", found) if w.name == "ne" else found


# Choices and conversions.

lowers("where.self")(lambda w, condition, a, b: w.op("Where", w.cast(condition, "bool"), *w.alike(a, b)))
lowers("masked_fill.Scalar", "masked_fill.Tensor")(
    lambda w, x, mask, value: w.op("Where", mask, w.cast(value, w.dtype), x)
)
lowers("_to_copy")(lambda w, x, **_: w.cast(x, w.dtype))
TABLE["prims.convert_element_type.default"] = lambda w, x, _: w.cast(x, w.dtype)
