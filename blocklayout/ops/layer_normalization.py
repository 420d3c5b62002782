"""Layer normalisation: over the last dimensions together."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import (
    beside_axis,
    broadcast_dims,
    has_f32_statistics,
    has_one_output,
    is_source,
    trailing,
)
from blocklayout.ops._gradients import of_normalized
from blocklayout.ops._layouts import are_eltwise, argument, as_row_desc, followed, has_argument, seen_as

_VECTORS = ("scale", "shift")


class LayerNormalization(ir.BaseOperator, frozen=True):
    """Normalises rows, the dimensions from ``axis`` on, which must be innermost; scales and shifts elements."""

    op_types = ("LayerNormalization",)
    needs = (is_source(1, 12), has_one_output("mean or deviation"), has_f32_statistics)

    axis: int
    epsilon: float

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "X")
        axis = node.axis_attr("axis", len(src.shape), -1)
        arguments: dict[str, ir.Value | None] = {"src": src}
        arrays: dict[str, np.ndarray] = {}
        for name, value in (("scale", node.required(1, "Scale")), ("shift", node.input(2))):
            if value is not None and value.data is not None:
                vector = _vector(node, name, value.data, src.shape, axis)
                if isinstance(vector, ir.Refusal):
                    return vector
                arrays[name] = vector
                continue
            row = src.shape[axis:]
            if value is not None and (value.shape[-len(row) :] != row or prod(value.shape) != prod(row)):
                what = f"{name} is computed at run time and has extents {list(value.shape)}"
                return node.refused(what, f"its primitive takes {list(row)}")
            arguments[name] = value
        return cls(axis, node.float_attr("epsilon", 1e-5)).bind(arguments, arrays)

    keeps_rows = staticmethod(beside_axis)
    transposed = staticmethod(trailing)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, scale, *_), epsilon = call.sources, call.node.float_attr("epsilon", 1e-5)
        axes = tuple(range(call.node.axis_attr("axis", x.ndim, -1), x.ndim))
        return lambda _, grad: (*of_normalized(grad, x, scale, epsilon, lambda t: t.reduce_mean(axes)), grad)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        seen = None if attr.post_ops else self._seen(problem, wish)
        if seen is None:
            return None
        rows, whole = seen
        flags = [f"use_{name}" for name in _VECTORS if name in whole]
        spec = dnnl.layer_normalization(rows, rows, self.epsilon, flags, n_threads=problem.n_threads)
        return ir.Recipe.single(spec, {name: name for name in _VECTORS if name in whole}, whole.items())

    def alternatives(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> tuple[ir.Recipe, ...]:
        seen = self._seen(problem, wish) if are_eltwise(attr.post_ops) else None
        if seen is None:
            return ()
        rows, whole = seen
        scale, shift = (MemoryDesc((1, rows.dims[1])) if name in whole else None for name in _VECTORS)
        given: Any = {"epsilon": self.epsilon, "attr": attr, "n_threads": problem.n_threads}
        spec = dnnl.group_normalization(rows, rows, scale, shift, **given)
        return (ir.Recipe.single(spec, whole=whole.items()),)

    def _seen(self, problem: ir.Problem, wish: ir.Wish) -> tuple[MemoryDesc, dict[str, MemoryDesc]] | None:
        """The source as rows to normalise, and the layouts of all operands; ``None`` where those are no rows."""
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or descs[0].n_padding:  # rows of padding would become shifts
            return None
        rows = as_row_desc(descs[0], range(self.axis, descs[0].ndims))
        if rows is None:
            return None
        whole = {"src": descs[0], "dst": descs[1]}
        for name in _VECTORS:
            if not has_argument(problem, name):
                continue
            # Scales lie as the elements of a row do.
            row = descs[0].resized((1,) * self.axis + descs[0].dims[self.axis :], "f32")
            seen = seen_as(row, argument(problem, name).dims)
            if seen is None:
                return None
            whole[name] = seen
        return rows, whole


def _vector(
    node: ir.NodeInfo, name: str, array: np.ndarray, dims: tuple[int, ...], axis: int
) -> np.ndarray | ir.Refusal:
    """A constant with one element for each of a row, and the source's rank."""
    full = broadcast_dims(array.shape, dims)
    if full is None:
        raise node.wrong(f"{name} has extents {list(array.shape)}", f"they must broadcast to {list(dims)}")
    if prod(full[:axis]) != 1:
        what = f"{name} has extents {list(array.shape)}, other values for other rows"
        return node.refused(what, f"its primitive takes {list(dims[axis:])}")
    return np.broadcast_to(array.reshape(full), (1,) * axis + dims[axis:])


class RMSNormalization(ir.Facts, frozen=True):
    """Elements divided by the root of their mean square along the last dimensions, and scaled."""

    op_types = ("RMSNormalization",)

    keeps_rows = staticmethod(beside_axis)
    transposed = staticmethod(trailing)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, scale), epsilon = call.sources, call.node.float_attr("epsilon", 1e-5)
        axes = tuple(range(call.node.axis_attr("axis", x.ndim, -1), x.ndim))

        def gradients(_: Any, grad: Any) -> Iterator[Any]:
            inverse = ((x * x).reduce_mean(axes) + epsilon) ** -0.5
            normal, scaled = x * inverse, grad * scale
            yield inverse * (scaled - normal * (scaled * normal).reduce_mean(axes))
            yield grad * normal

        return gradients
