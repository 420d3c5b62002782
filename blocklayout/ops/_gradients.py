"""What gradients of several operators have in common, in terms of operators on Tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from blocklayout.layout.permutation import inverse


def unbroadcast(grad: Any, dims: Sequence[int]) -> Any:
    """The gradient of a source that was broadcast to the extents of ``grad``: its sums over the dimensions that were.

    Example:
        >>> import blocklayout as bl
        >>> unbroadcast(bl.ones((2, 8, 3, 3)), (8, 1, 1)).numpy()[:, 0, 0]
        array([18., 18., 18., 18., 18., 18., 18., 18.], dtype=float32)
    """
    full = (1,) * (grad.ndim - len(dims)) + tuple(dims)
    axes = tuple(dim for dim, extent in enumerate(grad.shape) if full[dim] != extent)
    # Vectors and columns are row-major, as parameters are.
    summed = grad.reduce_sum(axes, keepdims=len(axes) < grad.ndim - 1) if axes else grad
    return summed if summed.shape == tuple(dims) else summed.reshape(dims)


def repeated(grad: Any, dims: Sequence[int], axes: Sequence[int], like: Any) -> Any:
    """The gradient of a reduction's result, whose ``axes`` may be gone, at each element that was reduced."""
    kept = tuple(1 if dim in axes else extent for dim, extent in enumerate(dims))
    column = grad if grad.shape == kept else grad.reshape(kept)
    return column.to(memory_format=like).expand(dims)


def turned(matrices: Any) -> Any:
    """Each matrix transposed, which is a view of a Tensor."""
    return matrices.transpose((*range(matrices.ndim - 2), matrices.ndim - 1, matrices.ndim - 2))


def of_normalized(
    needs: Sequence[bool],
    grad: Any,
    x: Any,
    scale: Any,
    shapes: Sequence[tuple[int, ...] | None],
    epsilon: float,
    mean: Callable[[Any], Any],
) -> tuple[Any, ...]:
    """The gradients of a source that is brought to mean 0 and variance 1, and of its scale and shift of these shapes.

    ``mean`` gives the means of a tensor over whatever is normalised together, in extents that broadcast.
    """
    centred = x - mean(x)
    inverse = (mean(centred * centred) + epsilon) ** -0.5
    normal, of_x = centred * inverse, None
    if needs[0]:
        scaled = grad * scale
        of_x = inverse * (scaled - mean(scaled) - normal * mean(scaled * normal))
    vectors = zip((grad * normal, grad), shapes[1:], strict=False)
    return of_x, *(None if shape is None else unbroadcast(each, shape) for each, shape in vectors)


def along(bl: Any, grad: Any, matrices: Mapping[int, np.ndarray]) -> Any:
    """Products with a matrix (new, old) along some dimensions, each as rows of whatever lies behind it in memory."""
    if grad.desc.inner_blks:
        grad = grad.to(memory_format="contiguous_format")
    order = grad.desc.format_tag.order
    turned = grad.permute(order)
    for axis, matrix in matrices.items():
        place = order.index(axis)
        dims = list(turned.shape)
        rows = turned.reshape((prod(dims[:place]), dims[place], prod(dims[place + 1 :])))
        dims[place] = len(matrix)
        turned = bl.matmul(np.ascontiguousarray(matrix[None]), rows).reshape(dims)
    return turned.permute(inverse(order))
