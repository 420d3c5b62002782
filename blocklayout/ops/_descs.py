"""Descriptors of an operator's arguments that follow from a wish."""

from __future__ import annotations

from blocklayout.ir import Problem, TensorInfo, Wish
from blocklayout.layout import MemoryDesc


def argument(problem: Problem, name: str) -> TensorInfo:
    """An argument's extents and data type, whether it is computed or constant."""
    info = problem.sources.get(name) or problem.constants.get(name)
    if info is None:
        raise KeyError(f"no argument {name!r}; there are {', '.join([*problem.sources, *problem.constants])}")
    return info


def has_argument(problem: Problem, name: str) -> bool:
    """Whether an optional argument is there."""
    return name in problem.sources or name in problem.constants


def plain(info: TensorInfo) -> MemoryDesc:
    """Row-major: what vectors are kept in."""
    return MemoryDesc(info.dims, info.dtype)


def plain_if_any(problem: Problem, name: str) -> MemoryDesc | None:
    """An optional vector argument, such as a bias."""
    return plain(argument(problem, name)) if has_argument(problem, name) else None


def like(desc: MemoryDesc, info: TensorInfo) -> MemoryDesc:
    """A tensor of other extents in the layout of ``desc``."""
    if desc.dims == info.dims and desc.dtype == info.dtype:
        return desc
    return desc.resized(info.dims, info.dtype)


def followed(problem: Problem, wish: Wish, info: TensorInfo) -> tuple[MemoryDesc, MemoryDesc] | None:
    """A follower's source as wished, and its destination in the same layout.

    ``None`` where the wish leaves the source's layout open, which a follower cannot decide, or
    asks for a destination in another layout, which is a reorder's work.
    """
    src = wish.src_desc(info)
    if not isinstance(src, MemoryDesc):
        return None
    dst = like(src, problem.dst)
    wished = wish.dst_desc(problem.dst)
    if isinstance(wished, MemoryDesc) and not wished.physically_equal(dst):
        return None
    return src, dst


def as_one_image(*descs: MemoryDesc) -> tuple[MemoryDesc, ...] | None:
    """Tensors whose channels lie outermost, such as chwn, as one image each of all their images' pixels.

    ``None`` where they lie otherwise, or pixels in another order in one than in another.

    Example:
        >>> as_one_image(MemoryDesc((8, 3, 5, 4), "f32", "chwn"))
        (MemoryDesc((1, 3, 160), 'f32', 'abc'),)
    """
    order = descs[0].dim_order
    if order[0] != 1 or not all(desc.dim_order == order and _is_whole(desc) for desc in descs):
        return None
    return tuple(MemoryDesc((1, desc.dims[1], desc.n_elements // desc.dims[1]), desc.dtype) for desc in descs)


def with_roles_swapped(*descs: MemoryDesc) -> tuple[MemoryDesc, ...] | None:
    """Tensors whose images lie innermost, as channels: chwn is channels-last then. ``None`` where they lie otherwise.

    For what is done to each channel of each image alike.

    Example:
        >>> with_roles_swapped(MemoryDesc((8, 3, 5, 4), "f32", "chwn"))
        (MemoryDesc((3, 8, 5, 4), 'f32', 'acdb'),)
    """
    ndims = descs[0].ndims
    order = (1, *range(2, ndims), 0)
    if not all(desc.dim_order == order and _is_whole(desc) for desc in descs):
        return None
    return tuple(desc.permuted((1, 0, *range(2, ndims))) for desc in descs)


def _is_whole(desc: MemoryDesc) -> bool:
    return desc.is_dense and not desc.inner_blks and desc.offset0 == 0 and desc.n_elements > 0
