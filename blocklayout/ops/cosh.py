"""Hyperbolic cosine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Problem, Recipe, RecipeStep, Wish, zero_padding_step
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._mixed_radix import digits, n_elements
from blocklayout.ops._needs import is_source
from blocklayout.ops._padded import are_eltwise

# cosh(x) = 2 * cosh(x / 2) ** 2 - 1, of exp(x / 2) + exp(-x / 2): where cosh(x) is finite, so is all between.
_OF_HALF = (dnnl.Eltwise("linear", math.sqrt(0.5)), dnnl.Eltwise("square"), dnnl.Eltwise("linear", 1.0, -1.0))


class Cosh(BaseOperator, frozen=True):
    """(exp(x) + exp(-x)) / 2, over all lanes of any dense layout.

    The source is multiplied by the constant ``half``. Of NaN it makes infinity, as the library's exp does.
    """

    op_types = ("Cosh",)
    needs = (is_source(1, 12),)
    is_elementwise = True

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        return cls().bind({"src": node.required(0, "input")}, {"half": np.full((1, 1), 0.5, np.float32)})

    @classmethod
    def not_negative_if(cls, node: NodeInfo) -> tuple[int, ...] | None:
        del node
        return ()

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        parts = digits(descs[0]) if descs else None
        if descs is None or parts is None or not are_eltwise(attr.post_ops):
            return None
        src, dst = descs
        row, threads = MemoryDesc((1, n_elements(parts)), src.dtype), problem.n_threads
        half, after = MemoryDesc((1, 1), src.dtype), replace(attr, post_ops=(*_OF_HALF, *attr.post_ops))
        power = dnnl.binary(row, half, row, "mul", attr=dnnl.Attr((dnnl.Eltwise("exp"),)), n_threads=threads)
        inverse = dnnl.eltwise(row, row, "pow", alpha=1.0, beta=-1.0, n_threads=threads)
        total = dnnl.binary(row, row, row, "add", attr=after, n_threads=threads)
        steps = [
            RecipeStep(power, (("dst", "dst"), ("src_0", "src"), ("src_1", "half"))),
            RecipeStep(inverse, (("dst", "inverse"), ("src", "dst"))),
            RecipeStep(total, (("dst", "dst"), ("src_0", "dst"), ("src_1", "inverse"))),
        ]
        if dst.n_padding:
            steps.append(zero_padding_step(dst))
        return Recipe(tuple(steps), (("inverse", row),), (("src", src), ("dst", dst)))

    @classmethod
    def has_gradient(cls, op_type: str) -> bool:
        del op_type
        return True

    @classmethod
    def gradient(cls, op_type: str, call: Any, grad: Any, x: Any, parameters: Mapping[str, Any]) -> Any:
        """That of the result times sinh(x), which is tanh(x) * cosh(x)."""
        del op_type, parameters
        upstream, source = call.alike(grad, x)
        return call.returned(source.tanh() * source.cosh() * upstream, source.desc)
