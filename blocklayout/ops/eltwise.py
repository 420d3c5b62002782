"""Functions of one element, casts among them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.dtypes import BYTE_DTYPES, PRIMITIVE_FLOATS
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import always, are_floats, broadcast_dims, is_known, is_source, of_source
from blocklayout.ops._gradients import same
from blocklayout.ops._layouts import (
    Follower,
    are_eltwise,
    argument,
    broadcast_views,
    digits,
    keeps_zero,
    like,
    n_elements,
    over_padding,
    seen_as,
    with_padding,
)
from blocklayout.ops.views import Identity, same_if_same_shape

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

_EXACT = frozenset({"Abs", "Neg", "Relu", "Round"})
"""Functions that need no rounding of numbers that were rounded."""

_NEVER_NEGATIVE = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softplus", "Sqrt"})

Slope = tuple[str, float, float]
"""An algorithm of the primitive of gradients, its alpha and its beta."""


class Eltwise(Follower, frozen=True):
    """One function of every element, where oneDNN's and ONNX's agree, by oneDNN's name and its two parameters."""

    op_types: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    is_quick_on_arrays: ClassVar[bool] = True
    needs: ClassVar[tuple[ir.Need, ...]] = (is_source(1, 12),)
    is_elementwise: ClassVar[bool] = True
    byte_operands: ClassVar[tuple[str, ...]] = ("src",)

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        algorithm, *numbers = _FUNCTIONS[node.op_type]
        read = (node.float_attr(*each) if isinstance(each, tuple) else each for each in numbers)
        return Eltwise(f"eltwise_{algorithm}", *read).bind({"src": node.required(0, "X")})

    in_numpy = staticmethod(lambda node: _IN_NUMPY.get(node.op_type))
    rounds = staticmethod(lambda op_type: op_type not in _EXACT)
    has_gradient = staticmethod(lambda op_type: op_type != "Round")

    @classmethod
    def gradient(cls, op_type: str, call: Any, grad: Any, x: Any, parameters: Mapping[str, Any]) -> Any:
        algorithm, alpha, beta = cls.slope(op_type, call, parameters)
        return call.of_elements(grad, x, "SlopeGradient", algorithm=algorithm, alpha=float(alpha), beta=float(beta))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, x = call.node, call.sources[0]
        if node.op_type == "Round":
            return ()
        function = getattr(call.bl, re.sub(r"(?<=.)(?=[A-Z])", "_", node.op_type).lower() + "_backward")
        given = [node.float_attr(*each) for each in _FUNCTIONS[node.op_type][1:] if isinstance(each, tuple)]
        source = call.bl.signs(call.results[0]) if node.op_type == "Relu" else lambda: x  # alike in signs
        return (lambda grad: function(grad, source(), *given),)

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        """The function as the primitive of gradients takes it; its parameters are those of the function in Python."""
        del call
        algorithm, *numbers = _FUNCTIONS[op_type]
        read = [parameters[each[0]] if isinstance(each, tuple) else each for each in numbers]
        alpha, beta = (*read, 0.0, 0.0)[:2]
        return algorithm, alpha, beta

    @classmethod
    def not_negative_if(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        return () if node.op_type in _NEVER_NEGATIVE else None

    def post_ops_of_bytes(self, sources: Mapping[str, tuple[float, int]]) -> tuple[dnnl.PostOp, ...]:
        scale, zero = sources["src"]
        return dnnl.Eltwise("linear", scale, -scale * zero), self._function

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.scales:
            return _of_bytes(src, dst, problem, attr)
        if self.algorithm == "eltwise_round" and src.dtype != "f32":  # its primitive knows no other data type
            return None
        if attr.post_ops or not dst.n_padding or not dst.is_dense or keeps_zero(self._function):
            return ir.Recipe.single(self._spec(src, dst, attr, problem.n_threads))
        spec = self._spec(with_padding(src), with_padding(dst), attr, problem.n_threads)
        return over_padding(spec, {"src": src, "dst": dst})

    def as_post_op(self, arg: str, problem: ir.Problem) -> ir.PostOpUse | None:
        del arg, problem
        return ir.PostOpUse(self._function)

    @property
    def _function(self) -> dnnl.Eltwise:
        return dnnl.Eltwise(self.algorithm, self.alpha, self.beta)

    def _spec(self, src: MemoryDesc, dst: MemoryDesc, attr: dnnl.Attr, n_threads: int) -> dnnl.Spec:
        return dnnl.eltwise(src, dst, self.algorithm, alpha=self.alpha, beta=self.beta, attr=attr, n_threads=n_threads)


def _of_bytes(src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
    """Post-ops alone, behind the larger one of each element and itself: the primitive of functions takes no bytes."""
    if dst.dtype not in BYTE_DTYPES or dst.n_padding or digits(dst) is None:
        return None
    row, result = (MemoryDesc((1, desc.n_elements), desc.dtype) for desc in (src, dst))
    function = dnnl.Attr(attr.post_ops)
    spec = dnnl.binary(row, row, result, "max", attr=function, n_threads=problem.n_threads)
    return ir.Recipe.single(spec, {"src_0": "src", "src_1": "src"}, (("src", src), ("dst", dst)))


class Gelu(Eltwise, frozen=True):
    """The normal distribution's x * P(X <= x), exactly or by way of tanh."""

    op_types: ClassVar[tuple[str, ...]] = ("Gelu",)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        exact = node.string_attr("approximate", ("none", "tanh")) == "none"
        function = Eltwise("eltwise_gelu_erf" if exact else "eltwise_gelu_tanh")
        return function.bind({"src": node.required(0, "X")})

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        x, backward = call.sources[0], call.bl.gelu_backward
        is_approximate = call.node.string_attr("approximate", ("none", "tanh")) == "tanh"
        return (lambda grad: backward(grad, x, approximate=is_approximate),)

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        del op_type, call
        return "gelu_tanh" if parameters["approximate"] else "gelu_erf", 0.0, 0.0


def _power(base: np.ndarray, exponent: np.ndarray, out: np.ndarray) -> None:
    if out.dtype.kind in "iu" and exponent.dtype.kind == "i" and (exponent < 0).any():
        base = base.astype(np.float64)  # numpy refuses such powers of integers
    np.power(base, exponent, out=out, casting="unsafe")


class Power(Eltwise, frozen=True):
    """Powers of one known exponent."""

    op_types: ClassVar[tuple[str, ...]] = ("Pow",)
    needs: ClassVar[tuple[ir.Need, ...]] = (is_source(1, 12), is_known(1, "the exponent"))
    is_elementwise: ClassVar[bool] = False
    broadcasts_from: ClassVar[int | None] = 0

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        base, exponent = node.required(0, "X"), node.known(node.required(1, "Y"), "the exponent")
        if exponent.size != 1 or exponent.ndim > len(base.shape):
            what = f"the exponent has extents {list(exponent.shape)}"
            return node.refused(what, "its primitive takes one exponent for all elements")
        number = float(exponent.reshape(()))
        if not np.isfinite(number):
            return node.refused(f"the exponent is {number}", "its primitive takes finite ones")
        function = Eltwise("eltwise_square") if number == 2 else Eltwise("eltwise_pow", 1.0, number)
        return function.bind({"src": base})

    in_numpy = staticmethod(always(_power))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, y), result, backward, known = call.sources, call.results[0], call.bl.pow_backward, call.node.constant(1)
        if known is not None and known.size == 1:
            return (lambda grad: backward(grad, x, float(known.item())),)
        return lambda grad: grad * y * x ** (y - 1), lambda grad: grad * result * x.log()

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        del op_type, call
        return "pow", 1.0, parameters["exponent"]


def _elu_slope(x: Any, bl: Any, alpha: float) -> Any:
    return bl.elu_backward(bl.ones_like(x), x, alpha)


_SLOPES: Mapping[str, Callable[[Any, Any, ir.NodeInfo], Any]] = {
    "Acos": lambda x, *_: -((1 - x * x) ** -0.5),
    "Acosh": lambda x, *_: (x * x - 1) ** -0.5,
    "Asin": lambda x, *_: (1 - x * x) ** -0.5,
    "Asinh": lambda x, *_: (x * x + 1) ** -0.5,
    "Atan": lambda x, *_: 1 / (x * x + 1),
    "Atanh": lambda x, *_: 1 / (1 - x * x),
    "Celu": lambda x, bl, node: _elu_slope(x / node.float_attr("alpha", 1.0), bl, 1.0),
    "Cos": lambda x, bl, _: -bl.op("Sin", x),
    "Erf": lambda x, *_: (x * x * -1).exp() * (2 / math.sqrt(math.pi)),
    "Selu": lambda x, bl, node: (
        _elu_slope(x, bl, node.float_attr("alpha", 1.6732632)) * node.float_attr("gamma", 1.0507010)
    ),
    "Shrink": lambda x, _, node: (abs(x) > node.float_attr("lambd", 0.5)).astype(x.dtype),
    "Sin": lambda x, bl, _: bl.op("Cos", x),
    "Sinh": lambda x, *_: x.cosh(),
    "Softsign": lambda x, *_: (abs(x) + 1) ** -2.0,
    "Tan": lambda x, bl, _: bl.op("Cos", x) ** -2.0,
}


class NumpyFunctions(ir.Facts, frozen=True):
    """Functions of every element that no primitive computes."""

    op_types: ClassVar[tuple[str, ...]] = ("BitwiseNot", "IsInf", "IsNaN", "Not", *_SLOPES)
    is_elementwise: ClassVar[bool] = True

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        if node.op_type == "Shrink":
            return partial(_shrink, bias=node.float_attr("bias", 0.0), limit=node.float_attr("lambd", 0.5))
        if node.op_type == "IsInf":
            signs = {1: node.int_attr("detect_positive", 1), -1: node.int_attr("detect_negative", 1)}
            return partial(_is_infinite, signs=[sign for sign, is_sought in signs.items() if is_sought])
        if node.op_type == "Erf" and node.result.dtype not in PRIMITIVE_FLOATS:
            return None  # the polynomials are of single precision
        return _IN_NUMPY.get(node.op_type)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        slope, bl, node, x = _SLOPES.get(call.node.op_type), call.bl, call.node, call.sources[0]
        return (lambda grad: grad * slope(x, bl, node),) if slope else super().backward(call)


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


_IN_NUMPY: Mapping[str, ir.NumpyFunction] = {
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
    "Relu": lambda x, out: np.maximum(x, x.dtype.type(0), out=out),
    "Round": np.rint,
    "Sigmoid": _sigmoid,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}


_LARGEST = float(np.finfo(np.float32).max)


class Clip(Eltwise, frozen=True):
    """Limits every element to an interval; a ReLU where that is from 0 upwards."""

    op_types: ClassVar[tuple[str, ...]] = ("Clip",)
    needs = (is_source(1, 12), is_known(1, "min"), is_known(2, "max"))
    rounds = staticmethod(always(False))

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        low, high = _bounds(node)
        if np.isnan(low) or np.isnan(high):
            raise node.wrong(f"the bounds are {low} and {high}", "they must be numbers")
        # Parameters must be finite numbers, and ordered: ONNX gives the upper bound where they are crossed.
        low, high = (min(max(number, -_LARGEST), _LARGEST) for number in (low, high))
        is_relu = (low, high) == (0, _LARGEST)
        function = Eltwise("eltwise_relu") if is_relu else Eltwise("eltwise_clip", min(low, high), high)
        return function.bind({"src": node.required(0, "input")})

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        bounds: dict[str, Any] = {key: node.float_attr(key, 0.0) for key in ("min", "max") if key in node.attrs}
        return partial(_limit, **bounds)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        x, bounds, backward = call.sources[0], _bounds(call.node), call.bl.clip_backward
        if np.isnan(bounds).any():
            return "its bounds are computed; give numbers"
        return (lambda grad: backward(grad, x, *bounds),)

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        del op_type
        low, high = parameters["lo"], parameters["hi"]
        if low > high:
            raise call.error("lo", f"is {low}, above hi, which is {high}; give the smaller one first")
        return "clip_v2", max(low, -_LARGEST), min(high, _LARGEST)  # on its bounds its slope is 0

    @classmethod
    def not_negative_if(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        low, high = _bounds(node)
        # Where the bounds are crossed, the upper one is the result.
        return () if low >= 0 and high >= 0 else None


def _limit(x: np.ndarray, *given: np.ndarray | None, out: np.ndarray, **bounds: Any) -> None:
    low, high = (*given, None, None)[:2] if given else (bounds.get("min"), bounds.get("max"))
    if low is not None:
        x = np.maximum(x, low, out=out)
    if high is not None:
        x = np.minimum(x, high, out=out)
    if x is not out:
        np.copyto(out, x)


def _bounds(node: ir.NodeInfo) -> tuple[float, float]:
    """Both bounds: infinite where absent, NaN where computed at run time."""
    return _bound(node, 1, "min", -math.inf), _bound(node, 2, "max", math.inf)


def _bound(node: ir.NodeInfo, index: int, name: str, absent: float) -> float:
    value = node.input(index)
    if value is None:
        return float(node.attrs.get(name, absent))
    if value.data is None:
        return math.nan
    if value.data.size != 1:
        raise node.wrong(f"{name} ({value.name}) has extents {list(value.shape)}", "it must be a scalar")
    return float(value.data.item())


_COMPARISONS: Mapping[str, tuple[str, str, str]] = {
    "Ceil": ("round", "lt", "add"),
    "Floor": ("round", "gt", "sub"),
    "Sign": ("gt", "lt", "sub"),
    # A source of -inf must not meet 0 in the product: the larger of it and the limit does.
    "ThresholdedRelu": ("max", "gt", "mul"),
}


class Comparison(Follower, frozen=True):
    """Ceil, Floor, Sign and ThresholdedRelu, over all lanes of any dense layout, by the library's names of three steps.

    All of them keep zero. Where the first is no ``round``, there is a constant ``limit`` of one element.

    Attributes:
        first: ``round``, or a function of the source and the limit.
        compared: The comparison, 1 or 0: of the source with the limit, or of the rounded source with the source.
        last: The function of both results.
    """

    op_types = tuple(_COMPARISONS)
    is_quick_on_arrays = True
    needs = (is_source(1, 12),)
    is_elementwise = True

    first: str
    compared: str
    last: str

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src = node.required(0, "X")
        operator = cls(*_COMPARISONS[node.op_type])
        limit = node.float_attr("alpha", 1.0) if node.op_type == "ThresholdedRelu" else 0.0
        arrays = {} if operator.first == "round" else {"limit": np.full((1, 1), limit, np.float32)}
        return operator.bind({"src": src}, arrays)

    in_numpy = staticmethod(lambda node: {"Ceil": np.ceil, "Floor": np.floor, "Sign": np.sign}.get(node.op_type))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        x, limit = call.sources[0], call.node.float_attr("alpha", 1.0)
        is_flat = call.node.op_type != "ThresholdedRelu"
        return () if is_flat else (lambda grad: grad * (x > limit).astype(grad.dtype),)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        parts = digits(src)
        if parts is None or attr.post_ops:
            return None
        row = MemoryDesc((1, n_elements(parts)), src.dtype)
        limit = MemoryDesc((1, 1), row.dtype)
        threads = problem.n_threads

        def binary(name: str, src_0: str, src_1: str, dst: str) -> ir.RecipeStep:
            other = limit if src_1 == "limit" else row
            spec = dnnl.binary(row, other, row, name, n_threads=threads)
            return ir.RecipeStep(spec, (("dst", dst), ("src_0", src_0), ("src_1", src_1)))

        if self.first == "round":
            spec = dnnl.eltwise(row, row, "round", n_threads=threads)
            first, compared = ir.RecipeStep(spec, (("dst", "dst"), ("src", "src"))), ("dst", "src")
        else:
            first, compared = binary(self.first, "src", "limit", "dst"), ("src", "limit")
        steps = first, binary(self.compared, *compared, "flags"), binary(self.last, "dst", "flags", "dst")
        return ir.Recipe(steps, (("flags", row),), (("src", src), ("dst", dst)))


# cosh(x) = 2 * cosh(x / 2) ** 2 - 1, of exp(x / 2) + exp(-x / 2): where cosh(x) is finite, so is all between.
_OF_HALF = (dnnl.Eltwise("linear", math.sqrt(0.5)), dnnl.Eltwise("square"), dnnl.Eltwise("linear", 1.0, -1.0))


class Cosh(Follower, frozen=True):
    """(exp(x) + exp(-x)) / 2, over all lanes of any dense layout; ``half`` is a constant. NaN becomes infinity."""

    op_types = ("Cosh",)
    needs = (is_source(1, 12),)
    is_elementwise = True

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        return cls().bind({"src": node.required(0, "input")}, {"half": np.full((1, 1), 0.5, np.float32)})

    not_negative_if = staticmethod(always(()))

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        parts = digits(src)
        if parts is None or not are_eltwise(attr.post_ops):
            return None
        row, threads = MemoryDesc((1, n_elements(parts)), src.dtype), problem.n_threads
        half, after = MemoryDesc((1, 1), src.dtype), replace(attr, post_ops=(*_OF_HALF, *attr.post_ops))
        power = dnnl.binary(row, half, row, "mul", attr=dnnl.Attr((dnnl.Eltwise("exp"),)), n_threads=threads)
        inverse = dnnl.eltwise(row, row, "pow", alpha=1.0, beta=-1.0, n_threads=threads)
        total = dnnl.binary(row, row, row, "add", attr=after, n_threads=threads)
        steps = [
            ir.RecipeStep(power, (("dst", "dst"), ("src_0", "src"), ("src_1", "half"))),
            ir.RecipeStep(inverse, (("dst", "inverse"), ("src", "dst"))),
            ir.RecipeStep(total, (("dst", "dst"), ("src_0", "dst"), ("src_1", "inverse"))),
        ]
        if dst.n_padding:
            steps.append(ir.zero_padding_step(dst))
        return ir.Recipe(tuple(steps), (("inverse", row),), (("src", src), ("dst", dst)))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        x, backward = call.sources[0], call.bl.cosh_backward
        return (lambda grad: backward(grad, x),)

    has_gradient = staticmethod(always(True))

    @classmethod
    def gradient(cls, op_type: str, call: Any, grad: Any, x: Any, parameters: Mapping[str, Any]) -> Any:
        """That of the result times sinh(x), which is tanh(x) * cosh(x)."""
        del op_type, parameters
        return call.of_elements(grad, x, _of_cosh)


def _of_cosh(grad: Any, x: Any) -> Any:
    return x.tanh() * x.cosh() * grad


_LARGEST_NDIMS = 5
_PER_CHANNEL = 1 << 1


class PRelu(Follower, frozen=True):
    """The source where it is positive, else times a slope, whose extents are the source's, or 1."""

    op_types = ("PRelu",)
    needs = (is_source(1, 12), are_floats)
    broadcasts_from = 1

    slope_dims: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "X")
        slope = node.required(1, "slope")
        dims = broadcast_dims(slope.shape, src.shape)
        if dims is None:
            what = f"the slopes have extents {list(slope.shape)}"
            raise node.wrong(what, f"they must broadcast to the source's {list(src.shape)}")
        if slope.data is None:
            return cls(dims).bind({"src": src, "weights": slope})
        if slope.data.size == 1:
            number = float(slope.data.reshape(()))
            if not np.isfinite(number):
                return node.refused(f"the slope is {number}", "its primitive takes finite ones")
            return Eltwise("eltwise_relu", number).bind({"src": src})
        return cls(dims).bind({"src": src}, {"weights": slope.data.reshape(dims)})

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, slope), bl = call.sources, call.bl
        return (lambda grad: grad * ((x < 0).astype(grad.dtype) * (slope - 1) + 1), lambda grad: grad * bl.min(x, 0.0))

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        given = argument(problem, "weights")
        weights = like(src, ir.TensorInfo(self.slope_dims, given.dtype))
        fast, seen = broadcast_views(src, self.slope_dims, _PATTERNS), seen_as(weights, given.dims)
        if (fast is None and src.ndims > _LARGEST_NDIMS) or seen is None or attr.post_ops:
            return None
        views = fast and (MemoryDesc(fast[0], src.dtype), MemoryDesc(fast[1], weights.dtype))
        data, slopes = views or (src, weights)
        spec = dnnl.prelu(data, slopes, data, n_threads=problem.n_threads)
        return ir.Recipe.single(spec, whole=(("src", src), ("weights", seen), ("dst", dst)))

    def as_post_op(self, arg: str, problem: ir.Problem) -> ir.PostOpUse | None:
        # Slopes of other broadcasts, and computed ones in another data type than f32, are slow or refused.
        dims = problem.dst.dims
        is_per_channel = self.slope_dims == (1, *dims[1:2], *(1 for _ in dims[2:]))
        if arg != "src" or "weights" not in problem.constants or not is_per_channel:
            return None
        return ir.PostOpUse(dnnl.Prelu(_PER_CHANNEL), "weights")


