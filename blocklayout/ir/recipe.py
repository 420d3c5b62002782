"""Recipes and candidates: the ways to compute a kernel, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blocklayout.dnnl import Spec
    from blocklayout.ir.host_spec import HostSpec
    from blocklayout.layout import MemoryDesc


class RecipeStep(Struct, frozen=True):
    """One primitive of a recipe, or what numpy does in its place.

    Attributes:
        spec: What runs; a primitive's may still leave layouts to the primitive.
        operands: ``(argument of the primitive, operand of the recipe)`` pairs. Operands are the
            kernel's source and constant arguments, ``dst``, and names of temporaries.
        scratchpad_nbytes: Scratchpad the primitive needs, once the Spec is resolved.
    """

    spec: Spec | HostSpec
    operands: tuple[tuple[str, str], ...]
    scratchpad_nbytes: int = 0


class Recipe(Struct, frozen=True):
    """One or more primitives in a row that compute a kernel.

    Attributes:
        steps: In order.
        temporaries: Buffers between the steps, by name.
        whole: The layout of an operand that the steps see in another way: parts of it, or the same bytes
            under other extents. The layout of any other operand is that of the argument it is bound to.
    """

    steps: tuple[RecipeStep, ...]
    temporaries: tuple[tuple[str, MemoryDesc], ...] = ()
    whole: tuple[tuple[str, MemoryDesc], ...] = ()

    @classmethod
    def single(
        cls,
        spec: Spec,
        operands: Mapping[str, str] | None = None,
        whole: Iterable[tuple[str, MemoryDesc]] = (),
    ) -> Recipe:
        """A recipe of one primitive whose arguments are the kernel's own, unless renamed."""
        names = {name: name for name, _ in spec.descs} | dict(operands or {})
        return cls((RecipeStep(spec, tuple(sorted(names.items()))),), whole=tuple(whole))
