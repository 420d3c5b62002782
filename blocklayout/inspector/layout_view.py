"""A descriptor explained in plain text: extents, padding, the offset's formula, and the map of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from blocklayout.errors import BlockLayoutError, LayoutError, UnsupportedError
from blocklayout.inspector import layout_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.layout import MemoryDesc

PADDING = "padding"
HOLE = "nothing of this tensor"


class LayoutReport(Struct, frozen=True, kw_only=True):
    """Facts about a descriptor; counts are in elements where no unit is named.

    Attributes:
        desc: The descriptor as it prints.
        dims: Logical extents, in the order of ``letters``.
        letters: One letter for each dimension, such as ``nchw``.
        canonical_tag: Its name in letters; ``None`` where no tag says it all.
        strides: Steps between neighbouring outermost blocks.
        inner_blocks: Size and letter of each inner block, from the outermost to the innermost.
        padding_nbytes: How many of ``nbytes`` are padding.
        hole_nbytes: How many of ``nbytes`` belong neither to elements nor to padding.
        formula: The offset as an expression in ``letters``.
        walk: What varies as memory is read from front to back, fastest first.
        index: The index that was asked about, and ...
        index_offset: ... its offset.
        offset: The offset that was asked about, and ...
        element: ... the element there, ``padding``, or ``nothing of this tensor``.
        offsets: The offset of every element, nested as the tensor; ``None`` if not asked for, or too many.
        padding_offsets: Where padding lies; ``None`` likewise.
        drawing: The map, line by line.
        library: Whether the library agrees; ``None`` if it was not asked.
    """

    desc: str
    dims: tuple[int, ...]
    dtype: str
    letters: str
    tag: str
    canonical_tag: str | None
    padded_dims: tuple[int, ...]
    strides: tuple[int, ...]
    inner_blocks: tuple[tuple[int, str], ...]
    offset0: int
    nbytes: int
    padding_nbytes: int
    hole_nbytes: int
    is_dense: bool
    formula: str
    walk: tuple[str, ...]
    index: tuple[int, ...] | None = None
    index_offset: int | None = None
    offset: int | None = None
    element: tuple[int, ...] | str | None = None
    offsets: Any = None
    padding_offsets: tuple[int, ...] | None = None
    drawing: tuple[str, ...] = ()
    library: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it but the drawing, as values that JSON can hold."""
        return {name: value for name, value in to_builtins(self).items() if name != "drawing"}

    def to_text(self) -> str:
        """The report for people: one fact a line, the answers, then the map.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> print(describe(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), index=(1, 16, 4, 3)).to_text())
            f32 2x17x5x4 nChw8c
              logical dims   n 2, c 17, h 5, w 4
              padded dims    n 2, c 24, h 5, w 4
              in letters     aBcd8b
              strides        n 480, c 160 (each 8), h 32, w 8
              inner blocks   8c
              size           3840 bytes, 1120 of them padding; dense
              offset         n*480 + (c//8)*160 + h*32 + w*8 + c%8
              memory walks   c%8, then w, h, c//8, n
              offset of (1, 16, 4, 3) is 952
        """
        return "\n".join([self.desc, *_facts(self), *_answers(self), *([""] if self.drawing else []), *self.drawing])


def describe(
    desc: MemoryDesc,
    index: Sequence[int] | None = None,
    offset: int | None = None,
    *,
    show_offsets: bool = False,
) -> LayoutReport:
    """Explain a descriptor; needs no library.

    Args:
        desc: What to explain.
        index: An element whose offset is wanted. Shape (ndims,).
        offset: A place, in elements from the start of the buffer, whose element is wanted.
        show_offsets: Whether to draw the map of memory.

    Raises:
        LayoutError: ``index`` or ``offset`` lies outside of the tensor.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> describe(MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"), offset=7).element
        'padding'
    """
    letters = layout_map.letters_of(desc)
    blocks = zip(desc.inner_blks, desc.inner_idxs, strict=True)
    report = LayoutReport(
        desc=str(desc),
        dims=desc.dims,
        dtype=desc.dtype,
        letters=letters,
        tag=desc.tag,
        canonical_tag=desc.canonical_tag,
        padded_dims=desc.padded_dims,
        strides=desc.strides,
        inner_blocks=tuple((size, letters[dim]) for size, dim in blocks),
        offset0=desc.offset0,
        nbytes=desc.nbytes,
        padding_nbytes=desc.n_padding * desc.itemsize,
        hole_nbytes=_hole_nbytes(desc),
        is_dense=desc.is_dense,
        formula=layout_map.formula(desc),
        walk=layout_map.walk(desc),
        index=None if index is None else tuple(index),
        index_offset=None if index is None else desc.offset(*index),
        offset=offset,
        element=None if offset is None else _element(desc, offset),
    )
    return _with_map(report, desc) if show_offsets else report


