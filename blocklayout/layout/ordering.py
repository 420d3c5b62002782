"""The order of dimensions and the tag that a placement has, however it was made."""

from __future__ import annotations

from functools import lru_cache

from blocklayout.errors import LayoutError
from blocklayout.layout.addresses import addressing
from blocklayout.layout.geometry import Placement, padded, place_dense
from blocklayout.layout.tag import LETTERS, FormatTag


@lru_cache(maxsize=2048)
def dim_order(placement: Placement) -> tuple[int, ...]:
    """Dimensions from the outermost to the innermost.

    Steps of equal size belong to extents of 1, which lie inside the other one.
    """
    strides = placement.layout.strides
    outer = placement.outer_dims
    return tuple(sorted(range(len(strides)), key=lambda dim: (-strides[dim], outer[dim] == 1, dim)))


@lru_cache(maxsize=2048)
def dense_tag(placement: Placement) -> FormatTag | None:
    """The tag under which these extents get the same addresses and size; ``None`` if there is none."""
    layout = placement.layout
    for order in (dim_order(placement), _order_with_idle_extents(placement)):
        tag = FormatTag(order, layout.inner_blks, layout.inner_idxs)
        if is_placed_by(placement, tag):
            return tag
    return None


def _order_with_idle_extents(placement: Placement) -> tuple[int, ...]:
    """The order of the dimensions that have steps; each other one follows its left neighbour."""
    outer = placement.outer_dims
    order = [dim for dim in dim_order(placement) if outer[dim] != 1]
    for dim in range(len(outer)):
        if outer[dim] == 1:
            order.insert(order.index(dim - 1) + 1 if dim else 0, dim)
    return tuple(order)


def is_placed_by(placement: Placement, tag: FormatTag) -> bool:
    """Whether these extents get the same addresses and size under ``tag``, an offset left aside."""
    whole_dims = padded(placement.dims, placement.layout.blocks)
    if placement.padded_dims != whole_dims or placement.layout.inner_blks != tag.inner_blks:
        return False
    dense = place_dense(placement.dims, tag)
    if 0 in placement.dims:
        return dense.layout == placement.layout
    alike = addressing(dense.layout, dense.padded_dims) == addressing(placement.layout, dense.padded_dims)
    return alike and dense.last_address() == placement.last_address() - placement.offset


def view_tag(placement: Placement, before: FormatTag) -> FormatTag:
    """The tag that a view is called by: its strides tell it, in which extents of 1 have no say.

    Where they allow several orders it is a memory format's: channels-last first where the whole was so ``before``.

    Example:
        >>> row = place_dense((2, 3, 5, 1), FormatTag.parse("acbd"))  # NWC with an extent of 1 behind
        >>> view_tag(row, FormatTag.parse("nwc")).text
        'acdb'
    """
    ndims, layout = len(placement.dims), placement.layout
    names = ["contiguous_format", *(["channels_last"] if ndims in _CHANNELS_LAST and not layout.inner_blks else [])]
    if format_name(before) == "channels_last":
        names.reverse()
    orders = [tag.order for name in names if (tag := named_format(name, ndims))]
    orders.append(_order_with_idle_extents(placement))
    tags = [FormatTag(order, layout.inner_blks, layout.inner_idxs) for order in orders]
    return next((tag for tag in tags if allows(placement, tag)), tags[-1])


def allows(placement: Placement, tag: FormatTag) -> bool:
    """Whether strides are in the order of a tag of the same rank and blocks; holes and extents of 1 have no say."""
    if (placement.layout.inner_blks, placement.layout.inner_idxs) != (tag.inner_blks, tag.inner_idxs):
        return False
    outer = placement.outer_dims
    taken = [dim for dim in dim_order(placement) if outer[dim] != 1]
    return [dim for dim in tag.order if outer[dim] != 1] == taken


def format_name(tag: FormatTag) -> str:
    """The memory format that a tag is: ``contiguous_format``, ``channels_last``, else empty.

    Example:
        >>> format_name(FormatTag.parse("nchw")), format_name(FormatTag.parse("acdb")), format_name(FormatTag((1, 0)))
        ('contiguous_format', 'channels_last', '')
    """
    if tag.inner_blks:
        return ""
    if tag.order == tuple(range(tag.ndims)):
        return "contiguous_format"
    is_last = tag.ndims in _CHANNELS_LAST and tag.order == (0, *range(2, tag.ndims), 1)
    return "channels_last" if is_last else ""


_CHANNELS_FIRST = {3: "ncw", 4: "nchw", 5: "ncdhw"}
_CHANNELS_LAST = {3: "nwc", 4: "nhwc", 5: "ndhwc"}


@lru_cache(maxsize=1024)
def named_format(name: str, ndims: int) -> FormatTag | None:
    """The tag of ``contiguous_format``, ``channels_first`` or ``channels_last`` at this rank; ``None`` for other names.

    A LayoutError of channels first or last at a rank that has none.
    """
    if name == "contiguous_format":
        return FormatTag.parse(_CHANNELS_FIRST.get(ndims, LETTERS[:ndims]))
    tags = {"channels_first": _CHANNELS_FIRST, "channels_last": _CHANNELS_LAST}.get(name)
    if tags is None:
        return None
    if ndims not in tags:
        instead = "contiguous_format" if name == "channels_first" else "strides or a tag in letters"
        raise LayoutError(f"{name} exists for 3 to 5 dimensions, not for {ndims}; give {instead}")
    return FormatTag.parse(tags[ndims])


def as_tag(layout: str | FormatTag | None, ndims: int) -> FormatTag:
    """The tag of a memory format, of a tag's spelling or of a tag at this rank; row-major if ``None``."""
    if layout is None:
        return FormatTag.parse(LETTERS[:ndims])
    if isinstance(layout, FormatTag):
        return layout
    return named_format(layout, ndims) or FormatTag.parse(layout)
