"""Tensor: a descriptor with its memory, and everything that can be done with it without an operator.

Operators come from above: when ``blocklayout.eager`` is loaded, it puts its functions in the place of the definitions
that Tensor inherits. The package ``blocklayout`` loads it with every public name that may lead to a Tensor, and pickles
reach this class by such a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index as as_integer
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import named, to_numpy
from blocklayout.errors import InputError, LayoutError, PositionError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.packing import blocked_view
from blocklayout.layout.padding import clear_padding, padding_is_zero
from blocklayout.operators import Operators
from blocklayout.recording import recorded
from blocklayout.tensor.formats import contiguous_format, placed, preserve_format, tag_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import ArrayLike, DTypeLike

    from blocklayout.tensor.formats import MemoryFormat
    from blocklayout.tensor.indexing import Index


_new = object.__new__


class Tensor(Operators):
    """A tensor in a layout of its own; shape and index are logical in any order of bytes.

    Attributes:
        desc: Extents, data type and layout.
        buffer: The raw bytes, padding included. Shape (``desc.nbytes``,), uint8; where there are holes between
            elements it may end with the last of them.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> x = bl.from_array(np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2), bl.channels_last)
        >>> x.shape, x.stride(), x[0, 1, 0, 1]
        ((1, 2, 2, 2), (8, 1, 4, 2), np.float32(5.0))
        >>> x.physical()
        array([0., 4., 1., 5., 2., 6., 3., 7.], dtype=float32)
    """

    __slots__ = ("__weakref__", "buffer", "desc")

    def __init__(self, desc: MemoryDesc, buffer: np.ndarray) -> None:
        """Wrap a raw buffer without copying it.

        Args:
            desc: Of these bytes.
            buffer: Contiguous bytes, ``desc.nbytes`` of them, padding included; primitives
                rely on zeros in the padding.

        Raises:
            LayoutError: The buffer's size is not the descriptor's.
        """
        if not buffer.flags.c_contiguous or (buffer.nbytes != desc.nbytes and not _ends_with_an_element(desc, buffer)):
            raise LayoutError(f"{desc} takes {desc.nbytes} contiguous bytes, the buffer has {buffer.nbytes}")
        self.desc = desc
        self.buffer = buffer.reshape(-1).view(np.uint8)

    @staticmethod
    def over(desc: MemoryDesc, buffer: np.ndarray) -> Tensor:
        """As the constructor, of bytes that are known to fit: shape (``desc.nbytes``,), uint8, contiguous."""
        tensor = _new(Tensor)
        tensor.desc = desc
        tensor.buffer = buffer
        return tensor

    # Its descriptor.

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents: N, C, H, W for an image in every layout."""
        return self.desc.dims

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.desc.dims)

    @property
    def dtype(self) -> str:
        """Name of the data type, as oneDNN calls it."""
        return self.desc.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its memory, padding included."""
        return self.desc.nbytes

    @property
    def is_dense(self) -> bool:
        """Whether every byte belongs to an element or to padding, as it does unless it is a view with holes."""
        return self.desc.is_dense

    @property
    def memory_format(self) -> str:
        """The layout it was given: ``contiguous_format``, ``channels_last``, else a tag, else ``strided(...)``.

        Operators follow it, and it survives where strides cannot tell: one channel, or one pixel.
        """
        return self.desc.memory_format

    def size(self, dim: int | None = None) -> Any:
        """The extents, or that of one dimension: ``size(1)`` is the channels in every layout.

        Raises:
            PositionError: No such dimension.
        """
        return self.desc.dims if dim is None else self.desc.dims[self._dim(dim)]

    def stride(self, dim: int | None = None) -> Any:
        """Elements between neighbours of each dimension, in logical order; between blocks where it is blocked.

        Raises:
            PositionError: No such dimension.
        """
        return self.desc.strides if dim is None else self.desc.strides[self._dim(dim)]

    def is_contiguous(self, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether elements follow each other in this format without holes; extents of 1 have no say.

        Raises:
            LayoutError: No such format at this rank.
        """
        return self.desc.is_contiguous(tag_of(memory_format, self.desc))

    # In another layout or type.

    def to(self, memory_format: MemoryFormat | None = None, dtype: DTypeLike | None = None) -> Tensor:
        """The tensor in this format, and called so; itself where it is already.

        Where elements have the same addresses no byte moves: the result shares this one's memory.

        Args:
            memory_format: A memory format; by default, and for ``preserve_format``, as it is.
            dtype: A data type; by default as it is. See :meth:`astype`.

        Raises:
            LayoutError: No such format at this rank, or no such data type.

        Example:
            >>> import blocklayout as bl
            >>> t = bl.zeros((1, 64, 1, 1)).to(memory_format=bl.channels_last)
            >>> t.stride(), t.memory_format
            ((64, 1, 64, 64), 'channels_last')
        """
        from blocklayout.tensor.moving import brought

        changed = self if dtype is None else self.astype(dtype)
        if memory_format is None or (isinstance(memory_format, str) and memory_format == preserve_format):
            return changed
        return brought(changed, placed(changed.desc, memory_format), "Tensor.to")

    def contiguous(self, memory_format: MemoryFormat = contiguous_format) -> Tensor:
        """The tensor with its elements in this order: itself wherever they are, under the name it has.

        Unlike :meth:`to` it leaves a tensor alone for which several formats are the same order.

        Raises:
            LayoutError: No such format at this rank.
        """
        from blocklayout.tensor.moving import brought

        if self.is_contiguous(memory_format):
            return self
        return brought(self, placed(self.desc, memory_format), "Tensor.contiguous")

    def reorder(self, layout: MemoryFormat, *, threads: int | None = None) -> Tensor:
        """A new tensor in another layout: bytes move. See :func:`blocklayout.reorder`."""
        from blocklayout.tensor.reordering import reorder

        return reorder(self, layout, threads=threads)

    def clone(self, memory_format: MemoryFormat = preserve_format) -> Tensor:
        """A new tensor with the same values, without holes; by default in the same format.

        Raises:
            LayoutError: No such format at this rank.
        """
        from blocklayout.tensor.moving import cloned

        return cloned(self, placed(self.desc, memory_format))

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The values in another data type, in the same format; itself where it has that one.

        To integers they round to the nearest, ties to the even one, and saturate (from f32 to s32 maybe at 2147483520,
        the largest f32 below). NaN as an integer is not defined. Floats round likewise and overflow to
        infinity. Those of numpy do otherwise: towards zero, and around.

        Args:
            dtype: oneDNN's name, such as ``bf16``, or numpy's.

        Raises:
            LayoutError: No such data type.

        Example:
            >>> import blocklayout as bl
            >>> bl.from_array(np.array([-1.5, 0.5, 200.4], np.float32)).astype("s8").numpy()
            array([ -2,   0, 127], dtype=int8)
        """
        from blocklayout.tensor.moving import converted

        return converted(self, named(dtype))

    def permute(self, *dims: Any) -> Tensor:
        """The same bytes with axes exchanged: new axis ``i`` is old axis ``dims[i]``, as numpy transposes.

        Args:
            dims: Each axis once, as arguments or as one sequence; negative ones count from the end.

        Raises:
            LayoutError: Not each axis once.

        Example:
            >>> import blocklayout as bl
            >>> bl.zeros((2, 3, 4, 5), memory_format=bl.channels_last).permute(0, 2, 3, 1).memory_format
            'contiguous_format'
        """
        return self._permuted(tuple(self._dim(axis) for axis in _as_one(dims)))

    @recorded("permute")
    def _permuted(self, axes: tuple[int, ...]) -> Tensor:
        return Tensor(self.desc.permuted(axes), self.buffer)

    def view(self, *shape: Any) -> Tensor:
        """The same bytes under other extents, elements in row-major order of both; ``reshape`` copies where this fails.

        Args:
            shape: Extents, as arguments or as one sequence; one may be -1, and is worked out.

        Raises:
            InputError: Another number of elements.
            LayoutError: Bytes would have to move.

        Example:
            >>> import blocklayout as bl
            >>> bl.zeros((2, 32, 4, 4), memory_format="nChw16c").view(2, 32, -1)
            Tensor(f32 2x32x16 aBc16b)
        """
        from blocklayout.tensor.moving import viewed

        return viewed(self, _as_one(shape))

    def map(self, f: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """A new tensor of an elementwise function of the elements, in the same layout.

        The function is called once, with all elements in the order of memory, so it must not depend on their order.
        Padding is among them, and holds a copy of some element, so that it neither warns nor raises of its own;
        in the result it is zero.

        Args:
            f: Takes a read-only array of one dimension and returns one as long, of any data type there is.

        Raises:
            InputError: The result is no array, or of another length.
            LayoutError: It is of a data type that there is not.

        Example:
            >>> import blocklayout as bl
            >>> t = bl.full((1, 3, 2, 2), 9, memory_format="nChw8c").map(np.sqrt)
            >>> t.numpy().max(), t.physical()[:8]
            (np.float32(3.0), array([3., 3., 3., 0., 0., 0., 0., 0.], dtype=float32))
        """
        from blocklayout.tensor.moving import mapped

        return mapped(self, f)

    # Its bytes and its padding.

    def physical(self) -> np.ndarray:
        """The raw buffer in its data type, padding included: a view, to be written to as well. Shape (elements,)."""
        return self.buffer.view(to_numpy(self.desc.dtype))

    def blocks(self) -> np.ndarray:
        """The raw memory as an array with its block dimensions: a view, to be written to as the Tensor is.

        Axes are in the order of memory: dimensions from the outermost to the innermost, with their number of blocks
        where they have any, then the inner blocks. Axis ``i`` belongs to dimension
        ``(desc.format_tag.order + desc.inner_idxs)[i]``. Padding is among the elements; code that writes to it owes
        zeros, see :meth:`zero_padding`.

        Raises:
            LayoutError: A view that ends inside a block, where another's elements lie.

        Example:
            >>> import blocklayout as bl
            >>> [bl.zeros((2, 20, 5, 4), memory_format=tag).blocks().shape for tag in ("nChw16c", "nhwc")]
            [(2, 2, 5, 4, 16), (2, 5, 4, 20)]
            >>> bl.zeros((32, 16, 3, 3), memory_format="OIhw4i16o4i").blocks().shape
            (2, 1, 3, 3, 4, 16, 4)
        """
        desc = self.desc
        if desc.ends_inside_a_block:
            raise LayoutError(f"{desc} ends inside a block, where the elements of its whole go on: clone() it first")
        view = blocked_view(self.physical(), desc)
        if desc.repeats:
            view.flags.writeable = False
        return view.transpose(*desc.format_tag.order, *range(desc.ndims, view.ndim))

    def padding_is_zero(self) -> bool:
        """Whether all padding is zero, which primitives rely on; true where there is none."""
        return padding_is_zero(self.physical(), self.desc)

    def zero_padding(self) -> None:
        """Write zeros to the padding: for code that has written to :meth:`physical` or :meth:`blocks`."""
        clear_padding(self.physical(), self.desc)

    # Elements.

    def __getitem__(self, index: Index) -> Any:
        """Elements by logical position: integers, slices and an Ellipsis, as in numpy.

        An integer for each dimension selects a number. Else the result is a **view**, which shares bytes, wherever a
        descriptor can say it: of a dimension without blocks any part, with steps forward; of one with blocks what
        begins at a block, and ends with a block, with the tensor, or within that block. It is a **copy** in the same
        format, which is reported to watches, where a step goes back, and where blocks are cut otherwise, stepped
        through, or left out by an integer.

        Raises:
            PositionError: No such position.
            InputError: Anything but integers, slices and an Ellipsis.

        Example:
            >>> import blocklayout as bl
            >>> t = bl.zeros((4, 16, 8, 8), memory_format="nChw8c")
            >>> t[1, :8, ::2] = 1
            >>> t[1, 7, 2, 5], t[2:].shape, t[1:3].memory_format
            (np.float32(1.0), (2, 16, 8, 8), 'nChw8c')
        """
        from blocklayout.tensor.indexing import get

        return get(self, index)

    def __setitem__(self, index: Index, value: ArrayLike | Tensor) -> None:
        """Write elements where they are, in every layout and never to padding.

        Values broadcast, and those of another data type convert as in :meth:`astype`.

        Raises:
            PositionError: No such position.
            InputError: An index or values of another kind, values of another shape, or a read-only tensor.
            LayoutError: The layout repeats elements.
        """
        from blocklayout.tensor.indexing import put

        put(self, index, value)

    def __len__(self) -> int:
        return self.desc.dims[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def item(self) -> Any:
        """The only element, as a number of Python's.

        Raises:
            InputError: There are more, or none.
        """
        if self.desc.n_elements != 1:
            raise InputError(f"{self.desc} has {self.desc.n_elements} elements; item() is for one")
        return self[(0,) * self.ndim].item()

    def __bool__(self) -> bool:
        if self.desc.n_elements != 1:
            raise InputError(f"the truth of {self.desc} is ambiguous: it has {self.desc.n_elements} elements")
        return bool(self.item())

    # For others.

    def numpy(self) -> np.ndarray:
        """The elements as a row-major array in logical order: a copy."""
        return self.desc.unpack(self.physical())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # noqa: FBT001 - numpy's protocol
        from blocklayout.tensor.interop import as_numpy

        return as_numpy(self, dtype, copy=copy)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Functions of numpy take a Tensor for an array, and do not call its methods, which have other arguments."""
        from blocklayout.tensor.interop import with_arrays

        del types
        return function(*with_arrays(args), **with_arrays(kwargs))

    def __dlpack__(self, **kwargs: Any) -> Any:
        from blocklayout.tensor.interop import exported

        return exported(self).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, layout, format and padding included, which is there as a whole or as it was before.

        The file is a safetensors file; of a view with holes it holds the elements only.

        Raises:
            ModelError: It cannot be written.
        """
        from blocklayout.tensor.files import save

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Tensor:
        """The tensor that a file holds, as it was saved; every byte is compared with its checksum.

        Raises:
            ModelError: The file cannot be read, is damaged, or holds no Tensor.
        """
        from blocklayout.tensor.files import load

        return load(path)

    def __copy__(self) -> Tensor:
        return Tensor(self.desc, self.buffer)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        memo[id(self)] = made = self.clone()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        from blocklayout.tensor.moving import compact

        own = compact(self)
        return Tensor.restored, (own.desc, own.buffer)

    @staticmethod
    def restored(desc: MemoryDesc, buffer: np.ndarray) -> Tensor:
        """A Tensor of bytes that came from elsewhere, a pickle: in memory of its own, aligned and writable."""
        made = dnnl.aligned_empty(buffer.nbytes)
        made[:] = buffer
        return Tensor(desc, made)

    def __repr__(self) -> str:
        return f"Tensor({self.desc})"

    def _repr_html_(self) -> str:
        return self.desc._repr_html_()

    def _dim(self, dim: int) -> int:
        try:
            return range(len(self.desc.dims))[as_integer(dim)]
        except IndexError:
            raise PositionError(f"no dimension {dim}; {self.desc} has {self.ndim}") from None
        except TypeError:
            raise InputError(f"a dimension is an integer, not {dim!r:.80}") from None


def _as_one(given: tuple[Any, ...]) -> Any:
    """Numbers that were given as arguments, or as one sequence."""
    return given[0] if len(given) == 1 and hasattr(given[0], "__iter__") else given


Tensor.restored.__module__ = "blocklayout"  # by which pickles find it: a place within the package may move


def _ends_with_an_element(desc: MemoryDesc, buffer: np.ndarray) -> bool:
    needed = (desc.placement.last_address() + 1) * desc.itemsize
    return needed <= buffer.nbytes < desc.nbytes and buffer.nbytes % desc.itemsize == 0
