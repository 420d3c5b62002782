"""Functions of one element that are exact as comparisons and a little arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, NumpyFunction, Problem, Recipe, RecipeStep, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._mixed_radix import digits, n_elements
from blocklayout.ops._needs import is_source


class Formula(Struct, frozen=True):
    """A first step from the source, a comparison whose result is 1 or 0, and what is done with both.

    All of them keep zero.

    Attributes:
        first: ``round``, or a function of the source and the limit.
        compared: The comparison: of the source with the limit, or of the rounded source with the source.
        last: A function of what the first step gave and what the comparison gave.
        limit: What the source is compared with, as the node says it.
    """

    first: str
    compared: str
    last: str
    limit: Callable[[NodeInfo], float] | None = None


_FORMULAS: Mapping[str, Formula] = {
    "Ceil": Formula("round", "lt", "add"),
    "Floor": Formula("round", "gt", "sub"),
    "Sign": Formula("gt", "lt", "sub", lambda _: 0.0),
    # A source of -inf must not meet 0 in the product: the larger of it and the limit does.
    "ThresholdedRelu": Formula("max", "gt", "mul", lambda node: node.float_attr("alpha", 1.0)),
}


class Comparison(BaseOperator, frozen=True):
    """Ceil, Floor, Sign and ThresholdedRelu, over all lanes of any dense layout.

    Attributes:
        first: The library's name of the first step.
        compared: And of the comparison.
        last: And of what makes the result of both.
        has_limit: Whether there is a constant ``limit`` of one element to compare with.
    """

    op_types = tuple(_FORMULAS)
    is_quick_on_arrays = True
    needs = (is_source(1, 12),)
    is_elementwise = True

    first: str
    compared: str
    last: str
    has_limit: bool

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = node.required(0, "X")
        formula = _FORMULAS[node.op_type]
        operator = cls(formula.first, formula.compared, formula.last, formula.limit is not None)
        arrays = {} if formula.limit is None else {"limit": np.full((1, 1), formula.limit(node), np.float32)}
        return operator.bind({"src": src}, arrays)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        return {"Ceil": np.ceil, "Floor": np.floor, "Sign": np.sign}.get(node.op_type)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        parts = digits(descs[0]) if descs else None
        if descs is None or parts is None or attr.post_ops:
            return None
        row = MemoryDesc((1, n_elements(parts)), descs[0].dtype)
        limit = MemoryDesc((1, 1), row.dtype)
        threads = problem.n_threads

        def binary(name: str, src_0: str, src_1: str, dst: str) -> RecipeStep:
            other = limit if src_1 == "limit" else row
            spec = dnnl.binary(row, other, row, name, n_threads=threads)
            return RecipeStep(spec, (("dst", dst), ("src_0", src_0), ("src_1", src_1)))

        rounding = RecipeStep(dnnl.eltwise(row, row, "round", n_threads=threads), (("dst", "dst"), ("src", "src")))
        steps = (
            binary(self.first, "src", "limit", "dst") if self.has_limit else rounding,
            binary(self.compared, *(("src", "limit") if self.has_limit else ("dst", "src")), "flags"),
            binary(self.last, "dst", "flags", "dst"),
        )
        whole = tuple(zip(("src", "dst"), descs, strict=True))
        return Recipe(steps, (("flags", row),), whole)
