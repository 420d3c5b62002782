"""Local response normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from blocklayout import dnnl
from blocklayout.kernels import BaseOperator, Lowered, NodeInfo, Problem, Recipe, Role, Wish
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._reading import (
    bound,
    float_attr,
    int_attr,
    require_float,
    require_ndims,
    required,
    unsupported,
    wrong,
)


@dataclass(frozen=True)
class LRN(BaseOperator):
    """Divides every element by the energy of its neighbours in the channels.

    Attributes:
        size: Channels that are summed, the element's own in the middle.
        alpha: Scale of their mean.
        beta: Exponent.
        bias: Added before exponentiation; oneDNN's ``k``.
    """

    op_types: ClassVar[tuple[str, ...]] = ("LRN",)
    role: ClassVar[Role] = Role.FOLLOWER

    size: int
    alpha: float
    beta: float
    bias: float

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = require_ndims(node, require_float(node, required(node, 0, "X")), 2, 5)
        if "size" not in node.attrs:
            raise wrong(node, "attribute size is missing", "it is required")
        size = int_attr(node, "size", 1)
        if size < 1:
            raise wrong(node, f"attribute size is {size}", "it must be at least 1")
        if size % 2 == 0:
            reason = "the extra neighbour is the one before for oneDNN and the one behind for ONNX: use an odd size"
            raise unsupported(node, f"attribute size is {size}, an even number", reason)
        operator = cls(
            size, float_attr(node, "alpha", 1e-4), float_attr(node, "beta", 0.75), float_attr(node, "bias", 1.0)
        )
        return bound(operator, {"src": src})

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or attr.post_ops:
            return None
        spec = dnnl.lrn(
            *descs,
            algorithm="lrn_across_channels",
            local_size=self.size,
            alpha=self.alpha,
            beta=self.beta,
            k=self.bias,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return Recipe.single(spec)
