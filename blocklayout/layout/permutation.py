"""Permutations of dimensions."""

from __future__ import annotations

from collections.abc import Sequence

Perm = tuple[int, ...]
"""For each dimension of a permuted tensor, the dimension of the original that it is, as in a Transpose."""


def identity(ndims: int) -> Perm:
    """The permutation that changes nothing."""
    return tuple(range(ndims))


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes ``perm``.

    Example:
        >>> inverse((0, 2, 3, 1))
        (0, 3, 1, 2)
    """
    return tuple(perm.index(dim) for dim in range(len(perm)))


def permuted(extents: Sequence[int], perm: Perm) -> tuple[int, ...]:
    """The extents of a tensor after a Transpose by ``perm``."""
    return tuple(extents[dim] for dim in perm)


def moves_nothing(extents: Sequence[int], perm: Perm) -> bool:
    """Whether the elements stay in their order: only dimensions of extent 1 change places.

    Example:
        >>> moves_nothing((2, 1, 1, 8), (0, 3, 1, 2)), moves_nothing((2, 4, 1, 8), (0, 3, 1, 2))
        (True, False)
    """
    wide = [dim for dim in perm if extents[dim] != 1]
    return wide == sorted(wide) or 0 in extents


def without(perm: Perm, gone: set[int]) -> Perm:
    """The permutation of the remaining dimensions where some dimensions of the permuted tensor are removed.

    Example:
        >>> without((0, 2, 3, 1), {1, 2}), without((0, 3, 2, 1), {3})
        ((0, 1), (0, 2, 1))
    """
    left = [source for dim, source in enumerate(perm) if dim not in gone]
    order = sorted(left)
    return tuple(order.index(source) for source in left)
