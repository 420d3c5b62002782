"""Layers as they are trained, and their gradients: convolutions, inner products, batch normalisation and poolings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocklayout.eager.functions import preparation_of
from blocklayout.eager.gradients import Call, Given, TensorLike, built, fresh
from blocklayout.eager.operands import boolean, integer
from blocklayout.eager.operands import memory_format as read_format
from blocklayout.errors import InputError, LayoutError, PositionError
from blocklayout.ir.result_format import dominating
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.permutation import inverse
from blocklayout.operators import Operators
from blocklayout.recording import recorded
from blocklayout.tensor import Tensor, contiguous_format, zeros
from blocklayout.tensor.formats import tag_of
from blocklayout.tensor.indexing import boxed, dims_of
from blocklayout.tensor.moving import brought

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
    given: Any = needs
    parts = list(given) if isinstance(given, Collection) else [given]
    for part in parts:
        if not isinstance(part, str) or part not in _PARTS:
            raise Call("conv_backward").error("needs", f"has {part!r:.80}; give names among {', '.join(_PARTS)}")
    found = _conv_gradients("conv_backward", (grad, x, weights), parts, group, memory_format, **window)
    return ConvGradients(*map(found.get, _PARTS))


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
    """The gradient of a convolution's source, in its format; arguments and errors are those of :func:`conv_backward`.

    The values of ``x`` are not needed, so its descriptor will do.

    Example:
        >>> import blocklayout as bl
        >>> x, w = bl.ones((1, 16, 4, 4)), bl.ones((8, 16, 3, 3))
        >>> bl.conv_backward_data(bl.ones((1, 8, 4, 4)), x, w, pads=1)
        Tensor(f32 1x16x4x4 nchw)
    """
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    return _conv_gradients("conv_backward_data", (grad, x, weights), ["data"], group, **window)["data"]


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

    Arguments and errors are those of :func:`conv_backward`. The values of ``weights`` are not needed, so their
    descriptor will do.

    Example:
        >>> import blocklayout as bl
        >>> x, w = bl.ones((1, 16, 4, 4)), bl.ones((8, 16, 3, 3))
        >>> weights, bias = bl.conv_backward_weights(bl.ones((1, 8, 4, 4)), x, w, pads=1)
        >>> weights.shape, bias.shape
        ((8, 16, 3, 3), (8,))
    """
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    found = _conv_gradients("conv_backward_weights", (grad, x, weights), ["weights", "bias"], group, **window)
    return found["weights"], found["bias"]


def _build_gradients(
    grad: Any, *others: Any, needs: Sequence[str], extents: Any, kernel: Any, grouped: int, **window: Any
) -> tuple[Any, ...]:
    """Those of a convolution that are needed, of the source where one is of the weights or bias, and the weights."""
    found: dict[str, Any] = {}
    if "data" in needs:
        found["data"] = built("ConvDataGradient", grad, others[-1], extents=extents, **window)
    if {*needs} != {"data"}:
        given = {"kernel": kernel, "grouped": grouped, **window}
        found["weights"], found["bias"] = built("ConvWeightsGradient", grad, others[0], n_outputs=2, **given)
    return tuple(found[part] for part in needs)


