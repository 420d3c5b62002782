"""Operands and parameters of a call, as it is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import copysign
from numbers import Real
from operator import index as as_integer
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.errors import InputError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.recording import recorders_around, recording
from blocklayout.tensor import Tensor, preserve_format
from blocklayout.tensor import as_tensor as over_memory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Operand: TypeAlias = Tensor | ArrayLike

MAX_NUMBERS = 256


class Known(NamedTuple):
    """A small array that the plan depends on, such as a list of axes: its numbers, and numpy's name of their type."""

    values: float | tuple[float, ...]
    dtype: str

    def array(self) -> np.ndarray:
        """Its contents."""
        return np.array(self.values, self.dtype)


def refused(value: Any, name: str, right: str) -> InputError:
    """The error that names an argument (``conv: strides``), its value, and the right ones (``an integer``)."""
    return InputError(f"{name} is {value!r:.80}; give {right}")


def number(value: Any, name: str) -> float:
    """A number, infinite or not; an InputError of anything else, as of all readers here."""
    if type(value) is int and abs(value) < 1e300:  # at once, as most are
        return float(value)
    plain = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
    if isinstance(plain, Real) and not isinstance(plain, bool):
        with suppress(OverflowError):
            return float(plain)
    raise refused(value, name, "a number")


def integer(value: Any, name: str, right: str = "an integer") -> int:
    """An integer, which truth is not."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return as_integer(value)
    raise refused(value, name, right)


def boolean(value: Any, name: str) -> bool:
    """Truth, as 0 or 1 too."""
    if isinstance(value, int | np.bool_ | np.integer) and value in (0, 1):
        return bool(value)
    raise refused(value, name, "True or False")


def text(value: Any, name: str) -> str:
    """A string."""
    if isinstance(value, str):
        return str(value)
    raise refused(value, name, "a string")


def integers(value: Any, name: str) -> int | tuple[int, ...]:
    """An integer, or several in a row."""
    if type(value) is tuple and {*map(type, value)} <= {int}:
        return value
    right = "an integer, or several in a row"
    return tuple(integer(each, name, right) for each in value) if _is_row(value) else integer(value, name, right)


def row(value: Any, name: str) -> tuple[int, ...]:
    """Integers in a row."""
    found = integers(value, name)
    return found if isinstance(found, tuple) else (found,)


def numbers(value: Any, name: str) -> tuple[float, ...]:
    """Numbers in a row."""
    if not _is_row(value):
        raise refused(value, name, "numbers in a row")
    return tuple(number(each, name) for each in value)


def memory_format(value: Any, name: str) -> str | FormatTag | None:
    """A memory format; ``None`` where it is that of the tensor at hand."""
    if isinstance(value, MemoryDesc):
        return value.format_tag
    if not isinstance(value, str | FormatTag):
        raise refused(value, name, "a memory format: its name, a FormatTag or a MemoryDesc")
    return None if value == preserve_format else value


def hashable(value: Any, name: str) -> Any:
    """An argument of any kind as a part of a key: rows as tuples."""
    plain = tuple(value) if _is_row(value) else value
    try:
        hash(plain)
    except TypeError:
        raise refused(value, name, "a number, a string, or several in a row") from None
    return plain


def _is_row(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray) and value.ndim == 1
    return is_array or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def as_tensor(operand: Any, name: str) -> Tensor:
    """Any holder of a tensor as a Tensor: over the same bytes where these lie without holes."""
    if isinstance(operand, Tensor):
        return operand
    try:
        made = over_memory(operand, name)
    except InputError as error:
        raise InputError(f"{name} is no tensor: {error}") from None
    return _constant(made) if recorders_around() else made


def as_tensor_like(operand: Any, name: str, other: Tensor) -> Tensor:
    """As :func:`as_tensor`; a number takes the other's type and rank, an array of its extents its format."""
    if isinstance(operand, Tensor):
        return operand
    if isinstance(operand, Real):
        value: Any = operand
        try:
            return _number(value, copysign(1.0, value), other.desc.dtype, other.desc.ndims)
        except (InputError, OverflowError) as error:
            raise InputError(f"{name}: {error}") from None
    made = as_tensor(operand, name)
    if made.shape != other.shape:
        return made
    is_recorded = bool(recorders_around())
    with recording():  # a constant, however it lies
        made = made.to(memory_format=other.desc.format_tag)
    return _constant(made) if is_recorded else made


def alike(x: Any, y: Any, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Two operands as Tensors, one of which may be a number or an array of the other's extents."""
    if type(x) is Tensor:
        return x, as_tensor_like(y, names[1], x)
    if type(y) is Tensor:
        return as_tensor_like(x, names[0], y), y
    first, second = row_of((x, y), names)
    return first, second


def row_of(operands: Sequence[Any], names: Sequence[str]) -> tuple[Tensor, ...]:
    """Tensors of all operands, of which one at least is none of the numbers, which become like it."""
    for first, each in enumerate(operands):
        if not isinstance(each, Real):
            like = as_tensor(each, names[first])
            return tuple(
                like if place == first else as_tensor_like(other, names[place], like)
                for place, other in enumerate(operands)
            )
    raise InputError(f"{', '.join(names)}: give at least one tensor or array; numbers alone have no layout")


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
    return _constant(Tensor(MemoryDesc((1,) * ndims, dtype), element.view(np.uint8)))


_constants: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
"""By their identity, Tensors that were made of numbers, and of arrays while calls are recorded."""


def _constant(tensor: Tensor) -> Tensor:
    _constants[id(tensor)] = tensor
    return tensor


def is_constant(tensor: Tensor) -> bool:
    """Whether a Tensor was made of a number or an array for a call, so that nobody can ask for its gradient."""
    return _constants.get(id(tensor)) is tensor


READERS: Mapping[str, tuple[type | None, Callable[[Any, str], Any]]] = {
    "int": (int, integer),
    "Axis": (int, integer),
    "Count": (int, integer),
    "float": (float, number),
    "NotNegative": (float, number),
    "bool": (bool, boolean),
    "str": (str, text),
    "Extents": (int, integers),
    "Pads": (int, integers),
    "Axes": (int, integers),
    "Sequence[int]": (None, row),
    "Sequence[float]": (None, numbers),
    "Operand": (Tensor, as_tensor),
    "Vector": (Tensor, as_tensor),
}
"""For each annotation of a parameter the type that is taken as it is, and the function that reads all else."""
