"""The values a builder gives out: handles with a method for each common operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    from blocklayout.ir.value import Value
    from blocklayout.model.builder import Builder

    Operand: TypeAlias = "BuildValue | np.ndarray | np.generic"
    Extents: TypeAlias = int | Sequence[int]


class BuildValue:
    """A tensor of the network that is being built.

    Every method is :meth:`blocklayout.model.Builder.op` in short; arrays become constants. In window
    operators ``pads`` is one number for all sides, one a spatial dimension, or all begins and then all ends.

    Attributes:
        builder: Whose value it is.
        value: Its name, extents and data type.
    """

    __array_ufunc__ = None
    """Makes numpy hand ``array + value`` over to ``__radd__``."""

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def name(self) -> str:
        """The name it has until it is made an output."""
        return self.value.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents."""
        return self.value.shape

    @property
    def dtype(self) -> str:
        """Data type, by oneDNN's names."""
        return self.value.dtype

    def expect(self, layout: str) -> BuildValue:
        """This value, which must come in a format: checked when the network is planned, and in no other place.

        Args:
            layout: A oneDNN tag such as ``nChw8c``, ``channels_last`` or ``channels_first``.

        Example:
            >>> from blocklayout import Builder
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu().expect("channels_first"))
            >>> b.expected
            {'y': 'channels_first'}
        """
        self.builder.expect(self, layout)
        return self

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} {self.shape}>"

    def conv(
        self,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Extents = 1,
        pads: Extents = 0,
        dilations: Extents = 1,
        group: int = 1,
        name: str | None = None,
    ) -> BuildValue:
        """Convolution; ``weights`` of shape (oc, ic / group, kh, kw)."""
        window = self._window(strides=strides, pads=pads, dilations=dilations)
        return self._op("Conv", weights, bias, name=name, group=None if group == 1 else group, **window)

    def conv_transpose(
        self,
        weights: Operand,
        bias: Operand | None = None,
        *,
        strides: Extents = 1,
        pads: Extents = 0,
        output_padding: Extents = 0,
        dilations: Extents = 1,
        group: int = 1,
        name: str | None = None,
    ) -> BuildValue:
        """Transposed convolution; ``weights`` of shape (ic, oc / group, kh, kw)."""
        window = self._window(strides=strides, pads=pads, dilations=dilations, output_padding=output_padding)
        return self._op("ConvTranspose", weights, bias, name=name, group=None if group == 1 else group, **window)

    def relu(self, name: str | None = None) -> BuildValue:
        """max(x, 0)."""
        return self._op("Relu", name=name)

    def sigmoid(self, name: str | None = None) -> BuildValue:
        """1 / (1 + exp(-x))."""
        return self._op("Sigmoid", name=name)

    def tanh(self, name: str | None = None) -> BuildValue:
        """Hyperbolic tangent."""
        return self._op("Tanh", name=name)

    def gelu(self, *, approximate: bool = False, name: str | None = None) -> BuildValue:
        """The normal distribution's x * P(X <= x), exactly or by way of tanh; from opset 20 on."""
        return self._op("Gelu", name=name, approximate="tanh" if approximate else None)

    def hard_swish(self, name: str | None = None) -> BuildValue:
        """Swish of straight lines, x * clip(x / 6 + 1/2, 0, 1); from opset 14 on."""
        return self._op("HardSwish", name=name)

    def clip(self, lo: float = -math.inf, hi: float = math.inf, name: str | None = None) -> BuildValue:
        """Limits to ``lo`` below and ``hi`` above; ``clip(0, 6)`` is Relu6."""
        limits = [float(limit) if math.isfinite(limit) else None for limit in (lo, hi)]
        if self.builder.opset < 11:
            return self._op("Clip", name=name, min=limits[0], max=limits[1])
        return self._op("Clip", *(limits if limits[1] is not None else limits[:1]), name=name)

    def max_pool(
        self,
        kernel: Extents,
        strides: Extents | None = None,
        pads: Extents = 0,
        *,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> BuildValue:
        """Largest of each window; windows side by side unless ``strides`` is given."""
        window = self._window(kernel_shape=kernel, strides=kernel if strides is None else strides, pads=pads)
        return self._op("MaxPool", name=name, ceil_mode=1 if ceil_mode else None, **window)

    def average_pool(
        self,
        kernel: Extents,
        strides: Extents | None = None,
        pads: Extents = 0,
        *,
        count_include_pad: bool = False,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> BuildValue:
        """Mean of each window; windows side by side unless ``strides`` is given."""
        window = self._window(kernel_shape=kernel, strides=kernel if strides is None else strides, pads=pads)
        flags = {"count_include_pad": 1 if count_include_pad else None, "ceil_mode": 1 if ceil_mode else None}
        return self._op("AveragePool", name=name, **flags, **window)

    def global_average_pool(self, name: str | None = None) -> BuildValue:
        """Mean over all spatial dimensions, which stay with extent 1."""
        return self._op("GlobalAveragePool", name=name)

    def batch_norm(
        self,
        scale: Operand,
        bias: Operand,
        mean: Operand,
        var: Operand,
        epsilon: float = 1e-5,
        name: str | None = None,
    ) -> BuildValue:
        """Normalisation of channels by known statistics, each of shape (channels,)."""
        return self._op("BatchNormalization", scale, bias, mean, var, name=name, epsilon=epsilon)

    def layer_norm(
        self,
        scale: Operand,
        bias: Operand | None = None,
        *,
        axis: int = -1,
        epsilon: float = 1e-5,
        name: str | None = None,
    ) -> BuildValue:
        """Normalisation over the dimensions from ``axis`` on, by their own statistics; from opset 17 on."""
        return self._op("LayerNormalization", scale, bias, name=name, axis=axis, epsilon=epsilon)

    def lrn(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, name: str | None = None
    ) -> BuildValue:
        """Local response normalisation across ``size`` channels."""
        return self._op("LRN", name=name, size=size, alpha=alpha, beta=beta, bias=bias)

    def softmax(self, axis: int = -1, name: str | None = None) -> BuildValue:
        """Softmax along ``axis``."""
        return self._op("Softmax", name=name, axis=axis)

    def dropout(self, name: str | None = None) -> BuildValue:
        """What inference leaves of dropout: nothing."""
        return self._op("Dropout", name=name)

    def flatten(self, axis: int = 1, name: str | None = None) -> BuildValue:
        """A matrix: the dimensions before ``axis`` are its rows."""
        return self._op("Flatten", name=name, axis=axis)

    def mean(self, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None) -> BuildValue:
        """Mean over ``axes``, which go unless ``keepdims`` says otherwise."""
        if self.builder.opset < 18:
            return self._op("ReduceMean", name=name, axes=axes, keepdims=int(keepdims))
        return self._op("ReduceMean", np.asarray(axes, np.int64), name=name, keepdims=int(keepdims))

    def split(self, sizes: Sequence[int], axis: int = 1, name: str | None = None) -> tuple[BuildValue, ...]:
        """Parts of so many elements each along ``axis``."""
        given: dict[str, Any] = {"name": name, "n_outputs": len(sizes), "axis": axis}
        if self.builder.opset < 13:
            parts = self.builder.op("Split", self, split=sizes, **given)
        else:
            parts = self.builder.op("Split", self, np.asarray(sizes, np.int64), **given)
        return (parts,) if len(sizes) == 1 else cast("tuple[BuildValue, ...]", parts)

    def reshape(self, shape: Sequence[int], name: str | None = None) -> BuildValue:
        """Other extents for the same elements; -1 is worked out, 0 is the extent before."""
        return self._op("Reshape", np.asarray(shape, np.int64), name=name)

    def transpose(self, perm: Sequence[int] | None = None, name: str | None = None) -> BuildValue:
        """Dimensions in the order ``perm``, reversed by default."""
        return self._op("Transpose", name=name, perm=perm)

    def gemm(
        self,
        b: Operand,
        c: Operand | None = None,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        trans_a: bool = False,
        trans_b: bool = False,
        name: str | None = None,
    ) -> BuildValue:
        """The matrix alpha * self @ b + beta * c."""
        transposed = {"transA": 1 if trans_a else None, "transB": 1 if trans_b else None}
        return self._op("Gemm", b, c, name=name, alpha=alpha, beta=beta, **transposed)

    def matmul(self, b: Operand, name: str | None = None) -> BuildValue:
        """Matrix product over the last two dimensions."""
        return self._op("MatMul", b, name=name)

    def __add__(self, other: Operand | float) -> BuildValue:
        return self._op("Add", other)

    def __radd__(self, other: np.ndarray | float) -> BuildValue:
        return cast("BuildValue", self.builder.op("Add", other, self))

    def __sub__(self, other: Operand | float) -> BuildValue:
        return self._op("Sub", other)

    def __rsub__(self, other: np.ndarray | float) -> BuildValue:
        return cast("BuildValue", self.builder.op("Sub", other, self))

    def __mul__(self, other: Operand | float) -> BuildValue:
        return self._op("Mul", other)

    def __rmul__(self, other: np.ndarray | float) -> BuildValue:
        return cast("BuildValue", self.builder.op("Mul", other, self))

    def __truediv__(self, other: Operand | float) -> BuildValue:
        return self._op("Div", other)

    def __matmul__(self, other: Operand) -> BuildValue:
        return self.matmul(other)

    def _op(self, op_type: str, *args: Any, name: str | None = None, **attrs: Any) -> BuildValue:
        while args and args[-1] is None:
            args = args[:-1]
        return cast("BuildValue", self.builder.op(op_type, self, *args, name=name, **attrs))

    def _window(self, **attrs: Extents) -> dict[str, Extents | None]:
        """Window attributes spread over the spatial dimensions; those with ONNX's default are left out."""
        n_spatial = len(self.shape) - 2
        spread: dict[str, Extents | None] = {}
        for attr, given in attrs.items():
            each = (given,) * n_spatial if isinstance(given, int) else tuple(given)
            n_wanted = 2 * n_spatial if attr == "pads" else n_spatial
            each = each * 2 if attr == "pads" and len(each) == n_spatial else each
            if len(each) != n_wanted:
                from blocklayout.errors import ModelError

                raise ModelError(
                    f"{attr} {given!r} has {len(each)} values; {self.name!r} of shape {self.shape} has {n_spatial} "
                    f"spatial dimensions: give one number, or {n_wanted} of them"
                )
            default = 0 if attr in ("pads", "output_padding") else 1
            is_default = attr != "kernel_shape" and all(number == default for number in each)
            spread[attr] = None if is_default else each
        return spread
