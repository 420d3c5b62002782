"""Inner products as they are trained, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from blocklayout import dnnl
from blocklayout.eager.gradients import Call, Given, TensorLike, fresh, in_format
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.tensor import Tensor


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


def inner_product(x: TensorLike, weights: TensorLike, bias: TensorLike | None = None) -> Tensor:
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
    call = Call("inner_product")
    operands, dst = _read(call, x, weights)
    if bias is not None:
        operands["bias"] = call.read_vector("bias", bias, dst.dims[1])
    return call.run(_best(call, "forward", operands, dst, has_bias=bias is not None), operands)["dst"]


def inner_product_backward(grad: TensorLike, x: TensorLike, weights: TensorLike) -> InnerProductGradients:
    """Gradients of an inner product's source, weights and bias; ``grad`` is that of its result, in any layout.

    The others are those of :func:`inner_product`.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> grads = inner_product_backward(np.float32([[1, 10]]), np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]))
        >>> [each.numpy().tolist() for each in grads]
        [[[53.0, 64.0]], [[1.0, 2.0], [10.0, 20.0]], [1.0, 10.0]]
    """
    call = Call("inner_product_backward")
    operands, dst = _read(call, x, weights, {"diff_dst": grad})
    src, matrix, diff_dst = operands["src"], operands["weights"], operands["diff_dst"]
    of_src = _best(call, "backward_data", operands, dst)
    data = call.run(of_src, {"diff_dst": diff_dst, "weights": matrix})["diff_src"]
    of_weights = _best(call, "backward_weights", operands, dst, has_bias=True)
    results = call.run(of_weights, {"diff_dst": diff_dst, "src": src})
    return InnerProductGradients(
        call.returned(data, fresh(src.desc)),
        call.returned(results["diff_weights"], fresh(matrix.desc), "weights"),
        results["diff_bias"],
    )


def _read(
    call: Call, x: TensorLike, weights: TensorLike, given: Mapping[str, TensorLike] = MappingProxyType({})
) -> tuple[dict[str, Given], MemoryDesc]:
    """The operands by argument, those that are gradients among them, and the result's descriptor."""
    grads = {name: call.read("grad", grad, (2,)) for name, grad in given.items()}
    src = call.read("x", x, (2, 3, 4, 5))
    matrix = call.read("weights", weights, (src.desc.ndims,))
    call.check_same_dtype(*grads.values(), matrix, src)
    call.check_dims(matrix, (matrix.dims[0], *src.dims[1:]), "x")
    dst = MemoryDesc((src.dims[0], matrix.dims[0]), src.desc.dtype)
    for each in grads.values():
        call.check_dims(each, dst.dims)
    return {"src": src, "weights": matrix, **grads}, dst


def _best(
    call: Call, direction: str, operands: Mapping[str, Given], dst: MemoryDesc, *, has_bias: bool = False
) -> dnnl.Spec:
    src = fresh(operands["src"].desc)
    bias = MemoryDesc(dst.dims[1:]) if has_bias else None
    kept = "diff_src" if direction == "backward_data" else "src"
    (spec,) = call.best(_ways, direction, src, operands["weights"].dims, dst, bias, kept=kept, wanted=src)
    return spec


def _ways(
    direction: str, src: MemoryDesc, weights: tuple[int, ...], dst: MemoryDesc, bias: MemoryDesc | None, n_threads: int
) -> Iterator[tuple[dnnl.Spec, ...]]:
    """Source and weights both in the source's format, then both plain.

    Where the batch is not outermost the library offers its product of matrices, and refuses some when they run.
    """
    pairs = [(src, in_format(src, weights))] if src.dim_order[0] == 0 else []
    for x, w in (*pairs, (MemoryDesc(src.dims, src.dtype), MemoryDesc(weights, src.dtype))):
        match direction:
            case "backward_data":
                yield (dnnl.inner_product_backward_data(x, w, dst, n_threads=n_threads),)
            case "backward_weights":
                yield (dnnl.inner_product_backward_weights(x, w, dst, bias, n_threads=n_threads),)
            case _:
                yield (dnnl.inner_product(x, w, dst, bias, n_threads=n_threads),)
