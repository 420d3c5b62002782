"""Functions of one element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.ir import (
    BaseOperator,
    Facts,
    Lowered,
    Need,
    NodeInfo,
    NumpyFunction,
    PostOpUse,
    Problem,
    Recipe,
    Refusal,
    Role,
    Wish,
)
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._needs import is_known, is_source
from blocklayout.ops._padded import keeps_zero, over_padding, with_padding

_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "Abs": ("abs",),
    "Elu": ("elu", ("alpha", 1.0)),
    "Exp": ("exp",),
    "HardSigmoid": ("hardsigmoid", ("alpha", 0.2), ("beta", 0.5)),
    "HardSwish": ("hardswish", 1 / 6, 0.5),
    "LeakyRelu": ("relu", ("alpha", 0.01)),
    "Log": ("log",),
    "Mish": ("mish",),
    "Neg": ("linear", -1.0),
    "Reciprocal": ("pow", 1.0, -1.0),
    "Relu": ("relu",),
    "Round": ("round",),
    "Sigmoid": ("logistic",),
    "Softplus": ("soft_relu", 1.0),
    "Sqrt": ("sqrt",),
    "Swish": ("swish", ("alpha", 1.0)),
    "Tanh": ("tanh",),
}
"""The library's algorithm, and its alpha and beta: numbers, or attributes with their defaults."""

_NEVER_NEGATIVE = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softplus", "Sqrt"})

_F32_ONLY = frozenset({"eltwise_round"})
"""Algorithms whose primitive knows no other data type."""

_FLAT = frozenset({"Round"})

Slope = tuple[str, float, float]
"""An algorithm of the primitive of gradients, its alpha and its beta."""


class Eltwise(BaseOperator, frozen=True):
    """One function of every element, where oneDNN's and ONNX's agree.

    Attributes:
        algorithm: oneDNN's name for it.
        alpha: Its first parameter, whatever that means to the algorithm.
        beta: Its second.
    """

    op_types: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    is_quick_on_arrays: ClassVar[bool] = True
    role: ClassVar[Role] = Role.FOLLOWER
    needs: ClassVar[tuple[Need, ...]] = (is_source(1, 12),)
    is_elementwise: ClassVar[bool] = True

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        algorithm, *numbers = _FUNCTIONS[node.op_type]
        read = (node.float_attr(*each) if isinstance(each, tuple) else each for each in numbers)
        return Eltwise(f"eltwise_{algorithm}", *read).bind({"src": node.required(0, "X")})

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        return _IN_NUMPY.get(node.op_type)

    @classmethod
    def has_gradient(cls, op_type: str) -> bool:
        return op_type not in _FLAT

    @classmethod
    def gradient(cls, op_type: str, call: Any, grad: Any, x: Any, parameters: Mapping[str, Any]) -> Any:
        return call.of_slope(grad, x, cls.slope(op_type, call, parameters))

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        """The function as the primitive of gradients takes it; its parameters are those of the function in Python."""
        del call
        algorithm, *numbers = _FUNCTIONS[op_type]
        read = [parameters[each[0]] if isinstance(each, tuple) else each for each in numbers]
        alpha, beta = (*read, 0.0, 0.0)[:2]
        return algorithm, alpha, beta

    @classmethod
    def not_negative_if(cls, node: NodeInfo) -> tuple[int, ...] | None:
        return () if node.op_type in _NEVER_NEGATIVE else None

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or (self.algorithm in _F32_ONLY and descs[0].dtype != "f32"):
            return None
        src, dst = descs
        if attr.post_ops or not dst.n_padding or not dst.is_dense or keeps_zero(self._function):
            return Recipe.single(self._spec(src, dst, attr, problem.n_threads))
        spec = self._spec(with_padding(src), with_padding(dst), attr, problem.n_threads)
        return over_padding(spec, {"src": src, "dst": dst})

    def as_post_op(self, arg: str, problem: Problem) -> PostOpUse | None:
        del arg, problem
        return PostOpUse(self._function)

    @property
    def _function(self) -> dnnl.Eltwise:
        return dnnl.Eltwise(self.algorithm, self.alpha, self.beta)

    def _spec(self, src: MemoryDesc, dst: MemoryDesc, attr: dnnl.Attr, n_threads: int) -> dnnl.Spec:
        return dnnl.eltwise(src, dst, self.algorithm, alpha=self.alpha, beta=self.beta, attr=attr, n_threads=n_threads)


