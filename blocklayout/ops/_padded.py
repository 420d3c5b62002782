"""Padding as elements: primitives that run over all lanes of a blocked tensor, and zeros put back in its padding.

The library is fast on padded channels only where zeros stay zeros. Where they do not, as with exp(0) = 1, it runs on
a tensor of the padded extents, and the padded lanes are zeroed after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from blocklayout import dnnl
from blocklayout.ir import Recipe, zero_padding_step
from blocklayout.layout import MemoryDesc

_KEEP_ZERO = frozenset(
    (
        "eltwise_abs",
        "eltwise_elu",
        "eltwise_gelu_erf",
        "eltwise_gelu_tanh",
        "eltwise_hardswish",
        "eltwise_relu",
        "eltwise_round",
        "eltwise_sqrt",
        "eltwise_square",
        "eltwise_swish",
        "eltwise_tanh",
    )
)


def with_padding(desc: MemoryDesc) -> MemoryDesc:
    """The same bytes with every lane an element.

    Example:
        >>> with_padding(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))
        MemoryDesc((2, 24, 5, 4), 'f32', 'nChw8c')
    """
    return desc.resized(desc.padded_dims)


def keeps_zero(function: dnnl.Eltwise) -> bool:
    """Whether f(0) = 0.

    Example:
        >>> keeps_zero(dnnl.Eltwise("relu")), keeps_zero(dnnl.Eltwise("exp")), keeps_zero(dnnl.Eltwise("clip", 1, 2))
        (True, False, False)
    """
    if function.algorithm == "eltwise_clip":
        return function.alpha <= 0 <= function.beta
    if function.algorithm == "eltwise_linear":
        return function.beta == 0
    if function.algorithm == "eltwise_pow":
        return function.beta > 0
    return function.algorithm in _KEEP_ZERO


def are_eltwise(post_ops: Iterable[dnnl.PostOp]) -> bool:
    """Whether post-ops read no tensor: then they run under any extents."""
    return all(isinstance(post_op, dnnl.Eltwise) for post_op in post_ops)


def keep_zero(post_ops: Iterable[dnnl.PostOp]) -> bool:
    """Whether a chain of functions keeps zero; what reads a tensor may not."""
    return all(isinstance(post_op, dnnl.Eltwise) and keeps_zero(post_op) for post_op in post_ops)


def over_padding(spec: dnnl.Spec, whole: Mapping[str, MemoryDesc]) -> Recipe:
    """A primitive that sees padding as elements, and the zeros that it overwrote.

    Args:
        spec: The primitive.
        whole: The layout of each of its arguments as everybody else sees it.
    """
    after = (zero_padding_step(whole["dst"]),) if whole["dst"].n_padding else ()
    return Recipe((*Recipe.single(spec).steps, *after), (), tuple(whole.items()))


def n_lanes() -> int:
    """Elements of f32 in a vector register: the block of channels that the library is fast on.

    Example:
        >>> n_lanes() in (4, 8, 16)
        True
    """
    isa = dnnl.isa()
    if isa.startswith("avx512"):
        return 16
    return 8 if isa.startswith("avx2") else 4