_PATTERNS: Mapping[tuple[bool, ...], tuple[int, ...]] = {
    (): (-1,),
    (True,): (0,),
    (False,): (-1, -1, 0),
    (False, True): (0, 1),
    (True, False): (-1, 0, 1),
    (False, True, False): (0, 1, 2),
}
"""The extents to see, by whether slopes vary along each run of digits: the run (-1: an extent of 1).

The library is fast with slopes for all elements, and with slopes for each index along dimension 1.
"""


# --- other types: by a table of all bytes, or by a cast


class ByteTable(Follower, frozen=True):
    """The byte of a constant table for each byte of the source; in ONNX functions between two quantisations.

    The inputs are bytes, and 256 of them: for 0 to 127, then for 128 to 255, or -128 to -1.
    """

    op_types = ("ByteTable",)
    is_elementwise = True

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, table = node.required(0, "src"), node.required(1, "table")
        if src.dtype not in BYTE_DTYPES or table.data is None:
            return node.refused(f"{src.name} is {src.dtype}", "a constant table of bytes is for bytes")
        return cls().bind({"src": src, "table": table})

    keeps_rows = staticmethod(of_source)

    in_numpy = staticmethod(always(lambda src, table, out: np.take(table, src.view(np.uint8), out=out)))

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops or src.n_padding:
            return None
        table = argument(problem, "table")
        spec = dnnl.lookup(src, MemoryDesc(table.dims, table.dtype), dst, n_threads=problem.n_threads)
        return ir.Recipe.single(spec)


