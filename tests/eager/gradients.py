"""What tests of gradients share: formats, and what numpy says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from tests.dnnl.running import (
    LAYOUTS,
    POISON,
    Array,
    assert_close,
    assert_padding_is_zero,
    desc,
    padded,
    random,
    windows,
)

__all__ = ["GRADS", "LAYOUTS", "Array", "as_given", "check", "in_layout", "numeric", "pool", "random"]

GRADS = (*LAYOUTS, "array", "strided", "transposed")
"""How a gradient may come: in a layout, as an array, as one with holes, or in an order nobody asked for."""


@pytest.fixture(autouse=True)
def poisoned_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh buffers hold NaN, so that what nobody writes shows."""
    empty = dnnl.aligned_empty

    def poisoned(nbytes: int) -> Array:
        buffer = empty(nbytes)
        buffer[:] = POISON
        return buffer

    monkeypatch.setattr(dnnl, "aligned_empty", poisoned)


def in_layout(array: Array, layout: str) -> bl.Tensor:
    return bl.reorder(array, desc(array.shape, layout))


def as_given(array: Array, how: str) -> Any:
    """An array in one of ``GRADS``."""
    if how == "array":
        return array
    if how == "strided":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
        wide[..., 1::2] = array
        return wide[..., 1::2]
    if how == "transposed":
        return array.T.copy().T
    return in_layout(array, how)


def check(got: bl.Tensor, expected: Array, like: bl.Tensor | Array, tolerance: float = 1e-5) -> None:
    """The values, in the format of ``like``, with zeros in the padding."""
    wanted = like.desc if isinstance(like, bl.Tensor) else bl.MemoryDesc.from_array(like)
    assert got.desc == wanted
    assert got.desc.ndims == 1 or got.desc.tag == wanted.tag
    assert_padding_is_zero(got.desc, got.buffer)
    assert_close(got.numpy(), expected, tolerance)


def numeric(f: Callable[[Array], Array], x: Array, grad: Array, step: float = 1e-4, n_apart: int = 0) -> Array:
    """The gradient of ``<grad, f(x)>`` by central differences in double precision.

    Along the first ``n_apart`` axes ``f`` computes each part from its own part of ``x``: all of them move at once.
    """
    x, grad = x.astype(np.float64), grad.astype(np.float64)
    found = np.empty_like(x)
    for index in np.ndindex(x.shape[n_apart:]):
        moved = np.zeros(x.shape[n_apart:])
        moved[index] = step
        change = grad * (f(x + moved) - f(x - moved)) / (2 * step)
        found[(..., *index)] = change.sum(axis=tuple(range(n_apart, change.ndim)))
    return found


def pool(
    x: Array,
    algorithm: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...] | None = None,
) -> Array:
    """``max``, ``include`` or ``exclude``; dilations as oneDNN's."""
    n = len(kernel)
    taps, gaps = tuple(range(-n, 0)), dilations or (0,) * n
    if algorithm == "max":
        return np.asarray(windows(padded(x, pads, -np.inf), kernel, strides, gaps).max(axis=taps))
    sums = windows(padded(x, pads), kernel, strides, gaps).sum(axis=taps)
    if algorithm == "include":
        return np.asarray(sums / np.prod(kernel))
    return np.asarray(sums / windows(padded(np.ones_like(x), pads), kernel, strides, gaps).sum(axis=taps))
