"""New tensors, in any memory format, with zeros in their padding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import FLOATS, named, to_numpy
from blocklayout.errors import InputError, LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.padding import clear_padding
from blocklayout.tensor.conversion import convert
from blocklayout.tensor.formats import MemoryFormat, contiguous_format, placed, preserve_format, tag_of
from blocklayout.tensor.interop import as_memory, as_tensor, dense_desc, foreign
from blocklayout.tensor.moving import brought, cloned, converted
from blocklayout.tensor.reordering import bytes_in
from blocklayout.tensor.tensor_class import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike


def from_array(
    source: ArrayLike | Tensor, memory_format: MemoryFormat = preserve_format, dtype: DTypeLike | None = None
) -> Tensor:
    """A Tensor of anything that holds one: a copy, with memory of its own.

    Args:
        source: A numpy array, nested lists, anything with ``__dlpack__`` (a torch tensor), or a Tensor.
        memory_format: By default the source's. An array's strides tell it: row-major where they may be, else
            channels-last where they may be, else their order.
        dtype: By default the source's. See :meth:`Tensor.astype` for how values convert.

    Raises:
        InputError: Not a tensor, or of a data type that there is not.
        LayoutError: No such format at this rank, or no such data type.

    Example:
        >>> x = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 4, 4, 3).transpose(0, 3, 1, 2)
        >>> from_array(x).memory_format, from_array(x, "nChw8c").memory_format
        ('channels_last', 'nChw8c')
    """
    if isinstance(source, Tensor):
        changed = source if dtype is None else converted(source, named(dtype))
        target = placed(changed.desc, memory_format)
        return cloned(source, target) if changed is source else brought(changed, target, "from_array")
    array = np.atleast_1d(foreign(source))
    given = dense_desc(array)
    target = MemoryDesc(array.shape, given.dtype if dtype is None else named(dtype), tag_of(memory_format, given))
    if not target.is_plain:
        return Tensor(target, bytes_in(*as_memory(array, "from_array"), target))
    made = _uninitialised(target)
    # Plain memory in order of its dimensions is an array, which numpy fills from any strides and byte order.
    order = target.format_tag.order
    made.physical().reshape([target.dims[dim] for dim in order])[...] = convert(array, target.dtype).transpose(order)
    return made


def empty(
    shape: int | Iterable[int], dtype: DTypeLike = "f32", memory_format: MemoryFormat = contiguous_format
) -> Tensor:
    """A new tensor whose elements are undefined; its padding is zero.

    Args:
        shape: Logical extents.
        dtype: oneDNN's name, such as ``bf16``, or numpy's.
        memory_format: How its elements lie.

    Raises:
        LayoutError: No such tensor.

    Example:
        >>> empty((2, 17, 5, 4), "bf16", "nChw16c")
        Tensor(bf16 2x17x5x4 nChw16c)
    """
    return _uninitialised(_new(shape, dtype, memory_format))


def zeros(
    shape: int | Iterable[int], dtype: DTypeLike = "f32", memory_format: MemoryFormat = contiguous_format
) -> Tensor:
    """A new tensor of zeros. Arguments and errors are those of :func:`empty`.

    Example:
        >>> import blocklayout as bl
        >>> bl.zeros((1, 3, 2, 2), memory_format="nChw8c")
        Tensor(f32 1x3x2x2 nChw8c)
    """
    return full(shape, 0, dtype, memory_format)


def ones(
    shape: int | Iterable[int], dtype: DTypeLike = "f32", memory_format: MemoryFormat = contiguous_format
) -> Tensor:
    """A new tensor of ones. Arguments and errors are those of :func:`empty`.

    Example:
        >>> import blocklayout as bl
        >>> bl.ones((2, 3), "bf16")
        Tensor(bf16 2x3 ab)
    """
    return full(shape, 1, dtype, memory_format)


def full(
    shape: int | Iterable[int], value: float, dtype: DTypeLike = "f32", memory_format: MemoryFormat = contiguous_format
) -> Tensor:
    """A new tensor of a number, which converts to the data type as in :meth:`Tensor.astype`.

    Other arguments and errors are those of :func:`empty`.

    Raises:
        InputError: The value is no number.

    Example:
        >>> import blocklayout as bl
        >>> bl.full((2,), 300, "u8").numpy()
        array([255, 255], dtype=uint8)
    """
    return _filled(_new(shape, dtype, memory_format), value)


def empty_like(
    source: ArrayLike | Tensor, dtype: DTypeLike | None = None, memory_format: MemoryFormat = preserve_format
) -> Tensor:
    """A new tensor of a tensor's extents, type and format, whose elements are undefined.

    Args:
        source: A Tensor, or a source of :func:`from_array`.
        dtype: By default the source's.
        memory_format: By default the source's.

    Raises:
        InputError: Not a tensor.
        LayoutError: No such format at this rank, or no such data type.

    Example:
        >>> empty_like(zeros((1, 1, 1, 1), memory_format="channels_last")).memory_format
        'channels_last'
    """
    return _uninitialised(_like(source, dtype, memory_format))


def zeros_like(
    source: ArrayLike | Tensor, dtype: DTypeLike | None = None, memory_format: MemoryFormat = preserve_format
) -> Tensor:
    """A new tensor of zeros like a given one. Arguments and errors are those of :func:`empty_like`.

    Example:
        >>> import blocklayout as bl
        >>> bl.zeros_like(bl.ones((1, 16, 2, 2), memory_format="channels_last")).memory_format
        'channels_last'
    """
    return full_like(source, 0, dtype, memory_format)


def ones_like(
    source: ArrayLike | Tensor, dtype: DTypeLike | None = None, memory_format: MemoryFormat = preserve_format
) -> Tensor:
    """A new tensor of ones like a given one. Arguments and errors are those of :func:`empty_like`.

    Example:
        >>> import blocklayout as bl
        >>> bl.ones_like(bl.zeros((2, 3), "s32"))
        Tensor(s32 2x3 ab)
    """
    return full_like(source, 1, dtype, memory_format)


def full_like(
    source: ArrayLike | Tensor,
    value: float,
    dtype: DTypeLike | None = None,
    memory_format: MemoryFormat = preserve_format,
) -> Tensor:
    """A new tensor of one value like a given one; see :func:`full` and :func:`empty_like`.

    Example:
        >>> import blocklayout as bl
        >>> bl.full_like(bl.zeros((2,)), 7).numpy()
        array([7., 7.], dtype=float32)
    """
    return _filled(_like(source, dtype, memory_format), value)


def rand_like(
    source: ArrayLike | Tensor,
    dtype: DTypeLike | None = None,
    memory_format: MemoryFormat = preserve_format,
    *,
    rng: np.random.Generator | int | None = None,
) -> Tensor:
    """A new tensor of random numbers from 0 to below 1, like a given one; from one seed the same in every format.

    ``rng`` is numpy's generator of random numbers, or a seed for one; other arguments are those of :func:`empty_like`.

    Raises:
        InputError: Not a tensor, of a data type without fractions, or no generator.
        LayoutError: No such format at this rank, or no such data type.

    Example:
        >>> x = zeros((1, 2, 1, 2), memory_format="channels_last")
        >>> rand_like(x, rng=0), bool(rand_like(x, rng=0)[0, 1, 0, 0] == rand_like(x.numpy(), rng=0)[0, 1, 0, 0])
        (Tensor(f32 1x2x1x2 nhwc), True)
    """
    desc = _random_desc("rand_like", source, dtype, memory_format)
    steps = 2.0 ** _FRACTION_BITS[desc.dtype]  # as many numbers as the type has, so that none is rounded to 1
    return _drawn(np.floor(generator(rng, "rand_like").random(desc.dims) * steps) / steps, desc)


def randn_like(
    source: ArrayLike | Tensor,
    dtype: DTypeLike | None = None,
    memory_format: MemoryFormat = preserve_format,
    *,
    rng: np.random.Generator | int | None = None,
) -> Tensor:
    """Likewise of normally distributed numbers, of mean 0 and variance 1. See :func:`rand_like`.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> x = bl.zeros((1, 3, 2, 2))
        >>> plain, blocked = bl.randn_like(x, rng=0), bl.randn_like(x, memory_format="nChw8c", rng=0)
        >>> np.array_equal(plain.numpy(), blocked.numpy())
        True
    """
    desc = _random_desc("randn_like", source, dtype, memory_format)
    return _drawn(generator(rng, "randn_like").standard_normal(desc.dims), desc)


def generator(rng: np.random.Generator | int | None, name: str) -> np.random.Generator:
    """Generator of random numbers: the one given, or one of a seed, or an unpredictable one of ``None``.

    ``name`` is that of the function that draws from it, for the InputError of anything else.
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InputError(f"{name}: rng is {rng!r:.80}; give a seed or a numpy.random.Generator") from None


