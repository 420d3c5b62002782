"""A node of the model as an operator reads it: attributes with their defaults, inputs, errors and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import ModelError
from blocklayout.ir.value import Value


class Refusal(Struct, frozen=True):
    """The answer of an operator without a primitive for a valid node: it names the node, the rule and a remedy."""

    reason: str


class NodeInfo(Struct, frozen=True):
    """A node of the model as an operator reads it; one that contradicts its specification is :meth:`wrong`.

    Attributes:
        name: For error messages: the node's own name, else ``conv_3`` and the like.
        inputs: In ONNX order; ``None`` where an optional input is absent.
        outputs: In ONNX order, those that are read; ``None`` for the others.
        opset: Version of the default operator set.
    """

    name: str
    op_type: str
    attrs: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    opset: int

    def wrong(self, what: str, rule: str) -> ModelError:
        """The error for a node that contradicts its specification: the fault, and the rule."""
        return ModelError(f"{self.op_type} {self.name!r}: {what}; {rule}")

    def refused(self, what: str, remedy: str) -> Refusal:
        """The refusal of a valid node that no primitive computes: the reason, and a remedy."""
        return Refusal(f"{self.op_type} {self.name!r}: {what}; {remedy}")

    def input(self, index: int) -> Value | None:
        """An input that may be absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def required(self, index: int, name: str) -> Value:
        """An input that must be there; ``name`` is the ONNX specification's."""
        value = self.input(index)
        if value is None:
            raise self.wrong(f"input {index} ({name}) is missing", "it is required")
        return value

    def shape(self, index: int) -> tuple[int, ...]:
        """Extents of an input; of an absent one those of a scalar."""
        value = self.input(index)
        return () if value is None else value.shape

    def constant(self, index: int) -> np.ndarray | None:
        """Contents of an input; ``None`` where it is absent or computed at run time."""
        value = self.input(index)
        return None if value is None else value.data

    def known(self, value: Value, name: str) -> np.ndarray:
        """The array of a constant; put ``is_known`` among the operator's needs."""
        if value.data is None:
            raise self.wrong(f"{name} ({value.name}) is computed at run time", "it must be a constant")
        return value.data

    def has_input(self, index: int) -> bool:
        """Whether an optional input is there."""
        return self.input(index) is not None

    def integers(self, index: int, attribute: str) -> tuple[int, ...] | None:
        """Contents of an input that was an attribute in older operator sets; ``None`` if absent or not known."""
        given = self.constant(index) if self.has_input(index) else self.attrs.get(attribute)
        return None if given is None else tuple(int(number) for number in np.ravel(given))

    @property
    def result(self) -> Value:
        """The first output."""
        if not self.outputs or self.outputs[0] is None:
            rule = "a node that computes nothing must be removed from the graph"
            raise self.wrong("its first output is unused", rule)
        return self.outputs[0]

    def check_result(self, extents: Sequence[int], rule: str) -> None:
        """Compare the result's extents with those that follow from the node; ``rule`` says from what."""
        if self.result.shape != tuple(extents):
            raise self.wrong(f"output {self.result.name} has extents {list(self.result.shape)}", rule)

    def int_attr(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attrs.get(name, default))

    def flag_attr(self, name: str) -> bool:
        """An integer attribute that means yes or no; anything but 0 is yes, absent is no."""
        return self.int_attr(name, 0) != 0

    def float_attr(self, name: str, default: float) -> float:
        """A finite floating-point attribute."""
        value = self.attrs.get(name, default)
        if not math.isfinite(value):
            raise self.wrong(f"attribute {name} is {value!r}", "it must be a finite number")
        return float(value)

    def string_attr(self, name: str, choices: Sequence[str]) -> str:
        """A string attribute out of ``choices``, the first of which is the default."""
        text: str = self.attrs.get(name, choices[0])
        if text not in choices:
            raise self.wrong(f"attribute {name} is {text!r}", f"it must be one of {', '.join(choices)}")
        return text

    def ints_attr(self, name: str, length: int, default: int, at_least: int) -> tuple[int, ...]:
        """A list attribute of ``length`` integers, ``default`` repeated where it is absent."""
        numbers = tuple(map(int, self.attrs.get(name, ()))) or (default,) * length
        if len(numbers) != length:
            raise self.wrong(f"attribute {name} has {len(numbers)} values", f"this rank needs {length}")
        if min(numbers) < at_least:
            raise self.wrong(f"attribute {name} is {list(numbers)}", f"every value must be at least {at_least}")
        return numbers

    def axis_attr(self, name: str, ndims: int, default: int | None) -> int:
        """A dimension's index, counted from the end where negative; ``None`` as default makes it required."""
        if default is None and name not in self.attrs:
            raise self.wrong(f"attribute {name} is missing", "it is required")
        axis = self.int_attr(name, default or 0)
        if not -ndims <= axis < ndims:
            raise self.wrong(f"attribute {name} is {axis}", f"rank {ndims} allows {-ndims} to {ndims - 1}")
        return axis % ndims

    def of_other_dtype(self, value: Value, allowed: Collection[str] = PRIMITIVE_FLOATS) -> Refusal | None:
        """Refuses a value in whose data type primitives do not compute."""
        if value.dtype in allowed:
            return None
        return self.refused(f"{value.name} is {value.dtype}", f"primitives compute it in {', '.join(allowed)}")

    def of_other_rank(self, value: Value, lowest: int, highest: int) -> Refusal | None:
        """Refuses a value whose rank is out of bounds."""
        ndims = len(value.shape)
        if lowest <= ndims <= highest:
            return None
        return self.refused(f"{value.name} has rank {ndims}", f"its primitive takes ranks {lowest} to {highest}")


Need = Callable[[NodeInfo], Refusal | None]
"""A requirement of an operator's primitives: ``None`` where a node meets it."""
