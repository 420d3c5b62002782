"""Clip: bounds as attributes before opset 11, as inputs since."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from blocklayout.ir import Lowered, NodeInfo, NumpyFunction
from blocklayout.ops._needs import is_known, is_source
from blocklayout.ops.eltwise import Eltwise, Slope

_LARGEST = float(np.finfo(np.float32).max)


class Clip(Eltwise, frozen=True):
    """Limits every element to an interval; a ReLU where that is from 0 upwards."""

    op_types: ClassVar[tuple[str, ...]] = ("Clip",)
    needs = (is_source(1, 12), is_known(1, "min"), is_known(2, "max"))

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = node.required(0, "input")
        return _clip(node, *_bounds(node)).bind({"src": src})

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        bounds: dict[str, Any] = {key: node.float_attr(key, 0.0) for key in ("min", "max") if key in node.attrs}
        return partial(_limit, **bounds)

    @classmethod
    def slope(cls, op_type: str, call: Any, parameters: Mapping[str, Any]) -> Slope:
        del op_type
        low, high = parameters["lo"], parameters["hi"]
        if low > high:
            raise call.error("lo", f"is {low}, above hi, which is {high}; give the smaller one first")
        return "clip_v2", max(low, -_LARGEST), min(high, _LARGEST)  # on its bounds its slope is 0

    @classmethod
    def not_negative_if(cls, node: NodeInfo) -> tuple[int, ...] | None:
        low, high = _bounds(node)
        # Where the bounds are crossed, the upper one is the result.
        return () if low >= 0 and high >= 0 else None


def _limit(x: np.ndarray, *given: np.ndarray | None, out: np.ndarray, **bounds: Any) -> None:
    low, high = (*given, None, None)[:2] if given else (bounds.get("min"), bounds.get("max"))
    if low is not None:
        x = np.maximum(x, low, out=out)
    if high is not None:
        x = np.minimum(x, high, out=out)
    if x is not out:
        np.copyto(out, x)


def _clip(node: NodeInfo, low: float, high: float) -> Eltwise:
    if np.isnan(low) or np.isnan(high):
        raise node.wrong(f"the bounds are {low} and {high}", "they must be numbers")
    if low == 0 and high >= _LARGEST:
        return Eltwise("eltwise_relu")
    # Parameters must be finite numbers, and ordered: ONNX gives the upper bound where they are crossed.
    low, high = (min(max(number, -_LARGEST), _LARGEST) for number in (low, high))
    return Eltwise("eltwise_clip", min(low, high), high)


def _bounds(node: NodeInfo) -> tuple[float, float]:
    """Both bounds: infinite where absent, NaN where computed at run time."""
    return _bound(node, 1, "min", -math.inf), _bound(node, 2, "max", math.inf)


def _bound(node: NodeInfo, index: int, name: str, absent: float) -> float:
    value = node.input(index)
    if value is None:
        return float(node.attrs.get(name, absent))
    if value.data is None:
        return math.nan
    if value.data.size != 1:
        raise node.wrong(f"{name} ({value.name}) has extents {list(value.shape)}", "it must be a scalar")
    return float(value.data.item())
