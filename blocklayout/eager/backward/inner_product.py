"""Inner products, which are fully connected layers over whole images, and their gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from blocklayout import dnnl
from blocklayout.eager.backward.call import Call
from blocklayout.eager.backward.choosing import first_optimised
from blocklayout.eager.backward.formats import format_of, in_format
from blocklayout.eager.primitives import execute
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

_RANKS = (2, 3, 4, 5)

Direction = Literal["forward", "data", "weights"]


class InnerProductGradients(NamedTuple):
    """Gradients of an inner product's arguments.

    Attributes:
        data: Of ``x``, in its format.
        weights: Of ``weights``, in its layout.
        bias: Of the bias: a vector of f32.
    """

    data: Tensor
    weights: Tensor
    bias: Tensor


def inner_product(x: ArrayLike | Tensor, weights: ArrayLike | Tensor, bias: ArrayLike | Tensor | None = None) -> Tensor:
    """Sums over all but the first dimension: ``y[n, o] = bias[o] + sum(x[n] * weights[o])``; ``y`` is plain.

    Args:
        x: Of rank 2 to 5, in any layout.
        weights: The weights, of shape (oc, ...), and behind that the shape of ``x[0]``; in any layout.
        bias: One number for each row of the weights.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> inner_product(np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]), np.float32([0, 100])).numpy()
        array([[ 11., 117.]], dtype=float32)
    """
    return _InnerProduct("inner_product", x, weights).forward(bias)


def inner_product_backward(
    grad: ArrayLike | Tensor, x: ArrayLike | Tensor, weights: ArrayLike | Tensor
) -> InnerProductGradients:
    """Gradients of an inner product's source, weights and bias.

    Args:
        grad: Gradient of the result: of shape (n, oc), in any layout.
        x: The source, of rank 2 to 5.
        weights: The weights, of shape (oc, ...), and behind that the shape of ``x[0]``.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> grads = inner_product_backward(np.float32([[1, 10]]), np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]))
        >>> [each.numpy().tolist() for each in grads]
        [[[53.0, 64.0]], [[1.0, 2.0], [10.0, 20.0]], [1.0, 10.0]]
    """
    return _InnerProduct("inner_product_backward", x, weights, grad).gradients()


class _InnerProduct(Call):
    """One call, in either direction: backward where there is a gradient."""

    def __init__(
        self, function: str, x: ArrayLike | Tensor, weights: ArrayLike | Tensor, grad: ArrayLike | Tensor | None = None
    ) -> None:
        super().__init__(function)
        grads = [] if grad is None else [self.read("grad", grad, (2,))]
        self.x = self.read("x", x, _RANKS)
        self.w = self.read("weights", weights, (self.x.desc.ndims,))
        self.check_same_dtype(*grads, self.w, self.x)
        self.check_dims(self.w, (self.w.dims[0], *self.x.dims[1:]), "x")
        self.dst = MemoryDesc((self.x.dims[0], self.w.dims[0]), self.x.desc.dtype)
        for each in grads:
            self.check_dims(each, self.dst.dims, "the forward's result")
        self.grads = grads

    def forward(self, bias: ArrayLike | Tensor | None) -> Tensor:
        vector = None if bias is None else self.read_vector("bias", bias, self.w.dims[0])
        spec = self._spec("forward", has_bias=vector is not None)
        given = {"src": self.x, "weights": self.w} | ({} if vector is None else {"bias": vector})
        inputs = {name: self.placed(operand, spec.memory_desc(name)) for name, operand in given.items()}
        return execute(spec, inputs)["dst"]

    def gradients(self) -> InnerProductGradients:
        diff_dst = self.placed(self.grads[0], self.dst)
        spec = self._spec("data", has_bias=False)
        weights = self.placed(self.w, spec.memory_desc("weights"))
        data = execute(spec, {"diff_dst": diff_dst, "weights": weights})["diff_src"]
        spec = self._spec("weights", has_bias=True)
        results = execute(spec, {"diff_dst": diff_dst, "src": self.placed(self.x, spec.memory_desc("src"))})
        return InnerProductGradients(
            self.returned(data, format_of(self.x.desc), "the gradient of x"),
            self.returned(results["diff_weights"], format_of(self.w.desc), "the gradient of weights"),
            results["diff_bias"],
        )

    def _spec(self, direction: Direction, *, has_bias: bool) -> dnnl.Spec:
        src = format_of(self.x.desc)
        spec = _way(src, self.w.dims, direction, has_bias, dnnl.default_threads())
        used = spec.memory_desc("diff_src" if direction == "data" else "src")
        if used != src:
            self.lose(src, used)
        return spec


@lru_cache(maxsize=1024)
def _way(
    src: MemoryDesc,
    weights_dims: tuple[int, ...],
    direction: Direction,
    has_bias: bool,  # noqa: FBT001 - lru_cache's key
    n_threads: int,
) -> dnnl.Spec:
    dst = MemoryDesc((src.dims[0], weights_dims[0]), src.dtype)
    bias = MemoryDesc(weights_dims[:1]) if has_bias else None

    def spec_of(x: MemoryDesc, w: MemoryDesc) -> dnnl.Spec:
        if direction == "data":
            return dnnl.inner_product_backward_data(x, w, dst, n_threads=n_threads)
        if direction == "weights":
            return dnnl.inner_product_backward_weights(x, w, dst, bias, n_threads=n_threads)
        return dnnl.inner_product(x, w, dst, bias, n_threads=n_threads)

    _, (spec,) = first_optimised((spec_of(x, w),) for x, w in _formats(src, weights_dims))
    return spec


def _formats(src: MemoryDesc, weights: tuple[int, ...]) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
    """Of source and weights: both in the source's, then both plain.

    Where the batch is not outermost the library offers its product of matrices, and refuses some when they run.
    """
    if src.dim_order[0] == 0:
        yield src, in_format(src, weights)
    yield MemoryDesc(src.dims, src.dtype), MemoryDesc(weights, src.dtype)
