"""Gradients of convolutions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.eager.gradients import Call, Given, TensorLike, fresh, in_format
from blocklayout.errors import LayoutError
from blocklayout.ir import Window
from blocklayout.ir.result_format import dominating
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from blocklayout.operators import Extents

_PARTS = ("data", "weights", "bias")


class ConvGradients(NamedTuple):
    """Gradients of a convolution's arguments; ``None`` for those that were not asked for.

    Attributes:
        data: Of ``x``, in its format.
        weights: Of ``weights``, in its layout.
        bias: Of the bias: a vector of f32.
    """

    data: Tensor | None
    weights: Tensor | None
    bias: Tensor | None


def conv_backward(
    grad: TensorLike,
    x: TensorLike,
    weights: TensorLike,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
    needs: Collection[str] = _PARTS,
) -> ConvGradients:
    """Gradients of a convolution's source, weights and bias.

    The forward's result has the format of ``x``, or that of ``weights`` where ``x`` is plain and they are not.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of rank 3 to 5.
        weights: The weights, of shape (oc, ic / group, kernel...); also (group, oc / group, ic / group, kernel...).
        strides: One number, or one for each spatial dimension.
        pads: One number, one for each spatial dimension, or all in front and then all behind.
        dilations: Distance between two taps; 1 is dense.
        group: Groups of channels that are convolved apart.
        needs: Which are computed, among ``data``, ``weights`` and ``bias``.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> from blocklayout import reorder
        >>> x = reorder(np.ones((1, 16, 5, 5), np.float32), "nhwc")
        >>> w = np.ones((8, 16, 3, 3), np.float32)
        >>> data, weights, bias = conv_backward(np.ones((1, 8, 5, 5), np.float32), x, w, pads=1)
        >>> data.desc.tag, float(data.numpy()[0, 0, 0, 0]), weights.shape, float(bias.numpy()[0])
        ('nhwc', 32.0, (8, 16, 3, 3), 25.0)
    """
    call = _Call("conv_backward", (grad, x, weights), group, strides=strides, pads=pads, dilations=dilations)
    given: Any = needs
    parts = list(given) if isinstance(given, Collection) else [given]
    unknown = [part for part in parts if not isinstance(part, str) or part not in _PARTS]
    if unknown:
        raise call.error("needs", f"has {unknown[0]!r:.80}; give names among {', '.join(_PARTS)}")
    data = call.data() if "data" in parts else None
    of_weights, of_bias = call.weights(has_bias="bias" in parts) if {"weights", "bias"} & {*parts} else (None, None)
    return ConvGradients(data, of_weights if "weights" in parts else None, of_bias)


def conv_backward_data(
    grad: TensorLike,
    x: TensorLike | MemoryDesc,
    weights: TensorLike,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> Tensor:
    """The gradient of a convolution's source, in its format; arguments are those of :func:`conv_backward`.

    The values of ``x`` are not needed, so its descriptor will do.

    Raises:
        InputError: An argument is wrong.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    operands = grad, x, weights
    return _Call("conv_backward_data", operands, group, strides=strides, pads=pads, dilations=dilations).data()