def _conv_gradients(
    function: str,
    operands: tuple[Any, Any, Any],
    parts: Collection[str],
    group: int,
    memory_format: Any = None,
    **window: Extents,
) -> dict[str, Tensor]:
    """The gradients that are asked for, by name."""
    call, ranks = Call(function), (3, 4, 5)
    grad, x = call.read("grad", operands[0], ranks), call.read("x", operands[1], ranks, needs_values=False)
    ndims = x.desc.ndims
    w = call.read("weights", operands[2], (ndims, ndims + 1), needs_values=False)
    n_groups = integer(group, f"{function}: group")
    dst = dominating([x.desc, w.desc], grad.dims, x.desc.dtype).desc
    try:
        stated = None if memory_format is None else read_format(memory_format, f"{function}: memory_format")
        form = tag_of(stated or dst.format_tag, dst).text
    except LayoutError as error:
        raise call.error("memory_format", f"is none of the result: {error}") from None
    needs = tuple(part for part in _PARTS if part in parts)
    if not (needs and grad.desc.n_elements):  # of none no primitive computes anything
        given = (*((each.dims, each.desc.dtype, each.form) for each in (x, w)), (grad.dims[1],))
        of_part: dict[str, Any] = dict(zip(_PARTS, given, strict=True))
        return {part: zeros(*of_part[part]) for part in needs}
    is_split, split = n_groups > 1 and w.desc.ndims == ndims, w
    if is_split and w.tensor is not None:
        in_groups: Any = preparation_of(Operators.conv)[0]
        split = call.read("weights", in_groups((x.desc, w.tensor), n_groups, function)[1], (ndims + 1,))
    read = [grad, *([x] if {*needs} - {"data"} else []), *([split] if "data" in needs else [])]
    formats = {"data": x.form, "weights": contiguous_format if is_split else w.form, "bias": contiguous_format}
    attrs: dict[str, Any] = {"needs": needs, "extents": x.dims, "kernel": w.dims[2 - ndims :], **window}
    attrs |= {"group": n_groups, "grouped": int(is_split or w.desc.ndims > ndims)}
    made = call.run(_build_gradients, read, form, *(formats[part] for part in needs), **attrs)
    found = dict(zip(needs, made, strict=True))
    if "weights" in found and found["weights"].desc.n_elements != w.desc.n_elements:
        raise call.error(
            "weights", f"has shape {w.dims}; group {n_groups} of x's {x.dims[1]} channels makes it another"
        )
    if "weights" in found and is_split:
        found["weights"] = call.returned(found["weights"].view(w.dims), fresh(w.desc))
    return found


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
    rows, taps, _ = _read_rows(call, x, weights)
    if bias is None:
        return rows.gemm(taps, trans_b=True)
    vector = call.read_vector("bias", bias)
    call.check_dims(vector, taps.shape[:1], "one number for each row of weights")
    return rows.gemm(taps, vector.tensor, trans_b=True)


def inner_product_backward(grad: TensorLike, x: TensorLike, weights: TensorLike) -> InnerProductGradients:
    """Gradients of an inner product's source, weights and bias; ``grad`` is that of its result, in any layout.

    The others, and errors, are those of :func:`inner_product`.

    Example:
        >>> import numpy as np
        >>> grads = inner_product_backward(np.float32([[1, 10]]), np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]))
        >>> [each.numpy().tolist() for each in grads]
        [[[53.0, 64.0]], [[1.0, 2.0], [10.0, 20.0]], [1.0, 10.0]]
    """
    call = Call("inner_product_backward")
    given = call.read("grad", grad, (2,))
    rows, taps, back = _read_rows(call, x, weights, given)
    sums = given.tensor.to(memory_format=contiguous_format)
    data, matrix = sums.matmul(taps), sums.gemm(rows, trans_a=True)
    return InnerProductGradients(
        back(data, "x"), back(matrix, "weights"), sums.reduce_sum(0, keepdims=False).astype("f32")
    )


def _read_rows(
    call: Call, x: TensorLike, weights: TensorLike, *grads: Given
) -> tuple[Tensor, Tensor, Callable[[Tensor, str], Tensor]]:
    """Both operands as matrices, elements in the order in which those of the weights lie; and the way back."""
    src = call.read("x", x, (2, 3, 4, 5))
    matrix = call.read("weights", weights, (src.desc.ndims,))
    call.check_dims(matrix, (matrix.dims[0], *src.dims[1:]), "x")
    for each in grads:
        call.check_dims(each, (src.dims[0], matrix.dims[0]))
    form, ndims = matrix.desc.format_tag, matrix.desc.ndims
    order = form.order if form.order[0] == 0 and not form.inner_blks else tuple(range(ndims))
    given = {each.name: each for each in (src, matrix)}

    def rows(each: Given) -> Tensor:
        placed = brought(each.tensor, MemoryDesc(each.dims, each.desc.dtype, FormatTag(order)), call.function)
        turned = placed if order == tuple(range(ndims)) else placed.permute(order)
        return turned if ndims == 2 else turned.view(each.dims[0], prod(each.dims[1:]))

    def back(found: Tensor, name: str) -> Tensor:
        dims = given[name].dims
        whole = found.view(*(dims[dim] for dim in order)).permute(inverse(order))
        return call.returned(whole, fresh(given[name].desc))

    return rows(src), rows(matrix), back