_CONVERTED = ("u8", "s8", "s32", "bool")
"""Data types that reorders take; a bool is a byte that is 0 or 1."""


class Cast(Follower, frozen=True):
    """Numbers as floats: a reorder, or nothing between floats. To integers numpy converts: primitives round."""

    op_types = ("Cast", "CastLike")
    is_quick_on_arrays = True
    is_elementwise = True
    elements_read = (0,)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, dst = node.required(0, "input"), node.result
        refusal = node.of_other_dtype(dst) or node.of_other_dtype(src, (*_CONVERTED, *PRIMITIVE_FLOATS))
        operator = Identity() if src.dtype in PRIMITIVE_FLOATS else cls()
        return refusal or operator.bind({"src": src})

    backward = staticmethod(always((same,)))
    in_numpy = staticmethod(always(lambda x, *_, out: np.copyto(out, x, casting="unsafe")))
    same_as = staticmethod(same_if_same_shape)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops or (src.dtype == "bool" and src.inner_blks):  # nothing brings bools into blocks
            return None
        bytes_of = src.with_dtype("u8") if src.dtype == "bool" else src
        step = dnnl.reorder(bytes_of, dst, n_threads=problem.n_threads)
        return ir.Recipe.single(step, whole=(("src", src), ("dst", dst)))


class BitCast(ir.Facts, frozen=True):
    """The same bits as numbers of another type of that size."""

    op_types = ("BitCast",)
    is_elementwise = True

    in_numpy = staticmethod(always(lambda x, out: np.copyto(out.view(x.dtype), x)))
