"""Dropout of whole channels, in the format of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.eager.operands import as_tensor, boolean, number, refused
from blocklayout.errors import InputError
from blocklayout.tensor import Tensor
from blocklayout.tensor.creating import generator

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand


def dropout2d(
    x: Operand, p: float = 0.5, *, training: bool = False, rng: np.random.Generator | int | None = None
) -> Tensor:
    """Whole channels of images at 0, the others larger for it, in the format of ``x``; in inference ``x`` as it is.

    The gradient of ``x`` is the same function of the result's gradient, called with the same seed.

    Args:
        x: Images: rank 4.
        p: Probability for each channel of each image to be 0; others are multiplied by 1 / (1 - p).
        training: Whether to do so.
        rng: numpy's generator of random numbers, or a seed for one.

    Raises:
        InputError: Another rank, or no probability.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.ones((1, 8, 2, 2), memory_format="nChw8c")
        >>> y = bl.dropout2d(x, 0.5, training=True, rng=1)
        >>> y.memory_format, y.numpy().max(axis=(2, 3))
        ('nChw8c', array([[2., 2., 0., 2., 0., 0., 2., 0.]], dtype=float32))
    """
    return _dropped("dropout2d", x, 4, p, rng, training=training)


def dropout3d(
    x: Operand, p: float = 0.5, *, training: bool = False, rng: np.random.Generator | int | None = None
) -> Tensor:
    """As :func:`dropout2d`, of volumes: rank 5."""
    return _dropped("dropout3d", x, 5, p, rng, training=training)


def _dropped(
    name: str, x: Operand, ndims: int, p: float, rng: np.random.Generator | int | None, *, training: bool
) -> Tensor:
    source = as_tensor(x, f"{name}: x")
    if source.ndim != ndims:
        raise InputError(f"{name}: x has shape {source.shape}; give one of rank {ndims}, images and channels first")
    if source.dtype not in FLOATS:
        raise InputError(
            f"{name}: x is {source.desc}; give floating-point numbers, which can be multiplied by 1 / (1 - p)"
        )
    if not 0 <= number(p, f"{name}: p") <= 1:
        raise refused(p, f"{name}: p", "a probability, 0 to 1")
    numbers = None if rng is None else generator(rng, name)
    if not boolean(training, f"{name}: training"):
        return source
    n, c, *spatial = source.shape
    is_kept = (numbers or generator(None, name)).random((n, c)) >= p
    factors = np.where(is_kept, 1 / (1 - p) if p < 1 else 0, 0).astype(to_numpy(source.dtype))
    return source * factors.reshape((n, c, *(1 for _ in spatial)))
