"""The operators: each one's name, signature, docstring and meaning in ONNX words, written once.

:class:`Operators` is the base class of a Builder's values and of Tensors. A method is a definition: it applies ONNX
operators to a Builder's values. On such values it runs as it stands. On Tensors ``blocklayout.eager`` runs it once for
each set of layouts, on the values of a Builder of its own, plans the network of one operator that comes out, and from
then on runs that plan; when it is loaded, it puts such functions in the place of Tensor's methods. The same functions
are ``bl.relu``, ``bl.conv`` and the others: their first argument, ``x``, is the value that a method is called on.

So an operator gets its function and its methods by being written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import ArrayLike

    # A parameter's annotation is its meaning to a Tensor's operator. All others are parts of the plan.
    Operand: TypeAlias = "Operators | ArrayLike"
    """A tensor."""
    Addend: TypeAlias = "Operand | float"
    """A tensor, or a number of the data type of the tensor beside it."""
    Exponent: TypeAlias = "Operand | float"
    """A tensor, or a number that is a part of the plan."""
    Comparand: TypeAlias = "Operand | float"
    """A tensor, or a number, of any data type."""

    Vector: TypeAlias = "Operand"
    """A tensor of one number for each channel of ``x``."""

    Extents: TypeAlias = int | Sequence[int]
    """One number for each spatial dimension, or one number for all of them; each at least 1."""
    Pads: TypeAlias = int | Sequence[int]
    """Likewise, or all begins and then all ends; each at least 0."""
    Axes: TypeAlias = int | Sequence[int]
    """Dimensions of ``x``, or one; negative ones count from the end."""
    Axis: TypeAlias = int
    """One dimension of ``x``."""
    Count: TypeAlias = int
    """At least 1."""
    NotNegative: TypeAlias = float
    """At least 0."""

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V", bound="Operators")

_NOT_LOADED = "operators on Tensors are computed by blocklayout.eager, which is not loaded: import it first"


def _reflected(operator: str) -> Callable[[V, Any], V]:
    """A method for an operator of a value and an object to its left that is none."""

    def _method(self: V, other: Any) -> V:
        result: V = getattr(type(self), operator)(other, self)
        return result

    return _method


_PIXELS = ("x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)",)
_BLOCKED = ('x = bl.ones((1, 16, 8, 8), memory_format="nChw8c")',)
_MATRIX = ("x = np.float32([[1, 2], [3, 4]])",)
_NORMALISED = (*_BLOCKED, "zeros, ones = np.zeros(16, np.float32), np.ones(16, np.float32)")
"""Statements in front of an example."""


def _example(call: str, *shown: str, before: Sequence[str] = ()) -> Callable[[F], F]:
    """Adds an example to the docstring of a method, which is one line: a call, and the lines that Python shows."""
    statements = ["import blocklayout as bl", *before, call]
    if any("np." in each for each in statements):
        statements.insert(0, "import numpy as np")
    lines = ["Example:", *(f"    >>> {each}" for each in statements), *(f"    {each}" for each in shown)]

    def add(method: F) -> F:
        method.__doc__ = "\n".join([method.__doc__ or "", "", *lines])
        return method

    return add


def shorthand(method: F) -> F:
    """Marks a method that is written in terms of others, and runs as it stands on Tensors too."""
    method.is_shorthand = True  # type: ignore[attr-defined]
    return method


class Operators:
    """Operators of ONNX as methods.

    ``x`` is the value that a method is called on. Arrays may stand wherever a value may. Windows are as in ONNX:
    ``strides`` and ``dilations`` are one number, or one for each spatial dimension; ``pads`` is one number, one for
    each spatial dimension, or all begins and then all ends. ``name`` is that of the node in a Builder; Tensors take
    none.
    """

    __slots__ = ()

    __array_ufunc__ = None
    """Makes numpy hand ``array + x`` over to ``__radd__``."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]:
            """Logical extents."""

        @property
        def dtype(self) -> str:
            """Name of the data type."""

        def astype(self, dtype: str) -> Self:
            """The values in another data type."""

    def _op(self, op_type: str, *operands: Any, name: str | None = None, **attrs: Any) -> Self:  # noqa: ARG002
        """Apply one of ONNX's operators, as its newest version takes inputs; ``None`` leaves an argument out."""
        raise UnsupportedError(_NOT_LOADED)

    def _reaching(self, output_shape: tuple[int, ...], strides: Extents, pads: Extents) -> Extents:  # noqa: ARG002
        """The kernel of an unpooling whose result has these extents."""
        raise UnsupportedError(_NOT_LOADED)

    def _window(self, **attrs: Extents) -> dict[str, Extents | None]:  # noqa: ARG002
        """Window attributes, spread over the spatial dimensions; those with ONNX's default are left out."""
        raise UnsupportedError(_NOT_LOADED)

    def _pooled(self, kernel: Extents, strides: Extents | None, **attrs: Extents) -> dict[str, Extents | None]:
        return self._window(kernel_shape=kernel, strides=kernel if strides is None else strides, **attrs)

    # Functions of each element.

    @_example("bl.abs(np.float32([-2, 0, 3])).numpy()", "array([2., 0., 3.], dtype=float32)")
    def abs(self, name: str | None = None) -> Self:
        """The size of each element."""
        return self._op("Abs", self, name=name)

    @_example("bl.ceil(np.float32([-1.5, 0.5, 2.5])).numpy()", "array([-1.,  1.,  3.], dtype=float32)")
    def ceil(self, name: str | None = None) -> Self:
        """The smallest whole number that is not below."""
        return self._op("Ceil", self, name=name)

    @_example("bl.cosh(np.float32([-2, 0, 3])).numpy().round(3)", "array([ 3.762,  1.   , 10.068], dtype=float32)")
    def cosh(self, name: str | None = None) -> Self:
        """Hyperbolic cosine."""
        return self._op("Cosh", self, name=name)

    @_example("bl.exp(np.float32([-2, 0, 3])).numpy().round(3)", "array([ 0.135,  1.   , 20.086], dtype=float32)")
    def exp(self, name: str | None = None) -> Self:
        """The exponential function."""
        return self._op("Exp", self, name=name)

    @_example("bl.floor(np.float32([-1.5, 0.5, 2.5])).numpy()", "array([-2.,  0.,  2.], dtype=float32)")
    def floor(self, name: str | None = None) -> Self:
        """The largest whole number that is not above."""
        return self._op("Floor", self, name=name)

    @_example("bl.hard_swish(np.float32([-1.5, 0, 3])).numpy()", "array([-0.375,  0.   ,  3.   ], dtype=float32)")
    def hard_swish(self, name: str | None = None) -> Self:
        """Swish of straight lines: x * clip(x / 6 + 1/2, 0, 1); in a Builder from opset 14 on."""
        return self._op("HardSwish", self, name=name)

    @_example("bl.log(np.float32([1, 2, 4])).numpy().round(3)", "array([0.   , 0.693, 1.386], dtype=float32)")
    def log(self, name: str | None = None) -> Self:
        """The natural logarithm."""
        return self._op("Log", self, name=name)

    @_example("bl.mish(np.float32([-2, 0, 3])).numpy().round(3)", "array([-0.253,  0.   ,  2.987], dtype=float32)")
    def mish(self, name: str | None = None) -> Self:
        """Mish: x * tanh(log(1 + exp(x))); in a Builder from opset 18 on."""
        return self._op("Mish", self, name=name)

    @_example("bl.neg(np.float32([-2, 0, 3])).numpy()", "array([ 2.,  0., -3.], dtype=float32)")
    def neg(self, name: str | None = None) -> Self:
        """The negative."""
        return self._op("Neg", self, name=name)

    @_example("bl.reciprocal(np.float32([1, 2, 4])).numpy()", "array([1.  , 0.5 , 0.25], dtype=float32)")
    def reciprocal(self, name: str | None = None) -> Self:
        """1 / x."""
        return self._op("Reciprocal", self, name=name)

    @_example("bl.relu(np.float32([-2, 0, 3])).numpy()", "array([0., 0., 3.], dtype=float32)")
    def relu(self, name: str | None = None) -> Self:
        """max(x, 0)."""
        return self._op("Relu", self, name=name)

    @_example("bl.round(np.float32([-1.5, 0.5, 2.5])).numpy()", "array([-2.,  0.,  2.], dtype=float32)")
    def round(self, name: str | None = None) -> Self:
        """The closest whole number, the even one of two; in a Builder from opset 11 on."""
        return self._op("Round", self, name=name)

    @_example("bl.sigmoid(np.float32([-2, 0, 3])).numpy().round(3)", "array([0.119, 0.5  , 0.953], dtype=float32)")
    def sigmoid(self, name: str | None = None) -> Self:
        """1 / (1 + exp(-x))."""
        return self._op("Sigmoid", self, name=name)

    @_example("bl.sign(np.float32([-2, 0, 3])).numpy()", "array([-1.,  0.,  1.], dtype=float32)")
    def sign(self, name: str | None = None) -> Self:
        """-1, 0 or 1; in a Builder from opset 9 on."""
        return self._op("Sign", self, name=name)

    @_example("bl.softplus(np.float32([-2, 0, 3])).numpy().round(3)", "array([0.127, 0.693, 3.049], dtype=float32)")
    def softplus(self, name: str | None = None) -> Self:
        """log(1 + exp(x))."""
        return self._op("Softplus", self, name=name)

    @_example("bl.sqrt(np.float32([1, 4, 9])).numpy()", "array([1., 2., 3.], dtype=float32)")
    def sqrt(self, name: str | None = None) -> Self:
        """The square root."""
        return self._op("Sqrt", self, name=name)

    @_example("bl.tanh(np.float32([-2, 0, 3])).numpy().round(3)", "array([-0.964,  0.   ,  0.995], dtype=float32)")
    def tanh(self, name: str | None = None) -> Self:
        """Hyperbolic tangent."""
        return self._op("Tanh", self, name=name)

    @_example("bl.elu(np.float32([-2, 0, 3])).numpy().round(3)", "array([-0.865,  0.   ,  3.   ], dtype=float32)")
    def elu(self, alpha: float = 1.0, name: str | None = None) -> Self:
        """ELU: alpha * (exp(x) - 1) below 0, x from there on."""
        return self._op("Elu", self, name=name, alpha=alpha)

    @_example("bl.leaky_relu(np.float32([-2, 0, 3]), 0.5).numpy()", "array([-1.,  0.,  3.], dtype=float32)")
    def leaky_relu(self, alpha: float = 0.01, name: str | None = None) -> Self:
        """Leaky ReLU: alpha * x below 0, x from there on."""
        return self._op("LeakyRelu", self, name=name, alpha=alpha)

    @_example("bl.swish(np.float32([-2, 0, 3])).numpy().round(3)", "array([-0.238,  0.   ,  2.858], dtype=float32)")
    def swish(self, alpha: float = 1.0, name: str | None = None) -> Self:
        """Swish: x / (1 + exp(-alpha * x))."""
        steeper = self if alpha == 1 else self * alpha
        return self.mul(steeper.sigmoid(), name=name)  # ONNX has it from opset 24 on; simplification makes one of them

    @_example("bl.thresholded_relu(np.float32([-2, 0, 3])).numpy()", "array([0., 0., 3.], dtype=float32)")
    def thresholded_relu(self, alpha: float = 1.0, name: str | None = None) -> Self:
        """Thresholded ReLU: x above alpha, else 0; in a Builder from opset 10 on."""
        return self._op("ThresholdedRelu", self, name=name, alpha=alpha)

    @_example("bl.hard_sigmoid(np.float32([-2, 0, 3]), 0.25, 0.5).numpy()", "array([0. , 0.5, 1. ], dtype=float32)")
    def hard_sigmoid(self, alpha: float = 0.2, beta: float = 0.5, name: str | None = None) -> Self:
        """clip(alpha * x + beta, 0, 1)."""
        return self._op("HardSigmoid", self, name=name, alpha=alpha, beta=beta)

    @_example("bl.gelu(np.float32([-2, 0, 3])).numpy().round(3)", "array([-0.046,  0.   ,  2.996], dtype=float32)")
    def gelu(self, *, approximate: bool = False, name: str | None = None) -> Self:
        """The normal distribution's x * P(X <= x), exactly or by way of tanh; in a Builder from opset 20 on."""
        return self._op("Gelu", self, name=name, approximate="tanh" if approximate else None)

    @_example("bl.clip(np.float32([-2, 0, 3]), -1, 1).numpy()", "array([-1.,  0.,  1.], dtype=float32)")
    def clip(self, lo: float = -math.inf, hi: float = math.inf, name: str | None = None) -> Self:
        """Limits to ``lo`` below and ``hi`` above; from 0 to 6 it is Relu6."""
        if math.isnan(lo) or math.isnan(hi):
            raise InputError(f"clip: lo is {lo} and hi is {hi}; give numbers")
        limits = (float(limit) if math.isfinite(limit) else None for limit in (lo, hi))
        return self._op("Clip", self, *limits, name=name)

    @_example("bl.identity(np.float32([-2, 0, 3])).numpy()", "array([-2.,  0.,  3.], dtype=float32)")
    def identity(self, name: str | None = None) -> Self:
        """``x`` as it is."""
        return self._op("Identity", self, name=name)

    @_example("bl.dropout(np.float32([-2, 0, 3])).numpy()", "array([-2.,  0.,  3.], dtype=float32)")
    def dropout(self, name: str | None = None) -> Self:
        """``x`` as it is: dropout does nothing in inference."""
        return self._op("Dropout", self, name=name)

    # Functions of several tensors, element by element, with numpy's broadcasting. A Tensor's result has the format of
    # the first operand that is not broadcast; where another one differs, the caller is warned.

    @_example("bl.add(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([5., 4., 5.], dtype=float32)")
    def add(self, y: Addend, name: str | None = None) -> Self:
        """The sum of two."""
        return _of_two("Add", self, y, name)

    @_example("bl.sub(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([-3.,  0.,  3.], dtype=float32)")
    def sub(self, y: Addend, name: str | None = None) -> Self:
        """The difference of two."""
        return _of_two("Sub", self, y, name)

    @_example("bl.mul(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([4., 4., 4.], dtype=float32)")
    def mul(self, y: Addend, name: str | None = None) -> Self:
        """The product of two, element by element."""
        return _of_two("Mul", self, y, name)

    @_example("bl.div(np.float32([1, 2]), np.float32([4, 2])).numpy()", "array([0.25, 1.  ], dtype=float32)")
    def div(self, y: Addend, name: str | None = None) -> Self:
        """The quotient of two."""
        return _of_two("Div", self, y, name)

    @_example("bl.pow(np.float32([1, 2, 4]), 2).numpy()", "array([ 1.,  4., 16.], dtype=float32)")
    def pow(self, exponent: Exponent, name: str | None = None) -> Self:
        """``x`` to the power of ``exponent``; fast for one number, which is part of the plan."""
        return _of_two("Pow", self, exponent, name)

    @_example("bl.prelu(np.float32([-2, 0, 3]), np.float32([0.5])).numpy()", "array([-1.,  0.,  3.], dtype=float32)")
    def prelu(self, slope: Operand, name: str | None = None) -> Self:
        """``slope * x`` below 0, ``x`` from there on; one slope, or one for each channel in an array of (C, 1, 1)."""
        return self._op("PRelu", self, slope, name=name)

    # Comparisons, element by element, with numpy's broadcasting; with NaN all but ``not_equal`` are false. A Tensor's
    # result has its format by the same rule.

    @_example("bl.equal(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([False,  True, False])")
    def equal(self, y: Comparand, name: str | None = None) -> Self:
        """Where two are equal."""
        return _of_two("Equal", self, y, name)

    @_example("bl.not_equal(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([ True, False,  True])")
    def not_equal(self, y: Comparand, name: str | None = None) -> Self:
        """Where two are not equal."""
        return self._op("Not", _of_two("Equal", self, y, None), name=name)

    @_example("bl.less(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([ True, False, False])")
    def less(self, y: Comparand, name: str | None = None) -> Self:
        """Where the first is less."""
        return _of_two("Less", self, y, name)

    @_example("bl.less_or_equal(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([ True,  True, False])")
    def less_or_equal(self, y: Comparand, name: str | None = None) -> Self:
        """Where the first is less, or equal; in a Builder from opset 12 on."""
        return _of_two("LessOrEqual", self, y, name)

    @_example("bl.greater(np.float32([1, 2, 4]), np.float32([4, 2, 1])).numpy()", "array([False, False,  True])")
    def greater(self, y: Comparand, name: str | None = None) -> Self:
        """Where the first is greater."""
        return _of_two("Greater", self, y, name)

    @_example("bl.greater_or_equal(np.float32([1, 2]), np.float32([2, 2])).numpy()", "array([False,  True])")
    def greater_or_equal(self, y: Comparand, name: str | None = None) -> Self:
        """Where the first is greater, or equal; in a Builder from opset 12 on."""
        return _of_two("GreaterOrEqual", self, y, name)

    # Convolutions and products of matrices.

    def conv(
        self,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Extents = 1,
        pads: Pads = 0,
        dilations: Extents = 1,
        group: Count = 1,
        memory_format: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Convolution.

        Args:
            weights: Shape (oc, ic / group, kernel...); of Tensors also of :func:`blocklayout.conv_weights`.
            bias: Shape (oc,).
            strides: One number, or one for each spatial dimension.
            pads: One number, one for each spatial dimension, or all begins and then all ends.
            dilations: Likewise; 1 is a dense kernel.
            group: How many parts the channels are in, each computed on its own.
            memory_format: The format of a Tensor's result; by default that of ``x``, or where it is row-major the one
                beside the weights' (``nChw8c`` with ``OIhw8i8o``, channels-last with ``ohwi``). A Builder takes none.
            name: Of the node, in a Builder.

        Raises:
            InputError: ``group`` does not divide the channels.
            ModelError: Extents or attributes do not fit together.
            LayoutError: ``memory_format`` is none, or has another rank.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> x = bl.ones((1, 16, 8, 8), memory_format="nChw8c")
            >>> bl.conv(x, np.ones((32, 16, 3, 3), np.float32), pads=1)
            Tensor(f32 1x32x8x8 nChw8c)
        """
        if memory_format is not None:
            raise InputError("conv: memory_format is for Tensors; state a built value's format by .expect(layout)")
        window = self._window(strides=strides, pads=pads, dilations=dilations)
        return self._op("Conv", self, weights, bias, name=name, group=None if group == 1 else group, **window)

    def conv_transpose(
        self,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Extents = 1,
        pads: Pads = 0,
        output_padding: Pads = 0,
        dilations: Extents = 1,
        group: Count = 1,
        name: str | None = None,
    ) -> Self:
        """Transposed convolution.

        Arguments are those of :meth:`conv`, but that ``weights`` have the shape (ic, oc / group, kernel...), or of
        Tensors are from :func:`blocklayout.conv_transpose_weights`; ``output_padding`` is added to the extents
        of the result, at their end.

        Raises:
            InputError: ``group`` does not divide the channels.
            ModelError: Extents or attributes do not fit together.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> bl.conv_transpose(bl.ones((1, 16, 8, 8)), np.ones((16, 32, 2, 2), np.float32), strides=2)
            Tensor(f32 1x32x16x16 nchw)
        """
        window = self._window(strides=strides, pads=pads, dilations=dilations, output_padding=output_padding)
        return self._op("ConvTranspose", self, weights, bias, name=name, group=None if group == 1 else group, **window)

    @_example("bl.matmul(x, np.float32([1, 10])).numpy()", "array([21., 43.], dtype=float32)", before=_MATRIX)
    def matmul(self, y: Operand, name: str | None = None) -> Self:
        """Matrix product over the last two dimensions; those before are broadcast. A Tensor's result is row-major."""
        return _of_two("MatMul", self, y, name)

    @_example(
        "bl.gemm(np.float32([[1, 2]]), np.float32([[1, 10]]), np.float32([5]), trans_b=True).numpy()",
        "array([[26.]], dtype=float32)",
    )
    def gemm(
        self,
        y: Operand,
        c: Operand | None = None,
        *,
        alpha: float | None = 1.0,
        beta: float | None = 1.0,
        trans_a: bool = False,
        trans_b: bool = False,
        name: str | None = None,
    ) -> Self:
        """The matrix alpha * x @ y + beta * c, ``x`` and ``y`` transposed where asked for; ``c`` is broadcast."""
        factors = {"alpha": None if alpha == 1 else alpha, "beta": None if beta == 1 else beta}
        transposed = {"transA": 1 if trans_a else None, "transB": 1 if trans_b else None}
        return self._op("Gemm", self, y, c, name=name, **factors, **transposed)

    # Poolings.

    def max_pool(
        self,
        kernel: Extents,
        strides: Extents | None = None,
        pads: Pads = 0,
        *,
        dilations: Extents = 1,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> Self:
        """Largest of each window; NaN where there is one in it.

        Args:
            kernel: One number, or one for each spatial dimension, of which there are one to three.
            strides: Likewise; windows lie side by side unless it is given.
            pads: One number, one for each spatial dimension, or all begins and then all ends.
            dilations: Distance between two elements of a window; 1 is dense. In a Builder from opset 10 on.
            ceil_mode: Whether there is a last, incomplete window.
            name: Of the node, in a Builder.

        Raises:
            ModelError: The window does not fit the source.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
            >>> bl.max_pool(x, 2).numpy()[0, 0]
            array([[ 5.,  7.],
                   [13., 15.]], dtype=float32)
        """
        window = self._pooled(kernel, strides, pads=pads, dilations=dilations)
        return self._op("MaxPool", self, name=name, ceil_mode=1 if ceil_mode else None, **window)

    def max_pool_with_indices(
        self,
        kernel: Extents,
        strides: Extents | None = None,
        pads: Pads = 0,
        *,
        dilations: Extents = 1,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> tuple[Self, ...]:
        """Largest of each window, and where it is: the first of equal ones, or the first NaN.

        Indices are numbers of the source's elements in row-major order, s64, and lie as the maxima do. Arguments are
        those of :meth:`max_pool`.

        Raises:
            ModelError: The window does not fit the source.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
            >>> y, indices = bl.max_pool_with_indices(x, 2)
            >>> indices.numpy()[0, 0]
            array([[ 5,  7],
                   [13, 15]])
        """
        window = self._pooled(kernel, strides, pads=pads, dilations=dilations)
        results: Any = self._op("MaxPool", self, name=name, n_outputs=2, ceil_mode=1 if ceil_mode else None, **window)
        return results  # type: ignore[no-any-return]

    def max_unpool(
        self,
        indices: Operand,
        kernel: Extents,
        strides: Extents | None = None,
        pads: Pads = 0,
        *,
        output_shape: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Self:
        """Zeros, and each element where max pooling with this window found it.

        The window is the pooling's, and ``indices`` are those of :meth:`max_pool_with_indices`. ``output_shape`` is
        that of the pooling's source, where windows did not reach its end: (N, C, spatial...).

        Raises:
            ModelError: The window does not fit, or ``output_shape`` is smaller than its result.
            InvalidArgumentsError: An index is none of the result's, which is found out when it runs.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
            >>> y, indices = bl.max_pool_with_indices(x, 2)
            >>> bl.max_unpool(y, indices, 2).numpy()[0, 0]
            array([[ 0.,  0.,  0.,  0.],
                   [ 0.,  5.,  0.,  7.],
                   [ 0.,  0.,  0.,  0.],
                   [ 0., 13.,  0., 15.]], dtype=float32)
        """
        window = self._pooled(kernel, strides, pads=pads)
        if output_shape is not None:
            # The kernel says nothing but how far the last window reaches.
            steps = kernel if strides is None else strides
            window["kernel_shape"] = self._reaching(tuple(output_shape), steps, pads)
        return self._op("MaxUnpool", self, indices, name=name, **window)

    def average_pool(
        self,
        kernel: Extents,
        strides: Extents | None = None,
        pads: Pads = 0,
        *,
        count_include_pad: bool = False,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> Self:
        """Mean of each window.

        Arguments are those of :meth:`max_pool`; with ``count_include_pad`` padding counts as zeros.

        Raises:
            ModelError: The window does not fit the source.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
            >>> bl.average_pool(x, 2).numpy()[0, 0]
            array([[ 2.5,  4.5],
                   [10.5, 12.5]], dtype=float32)
        """
        window = self._pooled(kernel, strides, pads=pads)
        flags = {"count_include_pad": 1 if count_include_pad else None, "ceil_mode": 1 if ceil_mode else None}
        return self._op("AveragePool", self, name=name, **flags, **window)

    @_example("bl.lp_pool(bl.ones((1, 1, 4, 4)), 2).numpy().ravel()", "array([2., 2., 2., 2.], dtype=float32)")
    def lp_pool(self, kernel: Extents, strides: Extents | None = None, p: Count = 2, name: str | None = None) -> Self:
        """The ``p``-norm of each window; windows lie side by side unless ``strides`` is given."""
        window = self._pooled(kernel, strides)
        return self._op("LpPool", self, name=name, p=p, **window)

    @_example("bl.global_average_pool(x).numpy().ravel()", "array([7.5], dtype=float32)", before=_PIXELS)
    def global_average_pool(self, name: str | None = None) -> Self:
        """Mean over all spatial dimensions, which stay with extent 1."""
        return self._op("GlobalAveragePool", self, name=name)

    @_example("bl.global_max_pool(x).numpy().ravel()", "array([15.], dtype=float32)", before=_PIXELS)
    def global_max_pool(self, name: str | None = None) -> Self:
        """Largest over all spatial dimensions, which stay with extent 1."""
        return self._op("GlobalMaxPool", self, name=name)

    @_example("bl.global_lp_pool(bl.ones((1, 1, 4, 4))).numpy().ravel()", "array([4.], dtype=float32)")
    def global_lp_pool(self, p: Count = 2, name: str | None = None) -> Self:
        """The ``p``-norm over all spatial dimensions, which stay with extent 1."""
        return self._op("GlobalLpPool", self, name=name, p=p)

    # Normalisations.

    @_example(
        "bl.batch_norm(x, scale=ones, bias=zeros, mean=ones, var=ones).numpy().max()",
        "np.float32(0.0)",
        before=_NORMALISED,
    )
    def batch_norm(
        self,
        scale: Vector,
        bias: Vector,
        mean: Vector,
        var: Vector,
        epsilon: NotNegative = 1e-5,
        name: str | None = None,
    ) -> Self:
        """Normalisation of channels by known statistics, each of shape (channels,); compare ``batch_norm_training``."""
        return self._op("BatchNormalization", self, scale, bias, mean, var, name=name, epsilon=epsilon)

    def layer_norm(
        self,
        scale: Operand,
        bias: Operand | None = None,
        *,
        axis: Axis = -1,
        epsilon: NotNegative = 1e-5,
        name: str | None = None,
    ) -> Self:
        """Normalisation over the dimensions from ``axis`` on, by their own statistics; vectors have those extents.

        In a Builder from opset 17 on.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> bl.layer_norm(np.float32([[1, 3], [2, 6]]), np.ones(2, np.float32)).numpy().round(3)
            array([[-1.,  1.],
                   [-1.,  1.]], dtype=float32)
        """
        return self._op("LayerNormalization", self, scale, bias, name=name, axis=axis, epsilon=epsilon)

    @_example("bl.group_norm(x, 4, scale=ones, bias=zeros)", "Tensor(f32 1x16x8x8 nChw8c)", before=_NORMALISED)
    def group_norm(
        self, n_groups: Count, scale: Vector, bias: Vector, epsilon: NotNegative = 1e-5, name: str | None = None
    ) -> Self:
        """Normalisation of groups of channels by their own statistics; ``scale`` and ``bias`` of shape (channels,)."""
        if len(self.shape) < 2 or n_groups < 1 or self.shape[1] % n_groups:
            raise InputError(f"group_norm: n_groups is {n_groups}; give a divisor of the channels of x, {self.shape}")
        # As PyTorch writes it: ONNX's own takes vectors of other extents before opset 21, and no recipe takes vectors
        # that come later, as a Tensor's do. Simplification makes one operator of it.
        ones, zeros = (make(n_groups, to_numpy(self.dtype)) for make in (np.ones, np.zeros))
        normal = self.reshape((0, n_groups, -1)).instance_norm(ones, zeros, epsilon).reshape(self.shape)
        column = (self.shape[1], *(1,) * (len(self.shape) - 2))
        result: Self = (normal * _reshaped(scale, column)).add(_reshaped(bias, column), name=name)
        return result

    @_example("bl.instance_norm(x, scale=ones, bias=zeros)", "Tensor(f32 1x16x8x8 nChw8c)", before=_NORMALISED)
    def instance_norm(self, scale: Vector, bias: Vector, epsilon: NotNegative = 1e-5, name: str | None = None) -> Self:
        """Normalisation of each channel of each image by its own statistics; vectors of shape (channels,)."""
        return self._op("InstanceNormalization", self, scale, bias, name=name, epsilon=epsilon)

    @_example("bl.lrn(x, 5)", "Tensor(f32 1x16x8x8 nChw8c)", before=_BLOCKED)
    def lrn(
        self, size: Count, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, name: str | None = None
    ) -> Self:
        """Local response normalisation across ``size`` channels."""
        return self._op("LRN", self, name=name, size=size, alpha=alpha, beta=beta, bias=bias)

    @_example("bl.softmax(np.zeros((1, 4), np.float32)).numpy()", "array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)")
    def softmax(self, axis: Axis = -1, name: str | None = None) -> Self:
        """Softmax along ``axis``."""
        return self._op("Softmax", self, name=name, axis=axis)

    @_example("bl.log_softmax(bl.zeros((1, 2))).numpy().round(3)", "array([[-0.693, -0.693]], dtype=float32)")
    def log_softmax(self, axis: Axis = -1, name: str | None = None) -> Self:
        """The logarithm of softmax along ``axis``."""
        return self._op("LogSoftmax", self, name=name, axis=axis)

    # Reductions over ``axes``, or all of them. Where ``keepdims`` is off, a Tensor's result is row-major.

    @_example("bl.reduce_l1(x, 1).numpy()", "array([[3.],", "       [7.]], dtype=float32)", before=_MATRIX)
    def reduce_l1(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The sum of sizes over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceL1", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_l2(x, 1).numpy().round(1)", "array([[2.2],", "       [5. ]], dtype=float32)", before=_MATRIX)
    def reduce_l2(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The root of the sum of squares over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceL2", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example(
        "bl.reduce_log_sum(x, 1).numpy().round(1)", "array([[1.1],", "       [1.9]], dtype=float32)", before=_MATRIX
    )
    def reduce_log_sum(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The logarithm of the sum over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceLogSum", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_max(x, 1).numpy()", "array([[2.],", "       [4.]], dtype=float32)", before=_MATRIX)
    def reduce_max(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The largest over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceMax", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_mean(x, 1).numpy()", "array([[1.5],", "       [3.5]], dtype=float32)", before=_MATRIX)
    def reduce_mean(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The mean over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceMean", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_min(x, 1).numpy()", "array([[1.],", "       [3.]], dtype=float32)", before=_MATRIX)
    def reduce_min(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The smallest over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceMin", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_prod(x, 1).numpy()", "array([[ 2.],", "       [12.]], dtype=float32)", before=_MATRIX)
    def reduce_prod(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The product over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceProd", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_sum(x, 1).numpy()", "array([[3.],", "       [7.]], dtype=float32)", before=_MATRIX)
    def reduce_sum(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The sum over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceSum", self, _integers(axes), name=name, keepdims=int(keepdims))

    @_example("bl.reduce_sum_square(x, 1).numpy()", "array([[ 5.],", "       [25.]], dtype=float32)", before=_MATRIX)
    def reduce_sum_square(self, axes: Axes | None = None, *, keepdims: bool = True, name: str | None = None) -> Self:
        """The sum of squares over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
        return self._op("ReduceSumSquare", self, _integers(axes), name=name, keepdims=int(keepdims))

    # Reductions by numpy's names.

    @shorthand
    @_example("bl.as_tensor(np.float32([[1, 2], [3, 4]])).sum(1).numpy()", "array([3., 7.], dtype=float32)")
    def sum(self, axes: Axes | None = None, *, keepdims: bool = False) -> Self:
        """The sum over ``axes``, or all, which go unless ``keepdims``; of truth how often it is true, in s64."""
        counted = self.astype("s64") if self.dtype == "bool" else self
        return counted.reduce_sum(axes, keepdims=keepdims)

    @shorthand
    @_example("bl.as_tensor(np.float32([[1, 2], [3, 4]])).mean(1).numpy()", "array([1.5, 3.5], dtype=float32)")
    def mean(self, axes: Axes | None = None, *, keepdims: bool = False) -> Self:
        """The mean over ``axes``, or all, which go unless ``keepdims``."""
        return self.reduce_mean(axes, keepdims=keepdims)

    @shorthand
    @_example("bl.as_tensor(np.float32([[1, 2], [3, 4]])).max(1).numpy()", "array([2., 4.], dtype=float32)")
    def max(self, axes: Axes | None = None, *, keepdims: bool = False) -> Self:
        """The largest over ``axes``, or all, which go unless ``keepdims``."""
        return self.reduce_max(axes, keepdims=keepdims)

    @shorthand
    @_example("bl.as_tensor(np.float32([[1, 2], [3, 4]])).min(1).numpy()", "array([1., 3.], dtype=float32)")
    def min(self, axes: Axes | None = None, *, keepdims: bool = False) -> Self:
        """The smallest over ``axes``, or all, which go unless ``keepdims``."""
        return self.reduce_min(axes, keepdims=keepdims)

    @shorthand
    @_example("bl.as_tensor(np.float32([[1, 2], [3, 4]])).prod(1).numpy()", "array([ 2., 12.], dtype=float32)")
    def prod(self, axes: Axes | None = None, *, keepdims: bool = False) -> Self:
        """The product over ``axes``, or all, which go unless ``keepdims``."""
        return self.reduce_prod(axes, keepdims=keepdims)

    # Other extents. Of Tensors these are views where the bytes may stay as they are.

    def reshape(self, shape: Sequence[int], name: str | None = None) -> Self:
        """Other extents for the same elements in row-major order; -1 is worked out, 0 is the extent before.

        A view of a Tensor where the bytes may stay as they are; else a row-major Tensor.

        Raises:
            InputError: Another number of elements than a Tensor has.

        Example:
            >>> import blocklayout as bl
            >>> bl.reshape(bl.zeros((2, 3, 4)), (2, -1)).shape
            (2, 12)
        """
        return self._op("Reshape", self, _integers(shape), name=name)

    @_example("bl.flatten(bl.zeros((2, 3, 4))).shape", "(2, 12)")
    def flatten(self, axis: Axis = 1, name: str | None = None) -> Self:
        """A matrix: the dimensions before ``axis`` are its rows. As :meth:`reshape`."""
        return self._op("Flatten", self, name=name, axis=axis)

    @_example("bl.squeeze(bl.zeros((2, 1, 4))).shape", "(2, 4)")
    def squeeze(self, axes: Axes | None = None, name: str | None = None) -> Self:
        """Without the dimensions ``axes``, or all, of extent 1. As :meth:`reshape`."""
        return self._op("Squeeze", self, _integers(axes), name=name)

    @_example("bl.unsqueeze(bl.zeros((2, 4)), 1).shape", "(2, 1, 4)")
    def unsqueeze(self, axes: Axes, name: str | None = None) -> Self:
        """With a dimension of extent 1 at each of ``axes``, as they are numbered in the result. As :meth:`reshape`."""
        return self._op("Unsqueeze", self, _integers(axes), name=name)

    @_example("bl.transpose(bl.zeros((2, 3, 4)), (0, 2, 1)).shape", "(2, 4, 3)")
    def transpose(self, perm: Sequence[int] | None = None, name: str | None = None) -> Self:
        """Dimensions in the order ``perm``, reversed by default: of a Tensor a view, see :meth:`Tensor.permute`."""
        return self._op("Transpose", self, name=name, perm=perm)

    @_example("bl.expand(bl.ones((2, 1)), (2, 2)).numpy()", "array([[1., 1.],", "       [1., 1.]], dtype=float32)")
    def expand(self, shape: Sequence[int], name: str | None = None) -> Self:
        """Repeated along dimensions of extent 1, as numpy broadcasts."""
        return self._op("Expand", self, _integers(shape), name=name)

    @_example("bl.split(x, (8, 8))", "(Tensor(f32 1x8x8x8 nChw8c), Tensor(f32 1x8x8x8 nChw8c))", before=_BLOCKED)
    def split(self, sizes: Sequence[int], axis: Axis = 1, name: str | None = None) -> tuple[Self, ...]:
        """Parts of so many elements each along ``axis``, each in the source's format."""
        parts: Any = self._op("Split", self, _integers(sizes), name=name, n_outputs=len(sizes), axis=axis)
        return (parts,) if len(sizes) == 1 else parts

    @_example("bl.slice(np.float32([0, 1, 2, 3, 4]), [1], [5], [0], [2]).numpy()", "array([1., 3.], dtype=float32)")
    def slice(
        self,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Axes,
        steps: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Self:
        """Every ``steps``-th element from ``starts`` to before ``ends`` along ``axes``, copied."""
        return self._op("Slice", self, *map(_integers, (starts, ends, axes, steps)), name=name)

    def pad(self, pads: Sequence[int], value: float = 0.0, *, mode: str = "constant", name: str | None = None) -> Self:
        """More elements around: ``pads`` has all begins, then all ends; ``mode`` is ONNX's.

        Where elements are taken from ``x`` (``reflect``, ``edge``, ``wrap``), ``value`` has no say.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> bl.pad(np.float32([[1, 2]]), (0, 1, 0, 0)).numpy()
            array([[0., 1., 2.]], dtype=float32)
        """
        filled = np.float32(value) if mode == "constant" else None
        return self._op("Pad", self, _integers(pads), filled, name=name, mode=mode)

    def resize(
        self,
        *,
        scales: Sequence[float] | None = None,
        sizes: Sequence[int] | None = None,
        mode: str = "nearest",
        name: str | None = None,
        **attrs: Any,
    ) -> Self:
        """Interpolation to other spatial extents; in a Builder from opset 11 on.

        Args:
            scales: Factors of all dimensions, channels and batch among them; or
            sizes: extents of all dimensions.
            mode: ``nearest``, ``linear`` or ``cubic``.
            name: Of the node, in a Builder.
            attrs: ONNX's others, such as ``coordinate_transformation_mode``.

        Raises:
            InputError: Neither or both of ``scales`` and ``sizes`` are given.

        Example:
            >>> import blocklayout as bl
            >>> x = bl.ones((1, 16, 8, 8), memory_format="nChw8c")
            >>> bl.resize(x, scales=(1, 1, 2, 2))
            Tensor(f32 1x16x16x16 nChw8c)
        """
        if (scales is None) == (sizes is None):
            raise InputError("resize: give either scales or sizes")
        factors = None if scales is None else np.asarray(scales, np.float32)
        return self._op("Resize", self, None, factors, _integers(sizes), name=name, mode=mode, **attrs)

    @_example("bl.upsample(np.float32([[[1, 2]]]), (1, 1, 2)).numpy()", "array([[[1., 1., 2., 2.]]], dtype=float32)")
    def upsample(self, scales: Sequence[float], mode: str = "nearest", name: str | None = None) -> Self:
        """More pixels by factors of all dimensions; :meth:`resize` does more."""
        pixels = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._op("Resize", self, None, np.asarray(scales, np.float32), name=name, mode=mode, **pixels)

    def channel_shuffle(self, groups: Count, name: str | None = None) -> Self:
        """Channels that lay side by side in ``groups`` groups in turn: one of each, and again.

        Raises:
            InputError: The groups do not divide the channels.

        Example:
            >>> import numpy as np
            >>> import blocklayout as bl
            >>> x = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)
            >>> bl.channel_shuffle(x, 2).numpy().ravel()
            array([0., 2., 1., 3.], dtype=float32)
        """
        if len(self.shape) < 3 or groups < 1 or self.shape[1] % groups:
            raise InputError(f"channel_shuffle: groups is {groups}; give a divisor of the channels of x, {self.shape}")
        n, c, *spatial = self.shape
        split = self.reshape((n, groups, c // groups, *spatial))
        return split.transpose((0, 2, 1, *range(3, len(split.shape)))).reshape(self.shape, name=name)

    # Python's own.

    __add__ = add
    __sub__ = sub
    __mul__ = mul
    __truediv__ = div
    __pow__ = pow  # noqa: A003 - the method
    __matmul__ = matmul
    __neg__ = neg
    __abs__ = abs  # noqa: A003 - the method
    __lt__ = less
    __le__ = less_or_equal
    __gt__ = greater
    __ge__ = greater_or_equal
    __hash__ = object.__hash__  # by identity, although == compares elements

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self.equal(other) if _is_comparable(other) else NotImplemented  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self.not_equal(other) if _is_comparable(other) else NotImplemented  # type: ignore[arg-type]

    def __pos__(self) -> Self:
        return self

    __radd__ = _reflected("add")
    __rsub__ = _reflected("sub")
    __rmul__ = _reflected("mul")
    __rtruediv__ = _reflected("div")
    __rpow__ = _reflected("pow")
    __rmatmul__ = _reflected("matmul")


def _is_comparable(other: object) -> bool:
    """Whether ``==`` compares elements: anything that is neither a tensor nor a number differs as a whole."""
    return isinstance(other, Operators | np.ndarray | np.generic | Real) or hasattr(other, "__dlpack__")


def _of_two(op_type: str, x: V, y: Any, name: str | None) -> V:
    """An operator of two, either of which may be an array or a number."""
    values: tuple[Any, ...] = (x, y)
    value = next(each for each in values if isinstance(each, Operators))
    result: V = value._op(op_type, x, y, name=name)  # type: ignore[assignment]  # noqa: SLF001
    return result


def _integers(values: Extents | None) -> np.ndarray | None:
    """Integers as ONNX takes them for an input: in a row, 64 bits each."""
    return None if values is None else np.atleast_1d(np.asarray(values, np.int64))


def _reshaped(vector: Any, shape: tuple[int, ...]) -> Any:
    return vector.reshape(shape) if isinstance(vector, Operators) else np.reshape(vector, shape)