def conv_backward_weights(
    grad: TensorLike,
    x: TensorLike,
    weights: TensorLike | MemoryDesc,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> tuple[Tensor, Tensor]:
    """The gradients of a convolution's weights, in their layout, and of its bias.

    Arguments are those of :func:`conv_backward`. The values of ``weights`` are not needed, so their descriptor will do.

    Raises:
        InputError: An argument is wrong.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    call = _Call("conv_backward_weights", (grad, x, weights), group, strides=strides, pads=pads, dilations=dilations)
    of_weights, of_bias = call.weights(has_bias=True)
    assert of_bias is not None  # noqa: S101 - it was asked for
    return of_weights, of_bias


class _Problem(Struct, frozen=True):
    """A convolution's descriptors, in the forward's formats, and its window."""

    src: MemoryDesc
    dst: MemoryDesc
    weights_dims: tuple[int, ...]
    window: Window

    def sides(self) -> Iterator[tuple[dnnl.Desc, dnnl.Desc]]:
        """Formats of source and destination, the best first: the forward's own, the destination's, any, plain."""
        src, dst = self.src, self.dst
        yield src, dst
        yield in_format(dst, src.dims), dst
        yield dnnl.AnyDesc(src.dims, src.dtype), dnnl.AnyDesc(dst.dims, dst.dtype)
        yield MemoryDesc(src.dims, src.dtype), MemoryDesc(dst.dims, dst.dtype)

    def ways(self, direction: str, n_threads: int) -> Iterator[tuple[dnnl.Spec, ...]]:
        """For the gradient of the source (``data``), of the weights, or of ``weights and bias``."""
        window, weights = self.window, dnnl.AnyDesc(self.weights_dims, self.src.dtype)
        slides: Any = {"strides": window.strides, "pads": window.pads, "dilations": window.dnnl_dilations}
        bias = MemoryDesc((self.dst.dims[1],)) if direction == "weights and bias" else None
        for src, dst in self.sides():
            if direction == "data":
                yield (dnnl.convolution_backward_data(src, weights, dst, **slides, n_threads=n_threads),)
            else:
                yield (dnnl.convolution_backward_weights(src, weights, dst, bias, **slides, n_threads=n_threads),)


class _Call(Call):
    """One call: all that gradients of a convolution have in common."""

    def __init__(self, function: str, operands: tuple[Any, Any, Any], group: int, **window: Extents) -> None:
        super().__init__(function)
        grad, x, weights = operands
        self.grad = self.read("grad", grad, (3, 4, 5))
        self.x = self.read("x", x, (3, 4, 5), needs_values=False)
        ndims = self.x.desc.ndims
        self.w = self.read("weights", weights, (ndims, ndims + 1), needs_values=False)
        self.check_same_dtype(self.grad, self.w, self.x)
        weights_dims = self._weights_dims(group)
        spatial = self.x.dims[2:]
        slides = self.window(spatial, self.w.dims[-len(spatial) :], **window)
        dims = (self.x.dims[0], prod(weights_dims[: len(weights_dims) - ndims + 1]), *slides.extents(spatial))
        self.check_dims(self.grad, dims)
        dst = dominating([self.x.desc, self.w.desc], dims, self.x.desc.dtype).desc
        self.problem = _Problem(fresh(self.x.desc), dst, weights_dims, slides)

    def data(self) -> Tensor:
        """The source's gradient."""
        results = self.run(self._best("data"), {"diff_dst": self.grad, "weights": self._grouped()})
        return self.returned(results["diff_src"], self.problem.src)

    def weights(self, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
        """The weights' gradient, and the bias'."""
        spec = self._best("weights and bias" if has_bias else "weights")
        results = self.run(spec, {"src": self.x, "diff_dst": self.grad})
        return self._ungrouped(results["diff_weights"]), results.get("diff_bias")

    def _best(self, direction: str) -> dnnl.Spec:
        (spec,) = self.best(_Problem.ways, self.problem, direction, kept="diff_dst", wanted=self.problem.dst)
        return spec

    def _weights_dims(self, group: int) -> tuple[int, ...]:
        """The weights' extents as the primitive takes them, groups in front."""
        dims, n_src = self.w.dims, self.x.dims[1]
        right = f"a divisor of the {n_src} channels of x"
        (group,) = self.integers("group", group, 1, right=right)
        if n_src % group:
            raise self.error("group", f"is {group!r}; give {right}")
        if len(dims) == self.x.desc.ndims + 1:
            grouped = (group, dims[1], n_src // group, *dims[3:])
            self.check_dims(self.w, grouped, f"group {group} of x's {n_src} channels")
            return dims
        self.check_dims(self.w, (dims[0], n_src // group, *dims[2:]), f"group {group} of x's {n_src} channels")
        if dims[0] % group:
            raise self.error("weights", f"has {dims[0]} destination channels; group {group} must divide them")
        return dims if group == 1 else (group, dims[0] // group, *dims[1:])

    def _grouped(self) -> Given:
        """The weights with groups in front: a view where their layout allows that."""
        if self.w.dims == self.problem.weights_dims:
            return self.w
        try:
            return replace(self.w, desc=self.w.desc.reshaped(self.problem.weights_dims))
        except LayoutError:
            plain = MemoryDesc(self.w.dims, self.w.desc.dtype)
            return Given("weights", plain.reshaped(self.problem.weights_dims), self.placed(self.w, plain))

    def _ungrouped(self, gradient: Tensor) -> Tensor:
        wanted = fresh(self.w.desc)
        if gradient.desc.dims == wanted.dims:
            return self.returned(gradient, wanted, "weights")
        try:
            grouped = wanted.reshaped(gradient.desc.dims)
        except LayoutError:
            plain = MemoryDesc(wanted.dims, wanted.dtype)
            grouped = plain.reshaped(gradient.desc.dims)
            return self.returned(Tensor(plain, self.returned(gradient, grouped, "weights").buffer), wanted, "weights")
        return Tensor(wanted, self.returned(gradient, grouped, "weights").buffer)
