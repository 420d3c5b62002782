"""Generated: ``pytest tests/structure --update-golden`` writes it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from blocklayout.tensor import Tensor

_Operand: TypeAlias = Tensor | ArrayLike
_Extents: TypeAlias = int | Sequence[int]

from blocklayout.eager.convolution import conv_transpose_weights as conv_transpose_weights
from blocklayout.eager.convolution import conv_weights as conv_weights
from blocklayout.eager.free_functions import cast as cast
from blocklayout.eager.free_functions import cast_like as cast_like
from blocklayout.eager.free_functions import concat as concat
from blocklayout.eager.free_functions import dropout2d as dropout2d
from blocklayout.eager.free_functions import dropout3d as dropout3d
from blocklayout.eager.free_functions import max as max
from blocklayout.eager.free_functions import min as min
from blocklayout.eager.free_functions import op as op
from blocklayout.eager.free_functions import sum as sum

__all__: list[str]

def abs(x: _Operand) -> Tensor:
    """The size of each element."""

def add(x: _Operand, y: _Operand) -> Tensor:
    """The sum of two."""

def average_pool(x: _Operand, kernel: _Extents, strides: _Extents | None = None, pads: _Extents = 0, *, count_include_pad: bool = False, ceil_mode: bool = False) -> Tensor:
    """Mean of each window."""

def batch_norm(x: _Operand, scale: _Operand, bias: _Operand, mean: _Operand, var: _Operand, epsilon: float = 1e-05) -> Tensor:
    """Normalisation of channels by known statistics, each of shape (channels,); compare ``batch_norm_training``."""

def ceil(x: _Operand) -> Tensor:
    """The smallest whole number that is not below."""

def channel_shuffle(x: _Operand, groups: int) -> Tensor:
    """Channels that lay side by side in ``groups`` groups in turn: one of each, and again."""

def clip(x: _Operand, lo: float = ..., hi: float = ...) -> Tensor:
    """Limits to ``lo`` below and ``hi`` above; from 0 to 6 it is Relu6."""

def conv(x: _Operand, weights: _Operand, bias: _Operand | None = None, *, strides: _Extents = 1, pads: _Extents = 0, dilations: _Extents = 1, group: int = 1, memory_format: str | None = None) -> Tensor:
    """Convolution."""

def conv_transpose(x: _Operand, weights: _Operand, bias: _Operand | None = None, *, strides: _Extents = 1, pads: _Extents = 0, output_padding: _Extents = 0, dilations: _Extents = 1, group: int = 1) -> Tensor:
    """Transposed convolution."""

def cosh(x: _Operand) -> Tensor:
    """Hyperbolic cosine."""

def div(x: _Operand, y: _Operand) -> Tensor:
    """The quotient of two."""

def dropout(x: _Operand) -> Tensor:
    """``x`` as it is: dropout does nothing in inference."""

def elu(x: _Operand, alpha: float = 1.0) -> Tensor:
    """ELU: alpha * (exp(x) - 1) below 0, x from there on."""

def equal(x: _Operand, y: _Operand) -> Tensor:
    """Where two are equal."""

def exp(x: _Operand) -> Tensor:
    """The exponential function."""

def expand(x: _Operand, shape: Sequence[int]) -> Tensor:
    """Repeated along dimensions of extent 1, as numpy broadcasts."""

def flatten(x: _Operand, axis: int = 1) -> Tensor:
    """A matrix: the dimensions before ``axis`` are its rows. As :meth:`reshape`."""

def floor(x: _Operand) -> Tensor:
    """The largest whole number that is not above."""

def gelu(x: _Operand, *, approximate: bool = False) -> Tensor:
    """The normal distribution's x * P(X <= x), exactly or by way of tanh; in a Builder from opset 20 on."""

def gemm(x: _Operand, y: _Operand, c: _Operand | None = None, *, alpha: float | None = 1.0, beta: float | None = 1.0, trans_a: bool = False, trans_b: bool = False) -> Tensor:
    """The matrix alpha * x @ y + beta * c, ``x`` and ``y`` transposed where asked for; ``c`` is broadcast."""

