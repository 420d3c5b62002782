"""Tensors in layouts of every kind, for the laws that hold for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.layout import MemoryDesc
from tests.layout import strategies

FORMATS = ("nchw", "nhwc", "chwn", "nChw8c", "nChw16c", "NChw16n16c", "aBcD4b2d")
"""Layouts of four dimensions: plain ones, and blocks of one and of two dimensions."""

DTYPES = ("f32", "bf16", "f16", "f64", "s32", "s8", "u8", "s64", "u64", "u32", "s16", "u16", "bool")


def filled(desc: MemoryDesc) -> bl.Tensor:
    """A Tensor whose elements all differ from zero; its padding is zero, and what lies in holes is 99."""
    array = strategies.numbered(desc)
    buffer = np.full(desc.nbytes // desc.itemsize, 99).astype(array.dtype)
    tensor = bl.Tensor(desc, buffer)
    tensor.zero_padding()
    tensor[...] = array
    np.testing.assert_array_equal(tensor.numpy(), array)
    return tensor


def numbered(shape: tuple[int, ...], memory_format: str = "contiguous_format", dtype: str = "f32") -> bl.Tensor:
    """A Tensor that counts its elements, dense."""
    return filled(MemoryDesc(shape, dtype, memory_format))


def dense() -> st.SearchStrategy[bl.Tensor]:
    """Tensors in any order and blocks."""
    return strategies.dense_descs(least=0).map(filled)


def tensors() -> st.SearchStrategy[bl.Tensor]:
    """Tensors in any layout, with holes and offsets too."""
    return st.one_of(dense(), strategies.descs().map(filled))


def slices(extent: int) -> st.SearchStrategy[slice]:
    """Any slice of a dimension, those that leave it included."""
    bounds = st.one_of(st.none(), st.integers(-extent - 2, extent + 2))
    return st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 1, 2, 3, -1, -2]))


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Indices that numpy takes of such an array: integers, slices and an Ellipsis."""
    parts: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        choices: list[st.SearchStrategy[Any]] = [slices(extent), st.just(slice(None))]
        if extent:
            choices.append(st.integers(-extent, extent - 1))
        parts.append(draw(st.one_of(choices)))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return _for(shape, parts)


def _for(shape: tuple[int, ...], parts: list[Any]) -> tuple[Any, ...]:
    """What stands behind an Ellipsis counts from the last dimension; keep positions inside of theirs."""
    if Ellipsis not in parts:
        return tuple(parts)
    n_behind = len(parts) - parts.index(Ellipsis) - 1
    head, behind = parts[: len(parts) - n_behind], parts[len(parts) - n_behind :]
    kept: list[Any] = []
    for part, extent in zip(behind, shape[len(shape) - n_behind :], strict=True):
        fits = isinstance(part, slice) or -extent <= part < extent
        kept.append(part if fits else slice(None))
    return (*head, *kept)


def poisoned(tensor: bl.Tensor) -> np.ndarray:
    """All addresses of a dense Tensor's padding, now 7: whoever writes elements must leave them so."""
    elements = tensor.physical()
    is_padding = np.ones(elements.size, dtype=bool)
    is_padding[tensor.desc.offsets().ravel()] = False
    elements[is_padding] = 7
    return is_padding
