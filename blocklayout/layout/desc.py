"""MemoryDesc: extents, data type, layout and offset of a tensor, with no memory behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from operator import index as as_integer
from typing import TYPE_CHECKING, Any, NoReturn, final

from msgspec import ValidationError, convert
from msgspec.structs import asdict, replace

from blocklayout import dtypes
from blocklayout.errors import LayoutError
from blocklayout.layout import addresses, ordering, packing, views
from blocklayout.layout.geometry import MAX_COUNT, Extra, Layout, Placement, check_dims, place_dense, place_strided
from blocklayout.layout.tag import LETTERS, FormatTag

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray

_MAX_CACHED = 2048
_KEYS = {"dims", "dtype", "tag", "strides", "inner_blks", "inner_idxs", "padded_dims", "offset", "format", "extra"}


@final
class MemoryDesc:
    """How a tensor lies in memory: its extents, data type, layout and offset.

    Extents, indices and strides are in logical order (N, C, H, W) in any physical order, and all are
    counted in elements. Descriptors are immutable and equal where extents, data
    type, layout and offset are; the name that a layout was given takes no part.

    Args:
        dims: Extents in elements, 0 or more. Shape (ndims,), 1 <= ndims <= 12.
        dtype: ``f32``, ``bf16``, ``f16``, ``f64``, ``s32``, ``s8`` or ``u8``, which oneDNN knows; also
            ``s64``, ``u64``, ``u32``, ``s16``, ``u16`` and ``bool``. By name, or as numpy's and ml_dtypes' types.
        layout: A format tag, ``contiguous_format``, ``channels_first``, ``channels_last``, a FormatTag or a Layout;
            row-major if ``None``.
        strides: Steps of a plain layout, instead of ``layout``. 0 repeats elements: a source only.
        offset: Elements before the first one.

    Attributes:
        dims: Logical extents.
        dtype: Name of the data type.
        layout: Strides between outermost blocks, and the blocks inside.
        offset0: Elements before the first one.
        padded_dims: Extents rounded up to whole blocks; only a sub-memory's may end inside a block.
        nbytes: Bytes that a buffer must have, from its start. Padding included, as oneDNN counts them;
            with an offset, for which oneDNN counts nothing, up to the last element or its padding.
        itemsize: Bytes of one element.
        placement: All of it but the data type.

    Raises:
        LayoutError: No such descriptor can exist; the message has a remedy.

    Example:
        >>> md = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
        >>> md
        MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c')
        >>> md.padded_dims, md.strides, md.nbytes, md.offset(1, 16, 4, 3)
        ((2, 24, 5, 4), (480, 160, 32, 8), 3840, 952)
    """

    __slots__ = (
        "_family",
        "_hash",
        "_tag",
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
    # The tag it was made from, or is called by; its spelling may be empty.
    _tag: FormatTag | None
    # The tag of the whole that a part with holes was cut out of, which no strides may tell.
    _family: FormatTag | None
    _hash: int

    def __new__(
        cls,
        dims: Iterable[int],
        dtype: DTypeLike = "f32",
        layout: str | FormatTag | Layout | None = None,
        *,
        strides: Iterable[int] | None = None,
        offset: int = 0,
    ) -> MemoryDesc:
        """Look the descriptor up, or make it."""
        if strides is not None:
            if layout is not None:
                raise LayoutError("give a layout or strides, not both")
            layout = Layout(integers("strides", strides))
        elif not isinstance(layout, str | None):
            layout = checked_layout(layout)
        if not isinstance(dtype, str) or dtype not in dtypes.ITEMSIZES:
            dtype = dtypes.named(dtype)
        spelling = layout.given if isinstance(layout, FormatTag) else ""
        start = offset if type(offset) is int else integers("offset", (offset,))[0]
        return _make(integers("dims", dims), dtype, layout, spelling, start)

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
        return _of_array(array.dtype, array.shape, array.strides)

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical extents, by numpy's name.

        Example:
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
    def extra(self) -> Extra | None:
        """Data behind the elements of the library's packed 8-bit weights; ``None`` for everything else."""
        return self.layout.extra

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
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").tag, MemoryDesc((2, 3), strides=(1, 2)).tag
            ('nhwc', 'ba')
            >>> MemoryDesc((2, 3), strides=(7, 1)).tag
            'strided(7,1)'
        """
        found = self._tag or ordering.dense_tag(self.placement)
        if found is None:
            return _strided_text(self.layout)
        return found.text if self.extra is None else f"{found.text} with {self.extra}"

    @property
    def format_tag(self) -> FormatTag:
        """The order and blocks it was given, else those that its strides have; a part has those of its whole.

        The *name* of the layout, also where strides cannot tell. An operator that follows a layout gives its
        result this tag; holes and an offset are not in it.

        Example:
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
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").canonical_tag
            'acdb'
            >>> MemoryDesc((2, 3), strides=(7, 1)).canonical_tag is None
            True
        """
        found = self._tag or ordering.dense_tag(self.placement)
        return None if found is None or self.extra is not None else found.canonical

    def named(self, role: str) -> str:
        """The layout's name for an argument: ``src``, ``dst``, ``weights``, ``grouped_weights`` ...

        Equal descriptors have the same name, also where they were made by different ones.

        Example:
            >>> MemoryDesc((64, 64, 3, 3), "f32", "ABcd16b16a").named("weights")
            'OIhw16i16o'
        """
        found = ordering.dense_tag(self.placement)
        name = _strided_text(self.layout) if found is None else found.named(role)
        return name if self.extra is None else f"{name} with {self.extra}"

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

    @property
    def ends_inside_a_block(self) -> bool:
        """Whether it is a part that ends inside a block, where its neighbours' elements lie instead of padding."""
        return any(extent % block for extent, block in zip(self.padded_dims, self.layout.blocks, strict=True))

    def offset(self, *index: int) -> int:
        """Elements from the start of the buffer to the element at ``index``.

        Raises:
            LayoutError: The index lies outside of the tensor.

        Example:
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
        self._check_no_extra("pack into")
        return packing.pack(array, self, into)

    def unpack(self, buffer: NDArray[Any]) -> NDArray[Any]:
        """The values that ``buffer`` holds in this layout: a fresh array in row-major order.

        Raises:
            LayoutError: The buffer is too short, not contiguous, or of another data type.
        """
        self._check_no_extra("unpack")
        return packing.unpack(buffer, self)

    @property
    def canonical(self) -> MemoryDesc:
        """The same descriptor, named in letters by its layout alone: equal ones then have equal names too.

        Example:
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").canonical
            MemoryDesc((2, 3, 4, 5), 'f32', 'acdb')
        """
        return _canonical(self)

    def in_role(self, role: str) -> MemoryDesc:
        """The same descriptor, which prints by its role: a query's result has no spelling of its own.

        Example:
            >>> print(MemoryDesc((64, 64, 3, 3), "f32", "ABcd16b16a").in_role("weights"))
            f32 64x64x3x3 OIhw16i16o
        """
        found = self._tag or ordering.dense_tag(self.placement)
        if found is None:
            return self
        spelled = FormatTag(found.order, found.inner_blks, found.inner_idxs, found.named(role))
        return build(self.placement, self.dtype, spelled)

    def is_contiguous(self, memory_format: str | FormatTag = "contiguous_format") -> bool:
        """Whether elements follow each other in this order without holes; extents of 1 have no say.

        Args:
            memory_format: ``contiguous_format``, ``channels_first``, ``channels_last`` or a format tag.

        Raises:
            LayoutError: No such format at this rank.

        Example:
            >>> md = MemoryDesc((1, 17, 1, 1), "f32", "nhwc")
            >>> md.is_contiguous(), md.is_contiguous("channels_last")
            (True, True)
        """
        other = MemoryDesc(self.dims, self.dtype, memory_format)
        if 0 in self.dims:
            return True
        return self._addressing() == other._addressing() and self.padded_dims == other.padded_dims

    def permuted(self, perm: Iterable[int]) -> MemoryDesc:
        """The same bytes with axes exchanged: new axis ``i`` is old axis ``perm[i]``, as in numpy.transpose.

        Raises:
            LayoutError: ``perm`` is no permutation of the dimensions.

        Example:
            >>> MemoryDesc((2, 3, 4, 5), "f32", "nhwc").permuted((0, 2, 3, 1))
            MemoryDesc((2, 4, 5, 3), 'f32', 'abcd')
        """
        axes = integers("perm", perm)
        if axes == tuple(range(self.ndims)):
            return self
        self._check_no_extra("permute")
        return _permuted(self.placement, self.dtype, self._tag, self._family, axes)

    def reshaped(self, dims: Iterable[int]) -> MemoryDesc:
        """The same bytes under other extents, elements in row-major order of both.

        Extents of 1 come and go, blocked dimensions stay as they are.

        Raises:
            LayoutError: Another number of elements, or bytes would have to move.

        Example:
            >>> MemoryDesc((2, 32, 4, 4), "f32", "nChw16c").reshaped((2, 32, 16))
            MemoryDesc((2, 32, 16), 'f32', 'aBc16b')
        """
        extents = integers("dims", dims)
        if extents == self.dims:
            return self
        self._check_no_extra("reshape")
        return _reshaped(self, extents)

    def viewed_as(self, dims: Iterable[int]) -> MemoryDesc:
        """As :meth:`reshaped`, and named by the rule of views: strides tell, and then the name before.

        Raises:
            LayoutError: As :meth:`reshaped`.

        Example:
            >>> MemoryDesc((2, 3, 5), "f32", "channels_last").viewed_as((2, 3, 1, 5)).memory_format
            'channels_last'
        """
        extents = integers("dims", dims)
        return self if extents == self.dims else _viewed(self.placement, self.dtype, self.format_tag, extents)

    def submemory(self, dims: Iterable[int], offsets: Iterable[int]) -> MemoryDesc:
        """The box of ``dims`` elements at ``offsets``, inside the same bytes.

        Raises:
            LayoutError: The box leaves the tensor, or starts or ends inside a block.

        Example:
            >>> part = MemoryDesc((2, 32, 4, 4), "f32", "nChw16c").submemory((2, 16, 4, 4), (0, 16, 0, 0))
            >>> part.offset0, part.strides, part.is_dense
            (256, (512, 256, 64, 16), False)
        """
        placement = views.submemory(self.placement, integers("dims", dims), integers("offsets", offsets))
        if placement == self.placement:
            return self
        self._check_no_extra("take a part of")
        return as_part(placement, self.dtype, self._tag or self._family or ordering.dense_tag(self.placement))

    def at_offset(self, offset: int) -> MemoryDesc:
        """The same layout with so many elements before the first one.

        Example:
            >>> part = MemoryDesc((2, 32, 4, 4), "f32", "nchw").submemory((1, 32, 4, 4), (1, 0, 0, 0))
            >>> part.offset0, part.at_offset(0)
            (512, MemoryDesc((1, 32, 4, 4), 'f32', 'nchw'))
        """
        if offset == self.offset0:
            return self
        return as_part(replace(self.placement, offset=offset), self.dtype, self.format_tag)

    def resized(self, dims: Iterable[int], dtype: DTypeLike | None = None) -> MemoryDesc:
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
        tag = self.format_tag
        other = self.dtype if dtype is None else dtypes.named(dtype)
        return _resized(self.dims, tag, tag.given, integers("dims", dims), other)

    def with_dtype(self, dtype: DTypeLike) -> MemoryDesc:
        """The same layout for another data type.

        Raises:
            LayoutError: No such data type.
        """
        other = dtypes.named(dtype)
        if other == self.dtype:
            return self
        self._check_no_extra("retype")
        named = self._tag or self._family
        return _retyped(self.placement, self._tag, named.given if named else "", self._family, other)

    def physically_equal(self, other: MemoryDesc) -> bool:
        """Whether every element has the same address and both hold the same number of bytes.

        Whether bytes may be *read* as the other, padding and all, is :meth:`readable_as`.

        Example:
            >>> plain, blocked = (MemoryDesc((1, 17, 1, 1), "f32", tag) for tag in ("nchw", "nChw16c"))
            >>> plain.nbytes, blocked.nbytes, plain.physically_equal(blocked), blocked.readable_as(plain)
            (68, 128, False, True)
        """
        return self is other or (self.nbytes == other.nbytes and self._addresses_alike(other))

    def readable_as(self, other: MemoryDesc) -> bool:
        """Whether bytes written in this layout may be read as ``other``.

        One way only: every element has the same address, and where ``other`` has padding, which
        its reader takes for zeros, this one has padding too.

        Example:
            >>> plain, blocked = (MemoryDesc((1, 17, 1, 1), "f32", tag) for tag in ("nchw", "nChw16c"))
            >>> blocked.readable_as(plain), plain.readable_as(blocked)
            (True, False)
        """
        if self is other:
            return True
        if other.nbytes > self.nbytes or not self._addresses_alike(other):
            return False
        return other.padded_dims == other.dims or self.is_dense or self._pads(other)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold: by tag where that says it all, else by strides and blocks.

        Example:
            >>> MemoryDesc((2, 3), "f32", "io").to_dict()
            {'dims': [2, 3], 'dtype': 'f32', 'tag': 'io'}
        """
        data: dict[str, Any] = {"dims": list(self.dims), "dtype": self.dtype}
        tag = self.canonical_tag
        if tag is not None and MemoryDesc(self.dims, self.dtype, tag, offset=self.offset0) == self:
            data["tag"] = self.tag
        else:
            data["strides"] = list(self.strides)
            if self.inner_blks:
                data |= {"inner_blks": list(self.inner_blks), "inner_idxs": list(self.inner_idxs)}
            if self.ends_inside_a_block:
                data["padded_dims"] = list(self.padded_dims)
        if self.offset0:
            data["offset"] = self.offset0
        if self.extra is not None:
            data["extra"] = asdict(self.extra) | {"flags": list(self.extra.flags)}
        if "strides" in data and self.from_dict(data).format_tag != self.format_tag:
            data["format"] = self.format_tag.text  # the name, which its strides do not tell
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryDesc:
        """The descriptor that :meth:`to_dict` wrote.

        Raises:
            LayoutError: A key is missing or unknown, or no such descriptor can exist.
        """
        if not isinstance(data, Mapping):
            raise LayoutError(f"a descriptor is an object with dims, dtype and a layout; got {data!r:.80}")
        unknown = sorted(set(data) - _KEYS)
        if unknown or not {"dims", "dtype"} <= set(data) or ("tag" in data) == ("strides" in data):
            raise LayoutError(f"a descriptor has dims, dtype, and either tag or strides; got {sorted(data)}")
        if "tag" in data:
            return MemoryDesc(data["dims"], data["dtype"], data["tag"], offset=data.get("offset", 0))
        blks = integers("inner_blks", data.get("inner_blks", ()))
        idxs = integers("inner_idxs", data.get("inner_idxs", ()))
        layout = Layout(integers("strides", data["strides"]), blks, idxs, _extra_of(data.get("extra")))
        desc = MemoryDesc(data["dims"], data["dtype"], layout, offset=data.get("offset", 0))
        placement = desc.placement
        if "padded_dims" in data:
            padded_dims = integers("padded_dims", data["padded_dims"])
            _check_padding(desc, padded_dims)
            placement = Placement(desc.dims, padded_dims, layout, desc.offset0)
        if "format" not in data:
            return desc if placement is desc.placement else build(placement, desc.dtype)
        return as_part(placement, desc.dtype, _format_of(desc, data["format"]))

    def _check_no_extra(self, verb: str) -> None:
        if self.extra is not None:
            rule = "behind its elements lie sums over them, which only the library keeps: reorder to or from plain ones"
            raise LayoutError(f"cannot {verb} {self}: {rule}")

    def _addresses_alike(self, other: MemoryDesc) -> bool:
        if self.dims != other.dims or self.dtype != other.dtype or self.extra != other.extra:
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

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a MemoryDesc cannot be changed ({name}); make a new one")

    def __str__(self) -> str:
        shift = f" +{self.offset0}" if self.offset0 else ""
        return f"{self.dtype} {'x'.join(map(str, self.dims))} {self.tag}{shift}"

    def __reduce__(self) -> tuple[Any, ...]:
        return build, (self.placement, self.dtype, self._tag, self._family)

    def __repr__(self) -> str:
        shift = f", offset={self.offset0}" if self.offset0 else ""
        if self.canonical_tag is not None:
            return f"MemoryDesc({self.dims}, {self.dtype!r}, {self.tag!r}{shift})"
        if not self.inner_blks and self.extra is None:
            return f"MemoryDesc({self.dims}, {self.dtype!r}, strides={self.strides}{shift})"
        return f"MemoryDesc({self.dims}, {self.dtype!r}, {self.layout}{shift})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = {
            "dims": self.dims,
            "data type": self.dtype,
            "layout": f"{self.tag} ({self.canonical_tag or 'no tag'})",
            "padded dims": self.padded_dims,
            "strides": self.strides,
            "inner blocks": self.inner_blks or "none",
            "extra": str(self.extra or "none"),
            "bytes": f"{self.nbytes}, {self.n_padding * self.itemsize} of them padding",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table><caption>MemoryDesc</caption>{cells}</table>"


