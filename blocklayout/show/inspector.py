"""A descriptor explained: extents, padding, the offset's formula, and the map of memory, as text or as a page.

In text the map is drawn as on a whiteboard, in memory's order, block by block: every row is one run of the innermost
block or dimension; its left column is its first offset.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from blocklayout.errors import BlockLayoutError, UnsupportedError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.layout_map import (
    LayoutMap,
    ReorderRuns,
    Runs,
    follow_reorder,
    listed_extents,
    map_layout,
    place_at,
    walk_steps,
)
from blocklayout.layout.tag import LETTERS
from blocklayout.show.page import Page, html_page
from blocklayout.show.words import counted, screen_width, width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PADDING = "padding"
HOLE = "nothing of this tensor"

MAX_STORED = 4096
"""Elements, padding included, up to which the whole map is drawn."""

_MAX_TABLE = 512  # elements up to which the offsets are also drawn as tables
_SHOWN_STORED = 512  # elements drawn of a larger tensor
_MAX_WIDTH = 16  # cells in a row
_HOLE, _PAD = "_", "·"

_OF_THE_DESC = "dims dtype tag canonical_tag padded_dims strides offset0 nbytes is_dense itemsize"


class LayoutReport(Page, frozen=True, kw_only=True):
    """Facts about a descriptor; counts are in elements where no unit is named.

    Attributes:
        letters: One letter for each dimension, such as ``nchw``.
        formula: The offset as an expression in ``letters``.
        walk: Dimensions in the order in which memory runs through them, fastest first.
        terms: The formula's terms in the order of ``map.steps``, innermost first.
        index: The index that was asked about, and ...
        index_offset: ... its offset.
        offset: The offset that was asked about, and ...
        element: ... the element there, ``padding``, or ``nothing of this tensor``.
        drawing: The map, line by line.
        library: Whether the library agrees; ``None`` if it was not asked.
        map: Where every element and its padding lie, or those of the first blocks; ``None`` if not asked for.
        to: The report of the layout that it is reordered to, if one was named.
        reorder: How contiguous that reorder is.
    """

    desc: MemoryDesc
    letters: str
    formula: str
    walk: tuple[str, ...]
    terms: tuple[str, ...]
    index: tuple[int, ...] | None = None
    index_offset: int | None = None
    offset: int | None = None
    element: tuple[int, ...] | str | None = None
    drawing: tuple[str, ...] = ()
    library: str | None = None
    map: LayoutMap | None = None
    to: LayoutReport | None = None
    reorder: ReorderRuns | None = None

    @property
    def inner_blocks(self) -> tuple[tuple[int, str], ...]:
        """Size and letter of each inner block, from the outermost to the innermost."""
        blocks = zip(self.desc.inner_blks, self.desc.inner_idxs, strict=True)
        return tuple((size, self.letters[dim]) for size, dim in blocks)

    @property
    def padding_nbytes(self) -> int:
        """Bytes of padding."""
        return self.desc.n_padding * self.desc.itemsize

    @property
    def hole_nbytes(self) -> int:
        """Bytes that belong neither to elements nor to padding."""
        desc = self.desc
        n_used = desc.n_elements + desc.n_padding + desc.offset0
        n_bytes_apart = desc.nbytes - n_used * desc.itemsize - (desc.extra.nbytes if desc.extra else 0)
        return 0 if desc.is_dense or desc.repeats else n_bytes_apart

    def to_dict(self) -> dict[str, Any]:
        """All of it but the drawing, as values that JSON can hold."""
        desc = self.desc
        facts = asdict(self) | {name: getattr(desc, name) for name in _OF_THE_DESC.split()}
        facts |= {name: getattr(self, name) for name in ("inner_blocks", "padding_nbytes", "hole_nbytes")}
        facts |= {"desc": str(desc), "descriptor": desc.to_dict(), "extra": _extra_text(desc), "to": None}
        del facts["drawing"]
        data: dict[str, Any] = to_builtins(facts)
        return data if self.to is None else data | {"to": self.to.to_dict(), "reorder_words": _reorder_words(self)}

    def to_text(self) -> str:
        """The report for people: one fact a line, the answers, then the map.

        Example:
            >>> print(describe(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), index=(1, 16, 4, 3)).to_text())
            f32 2x17x5x4 nChw8c
              logical dims   n 2, c 17, h 5, w 4
              padded dims    n 2, c 24, h 5, w 4
              in letters     aBcd8b
              strides        n 480, c 160 (each 8), h 32, w 8
              inner blocks   8c
              size           3,840 bytes, 1,120 of them padding; dense
              offset         n*480 + (c//8)*160 + h*32 + w*8 + c%8
              memory walks   c%8, then w, h, c//8, n
              offset of (1, 16, 4, 3) is 952
        """
        lines = [str(self.desc), *_facts(self)]
        if self.index is not None:
            lines.append(f"  offset of {self.index} is {self.index_offset}")
        if self.offset is not None:
            lines.append(f"  at offset {self.offset} lies {self.element}")
        if self.to is not None:
            lines += [f"  to {self.to.desc}: {self.to.formula}", *(f"    {line}" for line in _reorder_words(self))]
        return "\n".join([*lines, *([""] if self.drawing else []), *self.drawing])

    def to_html(self) -> str:
        """The page: one document that loads nothing, with the map even where the report has none."""
        whole = self
        if self.map is None:
            to = None if self.to is None else self.to.desc
            whole = describe(self.desc, self.index, self.offset, show_offsets=True, to=to)
            whole = replace(whole, library=self.library)
        title = str(self.desc) if self.to is None else f"{self.desc} to {self.to.desc.tag}"
        return html_page("layout", title, whole.to_dict())


def describe(
    desc: MemoryDesc,
    index: Sequence[int] | None = None,
    offset: int | None = None,
    *,
    show_offsets: bool = False,
    to: MemoryDesc | str | None = None,
) -> LayoutReport:
    """Explain a descriptor, as text, as numbers, or as a page to look at; needs no library.

    Args:
        desc: The descriptor.
        index: An element whose offset is wanted. Shape (ndims,).
        offset: A place, in elements from the start of the buffer, whose element is wanted.
        show_offsets: Whether to draw the map of memory, and to list it in numbers; a page has it always.
        to: A layout to compare with, to which the tensor may be reordered: its tag, or a descriptor of the same dims.

    Raises:
        LayoutError: ``index`` or ``offset`` lies outside of the tensor, or ``to`` has other dims, or an address that
            several elements share.

    Example:
        >>> describe(MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"), offset=7).element
        'padding'
        >>> page = describe(MemoryDesc((2, 17, 5, 4)), to="nChw8c").to_html()
    """
    other = MemoryDesc(desc.dims, desc.dtype, to) if isinstance(to, str) else to
    descs = [each for each in (desc, other) if each is not None]
    own = [letters_of(each) for each in descs]
    letters = own[-1] if own[0] == LETTERS[: desc.ndims] else own[0]  # the alphabet, unless one has more to say
    listed = None if 0 in desc.dims or not show_offsets else listed_extents(*descs)
    element: tuple[int, ...] | str | None = None
    if offset is not None:
        element = desc.index(offset) or (PADDING if place_at(desc, offset) else HOLE)
    return replace(
        _report(desc, letters, listed, show_offsets=show_offsets),
        index=None if index is None else tuple(index),
        index_offset=None if index is None else desc.offset(*index),
        offset=offset,
        element=element,
        to=None if other is None else _report(other, letters, listed, show_offsets=show_offsets),
        reorder=None if other is None or 0 in desc.dims else follow_reorder(desc, other),
    )


def _report(desc: MemoryDesc, letters: str, listed: tuple[int, ...] | None, *, show_offsets: bool) -> LayoutReport:
    loops = _loops(desc, letters)
    outwards = [_term(*loop) for loop in reversed(loops) if loop[1]]
    return LayoutReport(
        desc=desc,
        letters=letters,
        formula=" + ".join([str(desc.offset0)] * bool(desc.offset0) + outwards) or "0",
        walk=tuple(text for text, step in loops if step),
        terms=tuple(_term(*loop) for loop in loops),
        drawing=tuple(_draw(desc)) if show_offsets else (),
        map=None if listed is None else map_layout(desc, listed),
    )


def library_agreement(desc: MemoryDesc) -> str | None:
    """Whether the library, loaded for the purpose, has the same padding, strides and size; why not, if it cannot say.

    It is asked to reorder to the descriptor, and its own descriptor of the result is compared. ``None`` for a
    descriptor that holds nothing.
    """
    if 0 in desc.dims:
        return None
    try:
        from blocklayout import dnnl

        version = ".".join(map(str, dnnl.version()))
    except (ImportError, UnsupportedError) as error:
        return f"not loaded: {error}"
    try:
        reorder = dnnl.reorder(MemoryDesc(desc.dims, desc.dtype), desc, n_threads=1)
        theirs = dnnl.resolve(reorder).spec.memory_desc("dst")
    except BlockLayoutError as error:
        return f"oneDNN {version} cannot describe it: {error}"
    differences = [
        f"{name} {getattr(theirs, name)} instead of {getattr(desc, name)}"
        for name in ("padded_dims", "strides", "inner_blks", "inner_idxs", "nbytes")
        if getattr(theirs, name) != getattr(desc, name)
    ]
    if differences:
        return f"oneDNN {version} disagrees: {'; '.join(differences)}"
    return f"oneDNN {version} agrees on padded dims, strides, inner blocks and size"


def _facts(report: LayoutReport) -> list[str]:
    blocks = "".join(f"{size}{letter}" for size, letter in report.inner_blocks)
    holes = f", {report.hole_nbytes:,} not part of it" if report.hole_nbytes else ""
    dense = "dense" if report.desc.is_dense else "not dense"
    facts: dict[str, str | None] = {
        "logical dims": _by_letter(report.letters, report.desc.dims),
        "padded dims": _by_letter(report.letters, report.desc.padded_dims),
        "in letters": report.desc.canonical_tag or "no tag: there are gaps, or it is a part of something",
        "strides": ", ".join(_stride_texts(report)),
        "inner blocks": blocks or "none",
        "size": f"{report.desc.nbytes:,} bytes, {report.padding_nbytes:,} of them padding{holes}; {dense}",
        "offset": report.formula,
        "memory walks": ", ".join(report.walk).replace(", ", ", then ", 1) or "nowhere",
    }
    facts |= {"extra": _extra_text(report.desc), "library": report.library}
    return [f"  {name:<14} {text}" for name, text in facts.items() if text is not None]


def _extra_text(desc: MemoryDesc) -> str | None:
    extra = desc.extra
    if extra is None:
        return None
    masks = {"sums": extra.compensation_mask, "sums for a zero point": extra.asymm_compensation_mask}
    along = {
        name: ", ".join(letter for dim, letter in enumerate(letters_of(desc)) if mask >> dim & 1)
        for name, mask in masks.items()
    }
    sums = [f"{name} along {letters}" for name, letters in along.items() if letters]
    return "; ".join([f"{extra}: {extra.nbytes} bytes behind the elements", *sums])


def _reorder_words(report: LayoutReport) -> list[str]:
    to, reorder = report.to, report.reorder
    if to is None or reorder is None:
        return []
    n_elements = prod(report.desc.dims)
    part = "" if reorder.n_followed == n_elements else f" (counted over the first {reorder.n_followed:,} elements)"
    padding = f"{to.padding_nbytes:,}"
    return [
        f"reads {reorder.read_nbytes:,} bytes, writes {reorder.written_nbytes:,}, {padding} of them padding",
        f"in the order of {to.desc.tag}{part}, reads come in {_runs_text(reorder.reads, report.desc.itemsize)}",
        f"writes come in {_runs_text(reorder.writes, to.desc.itemsize)}",
        f"a plain copy can move {_runs_text(reorder.copies, report.desc.itemsize)}",
    ]


def _runs_text(runs: Runs, itemsize: int) -> str:
    length, n = runs.lengths[0]
    if runs.n == 1:
        return f"one run of {_elements(length, itemsize)}"
    if runs.shortest == runs.longest:
        return f"{runs.n:,} runs of {_elements(length, itemsize)}"
    mostly = f"{n:,} of them of {_elements(length, itemsize)}"
    return f"{runs.n:,} runs of {runs.shortest:,} to {runs.longest:,} elements, {mostly}"


def _elements(n: int, itemsize: int) -> str:
    return f"{counted(n, 'element')} ({counted(n * itemsize, 'byte')})"


def _by_letter(letters: str, values: tuple[int, ...]) -> str:
    return ", ".join(f"{letter} {value}" for letter, value in zip(letters, values, strict=True))


def _stride_texts(report: LayoutReport) -> list[str]:
    per_letter = dict.fromkeys(report.letters, 1)
    for size, letter in report.inner_blocks:
        per_letter[letter] *= size
    each = {letter: f" (each {n})" if n > 1 else "" for letter, n in per_letter.items()}
    return [f"{letter} {step}{each[letter]}" for letter, step in zip(report.letters, report.desc.strides, strict=True)]


def letters_of(desc: MemoryDesc) -> str:
    """One letter for each dimension: those of the alphabet the layout was given in.

    Example:
        >>> letters_of(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")), letters_of(MemoryDesc((2, 3), strides=(7, 1)))
        ('nchw', 'ab')
    """
    return LETTERS[: desc.ndims] if desc.canonical_tag is None else FormatTag.parse(desc.tag).alphabet


def _loops(desc: MemoryDesc, letters: str) -> list[tuple[str, int]]:
    """Dimension and length in elements of each step of the walk through memory, innermost first."""
    found = []
    for loop in walk_steps(desc):
        block = f"{letters[loop.dim]}//{loop.below}" if loop.below > 1 else letters[loop.dim]
        text = f"({block})" if loop.below > 1 and not loop.is_outer else block
        found.append((text if loop.is_outer else f"{text}%{loop.count}", loop.step))
    return found


def _term(text: str, step: int) -> str:
    factor = f"({text})" if "//" in text and "%" not in text else text
    return factor if step == 1 else f"{factor}*{step}"


def _draw(desc: MemoryDesc) -> Iterator[str]:
    """The map, line by line: offsets as tables where the tensor is small, then memory from front to back."""
    if 0 in desc.dims:
        yield "nothing to draw: the tensor has no elements"
        return
    if desc.n_elements <= _MAX_TABLE:
        yield from _tables(desc)
        yield ""
    yield from _memory(desc)


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
    margin = len(str(shown))
    while width > 1 and width_of(_row(desc, range(desc.offset0, desc.offset0 + width), margin)) > screen_width():
        width = (width + 1) // 2
    volume = prod(desc.inner_blks)
    yield f"memory from front to back ({_legend(desc)}):"
    for start in range(desc.offset0, shown, width):
        block, inside = divmod(start - desc.offset0, volume)
        if inside == 0 and volume > width and desc.is_dense:
            yield f"  block {block}"
        yield _row(desc, range(start, min(start + width, shown)), margin)
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
    return " | ".join((f"  {offsets.start:>{margin}}", *filter(None, [constant]), cells))


def _cell(desc: MemoryDesc, letters: str, varied: list[int], place: tuple[int, ...] | None) -> str:
    width = sum(len(f"{letters[dim]}{desc.dims[dim] - 1}") for dim in varied)
    if place is None:
        return _HOLE.ljust(width)
    if any(at >= extent for at, extent in zip(place, desc.dims, strict=True)):
        return _PAD.ljust(width)
    return "".join(f"{letters[dim]}{place[dim]}" for dim in varied).ljust(width)


def _at(desc: MemoryDesc, letters: str, dim: int, place: tuple[int, ...]) -> str:
    return f"{letters[dim]}{place[dim]}".ljust(len(f"{letters[dim]}{desc.padded_dims[dim] - 1}"))
