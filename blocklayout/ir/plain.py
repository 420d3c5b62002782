"""The operator of last resort: a node of the model computed by the reference evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blocklayout.ir.operator import BaseOperator, Problem, Role, Wish
from blocklayout.ir.recipe import Recipe, RecipeStep

if TYPE_CHECKING:
    from blocklayout.dnnl import Attr
    from blocklayout.ir.host_spec import HostSpec


class Plain(BaseOperator, frozen=True):
    """A node as a whole, on row-major arrays in the data types the model declares.

    Attributes:
        spec: The node with the descriptors of its arguments.
    """

    role: ClassVar[Role] = Role.PLAIN

    spec: HostSpec

    def lower(self, problem: Problem, wish: Wish, attr: Attr) -> Recipe | None:
        del problem, wish
        if attr.post_ops:
            return None
        return Recipe((RecipeStep(self.spec, tuple((arg, arg) for arg, _ in self.spec.descs)),))
