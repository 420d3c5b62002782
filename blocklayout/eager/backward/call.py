"""One call of a gradient's function: its operands read and checked, and the bytes it has to move."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.errors import BlockLayoutError, InputError, UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.layout_events import report
from blocklayout.tensor import Tensor, as_memory
from blocklayout.tensor.reordering import bytes_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import ArrayLike

DTYPES = ("f32", "bf16")


class Operand(Struct, frozen=True):
    """A tensor that a function was given.

    Attributes:
        name: Of the argument.
        desc: Extents, data type and layout.
        buffer: Its bytes; ``None`` for a mere descriptor.
    """

    name: str
    desc: MemoryDesc
    buffer: np.ndarray | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical extents."""
        return self.desc.dims

    def viewed(self, desc: MemoryDesc) -> Operand:
        """The same bytes under another descriptor, which must be a reshaping of its own."""
        return Operand(self.name, desc, self.buffer)


class Call:
    """What one call was given, by whose name it complains and reports.

    Attributes:
        function: Name of the function that was called.
        operands: By argument.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self.operands: dict[str, Operand] = {}
        self._placed: dict[tuple[str, MemoryDesc], np.ndarray] = {}

    def error(self, name: str, rule: str) -> InputError:
        """The error that names the argument, the rule and what would be right."""
        return InputError(f"{self.function}: {name} {rule}")

    def read(self, name: str, value: ArrayLike | Tensor, ranks: Sequence[int]) -> Operand:
        """A tensor to compute with.

        Args:
            name: Of the argument.
            value: What was given.
            ranks: Those it may have.

        Raises:
            InputError: No tensor, or of another rank or data type.
            UnsupportedError: bf16, on a CPU that does not compute in it.
        """
        try:
            desc, buffer = as_memory(value)
        except BlockLayoutError as error:
            raise self.error(name, f"is no tensor: {error}") from None
        return self._checked(Operand(name, desc, buffer), ranks)

    def read_desc(self, name: str, value: ArrayLike | Tensor | MemoryDesc, ranks: Sequence[int]) -> Operand:
        """A tensor of which only extents and format matter: its descriptor will do.

        Raises:
            InputError: As :meth:`read`.
            UnsupportedError: As :meth:`read`.
        """
        if isinstance(value, MemoryDesc):
            return self._checked(Operand(name, value), ranks)
        return self.read(name, value, ranks)

    def read_vector(self, name: str, value: ArrayLike | Tensor, length: int) -> Operand:
        """A vector of f32, one number for each channel.

        Raises:
            InputError: As :meth:`read`, or of another length.
        """
        operand = self.read(name, value, (1,))
        if operand.desc.dtype != "f32":
            raise self.error(name, f"is {operand.desc.dtype}; vectors of channels are f32")
        self.check_dims(operand, (length,), "one number for each channel")
        return operand

    def number(self, name: str, value: Any) -> float:
        """A parameter that is a number; infinities are.

        Raises:
            InputError: It is none.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise self.error(name, f"is {value!r}; give a number")
        return float(value)

    def check_dims(self, operand: Operand, dims: Sequence[int], why: str) -> None:
        """Refuse other extents.

        Raises:
            InputError: They differ.
        """
        if operand.dims != tuple(dims):
            raise self.error(operand.name, f"has shape {operand.dims}; {why} makes it {tuple(dims)}")

    def check_same_dtype(self, *operands: Operand) -> None:
        """Refuse operands of several data types.

        Raises:
            InputError: They differ.
        """
        first = operands[-1]
        for operand in operands:
            if operand.desc.dtype != first.desc.dtype:
                rule = f"is {operand.desc.dtype} and {first.name} is {first.desc.dtype}; give both in one type"
                raise self.error(operand.name, rule)

    def placed(self, operand: Operand, desc: MemoryDesc) -> np.ndarray:
        """The operand's bytes in a layout, by one reorder where they are in another, however often they are asked for.

        Args:
            operand: What was given.
            desc: The layout that is computed with.
        """
        if operand.buffer is None:
            raise self.error(operand.name, "is a descriptor, and its values are needed; give the tensor")
        if operand.desc.readable_as(desc):
            return operand.buffer
        if (operand.name, desc) not in self._placed:
            role = "weights" if operand.name == "weights" else "src"
            reason = f"{operand.name} is {operand.desc.named(role)}, and computed with as {desc.named(role)}"
            self._placed[operand.name, desc] = self._moved(operand.buffer, operand.desc, desc, reason).buffer
        return self._placed[operand.name, desc]

    def returned(self, result: Tensor, desc: MemoryDesc, what: str) -> Tensor:
        """A result in the format it is to have.

        Args:
            result: As the primitive gave it.
            desc: The format.
            what: What it is.
        """
        if result.desc.readable_as(desc):
            return Tensor(desc, result.buffer[: desc.nbytes])
        role = "weights" if what.endswith(" weights") else "src"
        reason = f"{what} came as {result.desc.named(role)}, and is to be {desc.named(role)}"
        return self._moved(result.buffer, result.desc, desc, reason)

    def lose(self, wanted: MemoryDesc, used: MemoryDesc) -> None:
        """Tell that a format has no optimised implementation, and where it is computed instead."""
        wish, way = wanted.named("src"), used.named("src")
        reason = f"nothing optimised for {wish} on {dnnl.isa()}: computed as {way}, and brought back"
        report("loss", self.function, self._descs(), wanted, reason=reason, always_warns=True)

    def _checked(self, operand: Operand, ranks: Sequence[int]) -> Operand:
        desc = operand.desc
        if desc.ndims not in ranks:
            raise self.error(operand.name, f"has shape {desc.dims}; give one of rank {_alternatives(ranks)}")
        if desc.dtype not in DTYPES:
            raise self.error(operand.name, f"is {desc.dtype}; gradients are computed in f32: convert it first")
        if desc.dtype == "bf16" and not dnnl.has_bf16():
            rule = f"is bf16, which takes AVX-512 (avx512_core); this CPU has {dnnl.isa()}: convert it to f32"
            raise UnsupportedError(f"{self.function}: {operand.name} {rule}")
        self.operands[operand.name] = operand
        return operand

    def _moved(self, buffer: np.ndarray, src: MemoryDesc, dst: MemoryDesc, reason: str) -> Tensor:
        started = time.perf_counter_ns()
        moved = bytes_in(src, buffer, dst)
        took = time.perf_counter_ns() - started
        n_moved = src.nbytes + dst.nbytes
        report("reorder", self.function, self._descs(), dst, nbytes=n_moved, ns=took, reason=reason)
        return Tensor(dst, moved)  # which of its names the layout has, a Spec does not tell

    def _descs(self) -> tuple[MemoryDesc, ...]:
        return tuple(operand.desc for operand in self.operands.values())


def _alternatives(ranks: Iterable[int]) -> str:
    *others, last = map(str, ranks)
    return f"{', '.join(others)} or {last}" if others else last
