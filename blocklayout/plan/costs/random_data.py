"""Random data to measure on, written once and used for Spec after Spec."""

from __future__ import annotations

from functools import cache

import numpy as np

from blocklayout import dnnl
from blocklayout.dnnl.memory import ALIGNMENT
from blocklayout.dtypes import FLOATS, to_numpy

_N_RANDOM = 1 << 16
_SEED = 0
_INTEGER_SPREAD = {"s8": 30.0, "u8": 30.0, "s32": 100.0}


@cache
def random_elements(dtype: str, *, is_positive: bool = False) -> np.ndarray:
    """Elements to fill buffers with, over and over. Shape (65536,).

    Normally distributed: zeros are computed faster than data, and denormals 100 times slower. Integers have no
    fractions, and their spread is far from their limits. Variances are well above zero.
    """
    values = np.random.default_rng(_SEED).standard_normal(_N_RANDOM, dtype=np.float32)
    if dtype in _INTEGER_SPREAD:
        values *= _INTEGER_SPREAD[dtype]
    if is_positive or dtype == "u8":
        values = np.abs(values) + np.float32(0.5)
    elif dtype in _INTEGER_SPREAD:
        values = np.clip(values, -127, 127)
    values = values.astype(to_numpy(dtype))
    values.flags.writeable = False
    return values


def random_array(dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Normally distributed numbers; zeros and ones where the type has no fractions."""
    if dtype in FLOATS:
        return generator.standard_normal(shape, dtype=np.float32).astype(to_numpy(dtype))
    return generator.integers(0, 2, shape).astype(to_numpy(dtype))


def random_bytes(nbytes: int, pattern: np.ndarray) -> np.ndarray:
    """So many aligned bytes, or a few more: a pattern over and over."""
    n_elements = -(-nbytes // pattern.itemsize)
    buffer = dnnl.aligned_empty(n_elements * pattern.itemsize)
    elements, n_whole = buffer.view(pattern.dtype), n_elements // pattern.size * pattern.size
    elements[:n_whole].reshape(-1, pattern.size)[...] = pattern
    elements[n_whole:] = pattern[: n_elements - n_whole]
    return buffer


class Tape:
    """Random bytes of one data type, cut off piece after piece, and from the start again at the end.

    Nothing is written after the start. Pieces are read only, and those of one round do not overlap.
    """

    def __init__(self, pattern: np.ndarray) -> None:
        self._pattern = pattern
        self._bytes = np.empty(0, np.uint8)
        self._place = 0

    @property
    def nbytes(self) -> int:
        """Its length."""
        return self._bytes.nbytes

    def reserve(self, nbytes: int) -> None:
        """Make it at least so long; pieces of a shorter one stay valid."""
        if nbytes > self._bytes.nbytes:
            self._bytes = random_bytes(nbytes, self._pattern)
            self._place = 0

    def rewind(self) -> None:
        """Begin at the start."""
        self._place = 0

    def piece(self, nbytes: int) -> np.ndarray:
        """The next bytes, aligned; the tape must be as long."""
        if self._place + nbytes > self._bytes.nbytes:
            self._place = 0
        piece = self._bytes[self._place : self._place + nbytes]
        self._place += aligned(nbytes)
        return piece


def aligned(nbytes: int) -> int:
    """Bytes after which the next piece may begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