def build(
    placement: Placement, dtype: str, tag: FormatTag | None = None, family: FormatTag | None = None
) -> MemoryDesc:
    """The one place that makes a descriptor, of a checked placement; refuses sizes that 64 bits cannot count.

    ``tag`` is the one that the placement was made from, ``family`` that of the whole of a part that itself has none.
    """
    itemsize = dtypes.itemsize(dtype)
    extra = placement.layout.extra
    nbytes = placement.n_stored() * itemsize + (extra.nbytes if extra else 0)
    if max(nbytes, placement.offset, *placement.padded_dims, *placement.layout.strides) > MAX_COUNT:
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
    fill(desc, "_family", family)
    fill(desc, "_hash", hash((placement, dtype)))
    return desc


def as_part(placement: Placement, dtype: str, whole: FormatTag | None) -> MemoryDesc:
    """The descriptor of a part of a tensor laid out as ``whole``, in the part's dimensions, which names it."""
    if whole is None or not ordering.is_placed_by(placement, whole):
        return build(placement, dtype, family=whole)
    return build(placement, dtype, whole)


@lru_cache(maxsize=_MAX_CACHED)
def _make(
    dims: tuple[int, ...], dtype: str, layout: str | FormatTag | Layout | None, spelling: str, offset: int
) -> MemoryDesc:
    # The equality of FormatTags leaves their spelling out, and this cache must not.
    del spelling
    check_dims(dims)
    if isinstance(layout, Layout):
        return build(place_strided(dims, layout, offset), dtype)
    tag = ordering.as_tag(layout, len(dims))
    placement = place_dense(dims, tag)
    if offset:
        placement = place_strided(dims, placement.layout, offset)
    return build(placement, dtype, tag)


