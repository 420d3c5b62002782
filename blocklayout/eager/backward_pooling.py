"""Gradients of poolings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.eager.gradients import Call, Given, TensorLike, formats, fresh
from blocklayout.eager.operands import boolean

if TYPE_CHECKING:
    from blocklayout.ir import Window
    from blocklayout.layout import MemoryDesc
    from blocklayout.operators import Extents
    from blocklayout.tensor import Tensor


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
        InputError: An argument is wrong; the message names it, the rule and what would be right.
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
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    function = "average_pool_backward"
    includes = boolean(count_include_pad, f"{function}: count_include_pad")
    algorithm = "avg_include_padding" if includes else "avg_exclude_padding"
    return _gradient(function, algorithm, grad, x, kernel, strides, pads)


def global_average_pool_backward(grad: TensorLike, x: TensorLike | MemoryDesc) -> Tensor:
    """The gradient of the mean over each channel's image, in the source's format.

    Args:
        grad: Gradient of the result: of shape (n, c, 1, ...), in any layout.
        x: The source, of rank 3 to 5; its values are not needed, so its descriptor will do.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
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
    *forward, backward = call.best(_ways, wanted, algorithm, window, kept="diff_src", wanted=wanted)
    operands = {"diff_dst": diff_dst}
    for spec in forward:
        workspace = call.run(spec, {"src": src})["workspace"]
        operands["workspace"] = Given("workspace", workspace.desc, workspace.buffer)
    return call.returned(call.run(backward, operands)["diff_src"], wanted)


def _ways(src: MemoryDesc, algorithm: str, window: Window, n_threads: int) -> Iterator[tuple[dnnl.Spec, ...]]:
    dst_dims = (*src.dims[:2], *window.extents(src.dims[2:]))
    for each in formats(src):
        dst = each.resized(dst_dims)
        given = (algorithm, window.kernel, window.strides, window.pads, window.dnnl_dilations)
        backward = dnnl.pooling_backward(each, dst, *given, n_threads=n_threads)
        if algorithm == "max":
            yield dnnl.pooling(each, dst, *given, prop_kind="forward_training", n_threads=n_threads), backward
        else:
            yield (backward,)
