"""Gradients of pooling."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.eager.backward.call import Call
from blocklayout.eager.backward.choosing import first_optimised
from blocklayout.eager.backward.formats import format_of, other_formats
from blocklayout.eager.backward.windows import Extents, read_window
from blocklayout.eager.primitives import execute
from blocklayout.ir import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from blocklayout.layout import MemoryDesc
    from blocklayout.tensor import Tensor

_RANKS = (3, 4, 5)


def max_pool_backward(
    grad: ArrayLike | Tensor,
    x: ArrayLike | Tensor,
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
    call = _Pooling("max_pool_backward", grad, x, "max")
    return call.gradient(read_window(call, call.x.dims[2:], kernel, _or(strides, kernel), pads, dilations))


def average_pool_backward(
    grad: ArrayLike | Tensor,
    x: ArrayLike | Tensor | MemoryDesc,
    kernel: Extents,
    strides: Extents | None = None,
    pads: Extents = 0,
    *,
    count_include_pad: bool = False,
) -> Tensor:
    """The gradient of average pooling's source, in its format.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of rank 3 to 5; its values are not needed, so its descriptor will do.
        kernel: The window: one number, or one for each spatial dimension.
        strides: Likewise; windows lie side by side by default.
        pads: One number, one for each spatial dimension, or all in front and then all behind.
        count_include_pad: Whether a mean counts the zeros of the padding.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    algorithm = "avg_include_padding" if count_include_pad else "avg_exclude_padding"
    call = _Pooling("average_pool_backward", grad, x, algorithm)
    return call.gradient(read_window(call, call.x.dims[2:], kernel, _or(strides, kernel), pads))


def global_average_pool_backward(grad: ArrayLike | Tensor, x: ArrayLike | Tensor | MemoryDesc) -> Tensor:
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
    call = _Pooling("global_average_pool_backward", grad, x, "avg_exclude_padding")
    return call.gradient(read_window(call, call.x.dims[2:], call.x.dims[2:], 1, 0))


def _or(strides: Extents | None, kernel: Extents) -> Extents:
    return kernel if strides is None else strides


class _Pooling(Call):
    """One call: what all gradients of poolings have in common."""

    def __init__(
        self, function: str, grad: ArrayLike | Tensor, x: ArrayLike | Tensor | MemoryDesc, algorithm: str
    ) -> None:
        super().__init__(function)
        self.algorithm = algorithm
        self.grad = self.read("grad", grad, _RANKS)
        self.x = self.read_desc("x", x, _RANKS)
        self.check_same_dtype(self.grad, self.x)

    def gradient(self, window: Window) -> Tensor:
        pads = zip(window.pads, window.reach * 2, strict=True)
        if any(pad >= reach for pad, reach in pads):
            raise self.error("pads", f"is {window.pads}; each must be below the {window.reach} that a window spans")
        self.check_dims(self.grad, (*self.x.dims[:2], *window.extents(self.x.dims[2:])), "the forward's result")
        wanted = format_of(self.x.desc)
        place, specs = _way(wanted, self.algorithm, window, dnnl.default_threads())
        backward, used = specs[-1], specs[-1].memory_desc("diff_src")
        if place:
            self.lose(wanted, used)
        inputs = {"diff_dst": self.placed(self.grad, backward.memory_desc("diff_dst"))}
        for forward in specs[:-1]:
            found = execute(forward, {"src": self.placed(self.x, used)})
            inputs["workspace"] = found["workspace"].buffer
        return self.returned(execute(backward, inputs)["diff_src"], wanted, "the gradient of x")


@lru_cache(maxsize=1024)
def _way(src: MemoryDesc, algorithm: str, window: Window, n_threads: int) -> tuple[int, tuple[dnnl.Spec, ...]]:
    return first_optimised(_ways(src, algorithm, window, n_threads))


def _ways(src: MemoryDesc, algorithm: str, window: Window, n_threads: int) -> Iterator[tuple[dnnl.Spec, ...]]:
    dst_dims = (*src.dims[:2], *window.extents(src.dims[2:]))
    for each in (src, *other_formats(src)):
        dst = each.resized(dst_dims)
        given = (algorithm, window.kernel, window.strides, window.pads, window.dnnl_dilations)
        backward = dnnl.pooling_backward(each, dst, *given, n_threads=n_threads)
        if algorithm == "max":
            yield dnnl.pooling(each, dst, *given, prop_kind="forward_training", n_threads=n_threads), backward
        else:
            yield (backward,)
