"""Layers as they are trained, and their gradients: convolutions, inner products, batch normalisation and poolings."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.eager.gradients import Call, Given, TensorLike, Way, formats, fresh, in_format
from blocklayout.eager.operands import boolean
from blocklayout.eager.operands import memory_format as read_format
from blocklayout.errors import InputError, LayoutError, PositionError
from blocklayout.ir import Window
from blocklayout.ir.result_format import dominating
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.recording import recorded
from blocklayout.tensor import Tensor, as_tensor
from blocklayout.tensor.formats import placed
from blocklayout.tensor.indexing import boxed, dims_of

if TYPE_CHECKING:
    from blocklayout.operators import Extents
    from blocklayout.tensor.indexing import Index

# --- convolutions

_PARTS = ("data", "weights", "bias")


class ConvGradients(NamedTuple):
    """Gradients of ``x`` and ``weights``, in their formats, and of the bias, an f32 vector; ``None`` if not needed.

    Example:
        >>> import blocklayout as bl
        >>> x, w = bl.ones((1, 16, 4, 4)), bl.ones((8, 16, 3, 3))
        >>> grads = bl.conv_backward(bl.ones((1, 8, 4, 4)), x, w, pads=1, needs=("weights",))
        >>> grads.data is None, grads.weights.shape
        (True, (8, 16, 3, 3))
    """

    data: Tensor | None
    weights: Tensor | None
    bias: Tensor | None


@recorded()
def conv_backward(  # noqa: PLR0913 - the layer's own parameters
    grad: TensorLike,
    x: TensorLike,
    weights: TensorLike,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
    memory_format: str | FormatTag | MemoryDesc | None = None,
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
        memory_format: The format of the forward's result, where it was stated there.
        needs: Which are computed, among ``data``, ``weights`` and ``bias``.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
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
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    call = _Convolution("conv_backward", (grad, x, weights), group, memory_format, **window)
    given: Any = needs
    parts = list(given) if isinstance(given, Collection) else [given]
    unknown = [part for part in parts if not isinstance(part, str) or part not in _PARTS]
    if unknown:
        raise call.error("needs", f"has {unknown[0]!r:.80}; give names among {', '.join(_PARTS)}")
    data = call.data() if "data" in parts else None
    of_weights, of_bias = call.weights(has_bias="bias" in parts) if {"weights", "bias"} & {*parts} else (None, None)
    return ConvGradients(data, of_weights if "weights" in parts else None, of_bias)


@recorded()
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

    Example:
        >>> import blocklayout as bl
        >>> x, w = bl.ones((1, 16, 4, 4)), bl.ones((8, 16, 3, 3))
        >>> bl.conv_backward_data(bl.ones((1, 8, 4, 4)), x, w, pads=1)
        Tensor(f32 1x16x4x4 nchw)
    """
    operands = grad, x, weights
    return _Convolution("conv_backward_data", operands, group, strides=strides, pads=pads, dilations=dilations).data()


