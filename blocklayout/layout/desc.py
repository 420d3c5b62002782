"""MemoryDesc: extents, data type, layout and offset of a tensor, with no memory behind it."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from operator import index as as_integer
from typing import TYPE_CHECKING, Any, NoReturn

from blocklayout import dtypes
from blocklayout.errors import LayoutError
from blocklayout.layout import addresses, ordering, packing, serial, views
from blocklayout.layout.geometry import MAX_NBYTES, Layout, Placement, check_dims, place_dense, place_strided
from blocklayout.layout.names import LETTERS, role_word
from blocklayout.layout.tag import FormatTag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray


class MemoryDesc:
    """How a tensor lies in memory: its extents, data type, layout and offset.

    Extents, indices and strides are in logical order (N, C, H, W) whatever the physical order,
    and all are counted in elements. Descriptors are immutable and equal where extents, data
    type, layout and offset are; the name that a layout was given takes no part.

    Args:
        dims: Extents in elements, 0 or more. Shape (ndims,), 1 <= ndims <= 12.
        dtype: ``f32``, ``bf16``, ``f16``, ``f64``, ``s32``, ``s8`` or ``u8``.
        layout: A format tag, ``channels_first``, ``channels_last``, a FormatTag or a Layout; row-major if ``None``.
        strides: Steps of a plain layout, instead of ``layout``. 0 repeats elements: a source only.
        offset: Elements before the first one.

    Attributes:
        dims: Logical extents.
        dtype: Name of the data type.
        layout: Strides between outermost blocks, and the blocks inside.
        offset0: Elements before the first one.
        padded_dims: Extents rounded up to whole blocks.
        nbytes: Bytes from the start of a buffer that hold it, padding included, as oneDNN counts them.
        itemsize: Bytes of one element.

    Raises:
        LayoutError: No such descriptor can exist; the message says what would be right.

    Example:
        >>> md = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
        >>> md
        MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')
        >>> md.padded_dims, md.strides, md.nbytes, md.offset(1, 16, 4, 3)
        ((2, 24, 5, 4), (480, 160, 32, 8), 3840, 952)
    """

    __slots__ = (
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
    _tag: FormatTag | None
    _word: str
    _hash: int

    def __new__(
        cls,
        dims: Iterable[int],
        dtype: str = "f32",
        layout: str | FormatTag | Layout | None = None,
        *,
        strides: Iterable[int] | None = None,
        offset: int = 0,
    ) -> MemoryDesc:
        """Look the descriptor up, or make it."""
        extents = _integers("dims", dims)
        if strides is not None:
            if layout is not None:
                raise LayoutError("give a layout or strides, not both")
            layout = Layout(_integers("strides", strides))
        text = layout.text if isinstance(layout, FormatTag) else ""
        return _make(extents, dtype, layout, text, _integers("offset", (offset,))[0])

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> MemoryDesc:
        """The descriptor of a numpy array's bytes, strides included; nothing is copied.

        Raises:
            LayoutError: oneDNN has no such data type, byte order, rank, or stride (a negative one,
                or one that is no multiple of the element size); copy the array first.

        Example:
            >>> import numpy as np
            >>> MemoryDesc.from_array(np.zeros((2, 5, 4, 3), "float32").transpose(0, 3, 1, 2)).canonical_tag
            'acdb'
        """
        return _make(*_array_layout(array), "", 0)

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical extents, by numpy's name."""
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
        """The layout's name: as it was given, else by role, else in letters, else its strides."""
        if self._tag is not None and self._tag.given:
            return self._tag.given
        found = self._tag or ordering.dense_tag(self.placement)
        if found is None:
            return _strided_text(self.layout)
        return found.spelled(self._word) if self._word else found.canonical

    @property
    def canonical_tag(self) -> str | None:
        """The tag in letters that gives these extents the same addresses and size; ``None`` if there is none.

        Example:
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").canonical_tag
            'acdb'
            >>> MemoryDesc((2, 3), strides=(7, 1)).canonical_tag is None
            True
        """
        found = self._tag or ordering.dense_tag(self.placement)
        return None if found is None else found.canonical

    def named(self, role: str) -> str:
        """The layout's name for an argument: ``src``, ``dst``, ``weights``, ``grouped_weights`` ...

        Example:
            >>> MemoryDesc((64, 64, 3, 3), "f32", "ABcd16b16a").named("weights")
            'OIhw16i16o'
        """
        found = self._tag or ordering.dense_tag(self.placement)
        return _strided_text(self.layout) if found is None else found.named(role)

    def in_role(self, role: str) -> MemoryDesc:
        """The same descriptor, which now prints by its role: what a query returned has no spelling of its own."""
        word = role_word(role, self.ndims)
        tag = None if self._tag is None else FormatTag(self._tag.order, self._tag.inner_blks, self._tag.inner_idxs)
        return _build(self.placement, self.dtype, tag, word)

    @property
    def dim_order(self) -> tuple[int, ...]:
        """Dimensions from the outermost to the innermost, blocks left aside.

        Example:
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
        span = self.nbytes // self.itemsize - (self.offset0 if self.n_elements else 0)
        return span == prod(self.padded_dims)

    def is_contiguous(self, memory_format: str = "channels_first") -> bool:
        """Whether elements follow each other in this order without holes; extents of 1 have no say.

        Args:
            memory_format: ``channels_first``, ``channels_last`` or a format tag.

        Raises:
            LayoutError: No such format at this rank.

        Example:
            >>> md = MemoryDesc((1, 17, 1, 1), "f32", "nhwc")
            >>> md.is_contiguous(), md.is_contiguous("channels_last")
            (True, True)
        """
        other = MemoryDesc(self.dims, self.dtype, memory_format)
        if self.n_elements == 0:
            return True
        return self._addressing() == other._addressing() and self.padded_dims == other.padded_dims

    def offset(self, *index: int) -> int:
        """Elements from the start of the buffer to the element at ``index``.

        Raises:
            LayoutError: The index lies outside of the tensor.

        Example:
            >>> [MemoryDesc((2, 3, 4, 4), "f32", tag).offset(1, 1, 2, 3) for tag in ("nchw", "nhwc", "chwn")]
            [75, 82, 55]
        """
        position = tuple(map(as_integer, index))
        addresses.check_index(position, self.dims)
        return addresses.address(self.placement, position)

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The element at ``offset``; ``None`` where padding or a hole lies.

        Raises:
            LayoutError: The offset lies outside of the buffer.

        Example:
            >>> md = MemoryDesc((1, 3, 1, 2), "f32", "nChw4c")
            >>> md.index(5), md.index(7)
            ((0, 1, 0, 1), None)
        """
        n_stored = self.nbytes // self.itemsize
        if not 0 <= offset < n_stored:
            raise LayoutError(
                f"offset {offset} lies outside of {self}, which holds {n_stored} elements, padding included"
            )
        return addresses.locate(self.placement, as_integer(offset))

    def offsets(self) -> NDArray[np.int64]:
        """The offset of every element. Shape ``dims``.

        Example:
            >>> MemoryDesc((2, 3), "f32", "ba").offsets().tolist()
            [[0, 2, 4], [1, 3, 5]]
        """
        return addresses.all_offsets(self.placement)

    def permuted(self, perm: Iterable[int]) -> MemoryDesc:
        """The same bytes with axes exchanged: new axis ``i`` is old axis ``perm[i]``, as in numpy.transpose.

        Raises:
            LayoutError: ``perm`` is no permutation of the dimensions.

        Example:
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").permuted((0, 2, 3, 1))
            MemoryDesc((2, 4, 5, 3), 'f32', 'abcd')
        """
        return _build(views.permuted(self.placement, _integers("perm", perm)), self.dtype)

    def reshaped(self, dims: Iterable[int]) -> MemoryDesc:
        """The same bytes under other extents, elements in row-major order of both.

        Raises:
            LayoutError: Another number of elements, or bytes would have to move.

        Example:
            >>> MemoryDesc((2, 32, 4, 4), "f32", "nChw16c").reshaped((2, 32, 16))
            MemoryDesc((2, 32, 16), 'f32', 'aBc16b')
        """
        extents = _integers("dims", dims)
        return self if extents == self.dims else _build(views.reshaped(self.placement, extents), self.dtype)

    def submemory(self, dims: Iterable[int], offsets: Iterable[int]) -> MemoryDesc:
        """The box of ``dims`` elements at ``offsets``, inside the same bytes.

        Raises:
            LayoutError: The box leaves the tensor, or starts or ends inside a block.

        Example:
            >>> part = MemoryDesc((2, 32, 4, 4), "f32", "nChw16c").submemory((2, 16, 4, 4), (0, 16, 0, 0))
            >>> part.offset0, part.strides, part.is_dense
            (256, (512, 256, 64, 16), False)
        """
        placement = views.submemory(self.placement, _integers("dims", dims), _integers("offsets", offsets))
        return self if placement == self.placement else _build(placement, self.dtype)

    def resized(self, dims: Iterable[int], dtype: str | None = None) -> MemoryDesc:
        """A dense descriptor of other extents in the same order of dimensions and blocks.

        For the other operand or the result of an operator that follows this layout. An extent
        of 1 that is broadcast along a blocked dimension gets no block.

        Raises:
            LayoutError: Another rank.

        Example:
            >>> md = MemoryDesc((1, 17, 8, 8), "f32", "nChw16c")
            >>> md.resized((1, 17, 4, 4)), md.resized((1, 1, 8, 8))
            (MemoryDesc((1, 17, 4, 4), 'f32', 'nChw16c'), MemoryDesc((1, 1, 8, 8), 'f32', 'nchw'))
        """
        extents = _integers("dims", dims)
        tag = self._tag or FormatTag(self.dim_order, self.inner_blks, self.inner_idxs)
        return _resized(self.dims, tag, tag.given, extents, dtype or self.dtype, self._word)

    def with_dtype(self, dtype: str) -> MemoryDesc:
        """The same layout for another data type.

        Raises:
            LayoutError: No such data type.
        """
        return _build(self.placement, dtype, self._tag, self._word)

    def physically_equal(self, other: MemoryDesc) -> bool:
        """Whether every element has the same address and both hold the same number of bytes.

        Example:
            >>> plain, blocked = (MemoryDesc((1, 17, 1, 1), "f32", tag) for tag in ("nchw", "nChw16c"))
            >>> plain.nbytes, blocked.nbytes, plain.physically_equal(blocked), blocked.readable_as(plain)
            (68, 128, False, True)
        """
        if self is other:
            return True
        return self.nbytes == other.nbytes and self._addresses_alike(other)

    def readable_as(self, other: MemoryDesc) -> bool:
        """Whether bytes written in this layout may be read as ``other``.

        One way only: every element has the same address, and where ``other`` has padding, which
        its reader takes for zeros, this one has padding too.
        """
        if self is other:
            return True
        if other.nbytes > self.nbytes or not self._addresses_alike(other):
            return False
        return self.is_dense or other.n_padding == 0 or self._pads(other)

    def pack(self, array: NDArray[Any]) -> NDArray[Any]:
        """The bytes of ``array`` in this layout, padding zero: one-dimensional, ``nbytes`` long.

        Raises:
            LayoutError: Another shape or data type, or this layout repeats elements.
        """
        return packing.pack(array, self)

    def unpack(self, buffer: NDArray[Any]) -> NDArray[Any]:
        """The values that ``buffer`` holds in this layout: a fresh array in row-major order.

        Raises:
            LayoutError: The buffer is too short, not contiguous, or of another data type.
        """
        return packing.unpack(buffer, self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold.

        Example:
            >>> MemoryDesc((2, 3), "f32", "io").to_dict()
            {'dims': [2, 3], 'dtype': 'f32', 'tag': 'io'}
        """
        return serial.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryDesc:
        """The descriptor that :meth:`to_dict` wrote.

        Raises:
            LayoutError: A key is missing or unknown, or no such descriptor can exist.
        """
        return serial.from_dict(data)

    def _addresses_alike(self, other: MemoryDesc) -> bool:
        if self.dims != other.dims or self.dtype != other.dtype:
            return False
        if 0 in self.dims:
            return True
        return self.offset0 == other.offset0 and self._addressing() == other._addressing()

    def _addressing(self) -> tuple[addresses.Digits, ...]:
        return addresses.addressing(self.layout, self.dims)

    def _pads(self, other: MemoryDesc) -> bool:
        """Whether padding of ``other`` is padding here, index by index."""
        extents = other.padded_dims
        if any(more > extent for more, extent in zip(extents, self.padded_dims, strict=True)):
            return False
        return addresses.addressing(self.layout, extents) == addresses.addressing(other.layout, extents)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return self._hash == other._hash and self.dtype == other.dtype and self.placement == other.placement

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a MemoryDesc cannot be changed ({name}); make a new one")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _build, (self.placement, self.dtype, self._tag, self._word)

    def __str__(self) -> str:
        shift = f" +{self.offset0}" if self.offset0 else ""
        return f"{self.dtype} {'x'.join(map(str, self.dims))} {self.tag}{shift}"

    def __repr__(self) -> str:
        return serial.as_source(self)

    def _repr_html_(self) -> str:
        return serial.as_html(self)


def _integers(name: str, values: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(map(as_integer, values))
    except TypeError as error:
        raise LayoutError(f"{name} must be integers, got {values!r}") from error


@lru_cache(maxsize=16384)
def _make(
    dims: tuple[int, ...], dtype: str, layout: str | FormatTag | Layout | None, text: str, offset: int
) -> MemoryDesc:
    # text: the spelling of a FormatTag, which its equality (and so this cache's key) leaves out
    del text
    check_dims(dims)
    if isinstance(layout, Layout):
        return _build(place_strided(dims, layout, offset), dtype)
    tag = _as_tag(layout, len(dims))
    placement = place_dense(dims, tag)
    if offset:
        placement = place_strided(dims, placement.layout, offset)
    return _build(placement, dtype, tag)


def _as_tag(layout: str | FormatTag | None, ndims: int) -> FormatTag:
    if layout is None:
        return FormatTag.parse(LETTERS[:ndims])
    if isinstance(layout, FormatTag):
        return layout
    if not isinstance(layout, str):
        raise LayoutError(f"a layout is a format tag, a FormatTag or a Layout, not {layout!r}")
    return ordering.named_format(layout, ndims) or FormatTag.parse(layout)


@lru_cache(maxsize=16384)
def _resized(
    old_dims: tuple[int, ...], tag: FormatTag, text: str, dims: tuple[int, ...], dtype: str, word: str
) -> MemoryDesc:
    del text
    placement, new_tag = views.resized(tag, old_dims, dims)
    if not tag.given:
        new_tag = FormatTag(new_tag.order, new_tag.inner_blks, new_tag.inner_idxs)
    return _build(placement, dtype, new_tag, word)


def _array_layout(array: NDArray[Any]) -> tuple[tuple[int, ...], str, Layout]:
    dtype = dtypes.from_numpy(array.dtype)
    if not array.dtype.isnative:
        raise LayoutError(
            "the array's bytes are in the other order; convert with array.astype(array.dtype.newbyteorder('='))"
        )
    size = array.dtype.itemsize
    for extent, step in zip(array.shape, array.strides, strict=True):
        if extent > 1 and step % size:
            raise LayoutError(
                f"strides {array.strides} are no multiples of {size} bytes; copy with numpy.ascontiguousarray"
            )
    strides = tuple(
        step // size if extent > 1 else max(step // size, 0)
        for extent, step in zip(array.shape, array.strides, strict=True)
    )
    return array.shape, dtype, Layout(strides)


def _build(placement: Placement, dtype: str, tag: FormatTag | None = None, word: str = "") -> MemoryDesc:
    """The one place that makes a descriptor: fills its fields and refuses what 64 bits cannot count."""
    itemsize = dtypes.itemsize(dtype)
    nbytes = placement.n_stored() * itemsize
    if max(nbytes, placement.offset * itemsize, (placement.last_address() + 1) * itemsize) > MAX_NBYTES:
        raise LayoutError(f"dims {placement.dims} in {dtype} need {nbytes} bytes; oneDNN counts up to 2^63 - 1")
    desc = object.__new__(MemoryDesc)
    fill = object.__setattr__
    fill(desc, "dims", placement.dims)
    fill(desc, "dtype", dtype)
    fill(desc, "layout", placement.layout)
    fill(desc, "offset0", placement.offset)
    fill(desc, "padded_dims", placement.padded_dims)
    fill(desc, "nbytes", nbytes)
    fill(desc, "itemsize", itemsize)
    fill(desc, "placement", placement)
    fill(desc, "_tag", tag)
    fill(desc, "_word", word)
    fill(desc, "_hash", hash((placement, dtype)))
    return desc


def _strided_text(layout: Layout) -> str:
    text = f"strided({','.join(map(str, layout.strides))})"
    if not layout.inner_blks:
        return text
    blocks = "".join(f"{blk}{LETTERS[idx]}" for blk, idx in zip(layout.inner_blks, layout.inner_idxs, strict=True))
    return f"{text}{blocks}"
