"""Recipes and candidates: the ways to compute a kernel, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.dnnl import Spec
    from blocklayout.layout import MemoryDesc


@dataclass(frozen=True)
class RecipeStep:
    """One primitive of a recipe.

    Attributes:
        spec: What runs; it may still leave layouts to the primitive.
        operands: ``(argument of the primitive, operand of the recipe)`` pairs. Operands are the
            kernel's source and constant arguments, ``dst``, and names of temporaries.
        scratchpad_nbytes: Scratchpad the primitive needs, once the Spec is resolved.
    """

    spec: Spec
    operands: tuple[tuple[str, str], ...]
    scratchpad_nbytes: int = 0


@dataclass(frozen=True)
class Recipe:
    """One or more primitives in a row that compute a kernel.

    Attributes:
        steps: In order.
        temporaries: Buffers between the steps, by name.
    """

    steps: tuple[RecipeStep, ...]
    temporaries: tuple[tuple[str, MemoryDesc], ...] = ()

    @classmethod
    def single(cls, spec: Spec, operands: Mapping[str, str] | None = None) -> Recipe:
        """A recipe of one primitive whose arguments are the kernel's own, unless renamed."""
        names = {name: name for name, _ in spec.descs} | dict(operands or {})
        return cls((RecipeStep(spec, tuple(sorted(names.items()))),))