_FRACTION_BITS = {"f32": 24, "f64": 53, "f16": 11, "bf16": 8}


def _random_desc(
    name: str, source: ArrayLike | Tensor, dtype: DTypeLike | None, memory_format: MemoryFormat
) -> MemoryDesc:
    desc = _like(source, dtype, memory_format)
    if desc.dtype not in _FRACTION_BITS:
        raise InputError(f"{name}: {desc.dtype} has no fractions; give a dtype of {', '.join(FLOATS)}")
    return desc


def _drawn(numbers: np.ndarray, desc: MemoryDesc) -> Tensor:
    return from_array(numbers.astype(to_numpy(desc.dtype)), desc.format_tag)


def _new(shape: int | Iterable[int], dtype: DTypeLike, memory_format: MemoryFormat) -> MemoryDesc:
    plain = MemoryDesc(shape if isinstance(shape, Iterable) else (shape,), named(dtype))
    return placed(plain, memory_format)


def _like(source: ArrayLike | Tensor, dtype: DTypeLike | None, memory_format: MemoryFormat) -> MemoryDesc:
    desc = as_tensor(source).desc
    return placed(desc, memory_format, None if dtype is None else named(dtype))


def _uninitialised(desc: MemoryDesc) -> Tensor:
    made = Tensor(desc, dnnl.aligned_empty(desc.nbytes))
    clear_padding(made.physical(), desc)
    return made


def _filled(desc: MemoryDesc, value: float) -> Tensor:
    try:
        number = convert(np.asarray(value), desc.dtype)
    except (LayoutError, ValueError) as error:
        raise InputError(f"a tensor is not filled with {value!r:.60}: {error}") from None
    if number.ndim:
        raise InputError(f"a tensor is filled with one number, not with an array of shape {number.shape}")
    made = Tensor(desc, dnnl.aligned_empty(desc.nbytes))
    elements = made.physical()
    elements[:] = number
    if number:
        clear_padding(elements, desc)
    return made
