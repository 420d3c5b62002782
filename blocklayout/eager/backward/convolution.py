"""Gradients of convolution."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.eager.backward.call import Call, Operand
from blocklayout.eager.backward.choosing import first_optimised
from blocklayout.eager.backward.formats import format_of, in_format
from blocklayout.eager.backward.windows import Extents, read_window
from blocklayout.eager.primitives import execute
from blocklayout.errors import LayoutError
from blocklayout.ir import Window
from blocklayout.ir.result_format import dominating
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import ArrayLike

_RANKS = (3, 4, 5)
_PARTS = ("data", "weights", "bias")
_OF_X, _OF_W = "the gradient of x", "the gradient of weights"


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
    grad: ArrayLike | Tensor,
    x: ArrayLike | Tensor,
    weights: ArrayLike | Tensor,
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
    call = _Convolution("conv_backward", grad, x, weights, strides, pads, dilations, group)
    unknown = [part for part in needs if part not in _PARTS]
    if unknown:
        raise call.error("needs", f"has {unknown[0]!r}; give names among {', '.join(_PARTS)}")
    data = call.data() if "data" in needs else None
    of_weights, of_bias = call.weights(has_bias="bias" in needs) if {"weights", "bias"} & {*needs} else (None, None)
    return ConvGradients(data, of_weights if "weights" in needs else None, of_bias)


def conv_backward_data(
    grad: ArrayLike | Tensor,
    x: ArrayLike | Tensor | MemoryDesc,
    weights: ArrayLike | Tensor,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> Tensor:
    """The gradient of a convolution's source, in its format; see :func:`conv_backward`.

    Args:
        grad: Gradient of the result.
        x: The source; its values are not needed, so its descriptor will do.
        weights: The weights.
        strides: As there.
        pads: As there.
        dilations: As there.
        group: As there.

    Raises:
        InputError: An argument is wrong.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    return _Convolution("conv_backward_data", grad, x, weights, strides, pads, dilations, group).data()


