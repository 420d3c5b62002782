"""Operands and parameters of a call, as it is planned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import copysign
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor
from blocklayout.tensor import as_tensor as over_memory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Operand: TypeAlias = Tensor | ArrayLike

MAX_NUMBERS = 256


class Known(NamedTuple):
    """A small array that the plan depends on, such as a list of axes.

    Attributes:
        values: A number, or numbers in a row.
        dtype: numpy's name of the type.
    """

    values: float | tuple[float, ...]
    dtype: str

    def array(self) -> np.ndarray:
        """Its contents."""
        return np.array(self.values, self.dtype)


def hashable(value: Any) -> Any:
    """An argument as a part of a key: numbers in a row as a tuple."""
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    return tuple(value) if isinstance(value, Sequence | np.ndarray) else value


def as_tensor(operand: Any, name: str) -> Tensor:
    """Whatever holds a tensor, as a Tensor: over the same bytes where these lie without holes.

    Args:
        operand: A Tensor, an array, or anything with ``__dlpack__``.
        name: The argument's, for errors.

    Raises:
        InputError: It holds none, or one of a data type there is none for.
    """
    if isinstance(operand, Tensor):
        return operand
    try:
        return over_memory(operand, name)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def as_tensor_like(operand: Any, name: str, other: Tensor) -> Tensor:
    """As :func:`as_tensor`; a number becomes one element of the other operand's data type and rank.

    An array of the other operand's extents is brought to its format: only Tensors are in one on purpose.

    Raises:
        InputError: It holds no tensor, or is a number that the other operand's data type has not.
    """
    if isinstance(operand, Tensor):
        return operand
    number: Any = operand
    if isinstance(operand, Real):
        return _number(number, copysign(1.0, number), other.desc.dtype, other.desc.ndims)
    made = as_tensor(operand, name)
    return made if made.shape != other.shape else made.to(memory_format=other.desc.format_tag)


def alike(x: Any, y: Any, name: str) -> tuple[Tensor, Tensor]:
    """Two operands as Tensors, where one may be a number, or an array of the other's extents.

    Args:
        x: The first.
        y: The second.
        name: Of the second, for errors.

    Raises:
        InputError: As :func:`as_tensor_like`, or both are numbers.
    """
    if type(x) is Tensor:
        return x, as_tensor_like(y, name, x)
    if type(y) is Tensor:
        return as_tensor_like(x, "x", y), y
    first, second = row_of((x, y))
    return first, second


def row_of(operands: Sequence[Any]) -> tuple[Tensor, ...]:
    """Tensors of all operands, where numbers are like the first that is none.

    Raises:
        InputError: As :func:`as_tensor_like`, or all are numbers.
    """
    for each in operands:
        if not isinstance(each, int | float):
            like = as_tensor(each, "x")
            return tuple(like if other is each else as_tensor_like(other, "y", like) for other in operands)
    raise InputError("give at least one tensor or array; numbers alone have no layout")


@lru_cache(MAX_NUMBERS)
def _number(value: Any, sign: float, dtype: str, ndims: int) -> Tensor:
    """One element; ``sign`` only tells 0.0 and -0.0 apart, which are equal."""
    del sign
    try:
        element = np.array([value], to_numpy(dtype))
    except OverflowError:
        element = None
    if element is None or (dtype not in FLOATS and element[0] != value):
        raise InputError(f"{value} is no {dtype}, which the tensor holds: convert it first, with .astype")
    return Tensor(MemoryDesc((1,) * ndims, dtype), element.view(np.uint8))
