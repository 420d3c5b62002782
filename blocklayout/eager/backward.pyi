"""Generated: ``pytest tests/structure --update-golden`` writes it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from blocklayout.tensor import Tensor

_Operand: TypeAlias = Tensor | ArrayLike
_Extents: TypeAlias = int | Sequence[int]

from blocklayout.eager.backward_layers import BatchNormGradients as BatchNormGradients
from blocklayout.eager.backward_layers import BatchNormTraining as BatchNormTraining
from blocklayout.eager.backward_layers import ConvGradients as ConvGradients
from blocklayout.eager.backward_layers import InnerProductGradients as InnerProductGradients
from blocklayout.eager.backward_layers import average_pool_backward as average_pool_backward
from blocklayout.eager.backward_layers import batch_norm_backward as batch_norm_backward
from blocklayout.eager.backward_layers import batch_norm_training as batch_norm_training
from blocklayout.eager.backward_layers import conv_backward as conv_backward
from blocklayout.eager.backward_layers import conv_backward_data as conv_backward_data
from blocklayout.eager.backward_layers import conv_backward_weights as conv_backward_weights
from blocklayout.eager.backward_layers import global_average_pool_backward as global_average_pool_backward
from blocklayout.eager.backward_layers import inner_product as inner_product
from blocklayout.eager.backward_layers import inner_product_backward as inner_product_backward
from blocklayout.eager.backward_layers import max_pool_backward as max_pool_backward
from blocklayout.eager.backward_layers import slice_backward as slice_backward
from blocklayout.eager.gradients import square_backward as square_backward

__all__: list[str]

def abs_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``abs``, the size of each element."""

def clip_backward(grad: _Operand, x: _Operand, lo: float = ..., hi: float = ...) -> Tensor:
    """The gradient of ``clip``, limits to ``lo`` below and ``hi`` above."""

def cosh_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``cosh``, hyperbolic cosine."""

def elu_backward(grad: _Operand, x: _Operand, alpha: float = 1.0) -> Tensor:
    """The gradient of ``elu``, eLU: alpha * (exp(x) - 1) below 0, x from there on."""

def exp_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``exp``, the exponential function."""

def gelu_backward(grad: _Operand, x: _Operand, *, approximate: bool = False) -> Tensor:
    """The gradient of ``gelu``, the normal distribution's x * P(X <= x), exactly or by way of tanh."""

def hard_sigmoid_backward(grad: _Operand, x: _Operand, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """The gradient of ``hard_sigmoid``, clip(alpha * x + beta, 0, 1)."""

def hard_swish_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``hard_swish``, swish of straight lines: x * clip(x / 6 + 1/2, 0, 1)."""

def leaky_relu_backward(grad: _Operand, x: _Operand, alpha: float = 0.01) -> Tensor:
    """The gradient of ``leaky_relu``, leaky ReLU: alpha * x below 0, x from there on."""

def log_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``log``, the natural logarithm."""

def mish_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``mish``, mish: x * tanh(log(1 + exp(x)))."""

def neg_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``neg``, the negative."""

def pow_backward(grad: _Operand, x: _Operand, exponent: float) -> Tensor:
    """The gradient of ``pow``, ``x`` to the power of ``exponent``."""

def reciprocal_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``reciprocal``, 1 / x."""

def relu_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``relu``, max(x, 0)."""

def sigmoid_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``sigmoid``, 1 / (1 + exp(-x))."""

def softplus_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``softplus``, log(1 + exp(x))."""

def sqrt_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``sqrt``, the square root."""

def swish_backward(grad: _Operand, x: _Operand, alpha: float = 1.0) -> Tensor:
    """The gradient of ``swish``, swish: x / (1 + exp(-alpha * x))."""

def tanh_backward(grad: _Operand, x: _Operand) -> Tensor:
    """The gradient of ``tanh``, hyperbolic tangent."""
