"""Functions of one element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Facts,
    Lowered,
    Need,
    NodeInfo,
    PostOpUse,
    Problem,
    Recipe,
    Refusal,
    Role,
    Wish,
)
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._padded import keeps_zero, over_padding, with_padding
from blocklayout.ops._reading import bound, constant, float_attr, is_known, is_source, refused, required, string_attr

Parameters = tuple[str, float, float]


def _plain(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[NodeInfo], Parameters]:
    return lambda _: (algorithm, alpha, beta)


def _with_alpha(algorithm: str, default: float) -> Callable[[NodeInfo], Parameters]:
    return lambda node: (algorithm, float_attr(node, "alpha", default), 0.0)


def _hard_sigmoid(node: NodeInfo) -> Parameters:
    return "eltwise_hardsigmoid", float_attr(node, "alpha", 0.2), float_attr(node, "beta", 0.5)


def _gelu(node: NodeInfo) -> Parameters:
    exact = string_attr(node, "approximate", ("none", "tanh")) == "none"
    return ("eltwise_gelu_erf" if exact else "eltwise_gelu_tanh"), 0.0, 0.0


_PARAMETERS: Mapping[str, Callable[[NodeInfo], Parameters]] = {
    "Abs": _plain("eltwise_abs"),
    "Elu": _with_alpha("eltwise_elu", 1.0),
    "Exp": _plain("eltwise_exp"),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _plain("eltwise_hardswish", 1 / 6, 0.5),
    "LeakyRelu": _with_alpha("eltwise_relu", 0.01),
    "Log": _plain("eltwise_log"),
    "Mish": _plain("eltwise_mish"),
    "Neg": _plain("eltwise_linear", -1.0),
    "Reciprocal": _plain("eltwise_pow", 1.0, -1.0),
    "Relu": _plain("eltwise_relu"),
    "Round": _plain("eltwise_round"),
    "Sigmoid": _plain("eltwise_logistic"),
    "Softplus": _plain("eltwise_soft_relu", 1.0),
    "Sqrt": _plain("eltwise_sqrt"),
    "Swish": _with_alpha("eltwise_swish", 1.0),
    "Tanh": _plain("eltwise_tanh"),
}

_NEVER_NEGATIVE = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softplus", "Sqrt"})

_F32_ONLY = frozenset({"eltwise_round"})
"""Algorithms whose primitive knows no other data type."""


class Eltwise(BaseOperator, frozen=True):
    """One function of every element, where oneDNN's and ONNX's agree.

    Attributes:
        algorithm: oneDNN's name for it.
        alpha: Its first parameter, whatever that means to the algorithm.
        beta: Its second.
    """

    op_types: ClassVar[tuple[str, ...]] = tuple(_PARAMETERS)
    role: ClassVar[Role] = Role.FOLLOWER
    needs: ClassVar[tuple[Need, ...]] = (is_source(1, 12),)
    is_elementwise: ClassVar[bool] = True

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        return bound(Eltwise(*_PARAMETERS[node.op_type](node)), {"src": required(node, 0, "X")})

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


class Power(Eltwise, frozen=True):
    """Powers of one known exponent."""

    op_types: ClassVar[tuple[str, ...]] = ("Pow",)
    needs: ClassVar[tuple[Need, ...]] = (is_source(1, 12), is_known(1, "the exponent"))
    is_elementwise: ClassVar[bool] = False
    broadcasts_from: ClassVar[int | None] = 0

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        base, exponent = required(node, 0, "X"), constant(node, required(node, 1, "Y"), "the exponent")
        if exponent.size != 1 or exponent.ndim > len(base.shape):
            what = f"the exponent has extents {list(exponent.shape)}"
            return refused(node, what, "its primitive takes one exponent for all elements")
        number = float(exponent.reshape(()))
        if not np.isfinite(number):
            return refused(node, f"the exponent is {number}", "its primitive takes finite ones")
        function = Eltwise("eltwise_square") if number == 2 else Eltwise("eltwise_pow", 1.0, number)
        return bound(function, {"src": base})


class ReferenceFunction(Facts, frozen=True):
    """Functions of every element that no primitive computes."""

    op_types: ClassVar[tuple[str, ...]] = (
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Celu", "Cos", "Cosh", "DequantizeLinear"),
        *("Erf", "IsInf", "IsNaN", "Not", "QuantizeLinear", "Selu", "Shrink", "Sin", "Sinh", "Softsign", "Tan"),
    )
    is_elementwise: ClassVar[bool] = True
