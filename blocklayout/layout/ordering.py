"""Which order of dimensions and which tag a placement has, whatever it was made from."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from blocklayout.errors import LayoutError
from blocklayout.layout.addresses import addressing
from blocklayout.layout.geometry import place_dense
from blocklayout.layout.names import LETTERS
from blocklayout.layout.tag import FormatTag

if TYPE_CHECKING:
    from blocklayout.layout.geometry import Placement


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
    if placement.padded_dims != _whole_blocks(placement):
        return None
    for order in (dim_order(placement), _order_with_idle_extents(placement)):
        tag = FormatTag(order, layout.inner_blks, layout.inner_idxs)
        dense = place_dense(placement.dims, tag)
        if _same(dense, placement):
            return tag
    return None


def _whole_blocks(placement: Placement) -> tuple[int, ...]:
    return tuple(-(-n // block) * block for n, block in zip(placement.dims, placement.layout.blocks, strict=True))


def _same(dense: Placement, placement: Placement) -> bool:
    if 0 in placement.dims:
        return dense.layout == placement.layout
    alike = addressing(dense.layout, dense.padded_dims) == addressing(placement.layout, dense.padded_dims)
    return alike and dense.last_address() == placement.last_address() - placement.offset


def _order_with_idle_extents(placement: Placement) -> tuple[int, ...]:
    """The order of the dimensions that have steps; each other one follows its left neighbour."""
    outer = placement.outer_dims
    order = [dim for dim in dim_order(placement) if outer[dim] != 1]
    for dim in range(len(outer)):
        if outer[dim] == 1:
            order.insert(order.index(dim - 1) + 1 if dim else 0, dim)
    return tuple(order)


@lru_cache(maxsize=1024)
def named_format(name: str, ndims: int) -> FormatTag | None:
    """The tag that ``channels_first`` or ``channels_last`` means at this rank; ``None`` for other names.

    Raises:
        LayoutError: Channels-last of a rank that has none.
    """
    if name == "channels_first":
        return FormatTag.parse({3: "ncw", 4: "nchw", 5: "ncdhw"}.get(ndims, LETTERS[:ndims]))
    if name != "channels_last":
        return None
    tags = {3: "nwc", 4: "nhwc", 5: "ndhwc"}
    if ndims not in tags:
        raise LayoutError(
            f"channels_last exists for 3 to 5 dimensions, not for {ndims}; give strides or a tag in letters"
        )
    return FormatTag.parse(tags[ndims])