def conv_backward_weights(
    grad: ArrayLike | Tensor,
    x: ArrayLike | Tensor,
    weights: ArrayLike | Tensor | MemoryDesc,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> tuple[Tensor, Tensor]:
    """The gradients of a convolution's weights, in their layout, and of its bias; see :func:`conv_backward`.

    Args:
        grad: Gradient of the result.
        x: The source.
        weights: The weights; their values are not needed, so their descriptor will do.
        strides: As there.
        pads: As there.
        dilations: As there.
        group: As there.

    Raises:
        InputError: An argument is wrong.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    call = _Convolution("conv_backward_weights", grad, x, weights, strides, pads, dilations, group)
    of_weights, of_bias = call.weights(has_bias=True)
    assert of_bias is not None  # noqa: S101 - it was asked for
    return of_weights, of_bias


class _Problem(Struct, frozen=True):
    """A convolution's descriptors, in the forward's formats."""

    src: MemoryDesc
    dst: MemoryDesc
    weights_dims: tuple[int, ...]
    window: Window
    n_threads: int

    @property
    def parameters(self) -> dict[str, Any]:
        """What a primitive takes besides descriptors."""
        window = self.window
        how = {"strides": window.strides, "pads": window.pads, "dilations": window.dnnl_dilations}
        return {**how, "n_threads": self.n_threads}

    def sides(self) -> Iterator[tuple[dnnl.Desc, dnnl.Desc]]:
        """Formats of source and destination, the best first: the forward's own, the destination's, any, plain."""
        yield self.src, self.dst
        yield in_format(self.dst, self.src.dims), self.dst
        yield dnnl.AnyDesc(self.src.dims, self.src.dtype), dnnl.AnyDesc(self.dst.dims, self.dst.dtype)
        plain = (MemoryDesc(desc.dims, desc.dtype, "contiguous_format") for desc in (self.src, self.dst))
        yield next(plain), next(plain)


class _Convolution(Call):
    """One call: what all gradients of a convolution have in common."""

    def __init__(
        self,
        function: str,
        grad: ArrayLike | Tensor,
        x: ArrayLike | Tensor | MemoryDesc,
        weights: ArrayLike | Tensor | MemoryDesc,
        strides: Extents,
        pads: Extents,
        dilations: Extents,
        group: int,
    ) -> None:
        super().__init__(function)
        self.grad = self.read("grad", grad, _RANKS)
        self.x = self.read_desc("x", x, _RANKS)
        ndims = self.x.desc.ndims
        self.w = self.read_desc("weights", weights, (ndims, ndims + 1))
        self.check_same_dtype(self.grad, self.w, self.x)
        weights_dims = self._weights_dims(group)
        spatial = self.x.dims[2:]
        window = read_window(self, spatial, self.w.dims[-len(spatial) :], strides, pads, dilations)
        n_dst = weights_dims[0] * (1 if len(weights_dims) == ndims else weights_dims[1])
        dims = (self.x.dims[0], n_dst, *window.extents(spatial))
        self.check_dims(self.grad, dims, "the forward's result")
        dst = dominating([self.x.desc, self.w.desc], dims, self.x.desc.dtype).desc
        self.problem = _Problem(format_of(self.x.desc), dst, weights_dims, window, dnnl.default_threads())

    def data(self) -> Tensor:
        spec = _data_way(self.problem)
        self._tell(spec)
        inputs = {
            "diff_dst": self.placed(self.grad, spec.memory_desc("diff_dst")),
            "weights": self.placed(self._grouped(), spec.memory_desc("weights")),
        }
        return self.returned(execute(spec, inputs)["diff_src"], self.problem.src, _OF_X)

    def weights(self, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
        spec = _weights_way(self.problem, has_bias)
        self._tell(spec)
        inputs = {
            "src": self.placed(self.x, spec.memory_desc("src")),
            "diff_dst": self.placed(self.grad, spec.memory_desc("diff_dst")),
        }
        results = execute(spec, inputs)
        return self._ungrouped(results["diff_weights"]), results.get("diff_bias")

    def _weights_dims(self, group: int) -> tuple[int, ...]:
        """The weights' extents as the primitive takes them, groups in front."""
        dims, n_src = self.w.dims, self.x.dims[1]
        if not hasattr(group, "__index__") or group < 1 or n_src % group:
            raise self.error("group", f"is {group!r}; give a divisor of the {n_src} channels of x")
        if len(dims) == self.x.desc.ndims + 1:
            right = (group, dims[1], n_src // group, *dims[3:])
            self.check_dims(self.w, right, f"group {group} of x's {n_src} channels")
            return dims
        self.check_dims(self.w, (dims[0], n_src // group, *dims[2:]), f"group {group} of x's {n_src} channels")
        if dims[0] % group:
            raise self.error("weights", f"has {dims[0]} destination channels; group {group} must divide them")
        return dims if group == 1 else (group, dims[0] // group, *dims[1:])

    def _grouped(self) -> Operand:
        """The weights with groups in front: a view where their layout allows that."""
        if self.w.dims == self.problem.weights_dims:
            return self.w
        try:
            return self.w.viewed(self.w.desc.reshaped(self.problem.weights_dims))
        except LayoutError:
            plain = MemoryDesc(self.w.dims, self.w.desc.dtype)
            buffer = self.placed(self.w, plain)
            return Operand("weights", plain, buffer).viewed(plain.reshaped(self.problem.weights_dims))

    def _ungrouped(self, gradient: Tensor) -> Tensor:
        """The weights' gradient in their own layout."""
        wanted = format_of(self.w.desc)
        if gradient.desc.dims == wanted.dims:
            return self.returned(gradient, wanted, _OF_W)
        try:
            grouped = wanted.reshaped(gradient.desc.dims)
        except LayoutError:
            plain = MemoryDesc(wanted.dims, wanted.dtype)
            grouped = plain.reshaped(gradient.desc.dims)
            return self.returned(Tensor(plain, self.returned(gradient, grouped, _OF_W).buffer), wanted, _OF_W)
        return Tensor(wanted, self.returned(gradient, grouped, _OF_W).buffer)

    def _tell(self, spec: dnnl.Spec) -> None:
        used = spec.memory_desc("diff_dst")
        if used != self.problem.dst:
            self.lose(self.problem.dst, used)


@lru_cache(maxsize=1024)
def _data_way(problem: _Problem) -> dnnl.Spec:
    weights, how = dnnl.AnyDesc(problem.weights_dims, problem.src.dtype), problem.parameters
    ways = ((dnnl.convolution_backward_data(src, weights, dst, **how),) for src, dst in problem.sides())
    _, (spec,) = first_optimised(ways)
    return spec


@lru_cache(maxsize=1024)
def _weights_way(problem: _Problem, has_bias: bool) -> dnnl.Spec:  # noqa: FBT001 - lru_cache's key
    weights, how = dnnl.AnyDesc(problem.weights_dims, problem.src.dtype), problem.parameters
    bias = MemoryDesc((problem.dst.dims[1],)) if has_bias else None
    ways = ((dnnl.convolution_backward_weights(src, weights, dst, bias, **how),) for src, dst in problem.sides())
    _, (spec,) = first_optimised(ways)
    return spec