@lru_cache(maxsize=_MAX_CACHED)  # a caller's arrays are alike from run to run
def _of_array(array_dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> MemoryDesc:
    dtype = dtypes.from_numpy(array_dtype)
    if not array_dtype.isnative:
        raise LayoutError("the array's bytes are in the other order; convert with array.astype of a native dtype")
    size = array_dtype.itemsize
    steps = tuple(zip(shape, strides, strict=True))
    if any(extent > 1 and step % size for extent, step in steps):
        raise LayoutError(f"strides of {strides} bytes are no multiples of {size}; use numpy.ascontiguousarray")
    elements = tuple(step // size if extent > 1 else max(step // size, 0) for extent, step in steps)
    return _make(shape, dtype, Layout(elements), "", 0)


@lru_cache(maxsize=_MAX_CACHED)
def _permuted(
    placement: Placement, dtype: str, tag: FormatTag | None, family: FormatTag | None, perm: tuple[int, ...]
) -> MemoryDesc:
    # Tags are compared here on their own: descriptors are equal under every name.
    placed = views.permuted(placement, perm)
    return build(placed, dtype, tag and tag.permuted(perm), family and family.permuted(perm))


@lru_cache(maxsize=_MAX_CACHED)
def _viewed(placement: Placement, dtype: str, before: FormatTag, dims: tuple[int, ...]) -> MemoryDesc:
    placed = views.reshaped(placement, dims)
    if 0 in dims:
        return build(placed, dtype)
    tag = ordering.view_tag(placed, before)
    found = as_part(placed, dtype, tag)
    # extents of 1 have the strides that are usual
    return MemoryDesc(dims, dtype, tag) if found.is_dense and not found.offset0 else found


@lru_cache(maxsize=_MAX_CACHED)
def _canonical(desc: MemoryDesc) -> MemoryDesc:
    return build(desc.placement, desc.dtype, ordering.dense_tag(desc.placement))


@lru_cache(maxsize=_MAX_CACHED)
def _reshaped(desc: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc:
    return build(views.reshaped(desc.placement, dims), desc.dtype)


@lru_cache(maxsize=_MAX_CACHED)
def _retyped(
    placement: Placement, tag: FormatTag | None, spelling: str, family: FormatTag | None, dtype: str
) -> MemoryDesc:
    del spelling
    return build(placement, dtype, tag, family)


@lru_cache(maxsize=_MAX_CACHED)
def _resized(old_dims: tuple[int, ...], tag: FormatTag, spelling: str, dims: tuple[int, ...], dtype: str) -> MemoryDesc:
    placement, new_tag = views.resized(tag, old_dims, dims)
    if not spelling:
        new_tag = FormatTag(new_tag.order, new_tag.inner_blks, new_tag.inner_idxs)
    return build(placement, dtype, new_tag)


def _format_of(desc: MemoryDesc, name: object) -> FormatTag:
    tag = FormatTag.parse(name) if isinstance(name, str) else None
    if tag is None or (tag.ndims, tag.inner_blks, tag.inner_idxs) != (desc.ndims, desc.inner_blks, desc.inner_idxs):
        raise LayoutError(f"format {name!r} must name the dimensions and blocks of {desc}")
    return tag


def _check_padding(desc: MemoryDesc, padded_dims: tuple[int, ...]) -> None:
    whole = desc.padded_dims
    fits = len(padded_dims) == desc.ndims and all(
        low <= extent <= high for low, extent, high in zip(desc.dims, padded_dims, whole, strict=True)
    )
    if not fits:
        raise LayoutError(f"padded_dims {padded_dims} must lie between dims {desc.dims} and whole blocks {whole}")


def integers(name: str, values: object) -> tuple[int, ...]:
    """``values`` as plain integers; a LayoutError where they are no sequence of these."""
    try:
        return tuple(map(as_integer, values))  # type: ignore[call-overload]
    except TypeError as error:
        raise LayoutError(f"{name} must be integers, got {values!r}") from error


def _extra_of(data: object) -> Extra | None:
    try:
        extra = None if data is None else convert(data, Extra)
    except ValidationError as error:
        raise LayoutError(f"extra: {error}") from None
    if extra is not None and extra.nbytes < 0:
        raise LayoutError(f"extra: nbytes is {extra.nbytes}; it is 0 or more")
    return extra


def checked_layout(layout: FormatTag | Layout) -> FormatTag | Layout:
    """A layout whose numbers are plain integers; a LayoutError where they are not, or it is no layout."""
    if isinstance(layout, FormatTag):
        return layout
    if not isinstance(layout, Layout):
        raise LayoutError(f"a layout is a format tag, a FormatTag or a Layout, not {layout!r}")
    return Layout(
        integers("strides", layout.strides),
        integers("inner_blks", layout.inner_blks),
        integers("inner_idxs", layout.inner_idxs),
        layout.extra,
    )


def _strided_text(layout: Layout) -> str:
    blocks = "".join(f"{blk}{LETTERS[idx]}" for blk, idx in zip(layout.inner_blks, layout.inner_idxs, strict=True))
    return f"strided({','.join(map(str, layout.strides))}){blocks}"
