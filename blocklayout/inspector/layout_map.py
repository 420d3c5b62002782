"""The map of a tensor as one would draw it on a whiteboard: in memory's order, block by block.

Every row is one run of the innermost block or dimension; its left column is its first offset.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.layout import FormatTag
from blocklayout.layout.addresses import all_offsets, digits, locate
from blocklayout.layout.geometry import Placement
from blocklayout.layout.names import LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blocklayout.layout import MemoryDesc

MAX_STORED = 4096
"""Elements, padding included, up to which the whole map is drawn."""

_MAX_TABLE = 512  # elements up to which the offsets are also drawn as tables
_SHOWN_STORED = 512  # elements drawn of a larger tensor
_MAX_WIDTH = 16  # cells in a row
_HOLE, _PAD = "_", "·"


def letters_of(desc: MemoryDesc) -> str:
    """One letter for each dimension: those of the alphabet the layout was given in.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> letters_of(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")), letters_of(MemoryDesc((2, 3), strides=(7, 1)))
        ('nchw', 'ab')
    """
    return LETTERS[: desc.ndims] if desc.canonical_tag is None else FormatTag.parse(desc.tag).alphabet


def formula(desc: MemoryDesc) -> str:
    """The offset of an element as an expression, terms from the outermost to the innermost.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> formula(MemoryDesc((32, 32, 3, 3), "s8", "OIhw4i16o4i"))
        '(o//16)*4608 + (i//16)*2304 + h*768 + w*256 + (i//4)%4*64 + o%16*4 + i%4'
    """
    terms = [str(desc.offset0)] if desc.offset0 else []
    terms += [_term(text, step) for text, step in reversed(_steps(desc)) if step]
    return " + ".join(terms) or "0"


def walk(desc: MemoryDesc) -> tuple[str, ...]:
    """Walk order of memory from front to back, fastest dimension first.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> walk(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))
        ('c%8', 'w', 'h', 'c//8', 'n')
    """
    return tuple(text for text, step in _steps(desc) if step)


def place_at(desc: MemoryDesc, offset: int) -> tuple[int, ...] | None:
    """The index at ``offset``, which may lie in the padding; ``None`` for what is not part of the tensor.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> place_at(MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"), 7)
        (0, 3, 0, 1)
    """
    return locate(Placement(desc.padded_dims, desc.padded_dims, desc.layout, desc.offset0), offset)


def padding_offsets(desc: MemoryDesc) -> list[int]:
    """The offsets that hold padding, ascending."""
    if desc.n_padding == 0:
        return []
    is_padding = np.ones(desc.padded_dims, dtype=bool)
    is_padding[tuple(slice(extent) for extent in desc.dims)] = False
    found = all_offsets(desc.placement, desc.padded_dims)[is_padding]
    return [int(offset) for offset in np.sort(found)]


def draw(desc: MemoryDesc) -> Iterator[str]:
    """The map, line by line: offsets as tables where the tensor is small, then memory from front to back."""
    if 0 in desc.dims:
        yield "nothing to draw: the tensor has no elements"
        return
    if desc.n_elements <= _MAX_TABLE:
        yield from _tables(desc)
        yield ""
    yield from _memory(desc)


def _steps(desc: MemoryDesc) -> list[tuple[str, int]]:
    """Dimension and length in elements of each step of the walk, innermost first."""
    letters = letters_of(desc)
    taken = [0] * desc.ndims
    steps = []
    for dim in reversed(desc.inner_idxs):
        own = digits(desc.layout, dim)
        size, step = own[taken[dim]]
        below = prod(n for n, _ in own[: taken[dim]])
        taken[dim] += 1
        steps.append((f"({letters[dim]}//{below})%{size}" if below > 1 else f"{letters[dim]}%{size}", step))
    for dim in reversed(desc.dim_order):
        block = desc.layout.blocks[dim]
        steps.append((f"{letters[dim]}//{block}" if block > 1 else letters[dim], desc.strides[dim]))
    return steps


def _term(text: str, step: int) -> str:
    factor = f"({text})" if "//" in text and "%" not in text else text
    return factor if step == 1 else f"{factor}*{step}"


def _tables(desc: MemoryDesc) -> Iterator[str]:
    """Offsets with the last two dimensions as rows and columns, one table for each of the others."""
    letters = letters_of(desc)
    offsets = desc.offsets()
    rows = desc.ndims - 2
    width = len(str(offsets.max()))
    if rows < 0:
        yield f"offset of each element, {letters}:"
        yield from _wrapped(str(offset).rjust(width) for offset in offsets.ravel())
        return
    yield f"offset of each element, {letters[rows]} down, {letters[-1]} across:"
    for position in product(*map(range, desc.dims[:rows])):
        if position:
            yield "  " + " ".join(f"{letter}={at}" for letter, at in zip(letters, position, strict=False))
        for row in offsets[position]:
            yield from _wrapped(str(offset).rjust(width) for offset in row)


def _wrapped(cells: Iterable[str]) -> Iterator[str]:
    texts = list(cells)
    for start in range(0, len(texts), _MAX_WIDTH):
        yield "    " + " ".join(texts[start : start + _MAX_WIDTH])


def _memory(desc: MemoryDesc) -> Iterator[str]:
    n_stored = desc.nbytes // desc.itemsize
    shown = n_stored if n_stored <= MAX_STORED else min(n_stored, desc.offset0 + _SHOWN_STORED)
    width = min(_row_width(desc, n_stored), _MAX_WIDTH)
    volume = prod(desc.inner_blks)
    yield f"memory from front to back ({_legend(desc)}):"
    for start in range(desc.offset0, shown, width):
        block, inside = divmod(start - desc.offset0, volume)
        if inside == 0 and volume > width and desc.is_dense:
            yield f"  block {block}"
        yield _row(desc, range(start, min(start + width, shown)), len(str(shown)))
    if shown < n_stored:
        yield f"  ... {n_stored - shown} more; the whole map is drawn up to {MAX_STORED} elements"


def _legend(desc: MemoryDesc) -> str:
    parts = ["offset of the row; what is constant in it; what varies"]
    if desc.n_padding:
        parts.append(f"{_PAD} is padding")
    if not desc.is_dense and not desc.repeats:
        parts.append(f"{_HOLE} is not part of it")
    return "; ".join(parts)


def _row_width(desc: MemoryDesc, n_stored: int) -> int:
    if desc.inner_blks:
        return desc.inner_blks[-1]
    inner = _cell_dim(desc)
    outer = [step for dim, step in enumerate(desc.strides) if desc.dims[dim] > 1 and dim != inner and step]
    return max(1, min(outer, default=n_stored - desc.offset0))


def _cell_dim(desc: MemoryDesc) -> int:
    """The dimension that varies within a row."""
    if desc.inner_idxs:
        return desc.inner_idxs[-1]
    moving = [dim for dim in desc.dim_order if desc.dims[dim] > 1 and desc.strides[dim]]
    return moving[-1] if moving else desc.dim_order[-1]


def _row(desc: MemoryDesc, offsets: range, margin: int) -> str:
    letters = letters_of(desc)
    places = [place_at(desc, offset) for offset in offsets]
    known = [place for place in places if place is not None]
    inner = _cell_dim(desc)
    fixed = [dim for dim in desc.dim_order if dim != inner and len({place[dim] for place in known}) == 1]
    varied = [dim for dim in desc.dim_order if dim not in fixed]
    constant = " ".join(_at(desc, letters, dim, known[0]) for dim in fixed)
    cells = " ".join(_cell(desc, letters, varied, place) for place in places).rstrip()
    return (
        f"  {offsets.start:>{margin}} | {constant} | {cells}" if constant else f"  {offsets.start:>{margin}} | {cells}"
    )


def _cell(desc: MemoryDesc, letters: str, varied: list[int], place: tuple[int, ...] | None) -> str:
    width = sum(len(f"{letters[dim]}{desc.dims[dim] - 1}") for dim in varied)
    if place is None:
        return _HOLE.ljust(width)
    if any(at >= extent for at, extent in zip(place, desc.dims, strict=True)):
        return _PAD.ljust(width)
    return "".join(f"{letters[dim]}{place[dim]}" for dim in varied).ljust(width)


def _at(desc: MemoryDesc, letters: str, dim: int, place: tuple[int, ...]) -> str:
    return f"{letters[dim]}{place[dim]}".ljust(len(f"{letters[dim]}{desc.padded_dims[dim] - 1}"))
