"""Functions of elements: of one tensor, of two with broadcasting, and choices among them."""

from __future__ import annotations

from typing import Any

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers


@lowers("aten.relu.default")
def _relu(w: NodeWriter, x: BuildValue) -> Any:
    return w.op("Relu", x)


@lowers("aten.add.Tensor", "aten.add.Scalar")
def _add(w: NodeWriter, a: BuildValue, b: BuildValue | float, alpha: float = 1) -> Any:
    second = w.cast(b, w.dtype)
    return w.op("Add", w.cast(a, w.dtype), second if alpha == 1 else w.op("Mul", second, w.constant(alpha, w.dtype)))
