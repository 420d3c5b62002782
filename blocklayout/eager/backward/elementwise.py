"""Gradients of functions of each element."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.eager.backward.call import Call
from blocklayout.eager.backward.formats import format_of
from blocklayout.eager.primitives import execute
from blocklayout.layout import MemoryDesc
from blocklayout.layout.padding import clear_padding
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Input = ArrayLike | Tensor

_RANKS = tuple(range(1, 13))


def relu_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``max(x, 0)``: ``grad`` where ``x > 0``.

    Every function of this file takes the gradient of a result and the source, each in any layout, and gives the
    source's gradient in the source's format.

    Args:
        grad: Gradient of the result.
        x: The source, of the same shape.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> relu_backward(np.float32([1, 2, 3]), np.float32([-1, 0, 1])).numpy()
        array([0., 0., 3.], dtype=float32)
    """
    return _gradient("relu_backward", grad, x, "relu")


def leaky_relu_backward(grad: Input, x: Input, alpha: float = 0.01) -> Tensor:
    """The gradient of ``x`` above 0 and ``alpha * x`` below."""
    return _gradient("leaky_relu_backward", grad, x, "relu", alpha)


def elu_backward(grad: Input, x: Input, alpha: float = 1.0) -> Tensor:
    """The gradient of ``x`` above 0 and ``alpha * (exp(x) - 1)`` below."""
    return _gradient("elu_backward", grad, x, "elu", alpha)


def clip_backward(grad: Input, x: Input, lo: float = -math.inf, hi: float = math.inf) -> Tensor:
    """The gradient of ``min(max(x, lo), hi)``: ``grad`` between the two, and 0 on and beyond them."""
    return _gradient("clip_backward", grad, x, "clip_v2", lo, hi)


def sigmoid_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``1 / (1 + exp(-x))``."""
    return _gradient("sigmoid_backward", grad, x, "logistic")


def hard_sigmoid_backward(grad: Input, x: Input, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """The gradient of ``min(max(alpha * x + beta, 0), 1)``."""
    return _gradient("hard_sigmoid_backward", grad, x, "hardsigmoid", alpha, beta)


def tanh_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of the hyperbolic tangent."""
    return _gradient("tanh_backward", grad, x, "tanh")


def gelu_backward(grad: Input, x: Input, *, approximate: bool = False) -> Tensor:
    """The gradient of the normal distribution's ``x * P(X <= x)``, exactly or by way of tanh."""
    return _gradient("gelu_backward", grad, x, "gelu_tanh" if approximate else "gelu_erf")


def swish_backward(grad: Input, x: Input, alpha: float = 1.0) -> Tensor:
    """The gradient of ``x / (1 + exp(-alpha * x))``."""
    return _gradient("swish_backward", grad, x, "swish", alpha)


def hard_swish_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``x * min(max(x / 6 + 1 / 2, 0), 1)``."""
    return _gradient("hard_swish_backward", grad, x, "hardswish", 1 / 6, 0.5)


def mish_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``x * tanh(log(1 + exp(x)))``."""
    return _gradient("mish_backward", grad, x, "mish")


def softplus_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``log(1 + exp(x))``."""
    return _gradient("softplus_backward", grad, x, "soft_relu", 1.0)


def exp_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``exp(x)``."""
    return _gradient("exp_backward", grad, x, "exp")


def log_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of the natural logarithm."""
    return _gradient("log_backward", grad, x, "log")


def sqrt_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of the square root."""
    return _gradient("sqrt_backward", grad, x, "sqrt")


def square_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of ``x * x``."""
    return _gradient("square_backward", grad, x, "square")


def abs_backward(grad: Input, x: Input) -> Tensor:
    """The gradient of the absolute value: 0 where ``x`` is 0."""
    return _gradient("abs_backward", grad, x, "abs")


def pow_backward(grad: Input, x: Input, exponent: float) -> Tensor:
    """The gradient of ``x ** exponent``, a number."""
    return _gradient("pow_backward", grad, x, "pow", 1.0, exponent)


_STEEP_AT_ZERO = ("log", "sqrt", "pow")
"""Whose slope may be infinite there: padding comes out as NaN."""


def _gradient(function: str, grad: Input, x: Input, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Tensor:
    """Computed on the bare bytes, padding included: no layout is slower than another."""
    call = Call(function)
    given, source = call.read("grad", grad, _RANKS), call.read("x", x, _RANKS)
    call.check_same_dtype(given, source)
    call.check_dims(given, source.dims, "x")
    first, second = _PARAMETERS.get(algorithm, ("alpha", "beta"))
    alpha, beta = call.number(first, alpha), call.number(second, beta)
    if algorithm == "clip_v2" and alpha > beta:
        raise call.error("lo", f"is {alpha}, above hi, which is {beta}; give the smaller one first")
    desc = format_of(source.desc)
    spec = _way(desc.nbytes // desc.itemsize, desc.dtype, algorithm, alpha, beta, dnnl.default_threads())
    inputs = {
        "src": call.placed(source, desc),
        "diff_dst": call.placed(given, desc),
    }
    result = execute(spec, inputs)["diff_src"].buffer
    if algorithm in _STEEP_AT_ZERO:
        clear_padding(result.view(to_numpy(desc.dtype)), desc)
    return Tensor(desc, result)


_PARAMETERS = {"clip_v2": ("lo", "hi"), "pow": ("", "exponent")}
"""What our functions call an algorithm's alpha and beta."""


@lru_cache(maxsize=1024)
def _way(n: int, dtype: str, algorithm: str, alpha: float, beta: float, n_threads: int) -> dnnl.Spec:
    flat = MemoryDesc((n,), dtype)
    return dnnl.resolve(dnnl.eltwise_backward(flat, flat, flat, algorithm, alpha, beta, n_threads=n_threads)).spec
