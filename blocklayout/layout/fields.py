"""Fields of a descriptor, and what follows from them alone: names, order, addresses."""

from __future__ import annotations

from math import prod
from operator import index as as_integer
from typing import TYPE_CHECKING, Any, NoReturn

from blocklayout.errors import LayoutError
from blocklayout.layout import addresses, ordering, packing
from blocklayout.layout.geometry import Layout, Placement
from blocklayout.layout.names import LETTERS
from blocklayout.layout.tag import FormatTag

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class DescFields:
    """The fields of a MemoryDesc, and the questions that need no other descriptor; see there."""

    __slots__ = (
        "_family",
        "_hash",
        "_tag",
        "_word",
        "dims",
        "dtype",
        "itemsize",
        "layout",
        "nbytes",
        "offset0",
        "padded_dims",
        "placement",
    )

    dims: tuple[int, ...]
    dtype: str
    layout: Layout
    offset0: int
    padded_dims: tuple[int, ...]
    nbytes: int
    itemsize: int
    placement: Placement
    # The tag it was made from; its spelling may be empty.
    _tag: FormatTag | None
    # The tag of the whole that a part with holes was cut out of, which no strides may tell.
    _family: FormatTag | None
    # The logical order, such as "oihw", to name a layout in that came without a spelling.
    _word: str
    _hash: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical extents, by numpy's name.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").shape[1]  # channels, in every layout
            3
        """
        return self.dims

    @property
    def ndims(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbouring outermost blocks, in logical order."""
        return self.layout.strides

    @property
    def inner_blks(self) -> tuple[int, ...]:
        """Sizes of the inner blocks, from the outermost to the innermost."""
        return self.layout.inner_blks

    @property
    def inner_idxs(self) -> tuple[int, ...]:
        """The dimension that each inner block was cut out of."""
        return self.layout.inner_idxs

    @property
    def n_elements(self) -> int:
        """Logical elements."""
        return prod(self.dims)

    @property
    def n_padding(self) -> int:
        """Elements of padding: those that rounding up to blocks added."""
        return prod(self.padded_dims) - prod(self.dims)

    @property
    def tag(self) -> str:
        """The layout's name: as it was given, else by role, else in letters, else its strides.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").tag, MemoryDesc((2, 3), strides=(1, 2)).tag
            ('nhwc', 'ba')
            >>> MemoryDesc((2, 3), strides=(7, 1)).tag
            'strided(7,1)'
        """
        found = self._tag or ordering.dense_tag(self.placement)
        if found is None:
            return _strided_text(self.layout)
        return found.given or (found.spelled(self._word) if self._word else found.canonical)

    @property
    def format_tag(self) -> FormatTag:
        """The order and blocks it was given, else those that its strides have; a part has those of its whole.

        What the layout is *called*, where strides cannot tell as well. An operator that follows a layout gives its
        result this tag; holes and an offset are not in it.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((1, 1, 1, 1), "f32", "nhwc").format_tag.text
            'nhwc'
            >>> MemoryDesc((2, 3), strides=(7, 1)).format_tag.text
            'ab'
        """
        found = self._tag or self._family or ordering.dense_tag(self.placement)
        return found or FormatTag(ordering.dim_order(self.placement), self.inner_blks, self.inner_idxs)

    @property
    def memory_format(self) -> str:
        """The name of that: ``contiguous_format``, ``channels_last``, else a tag, else ``strided(...)``.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> [MemoryDesc((1, 1, 1, 1), "f32", tag).memory_format for tag in ("nchw", "nhwc", "chwn")]
            ['contiguous_format', 'channels_last', 'chwn']
        """
        found = self._tag or self._family or ordering.dense_tag(self.placement)
        if found is None:
            return _strided_text(self.layout)
        return ordering.format_name(found) or (found.text if self._family else self.tag)

    @property
    def canonical_tag(self) -> str | None:
        """The tag in letters that gives these extents the same addresses and size; ``None`` if there is none.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").canonical_tag
            'acdb'
            >>> MemoryDesc((2, 3), strides=(7, 1)).canonical_tag is None
            True
        """
        found = self._tag or ordering.dense_tag(self.placement)
        return None if found is None else found.canonical

    def named(self, role: str) -> str:
        """The layout's name for an argument: ``src``, ``dst``, ``weights``, ``grouped_weights`` ...

        Equal descriptors have the same, whatever they were called.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((64, 64, 3, 3), "f32", "ABcd16b16a").named("weights")
            'OIhw16i16o'
        """
        found = ordering.dense_tag(self.placement)
        return _strided_text(self.layout) if found is None else found.named(role)

    @property
    def dim_order(self) -> tuple[int, ...]:
        """Dimensions from the outermost to the innermost, blocks left aside.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").dim_order
            (0, 2, 3, 1)
        """
        return self._tag.order if self._tag is not None else ordering.dim_order(self.placement)

    @property
    def is_plain(self) -> bool:
        """Whether no dimension has blocks."""
        return not self.layout.inner_blks

    @property
    def is_dense(self) -> bool:
        """Whether every byte belongs to an element or to its padding; extents of 1 have no say."""
        if 0 in self.dims:
            return True
        n_spanned = self.nbytes // self.itemsize - self.offset0
        return n_spanned == prod(self.padded_dims) and not self.repeats

    @property
    def repeats(self) -> bool:
        """Whether several elements share an address (a stride of 0): such a source can be read, not filled."""
        strides = self.layout.strides
        return 0 in strides and any(
            stride == 0 and extent > 1 for stride, extent in zip(strides, self.placement.outer_dims, strict=True)
        )

    def offset(self, *index: int) -> int:
        """Elements from the start of the buffer to the element at ``index``.

        Raises:
            LayoutError: The index lies outside of the tensor.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> [MemoryDesc((2, 3, 4, 4), "f32", tag).offset(1, 1, 2, 3) for tag in ("nchw", "nhwc", "chwn")]
            [75, 82, 55]
        """
        position = integers("index", index)
        addresses.check_index(position, self.dims)
        return addresses.address(self.placement, position)

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The element at ``offset``; ``None`` where padding or a hole lies.

        Where elements repeat (a stride of 0) it is the first of them.

        Raises:
            LayoutError: The offset lies outside of the buffer.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> md = MemoryDesc((1, 3, 1, 2), "f32", "nChw4c")
            >>> md.index(5), md.index(7)
            ((0, 1, 0, 1), None)
        """
        (place,) = integers("offset", (offset,))
        n_stored = self.nbytes // self.itemsize
        if not 0 <= place < n_stored:
            raise LayoutError(f"offset {place} lies outside of {self}, which reaches over {n_stored} elements")
        return addresses.locate(self.placement, place)

    def offsets(self) -> NDArray[np.int64]:
        """The offset of every element. Shape ``dims``.

        Example:
            >>> from blocklayout.layout import MemoryDesc
            >>> MemoryDesc((2, 3), "f32", "ba").offsets().tolist()
            [[0, 2, 4], [1, 3, 5]]
        """
        return addresses.all_offsets(self.placement)

    def pack(self, array: NDArray[Any], into: NDArray[Any] | None = None) -> NDArray[Any]:
        """The bytes of ``array`` in this layout, padding zero: one-dimensional, ``nbytes`` long.

        Args:
            array: Values of this shape and data type.
            into: Contiguous bytes to write to, ``nbytes`` or more; fresh ones if ``None``.

        Raises:
            LayoutError: Another shape or data type, this layout repeats elements, or there are too few bytes.
        """
        return packing.pack(array, self, into)

    def unpack(self, buffer: NDArray[Any]) -> NDArray[Any]:
        """The values that ``buffer`` holds in this layout: a fresh array in row-major order.

        Raises:
            LayoutError: The buffer is too short, not contiguous, or of another data type.
        """
        return packing.unpack(buffer, self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DescFields):
            return NotImplemented
        return self._hash == other._hash and self.dtype == other.dtype and self.placement == other.placement

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a MemoryDesc cannot be changed ({name}); make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a MemoryDesc cannot be changed ({name}); make a new one")

    def __str__(self) -> str:
        shift = f" +{self.offset0}" if self.offset0 else ""
        return f"{self.dtype} {'x'.join(map(str, self.dims))} {self.tag}{shift}"


def integers(name: str, values: object) -> tuple[int, ...]:
    """``values`` as plain integers.

    Raises:
        LayoutError: They are no sequence of integers.
    """
    try:
        return tuple(map(as_integer, values))  # type: ignore[call-overload]
    except TypeError as error:
        raise LayoutError(f"{name} must be integers, got {values!r}") from error


def checked_layout(layout: FormatTag | Layout) -> FormatTag | Layout:
    """A layout whose numbers are plain integers.

    Raises:
        LayoutError: They are not, or it is no layout.
    """
    if isinstance(layout, FormatTag):
        return layout
    if not isinstance(layout, Layout):
        raise LayoutError(f"a layout is a format tag, a FormatTag or a Layout, not {layout!r}")
    return Layout(
        integers("strides", layout.strides),
        integers("inner_blks", layout.inner_blks),
        integers("inner_idxs", layout.inner_idxs),
    )


def _strided_text(layout: Layout) -> str:
    blocks = "".join(f"{blk}{LETTERS[idx]}" for blk, idx in zip(layout.inner_blks, layout.inner_idxs, strict=True))
    return f"strided({','.join(map(str, layout.strides))}){blocks}"