def global_average_pool(x: _Operand) -> Tensor:
    """Mean over all spatial dimensions, which stay with extent 1."""

def global_lp_pool(x: _Operand, p: int = 2) -> Tensor:
    """The ``p``-norm over all spatial dimensions, which stay with extent 1."""

def global_max_pool(x: _Operand) -> Tensor:
    """Largest over all spatial dimensions, which stay with extent 1."""

def greater(x: _Operand, y: _Operand) -> Tensor:
    """Where the first is greater."""

def greater_or_equal(x: _Operand, y: _Operand) -> Tensor:
    """Where the first is greater, or equal; in a Builder from opset 12 on."""

def group_norm(x: _Operand, n_groups: int, scale: _Operand, bias: _Operand, epsilon: float = 1e-05) -> Tensor:
    """Normalisation of groups of channels by their own statistics; ``scale`` and ``bias`` of shape (channels,)."""

def hard_sigmoid(x: _Operand, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """clip(alpha * x + beta, 0, 1)."""

def hard_swish(x: _Operand) -> Tensor:
    """Swish of straight lines: x * clip(x / 6 + 1/2, 0, 1); in a Builder from opset 14 on."""

def identity(x: _Operand) -> Tensor:
    """``x`` as it is."""

def instance_norm(x: _Operand, scale: _Operand, bias: _Operand, epsilon: float = 1e-05) -> Tensor:
    """Normalisation of each channel of each image by its own statistics; vectors of shape (channels,)."""

def layer_norm(x: _Operand, scale: _Operand, bias: _Operand | None = None, *, axis: int = -1, epsilon: float = 1e-05) -> Tensor:
    """Normalisation over the dimensions from ``axis`` on, by their own statistics; vectors have those extents."""

def leaky_relu(x: _Operand, alpha: float = 0.01) -> Tensor:
    """Leaky ReLU: alpha * x below 0, x from there on."""

def less(x: _Operand, y: _Operand) -> Tensor:
    """Where the first is less."""

def less_or_equal(x: _Operand, y: _Operand) -> Tensor:
    """Where the first is less, or equal; in a Builder from opset 12 on."""

def log(x: _Operand) -> Tensor:
    """The natural logarithm."""

def log_softmax(x: _Operand, axis: int = -1) -> Tensor:
    """The logarithm of softmax along ``axis``."""

def lp_pool(x: _Operand, kernel: _Extents, strides: _Extents | None = None, p: int = 2) -> Tensor:
    """The ``p``-norm of each window; windows lie side by side unless ``strides`` is given."""

def lrn(x: _Operand, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Local response normalisation across ``size`` channels."""

def matmul(x: _Operand, y: _Operand) -> Tensor:
    """Matrix product over the last two dimensions; those before are broadcast. A Tensor's result is row-major."""

def max_pool(x: _Operand, kernel: _Extents, strides: _Extents | None = None, pads: _Extents = 0, *, dilations: _Extents = 1, ceil_mode: bool = False) -> Tensor:
    """Largest of each window; NaN where there is one in it."""

def max_pool_with_indices(x: _Operand, kernel: _Extents, strides: _Extents | None = None, pads: _Extents = 0, *, dilations: _Extents = 1, ceil_mode: bool = False) -> tuple[Tensor, ...]:
    """Largest of each window, and where it is: the first of equal ones, or the first NaN."""

def max_unpool(x: _Operand, indices: _Operand, kernel: _Extents, strides: _Extents | None = None, pads: _Extents = 0, *, output_shape: Sequence[int] | None = None) -> Tensor:
    """Zeros, and each element where max pooling with this window found it."""

def mish(x: _Operand) -> Tensor:
    """Mish: x * tanh(log(1 + exp(x))); in a Builder from opset 18 on."""

def mul(x: _Operand, y: _Operand) -> Tensor:
    """The product of two, element by element."""

def neg(x: _Operand) -> Tensor:
    """The negative."""

def not_equal(x: _Operand, y: _Operand) -> Tensor:
    """Where two are not equal."""

def pad(x: _Operand, pads: Sequence[int], value: float = 0.0, *, mode: str = 'constant') -> Tensor:
    """More elements around: ``pads`` has all begins, then all ends; ``mode`` is ONNX's."""

def pow(x: _Operand, exponent: _Operand) -> Tensor:
    """``x`` to the power of ``exponent``; fast for one number, which is part of the plan."""

def prelu(x: _Operand, slope: _Operand) -> Tensor:
    """``slope * x`` below 0, ``x`` from there on; one slope, or one for each channel in an array of (C, 1, 1)."""

def reciprocal(x: _Operand) -> Tensor:
    """1 / x."""

def reduce_l1(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The sum of sizes over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_l2(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The root of the sum of squares over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_log_sum(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The logarithm of the sum over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_max(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The largest over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_mean(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The mean over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_min(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The smallest over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_prod(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The product over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_sum(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The sum over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def reduce_sum_square(x: _Operand, axes: _Extents | None = None, *, keepdims: bool = True) -> Tensor:
    """The sum of squares over ``axes``, or all; they stay with extent 1 if ``keepdims``."""

def relu(x: _Operand) -> Tensor:
    """max(x, 0)."""

def reshape(x: _Operand, shape: Sequence[int]) -> Tensor:
    """Other extents for the same elements in row-major order; -1 is worked out, 0 is the extent before."""

def resize(x: _Operand, *, scales: Sequence[float] | None = None, sizes: Sequence[int] | None = None, mode: str = 'nearest', **attrs: Any) -> Tensor:
    """Interpolation to other spatial extents; in a Builder from opset 11 on."""

def round(x: _Operand) -> Tensor:
    """The closest whole number, the even one of two; in a Builder from opset 11 on."""

def sigmoid(x: _Operand) -> Tensor:
    """1 / (1 + exp(-x))."""

def sign(x: _Operand) -> Tensor:
    """-1, 0 or 1; in a Builder from opset 9 on."""

def slice(x: _Operand, starts: Sequence[int], ends: Sequence[int], axes: _Extents, steps: Sequence[int] | None = None) -> Tensor:
    """Every ``steps``-th element from ``starts`` to before ``ends`` along ``axes``, copied."""

def softmax(x: _Operand, axis: int = -1) -> Tensor:
    """Softmax along ``axis``."""

def softplus(x: _Operand) -> Tensor:
    """log(1 + exp(x))."""

def split(x: _Operand, sizes: Sequence[int], axis: int = 1) -> tuple[Tensor, ...]:
    """Parts of so many elements each along ``axis``, each in the source's format."""

def sqrt(x: _Operand) -> Tensor:
    """The square root."""

def squeeze(x: _Operand, axes: _Extents | None = None) -> Tensor:
    """Without the dimensions ``axes``, or all, of extent 1. As :meth:`reshape`."""

def sub(x: _Operand, y: _Operand) -> Tensor:
    """The difference of two."""

def swish(x: _Operand, alpha: float = 1.0) -> Tensor:
    """Swish: x / (1 + exp(-alpha * x))."""

def tanh(x: _Operand) -> Tensor:
    """Hyperbolic tangent."""

def thresholded_relu(x: _Operand, alpha: float = 1.0) -> Tensor:
    """Thresholded ReLU: x above alpha, else 0; in a Builder from opset 10 on."""

def transpose(x: _Operand, perm: Sequence[int] | None = None) -> Tensor:
    """Dimensions in the order ``perm``, reversed by default: of a Tensor a view, see :meth:`Tensor.permute`."""

def unsqueeze(x: _Operand, axes: _Extents) -> Tensor:
    """With a dimension of extent 1 at each of ``axes``, as they are numbered in the result. As :meth:`reshape`."""

def upsample(x: _Operand, scales: Sequence[float], mode: str = 'nearest') -> Tensor:
    """More pixels by factors of all dimensions; :meth:`resize` does more."""