@recorded()
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

    Example:
        >>> import blocklayout as bl
        >>> x, w = bl.ones((1, 16, 4, 4)), bl.ones((8, 16, 3, 3))
        >>> weights, bias = bl.conv_backward_weights(bl.ones((1, 8, 4, 4)), x, w, pads=1)
        >>> weights.shape, bias.shape
        ((8, 16, 3, 3), (8,))
    """
    call = _Convolution(
        "conv_backward_weights", (grad, x, weights), group, strides=strides, pads=pads, dilations=dilations
    )
    of_weights, of_bias = call.weights(has_bias=True)
    assert of_bias is not None  # noqa: S101 - it was asked for
    return of_weights, of_bias


def _convolution_ways(
    direction: str, src: MemoryDesc, dst: MemoryDesc, weights_dims: tuple[int, ...], window: Window, n_threads: int
) -> Iterator[Way]:
    """Of ``data``, ``weights``, or ``weights and bias``, in the forward's formats, the destination's, any, plain."""
    weights = dnnl.AnyDesc(weights_dims, src.dtype)
    bias = MemoryDesc((dst.dims[1],)) if direction == "weights and bias" else None
    given: Any = {"strides": window.strides, "pads": window.pads, "dilations": window.dnnl_dilations}
    sides: tuple[tuple[dnnl.Desc, dnnl.Desc], ...] = (
        (src, dst),
        (in_format(dst, src.dims), dst),
        (dnnl.AnyDesc(src.dims, src.dtype), dnnl.AnyDesc(dst.dims, dst.dtype)),
        (MemoryDesc(src.dims, src.dtype), MemoryDesc(dst.dims, dst.dtype)),
    )
    for x, y in sides:
        if direction == "data":
            yield (dnnl.convolution_backward_data(x, weights, y, **given, n_threads=n_threads),)
        else:
            yield (dnnl.convolution_backward_weights(x, weights, y, bias, **given, n_threads=n_threads),)


class _Convolution(Call):
    """One call: all that gradients of a convolution have in common."""

    def __init__(
        self, function: str, operands: tuple[Any, Any, Any], group: int, memory_format: Any = None, **window: Extents
    ) -> None:
        super().__init__(function)
        grad, x, weights = operands
        self.grad = self.read("grad", grad, (3, 4, 5))
        self.x = self.read("x", x, (3, 4, 5), needs_values=False)
        ndims = self.x.desc.ndims
        self.w = self.read("weights", weights, (ndims, ndims + 1), needs_values=False)
        self.check_same_dtype(self.grad, self.w, self.x)
        self.weights_dims = weights_dims = self._weights_dims(group)
        spatial = self.x.dims[2:]
        self.slides = self.window(spatial, self.w.dims[-len(spatial) :], **window)
        dims = (self.x.dims[0], prod(weights_dims[: len(weights_dims) - ndims + 1]), *self.slides.extents(spatial))
        self.check_dims(self.grad, dims)
        self.src = fresh(self.x.desc)
        self.dst = dominating([self.x.desc, self.w.desc], dims, self.x.desc.dtype).desc
        if memory_format is not None:
            stated = read_format(memory_format, f"{function}: memory_format") or self.dst
            try:
                self.dst = placed(self.dst, stated)
            except LayoutError as error:
                raise self.error("memory_format", f"is none of the result: {error}") from None

    def data(self) -> Tensor:
        """The source's gradient."""
        results = self.run(self._best("data"), {"diff_dst": self.grad, "weights": self._grouped()})
        return self.returned(results["diff_src"], self.src)

    def weights(self, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
        """The weights' gradient, and the bias'."""
        spec = self._best("weights and bias" if has_bias else "weights")
        results = self.run(spec, {"src": self.x, "diff_dst": self.grad})
        return self._ungrouped(results["diff_weights"]), results.get("diff_bias")

    def _best(self, direction: str) -> dnnl.Spec:
        problem = direction, self.src, self.dst, self.weights_dims, self.slides
        (spec,) = self.best(_convolution_ways, *problem, kept="diff_dst", wanted=self.dst)
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
        if self.w.dims == self.weights_dims:
            return self.w
        try:
            return replace(self.w, desc=self.w.desc.reshaped(self.weights_dims))
        except LayoutError:
            plain = MemoryDesc(self.w.dims, self.w.desc.dtype)
            return Given("weights", plain.reshaped(self.weights_dims), self.placed(self.w, plain))

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


# --- inner products


class InnerProductGradients(NamedTuple):
    """Gradients of ``x`` and ``weights``, in their formats, and of the bias, a vector of f32.

    Example:
        >>> import blocklayout as bl
        >>> grads = bl.inner_product_backward(bl.ones((2, 3)), bl.ones((2, 5)), bl.ones((3, 5)))
        >>> [each.shape for each in grads]
        [(2, 5), (3, 5), (3,)]
    """

    data: Tensor
    weights: Tensor
    bias: Tensor


@recorded()
def inner_product(x: TensorLike, weights: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """Sums over all but the first dimension: ``y[n, o] = bias[o] + sum(x[n] * weights[o])``; ``y`` is plain.

    Args:
        x: Of rank 2 to 5, in any layout.
        weights: The weights, of shape (oc, ...), and behind that the shape of ``x[0]``; in any layout.
        bias: One number for each row of the weights.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> inner_product(np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]), np.float32([0, 100])).numpy()
        array([[ 11., 117.]], dtype=float32)
    """
    call = Call("inner_product")
    operands, dst = _read(call, x, weights)
    if bias is not None:
        operands["bias"] = call.read_vector("bias", bias, dst.dims[1])
    return call.run(_best_product(call, "forward", operands, dst, has_bias=bias is not None), operands)["dst"]


@recorded()
def inner_product_backward(grad: TensorLike, x: TensorLike, weights: TensorLike) -> InnerProductGradients:
    """Gradients of an inner product's source, weights and bias; ``grad`` is that of its result, in any layout.

    The others are those of :func:`inner_product`.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> grads = inner_product_backward(np.float32([[1, 10]]), np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]))
        >>> [each.numpy().tolist() for each in grads]
        [[[53.0, 64.0]], [[1.0, 2.0], [10.0, 20.0]], [1.0, 10.0]]
    """
    call = Call("inner_product_backward")
    operands, dst = _read(call, x, weights, grad)
    src, matrix, diff_dst = operands["src"], operands["weights"], operands["diff_dst"]
    of_src = _best_product(call, "backward_data", operands, dst)
    data = call.run(of_src, {"diff_dst": diff_dst, "weights": matrix})["diff_src"]
    of_weights = _best_product(call, "backward_weights", operands, dst, has_bias=True)
    results = call.run(of_weights, {"diff_dst": diff_dst, "src": src})
    return InnerProductGradients(
        call.returned(data, fresh(src.desc)),
        call.returned(results["diff_weights"], fresh(matrix.desc), "weights"),
        results["diff_bias"],
    )


def _read(call: Call, x: TensorLike, weights: TensorLike, *given: TensorLike) -> tuple[dict[str, Given], MemoryDesc]:
    """The operands by argument, a gradient that is given among them, and the result's descriptor."""
    grads: dict[str, Given] = {}
    for grad in given:
        grads["diff_dst"] = call.read("grad", grad, (2,))
    src = call.read("x", x, (2, 3, 4, 5))
    matrix = call.read("weights", weights, (src.desc.ndims,))
    call.check_same_dtype(*grads.values(), matrix, src)
    call.check_dims(matrix, (matrix.dims[0], *src.dims[1:]), "x")
    dst = MemoryDesc((src.dims[0], matrix.dims[0]), src.desc.dtype)
    for each in grads.values():
        call.check_dims(each, dst.dims)
    return {"src": src, "weights": matrix, **grads}, dst


def _best_product(
    call: Call, direction: str, operands: Mapping[str, Given], dst: MemoryDesc, *, has_bias: bool = False
) -> dnnl.Spec:
    src = fresh(operands["src"].desc)
    bias = MemoryDesc(dst.dims[1:]) if has_bias else None
    kept = "diff_src" if direction == "backward_data" else "src"
    (spec,) = call.best(_product_ways, direction, src, operands["weights"].dims, dst, bias, kept=kept, wanted=src)
    return spec


def _product_ways(
    direction: str, src: MemoryDesc, weights: tuple[int, ...], dst: MemoryDesc, bias: MemoryDesc | None, n_threads: int
) -> Iterator[Way]:
    """Both in the source's format, unless its batch is inner (runs are refused then); then both plain."""
    pairs = [(src, in_format(src, weights))] if src.dim_order[0] == 0 else []
    for x, w in (*pairs, (MemoryDesc(src.dims, src.dtype), MemoryDesc(weights, src.dtype))):
        match direction:
            case "backward_data":
                yield (dnnl.inner_product_backward_data(x, w, dst, n_threads=n_threads),)
            case "backward_weights":
                yield (dnnl.inner_product_backward_weights(x, w, dst, bias, n_threads=n_threads),)
            case _:
                yield (dnnl.inner_product(x, w, dst, bias, n_threads=n_threads),)


# --- batch normalisation

_LEARNED = ("use_scale", "use_shift")


class BatchNormTraining(NamedTuple):
    """The result, in the format of ``x``, and each channel's mean and (biased) variance over batch and images.

    Example:
        >>> import blocklayout as bl
        >>> trained = bl.batch_norm_training(bl.ones((2, 16, 4, 4)), bl.ones(16), bl.zeros(16))
        >>> trained.y.shape, trained.mean.shape
        ((2, 16, 4, 4), (16,))
    """

    y: Tensor
    mean: Tensor
    variance: Tensor


class BatchNormGradients(NamedTuple):
    """Gradients of ``x``, in its format, and of the scale and the shift, which are vectors.

    Example:
        >>> import blocklayout as bl
        >>> x, ones = bl.ones((2, 16, 4, 4)), bl.ones(16)
        >>> bl.batch_norm_backward(x, x, ones, ones, ones).data.shape
        (2, 16, 4, 4)
    """

    data: Tensor
    scale: Tensor
    shift: Tensor


@recorded()
def batch_norm_training(
    x: TensorLike, scale: TensorLike, shift: TensorLike, epsilon: float = 1e-5
) -> BatchNormTraining:
    """Normalise each channel by its own mean and variance over the batch, then scale and shift it.

    Args:
        x: Of rank 2 to 5, in any layout.
        scale: One factor for each channel.
        shift: One summand for each channel.
        epsilon: Added to the variance.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> x = np.float32([[1, 10], [3, 30]])
        >>> y, mean, variance = batch_norm_training(x, np.ones(2, np.float32), np.zeros(2, np.float32), 0)
        >>> y.numpy().tolist(), mean.numpy().tolist(), variance.numpy().tolist()
        ([[-1.0, -1.0], [1.0, 1.0]], [2.0, 20.0], [1.0, 100.0])
    """
    results = _trained("batch_norm_training", x, epsilon, {"scale": scale, "shift": shift})
    return BatchNormTraining(results["dst"], results["mean"], results["variance"])


@recorded()
def batch_norm_backward(
    grad: TensorLike,
    x: TensorLike,
    scale: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    epsilon: float = 1e-5,
) -> BatchNormGradients:
    """Gradients of a batch normalisation's source, scale and shift.

    ``grad`` is the gradient of the result of :func:`batch_norm_training`, in any layout; the others are arguments of
    that, and the mean and variance that it returned.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import blocklayout as bl
        >>> x, ones = bl.ones((2, 16, 4, 4)), bl.ones(16)
        >>> grads = bl.batch_norm_backward(x, x, scale=ones, mean=ones, variance=ones)
        >>> grads.data.shape, grads.scale.shape, grads.shift.shape
        ((2, 16, 4, 4), (16,), (16,))
    """
    vectors = {"scale": scale, "mean": mean, "variance": variance}
    results = _trained("batch_norm_backward", x, epsilon, vectors, grad)
    return BatchNormGradients(results["diff_src"], results["diff_scale"], results["diff_shift"])


def _trained(
    function: str, x: TensorLike, epsilon: float, vectors: Mapping[str, TensorLike], *grads: TensorLike
) -> dict[str, Tensor]:
    """The results of the primitive by the batch's own statistics: of the gradient's where there are ``grads``."""
    call, ranks, is_backward = Call(function), (2, 3, 4, 5), bool(grads)
    operands: dict[str, Given] = {}
    for grad in grads:
        operands["diff_dst"] = call.read("grad", grad, ranks)
    operands["src"] = src = call.read("x", x, ranks)
    for given in operands.values():
        call.check_same_dtype(given, src)
        call.check_dims(given, src.dims)
    number = call.number("epsilon", epsilon)
    if not 0 <= number < math.inf:
        raise call.error("epsilon", f"is {epsilon!r}; give a finite number of at least 0")
    operands |= {name: call.read_vector(name, value, src.dims[1]) for name, value in vectors.items()}
    wanted = fresh(src.desc)
    (spec,) = call.best(_normalization_ways, wanted, number, is_backward, kept="src", wanted=wanted)
    results = call.run(spec, operands)
    name, gradient_of = ("diff_src", "x") if is_backward else ("dst", "")
    return results | {name: call.returned(results[name], wanted, gradient_of)}


def _normalization_ways(src: MemoryDesc, epsilon: float, is_backward: bool, n_threads: int) -> Iterator[Way]:  # noqa: FBT001 - a part of a key
    for desc in formats(src):
        given: Any = {"flags": _LEARNED, "n_threads": n_threads}
        if is_backward:
            yield (dnnl.batch_normalization_backward(desc, desc, desc, epsilon, **given),)
        else:
            yield (dnnl.batch_normalization(desc, desc, epsilon, **given, prop_kind="forward_training"),)


# --- poolings


@recorded()
def max_pool_backward(
    grad: TensorLike,
    x: TensorLike,
    kernel: Extents,
    strides: Extents | None = None,
    pads: Extents = 0,
    *,
    dilations: Extents = 1,
) -> Tensor:
    """The gradient of max pooling's source, in its format: each window's goes to the first of its largest elements.

    Where these were is not kept by the forward, so the pooling is run once more.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of rank 3 to 5.
        kernel: The window: one number, or one for each spatial dimension.
        strides: Likewise; windows lie side by side by default.
        pads: One number, one for each spatial dimension, or all in front and then all behind.
        dilations: Distance between two elements of a window; 1 is dense.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        >>> max_pool_backward(np.ones((1, 1, 2, 2), np.float32), x, 2).numpy()[0, 0]
        array([[0., 0., 0., 0.],
               [0., 1., 0., 1.],
               [0., 0., 0., 0.],
               [0., 1., 0., 1.]], dtype=float32)
    """
    return _gradient("max_pool_backward", "max", grad, x, kernel, strides, pads, dilations)


@recorded()
def average_pool_backward(
    grad: TensorLike,
    x: TensorLike | MemoryDesc,
    kernel: Extents,
    strides: Extents | None = None,
    pads: Extents = 0,
    *,
    count_include_pad: bool = False,
) -> Tensor:
    """The gradient of average pooling's source, in its format; arguments are those of :func:`max_pool_backward`.

    The values of ``x`` are not needed, so its descriptor will do. With ``count_include_pad`` a mean counts the zeros of
    the padding.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.average_pool_backward(bl.ones((1, 1, 1, 2)), bl.ones((1, 1, 2, 4)), 2).numpy()[0, 0]
        array([[0.25, 0.25, 0.25, 0.25],
               [0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    function = "average_pool_backward"
    includes = boolean(count_include_pad, f"{function}: count_include_pad")
    algorithm = "avg_include_padding" if includes else "avg_exclude_padding"
    return _gradient(function, algorithm, grad, x, kernel, strides, pads)


@recorded()
def global_average_pool_backward(grad: TensorLike, x: TensorLike | MemoryDesc) -> Tensor:
    """The gradient of the mean over each channel's image, in the source's format.

    Args:
        grad: Gradient of the result: of shape (n, c, 1, ...), in any layout.
        x: The source, of rank 3 to 5; its values are not needed, so its descriptor will do.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> x = np.zeros((1, 3, 2, 2), np.float32)
        >>> global_average_pool_backward(np.ones((1, 3, 1, 1), np.float32), x).numpy()[0, 0]
        array([[0.25, 0.25],
               [0.25, 0.25]], dtype=float32)
    """
    return _gradient("global_average_pool_backward", "avg_exclude_padding", grad, x, None, 1)


def _gradient(
    function: str,
    algorithm: str,
    grad: TensorLike,
    x: TensorLike | MemoryDesc,
    kernel: Extents | None,
    strides: Extents | None,
    pads: Extents = 0,
    dilations: Extents = 1,
) -> Tensor:
    """The source's gradient; the window is the whole image without a kernel."""
    call, ranks = Call(function), (3, 4, 5)
    diff_dst, src = call.read("grad", grad, ranks), call.read("x", x, ranks, needs_values=False)
    call.check_same_dtype(diff_dst, src)
    spatial = src.dims[2:]
    kernel = spatial if kernel is None else kernel
    window = call.window(spatial, kernel, kernel if strides is None else strides, pads, dilations)
    if any(pad >= reach for pad, reach in zip(window.pads, window.reach * 2, strict=True)):
        raise call.error("pads", f"is {window.pads}; each must be below the {window.reach} that a window spans")
    call.check_dims(diff_dst, (*src.dims[:2], *window.extents(spatial)))
    wanted = fresh(src.desc)
    *forward, backward = call.best(_pooling_ways, wanted, algorithm, window, kept="diff_src", wanted=wanted)
    operands = {"diff_dst": diff_dst}
    for spec in forward:
        workspace = call.run(spec, {"src": src})["workspace"]
        operands["workspace"] = Given("workspace", workspace.desc, workspace.buffer)
    return call.returned(call.run(backward, operands)["diff_src"], wanted)


def _pooling_ways(src: MemoryDesc, algorithm: str, window: Window, n_threads: int) -> Iterator[Way]:
    dst_dims = (*src.dims[:2], *window.extents(src.dims[2:]))
    for each in formats(src):
        dst = each.resized(dst_dims)
        given = (algorithm, window.kernel, window.strides, window.pads, window.dnnl_dilations)
        backward = dnnl.pooling_backward(each, dst, *given, n_threads=n_threads)
        if algorithm == "max":
            yield dnnl.pooling(each, dst, *given, prop_kind="forward_training", n_threads=n_threads), backward
        else:
            yield (backward,)


# --- parts


@recorded()
def slice_backward(grad: TensorLike, x: Tensor | MemoryDesc, index: Index) -> Tensor:
    """The gradient of ``x[index]``: zeros in the format of ``x``, but for the gradient where it was taken from.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source; its values are not needed, so its descriptor will do.
        index: Integers, slices and an Ellipsis.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import blocklayout as bl
        >>> slice_backward(bl.ones(2), bl.zeros(5), slice(1, None, 2)).numpy()
        array([0., 1., 0., 1., 0.], dtype=float32)
    """
    call, ranks = Call("slice_backward"), range(1, 13)
    given, source = call.read("grad", grad, ranks), call.read("x", x, ranks, needs_values=False)
    call.check_same_dtype(given, source)
    desc = fresh(source.desc)
    try:
        dims = dims_of(boxed(index, desc))
    except (InputError, PositionError) as error:
        raise call.error("index", f"is {index!r:.80}: {error}") from None
    call.check_dims(given, dims, "x[index]")
    made = Tensor(desc, np.zeros(desc.nbytes, np.uint8))
    made[index] = as_tensor(grad)
    return made
