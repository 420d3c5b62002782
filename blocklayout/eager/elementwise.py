"""Functions of each element: the result has the format of what they are given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.tensor import Tensor

_ABS = Op("abs", op_type="Abs")
_CEIL = Op("ceil", op_type="Ceil")
_EXP = Op("exp", op_type="Exp")
_FLOOR = Op("floor", op_type="Floor")
_HARD_SWISH = Op("hard_swish", op_type="HardSwish")
_LOG = Op("log", op_type="Log")
_MISH = Op("mish", op_type="Mish")
_NEG = Op("neg", op_type="Neg")
_RECIPROCAL = Op("reciprocal", op_type="Reciprocal")
_RELU = Op("relu", op_type="Relu")
_ROUND = Op("round", op_type="Round")
_SIGMOID = Op("sigmoid", op_type="Sigmoid")
_SIGN = Op("sign", op_type="Sign")
_SOFTPLUS = Op("softplus", op_type="Softplus")
_SQRT = Op("sqrt", op_type="Sqrt")
_TANH = Op("tanh", op_type="Tanh")
_ELU = Op("elu", op_type="Elu")
_LEAKY_RELU = Op("leaky_relu", op_type="LeakyRelu")
_SWISH = Op("swish", op_type="Swish")
_THRESHOLDED_RELU = Op("thresholded_relu", op_type="ThresholdedRelu")
_HARD_SIGMOID = Op("hard_sigmoid", op_type="HardSigmoid")
_GELU = Op("gelu", build=lambda x, **attrs: x.gelu(**attrs))
_CLIP = Op("clip", build=lambda x, **attrs: x.clip(**attrs))


def abs(x: Operand) -> Tensor:
    """The size of each element."""
    return call(_ABS, (as_tensor(x, "x"),))[0]


def ceil(x: Operand) -> Tensor:
    """The smallest whole number that is not below."""
    return call(_CEIL, (as_tensor(x, "x"),))[0]


def exp(x: Operand) -> Tensor:
    """The exponential function."""
    return call(_EXP, (as_tensor(x, "x"),))[0]


def floor(x: Operand) -> Tensor:
    """The largest whole number that is not above."""
    return call(_FLOOR, (as_tensor(x, "x"),))[0]


def hard_swish(x: Operand) -> Tensor:
    """Swish of straight lines: x * clip(x / 6 + 1/2, 0, 1)."""
    return call(_HARD_SWISH, (as_tensor(x, "x"),))[0]


def log(x: Operand) -> Tensor:
    """The natural logarithm."""
    return call(_LOG, (as_tensor(x, "x"),))[0]


def mish(x: Operand) -> Tensor:
    """Mish: x * tanh(log(1 + exp(x)))."""
    return call(_MISH, (as_tensor(x, "x"),))[0]


def neg(x: Operand) -> Tensor:
    """The negative."""
    return call(_NEG, (as_tensor(x, "x"),))[0]


def reciprocal(x: Operand) -> Tensor:
    """1 / x."""
    return call(_RECIPROCAL, (as_tensor(x, "x"),))[0]


def relu(x: Operand) -> Tensor:
    """max(x, 0)."""
    return call(_RELU, (as_tensor(x, "x"),))[0]


def round(x: Operand) -> Tensor:
    """The closest whole number, the even one of two."""
    return call(_ROUND, (as_tensor(x, "x"),))[0]


def sigmoid(x: Operand) -> Tensor:
    """1 / (1 + exp(-x))."""
    return call(_SIGMOID, (as_tensor(x, "x"),))[0]


def sign(x: Operand) -> Tensor:
    """-1, 0 or 1."""
    return call(_SIGN, (as_tensor(x, "x"),))[0]


def softplus(x: Operand) -> Tensor:
    """log(1 + exp(x))."""
    return call(_SOFTPLUS, (as_tensor(x, "x"),))[0]


def sqrt(x: Operand) -> Tensor:
    """The square root."""
    return call(_SQRT, (as_tensor(x, "x"),))[0]


def tanh(x: Operand) -> Tensor:
    """Hyperbolic tangent."""
    return call(_TANH, (as_tensor(x, "x"),))[0]


def elu(x: Operand, alpha: float = 1.0) -> Tensor:
    """ELU: alpha * (exp(x) - 1) below 0, x from there on."""
    return call(_ELU, (as_tensor(x, "x"),), (("alpha", float(alpha)),))[0]


def leaky_relu(x: Operand, alpha: float = 0.01) -> Tensor:
    """Leaky ReLU: alpha * x below 0, x from there on."""
    return call(_LEAKY_RELU, (as_tensor(x, "x"),), (("alpha", float(alpha)),))[0]


def swish(x: Operand, alpha: float = 1.0) -> Tensor:
    """Swish: x / (1 + exp(-alpha * x))."""
    return call(_SWISH, (as_tensor(x, "x"),), (("alpha", float(alpha)),))[0]


def thresholded_relu(x: Operand, alpha: float = 1.0) -> Tensor:
    """Thresholded ReLU: x above alpha, else 0."""
    return call(_THRESHOLDED_RELU, (as_tensor(x, "x"),), (("alpha", float(alpha)),))[0]


def hard_sigmoid(x: Operand, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """clip(alpha * x + beta, 0, 1)."""
    return call(_HARD_SIGMOID, (as_tensor(x, "x"),), (("alpha", float(alpha)), ("beta", float(beta))))[0]


def gelu(x: Operand, *, approximate: bool = False) -> Tensor:
    """The normal distribution's x * P(X <= x), exactly or by way of tanh."""
    return call(_GELU, (as_tensor(x, "x"),), (("approximate", approximate),))[0]


def clip(x: Operand, lo: float = -math.inf, hi: float = math.inf) -> Tensor:
    """Limits to ``lo`` below and ``hi`` above; ``clip(x, 0, 6)`` is Relu6."""
    return call(_CLIP, (as_tensor(x, "x"),), (("lo", float(lo)), ("hi", float(hi))))[0]


def identity(x: Operand) -> Tensor:
    """What it is given."""
    return as_tensor(x, "x")


def dropout(x: Operand) -> Tensor:
    """What inference leaves of dropout: what it is given."""
    return as_tensor(x, "x")


def cast(x: Operand, dtype: str) -> Tensor:
    """Another data type, in the same format; see :meth:`Tensor.astype`."""
    return as_tensor(x, "x").astype(dtype)


def cast_like(x: Operand, other: Operand) -> Tensor:
    """The data type of ``other``, in the format of ``x``."""
    return cast(x, as_tensor(other, "other").dtype)
