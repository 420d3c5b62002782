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