class Gelu(Eltwise, frozen=True):
    """The normal distribution's x * P(X <= x), exactly or by way of tanh."""

    op_types: ClassVar[tuple[str, ...]] = ("Gelu",)

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        exact = node.string_attr("approximate", ("none", "tanh")) == "none"
        function = Eltwise("eltwise_gelu_erf" if exact else "eltwise_gelu_tanh")
        return function.bind({"src": node.required(0, "X")})

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        del op_type, call
        return "gelu_tanh" if parameters["approximate"] else "gelu_erf", 0.0, 0.0


class Power(Eltwise, frozen=True):
    """Powers of one known exponent."""

    op_types: ClassVar[tuple[str, ...]] = ("Pow",)
    needs: ClassVar[tuple[Need, ...]] = (is_source(1, 12), is_known(1, "the exponent"))
    is_elementwise: ClassVar[bool] = False
    broadcasts_from: ClassVar[int | None] = 0

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        base, exponent = node.required(0, "X"), node.known(node.required(1, "Y"), "the exponent")
        if exponent.size != 1 or exponent.ndim > len(base.shape):
            what = f"the exponent has extents {list(exponent.shape)}"
            return node.refused(what, "its primitive takes one exponent for all elements")
        number = float(exponent.reshape(()))
        if not np.isfinite(number):
            return node.refused(f"the exponent is {number}", "its primitive takes finite ones")
        function = Eltwise("eltwise_square") if number == 2 else Eltwise("eltwise_pow", 1.0, number)
        return function.bind({"src": base})

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        del node
        return _power

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        del op_type, call
        return "pow", 1.0, parameters["exponent"]


class NumpyFunctions(Facts, frozen=True):
    """Functions of every element that no primitive computes."""

    op_types: ClassVar[tuple[str, ...]] = (
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Celu", "Cos", "Erf", "IsInf", "IsNaN"),
        *("Not", "Selu", "Shrink", "Sin", "Sinh", "Softsign", "Tan"),
    )
    is_elementwise: ClassVar[bool] = True

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        if node.op_type == "Shrink":
            return partial(_shrink, bias=node.float_attr("bias", 0.0), limit=node.float_attr("lambd", 0.5))
        if node.op_type == "IsInf":
            signs = {1: node.int_attr("detect_positive", 1), -1: node.int_attr("detect_negative", 1)}
            return partial(_is_infinite, signs=[sign for sign, is_sought in signs.items() if is_sought])
        if node.op_type == "Erf" and node.result.dtype not in PRIMITIVE_FLOATS:
            return None  # the polynomials are of single precision
        return _IN_NUMPY.get(node.op_type)


def _power(base: np.ndarray, exponent: np.ndarray, out: np.ndarray) -> None:
    if out.dtype.kind in "iu" and exponent.dtype.kind == "i" and (exponent < 0).any():
        base = base.astype(np.float64)  # numpy refuses such powers of integers
    np.power(base, exponent, out=out, casting="unsafe")


def _relu(x: np.ndarray, out: np.ndarray) -> None:
    np.maximum(x, x.dtype.type(0), out=out)


def _sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    """By way of tanh, which overflows nowhere."""
    np.tanh(x / 2, out=out)
    out += 1
    out /= 2


def _shrink(x: np.ndarray, out: np.ndarray, bias: float, limit: float) -> None:
    out[...] = 0
    np.add(x, bias, out=out, where=x < -limit, casting="unsafe")
    np.subtract(x, bias, out=out, where=x > limit, casting="unsafe")


def _is_infinite(x: np.ndarray, out: np.ndarray, signs: Sequence[int]) -> None:
    if len(signs) == 1:
        np.equal(x, x.dtype.type(signs[0] * np.inf), out=out)
    elif signs:
        np.isinf(x, out=out)
    else:
        out[...] = False


# Coefficients of the powers of x * x, the highest first.
_ERF_ABOVE = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_ERF_BELOW = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)


def _erf(x: np.ndarray, out: np.ndarray) -> None:
    """As a quotient of polynomials, to 4e-7 of the result.

    Source: the coefficients of Eigen's ``perf`` for floats (3.4), which XLA and TensorFlow share.
    """
    limited = np.clip(x.astype(np.float32, copy=False), -4, 4)
    square = limited * limited
    np.multiply(limited, _polynomial(square, _ERF_ABOVE), out=limited)
    np.divide(limited, _polynomial(square, _ERF_BELOW), out=out, casting="same_kind")


def _polynomial(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    value: np.ndarray = x * np.float32(coefficients[0])
    for coefficient in coefficients[1:-1]:
        value += np.float32(coefficient)
        value *= x
    value += np.float32(coefficients[-1])
    return value


_IN_NUMPY: Mapping[str, NumpyFunction] = {
    "Abs": np.absolute,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Cos": np.cos,
    "Erf": _erf,
    "Exp": np.exp,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Relu": _relu,
    "Round": np.rint,
    "Sigmoid": _sigmoid,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
