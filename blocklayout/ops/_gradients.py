"""Parts of several operators' gradients, in terms of operators on Tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from blocklayout.layout.permutation import inverse


def same(grad: Any, *_: Any) -> Any:
    """The gradient as it is: of a move, a view, a sum; the tape sums over what was broadcast."""
    return grad


def of_channels(grad: Any) -> Any:
    """Sums over all but each channel, as a vector."""
    return grad.reduce_sum([dim for dim in range(grad.ndim) if dim != 1], keepdims=False)


def of_normalized(grad: Any, x: Any, scale: Any, epsilon: float, mean: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The gradients of a source that is brought to mean 0 and variance 1, and of its scale.

    ``mean`` gives means over whatever is normalised together, in extents that broadcast.
    """
    centred = x - mean(x)
    narrowing = (mean(centred * centred) + epsilon) ** -0.5
    normal, scaled = centred * narrowing, grad * scale
    return narrowing * (scaled - mean(scaled) - normal * mean(scaled * normal)), grad * normal


def along(bl: Any, grad: Any, matrices: Mapping[int, np.ndarray]) -> Any:
    """Products with a matrix (new, old) along some dimensions, in the order of memory."""
    grad = grad.to(memory_format="contiguous_format") if grad.desc.inner_blks else grad
    order = grad.desc.format_tag.order
    turned = grad.permute(order)
    for axis, matrix in matrices.items():
        place, dims = order.index(axis), list(turned.shape)
        rows = turned.reshape((prod(dims[:place]), dims[place], prod(dims[place + 1 :])))
        dims[place] = len(matrix)
        turned = bl.matmul(np.ascontiguousarray(matrix[None]), rows).reshape(dims)
    return turned.permute(inverse(order))
