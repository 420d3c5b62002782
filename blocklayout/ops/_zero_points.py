"""Zero points of bytes that primitives multiply, taken away from each operand in sums of 32 bits.

They are the constants ``zero_point_src`` and ``zero_point_weights``, or ``src_zero`` and ``weights_zero``, which are
computed at run time.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Lowered,
    NodeInfo,
    Problem,
    Recipe,
    RecipeStep,
    Refusal,
    Role,
    Value,
    Wish,
)
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import plain

_EXACT_ISA = "avx512_core_vnni"
"""From this on; before it, sums of two products saturate at 16 bits."""

_EXACT_IN_F32 = 1 << 24
_MIDDLE_OF_U8 = 128
_OPERANDS = ("src", "weights")


def is_exact(node: NodeInfo) -> Refusal | None:
    """Sums of products of bytes are what they should be on this CPU."""
    if dnnl.has_isa(_EXACT_ISA):
        return None
    return node.refused(f"sums of two products saturate on {dnnl.isa()}", f"they are exact from {_EXACT_ISA} on")


def have_one_number(node: NodeInfo) -> Refusal | None:
    """The zero points, inputs 2 and 3, are a number each, or a known one several times."""
    for value in filter(None, (node.input(2), node.input(3))):
        is_one = prod(value.shape) == 1 or (value.data is not None and value.data.size and not np.ptp(value.data))
        if not is_one:
            what = f"{value.name} has extents {list(value.shape)}"
            return node.refused(what, "its primitive takes one number for all")
    return None


def of_signed(value: Value, zero: Value | None) -> int | None:
    """A known zero point of weights that are made signed; ``None`` of an unknown one."""
    if zero is not None and zero.data is None:
        return None
    return _number(zero) - (_MIDDLE_OF_U8 if value.dtype == "u8" else 0)


def exact_floats(n_products: int) -> Any:
    """The type that holds every sum of so many products of bytes, each less its zero point."""
    return np.float32 if n_products << 16 < _EXACT_IN_F32 else np.float64


class ByteProduct(BaseOperator, frozen=True):
    """Products of bytes in sums of 32 bits, after each operand's zero point was taken away.

    Attributes:
        product: The same of numbers without zero points.
    """

    role = Role.CHOOSER

    product: BaseOperator

    @classmethod
    def with_zeros(cls, product: Lowered, node: NodeInfo) -> Lowered:
        """The operator bound as the other is, and to its zero points; constant weights are made signed."""
        sources, constants = dict(product.sources), dict(product.constants)
        weights, zeros = node.required(1, "B"), dict(zip(_OPERANDS, (node.input(2), node.input(3)), strict=True))
        for name, zero in zeros.items():
            if zero is not None and zero.data is None:
                sources[f"{name}_zero"] = zero
                continue
            known = of_signed(weights, zero) if name == "weights" else _number(zero)
            if known:
                constants[f"zero_point_{name}"] = np.full(1, known, np.int32)
        if weights.dtype == "u8":
            constants["weights"] = (constants["weights"].astype(np.int16) - _MIDDLE_OF_U8).astype(np.int8)
        return Lowered(cls(product.operator), sources, constants)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        recipe = None if attr.post_ops else self.product.lower(problem, wish, _with_zeros(attr, problem))
        return None if recipe is None else _with_operands(recipe, problem)

    def alternatives(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> tuple[Recipe, ...]:
        recipes = () if attr.post_ops else self.product.alternatives(problem, wish, _with_zeros(attr, problem))
        return tuple(_with_operands(recipe, problem) for recipe in recipes)

    def meant(self, wish: Wish) -> Wish:
        return self.product.meant(wish)

    def likeness(self, problem: Problem) -> object:
        return type(self), _shifted(problem), self.product.likeness(problem)


def _number(zero: Value | None) -> int:
    return 0 if zero is None or zero.data is None else int(zero.data.flat[0])


def _with_zeros(attr: dnnl.Attr, problem: Problem) -> dnnl.Attr:
    """The attributes of a primitive that takes the zero points away."""
    return replace(attr, zero_points=tuple((name, 0) for name in _shifted(problem)))


def _with_operands(recipe: Recipe, problem: Problem) -> Recipe:
    """The recipe of such a primitive, behind copies of computed zero points as 32 bits."""
    steps, temporaries = [], []
    for name in _OPERANDS:
        given = problem.sources.get(f"{name}_zero")
        if given is not None:
            narrow, wide = plain(given), MemoryDesc(given.dims, "s32")
            spec = dnnl.reorder(narrow, wide, n_threads=problem.n_threads)
            steps.append(RecipeStep(spec, (("dst", f"zero_point_{name}"), ("src", f"{name}_zero"))))
            temporaries.append((f"zero_point_{name}", wide))
    [product] = recipe.steps
    operands = (*product.operands, *((f"zero_point_{name}", f"zero_point_{name}") for name in _shifted(problem)))
    return replace(
        recipe, steps=(*steps, replace(product, operands=operands)), temporaries=(*recipe.temporaries, *temporaries)
    )


def _shifted(problem: Problem) -> tuple[str, ...]:
    """Operands that have a zero point."""
    given = {*problem.sources, *problem.constants}
    return tuple(name for name in _OPERANDS if given & {f"{name}_zero", f"zero_point_{name}"})
