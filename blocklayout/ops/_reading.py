"""Reading a node: attributes with their defaults, inputs with their meaning, requirements of primitives, errors.

Attributes and inputs that contradict the operator's specification are a :class:`ModelError` (:func:`wrong`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import ModelError
from blocklayout.ir import BaseOperator, Lowered, Need, NodeInfo, Refusal, Value

if TYPE_CHECKING:
    import numpy as np

_FLOAT = 1
"""ONNX's number of f32."""


def wrong(node: NodeInfo, what: str, rule: str) -> ModelError:
    """The error for a node that contradicts its specification: the fault, and the rule."""
    return ModelError(f"{node.op_type} {node.name!r}: {what}; {rule}")


def refused(node: NodeInfo, what: str, remedy: str) -> Refusal:
    """The refusal of a valid node that no primitive computes: the reason, and a remedy."""
    return Refusal(f"{node.op_type} {node.name!r}: {what}; {remedy}")


def int_attr(node: NodeInfo, name: str, default: int) -> int:
    """An integer attribute."""
    value = node.attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong(node, f"attribute {name} is {value!r}", "it must be an integer")
    return int(value)


def flag_attr(node: NodeInfo, name: str) -> bool:
    """An integer attribute that means yes or no; anything but 0 is yes, absent is no."""
    return int_attr(node, name, 0) != 0


def float_attr(node: NodeInfo, name: str, default: float) -> float:
    """A finite floating-point attribute."""
    value = node.attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise wrong(node, f"attribute {name} is {value!r}", "it must be a finite number")
    return float(value)


def string_attr(node: NodeInfo, name: str, choices: Sequence[str]) -> str:
    """A string attribute out of ``choices``, the first of which is the default."""
    value = node.attrs.get(name, choices[0])
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if text not in choices:
        raise wrong(node, f"attribute {name} is {text!r}", f"it must be one of {', '.join(choices)}")
    return str(text)


def ints_attr(node: NodeInfo, name: str, length: int, default: int, at_least: int) -> tuple[int, ...]:
    """A list attribute of ``length`` integers, ``default`` repeated where it is absent."""
    value = node.attrs.get(name, ())
    if not isinstance(value, (list, tuple)) or not all(isinstance(number, Integral) for number in value):
        raise wrong(node, f"attribute {name} is {value!r}", "it must be a list of integers")
    numbers = tuple(int(number) for number in value) or (default,) * length
    if len(numbers) != length:
        raise wrong(node, f"attribute {name} has {len(numbers)} values", f"this rank needs {length}")
    if min(numbers) < at_least:
        raise wrong(node, f"attribute {name} is {list(numbers)}", f"every value must be at least {at_least}")
    return numbers


def axis_attr(node: NodeInfo, name: str, ndims: int, default: int | None) -> int:
    """A dimension's index, counted from the end where negative; ``None`` as default makes it required."""
    if default is None and name not in node.attrs:
        raise wrong(node, f"attribute {name} is missing", "it is required")
    axis = int_attr(node, name, default or 0)
    if not -ndims <= axis < ndims:
        raise wrong(node, f"attribute {name} is {axis}", f"rank {ndims} allows {-ndims} to {ndims - 1}")
    return axis % ndims


def required(node: NodeInfo, index: int, name: str) -> Value:
    """An input that must be there; ``name`` is what the ONNX specification calls it."""
    value = optional(node, index)
    if value is None:
        raise wrong(node, f"input {index} ({name}) is missing", "it is required")
    return value


def optional(node: NodeInfo, index: int) -> Value | None:
    """An input that may be absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def result(node: NodeInfo) -> Value:
    """The node's first output."""
    if not node.outputs or node.outputs[0] is None:
        raise wrong(node, "its first output is unused", "a node that computes nothing must be removed from the graph")
    return node.outputs[0]


def check_result(node: NodeInfo, extents: Sequence[int], rule: str) -> None:
    """Compare the result's extents with those that follow from the node; ``rule`` says from what."""
    value = result(node)
    if value.shape != tuple(extents):
        raise wrong(node, f"output {value.name} has extents {list(value.shape)}", rule)


def constant(node: NodeInfo, value: Value, name: str) -> np.ndarray:
    """The array of a constant; put :func:`is_known` among the operator's needs."""
    if value.data is None:
        raise wrong(node, f"{name} ({value.name}) is computed at run time", "it must be a constant")
    return value.data


def of_other_dtype(node: NodeInfo, value: Value, allowed: Collection[str] = PRIMITIVE_FLOATS) -> Refusal | None:
    """Refuses a value in whose data type primitives do not compute."""
    if value.dtype in allowed:
        return None
    return refused(node, f"{value.name} is {value.dtype}", f"primitives compute it in {', '.join(allowed)}")


def of_other_rank(node: NodeInfo, value: Value, lowest: int, highest: int) -> Refusal | None:
    """Refuses a value whose rank is out of bounds."""
    ndims = len(value.shape)
    if lowest <= ndims <= highest:
        return None
    return refused(node, f"{value.name} has rank {ndims}", f"its primitive takes ranks {lowest} to {highest}")


def is_source(lowest: int, highest: int) -> Need:
    """The first input is of floats, and its rank within bounds."""

    def need(node: NodeInfo) -> Refusal | None:
        src = optional(node, 0)
        if src is None:
            return None
        return of_other_dtype(node, src) or of_other_rank(node, src, lowest, highest)

    return need


def are_floats(node: NodeInfo) -> Refusal | None:
    """All inputs are of floats."""
    refusals = (of_other_dtype(node, value) for value in node.inputs if value is not None)
    return next(filter(None, refusals), None)


def is_known(index: int, name: str) -> Need:
    """An input, where it is there, is a constant."""

    def need(node: NodeInfo) -> Refusal | None:
        value = optional(node, index)
        if value is None or value.data is not None:
            return None
        return refused(node, f"{name} ({value.name}) is computed at run time", "it must be a constant")

    return need


def is_filled(remedy: str) -> Need:
    """The first input has elements."""

    def need(node: NodeInfo) -> Refusal | None:
        src = optional(node, 0)
        if src is None or 0 not in src.shape:
            return None
        return refused(node, f"{src.name} has extents {list(src.shape)}", remedy)

    return need


def has_one_output(meaning: str) -> Need:
    """Nothing but the first output is read; ``meaning`` names the content of the others."""

    def need(node: NodeInfo) -> Refusal | None:
        extra = [value.name for value in node.outputs[1:] if value is not None]
        if not extra:
            return None
        return refused(node, f"output {', '.join(extra)} ({meaning}) is read", "only the first output is computed")

    return need


def has_f32_statistics(node: NodeInfo) -> Refusal | None:
    """A normalisation's mean and variance are computed in f32."""
    if int_attr(node, "stash_type", _FLOAT) == _FLOAT:
        return None
    return refused(node, f"stash_type is {node.attrs['stash_type']}", f"statistics are f32: {_FLOAT}")


def bound(
    operator: BaseOperator, arguments: Mapping[str, Value | None], arrays: Mapping[str, np.ndarray] | None = None
) -> Lowered:
    """An operator with its arguments, the constants among them told apart.

    Args:
        operator: Its attributes.
        arguments: By oneDNN argument name; absent ones are ``None``.
        arrays: Constants that are not an input as it stands: reshaped, folded or computed.
    """
    sources = {name: value for name, value in arguments.items() if value is not None and not value.is_constant}
    constants = {name: value.data for name, value in arguments.items() if value is not None and value.data is not None}
    return operator.bind(sources, constants | dict(arrays or {}))