def library_agreement(desc: MemoryDesc) -> str | None:
    """Whether the library, loaded for the purpose, has the same padding, strides and size; why not, if it cannot say.

    It is asked to reorder to the descriptor, and what it then reports is compared. ``None`` for a
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
        theirs = _as_the_library_sees(desc)
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


def _as_the_library_sees(desc: MemoryDesc) -> MemoryDesc:
    from blocklayout import dnnl
    from blocklayout.layout import MemoryDesc

    source = MemoryDesc(desc.dims, desc.dtype)
    spec = dnnl.resolve(dnnl.reorder(source, desc, n_threads=1)).spec
    theirs = spec.desc("dst")
    if not isinstance(theirs, MemoryDesc):
        raise LayoutError(f"the library left the layout of {theirs} open")
    return theirs


def _with_map(report: LayoutReport, desc: MemoryDesc) -> LayoutReport:
    drawing = tuple(layout_map.draw(desc))
    if desc.nbytes // desc.itemsize > layout_map.MAX_STORED:
        return replace(report, drawing=drawing)
    return replace(
        report,
        offsets=desc.offsets().tolist(),
        padding_offsets=tuple(layout_map.padding_offsets(desc)),
        drawing=drawing,
    )


def _element(desc: MemoryDesc, offset: int) -> tuple[int, ...] | str:
    found = desc.index(offset)
    if found is not None:
        return found
    return PADDING if layout_map.place_at(desc, offset) else HOLE


def _hole_nbytes(desc: MemoryDesc) -> int:
    if desc.is_dense or desc.repeats:
        return 0
    n_used = desc.n_elements + desc.n_padding + desc.offset0
    return desc.nbytes - n_used * desc.itemsize


def _facts(report: LayoutReport) -> list[str]:
    blocks = "".join(f"{size}{letter}" for size, letter in report.inner_blocks)
    facts = {
        "logical dims": _by_letter(report.letters, report.dims),
        "padded dims": _by_letter(report.letters, report.padded_dims),
        "in letters": report.canonical_tag or "no tag: there are gaps, or it is a part of something",
        "strides": ", ".join(_stride_texts(report)),
        "inner blocks": blocks or "none",
        "size": _size_text(report),
        "offset": report.formula,
        "memory walks": ", ".join(report.walk).replace(", ", ", then ", 1) or "nowhere",
    }
    if report.library is not None:
        facts["library"] = report.library
    return [f"  {name:<14} {text}" for name, text in facts.items()]


def _by_letter(letters: str, values: tuple[int, ...]) -> str:
    return ", ".join(f"{letter} {value}" for letter, value in zip(letters, values, strict=True))


def _stride_texts(report: LayoutReport) -> list[str]:
    per_letter = dict.fromkeys(report.letters, 1)
    for size, letter in report.inner_blocks:
        per_letter[letter] *= size
    steps = zip(report.letters, report.strides, strict=True)
    return [
        f"{letter} {step}" + (f" (each {per_letter[letter]})" if per_letter[letter] > 1 else "")
        for letter, step in steps
    ]


def _size_text(report: LayoutReport) -> str:
    holes = f", {report.hole_nbytes} not part of it" if report.hole_nbytes else ""
    dense = "dense" if report.is_dense else "not dense"
    return f"{report.nbytes} bytes, {report.padding_nbytes} of them padding{holes}; {dense}"


def _answers(report: LayoutReport) -> list[str]:
    answers = []
    if report.index is not None:
        answers.append(f"  offset of {report.index} is {report.index_offset}")
    if report.offset is not None:
        answers.append(f"  at offset {report.offset} lies {report.element}")
    return answers