# --- batch normalisation


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
    vectors = {"scale": scale, "shift": shift}
    return BatchNormTraining(*_normalized("batch_norm_training", "BatchNormTraining", x, epsilon, vectors))


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
    that, and the mean and variance that it returned. Errors are those of that, too.

    Example:
        >>> import blocklayout as bl
        >>> x, ones = bl.ones((2, 16, 4, 4)), bl.ones(16)
        >>> grads = bl.batch_norm_backward(x, x, scale=ones, mean=ones, variance=ones)
        >>> grads.data.shape, grads.scale.shape, grads.shift.shape
        ((2, 16, 4, 4), (16,), (16,))
    """
    vectors = {"scale": scale, "mean": mean, "variance": variance}
    return BatchNormGradients(*_normalized("batch_norm_backward", "BatchNormGradient", x, epsilon, vectors, grad))


def _normalized(
    function: str, op_type: str, x: TensorLike, epsilon: float, vectors: Mapping[str, TensorLike], *grads: TensorLike
) -> list[Tensor]:
    """The results by the batch's own statistics: of the gradient's operator where there are ``grads``."""
    call, ranks = Call(function), (2, 3, 4, 5)
    src = call.read("x", x, ranks)
    operands = [*(call.read("grad", grad, ranks) for grad in grads), src]
    operands += (call.read_vector(name, value) for name, value in vectors.items())
    return call.run(op_type, operands, src.form, src.form, *[contiguous_format] * 2, epsilon=epsilon)


# --- poolings


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
    return _pooling_gradient("max_pool_backward", grad, x, kernel, strides, pads, dilations)


def average_pool_backward(
    grad: TensorLike,
    x: TensorLike | MemoryDesc,
    kernel: Extents,
    strides: Extents | None = None,
    pads: Extents = 0,
    *,
    count_include_pad: bool = False,
) -> Tensor:
    """The gradient of average pooling's source, in its format; all else is as of :func:`max_pool_backward`.

    The values of ``x`` are not needed, so its descriptor will do. With ``count_include_pad`` a mean counts the zeros of
    the padding.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.average_pool_backward(bl.ones((1, 1, 1, 2)), bl.ones((1, 1, 2, 4)), 2).numpy()[0, 0]
        array([[0.25, 0.25, 0.25, 0.25],
               [0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    function = "average_pool_backward"
    counts = boolean(count_include_pad, f"{function}: count_include_pad")
    return _pooling_gradient(function, grad, x, kernel, strides, pads, counts_pads=counts)


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
    return _pooling_gradient("global_average_pool_backward", grad, x, None, 1)


def _pooling_gradient(
    function: str,
    grad: TensorLike,
    x: TensorLike | MemoryDesc,
    kernel: Extents | None,
    strides: Extents | None,
    pads: Extents = 0,
    dilations: Extents = 1,
    *,
    counts_pads: bool = False,
) -> Tensor:
    """The source's gradient; the window is the whole image without a kernel."""
    call, ranks, is_max = Call(function), (3, 4, 5), function == "max_pool_backward"
    given, src = call.read("grad", grad, ranks), call.read("x", x, ranks, needs_values=is_max)
    kernel = src.dims[2:] if kernel is None else kernel
    strides = kernel if strides is None else strides
    attrs: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    if is_max:
        return call.run("MaxPoolGradient", (given, src), src.form, **attrs)[0]
    attrs |= {"extents": src.dims, "count_include_pad": int(counts_pads)}
    return call.run("AveragePoolGradient", (given,), src.form, **attrs)[0]


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
    desc = fresh(source.desc)
    try:
        dims = dims_of(boxed(index, desc))
    except (InputError, PositionError) as error:
        raise call.error("index", f"is {index!r:.80}: {error}") from None
    call.check_dims(given, dims, "x[index]")
    made = Tensor(desc, np.zeros(desc.nbytes, np.uint8))
    made[index] = given.tensor
    return made
