"""Scales and zero points of quantised tensors: wrong ones are refused, and bytes and numbers follow."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.ir import NodeInfo
from blocklayout.ir.value import Value
from blocklayout.model.graph import Node

_INPUTS = {"DequantizeLinear": ("x", "x_scale", "x_zero_point"), "QuantizeLinear": ("x", "y_scale", "y_zero_point")}


def check_scales(node: Node, values: Mapping[str, Value], opset: int) -> None:
    """Refuse scales and zero points that no real numbers follow from; nodes of other operators pass.

    Raises:
        ModelError: One is missing, none above 0, or their extents do not fit.
    """
    if node.op_type in _INPUTS:
        inputs = tuple(values[name] if name else None for name in node.inputs)
        _check(NodeInfo(node.name, node.op_type, node.attrs, inputs, (), opset), _INPUTS[node.op_type])


def _check(node: NodeInfo, names: tuple[str, str, str]) -> None:
    x, scale, zero = node.required(0, names[0]), node.required(1, names[1]), node.input(2)
    if scale.data is not None:
        numbers = scale.data.astype(np.float32).reshape(-1)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))
        if wrong.size:
            where = f" at index {wrong[0]}" if numbers.size > 1 else ""
            what = f"{names[1]} ({scale.name}) is {numbers[wrong[0]]:g}{where}"
            raise node.wrong(what, "scales must be finite numbers above 0")
    if zero is not None and zero.shape != scale.shape and max(prod(zero.shape), prod(scale.shape)) != 1:
        what = f"{names[2]} ({zero.name}) has extents {list(zero.shape)}"
        raise node.wrong(what, f"they must be those of {names[1]}, {list(scale.shape)}")
    _check_extents(node, x.shape, scale.shape, f"{names[1]} ({scale.name}) has extents {list(scale.shape)}")


def _check_extents(node: NodeInfo, dims: tuple[int, ...], scales: tuple[int, ...], what: str) -> None:
    size = node.int_attr("block_size", 0)
    if size < 0:
        raise node.wrong(f"attribute block_size is {size}", "it must be 0, or the number of elements of a block")
    if prod(scales) == 1 and not size:
        return
    axis = node.axis_attr("axis", len(dims), 1)
    if size:
        wanted = (*dims[:axis], -(-dims[axis] // size), *dims[axis + 1 :])
        if scales != wanted:
            rule = f"blocks of {size} elements along dimension {axis} of {list(dims)} need {list(wanted)}"
            raise node.wrong(what, rule)
    elif scales != (dims[axis],):
        raise node.wrong(what, f"give one number, or one for each of the {dims[axis]} elements along dimension {axis}")


def nearest_bytes(numbers: np.ndarray, dtype: str, scale: np.ndarray | np.float32, zero_point: int) -> np.ndarray:
    """The bytes for numbers, as QuantizeLinear rounds and saturates, in f32."""
    limits = np.iinfo(to_numpy(dtype))
    steps = np.rint(np.asarray(numbers, np.float32) / scale) + zero_point
    nearest: np.ndarray = np.clip(steps, limits.min, limits.max)
    return nearest


def numbers_of(integers: np.ndarray, scale: np.ndarray | np.float32, zero_point: int) -> np.ndarray:
    """The numbers that bytes stand for, as DequantizeLinear makes them, in f32."""
    numbers: np.ndarray = (integers - zero_point).astype(np.float32) * scale
    return numbers
