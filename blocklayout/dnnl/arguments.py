"""The arguments a primitive executes with: their numbers, which of them it writes, and those of its attributes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from blocklayout.dnnl import enums
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Binary, DepthwiseConv, Prelu
from blocklayout.dnnl.primitives import direction_of, kind_of
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_POST_OP = re.compile(r"post_op_(\d+)_(src_1|weights|bias)")
_SOURCE = re.compile(r"src_(\d+)")


def number(spec: Spec, name: str) -> int:
    """The number of an execution argument; an InvalidArgumentsError where there is no such argument.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.sum([dnnl.MemoryDesc((2, 3))] * 3, n_threads=1)
        >>> number(spec, "dst"), number(spec, "src_2"), number(spec, "scale_dst")
        (17, 1026, 4113)
    """
    for prefix, base in (("scale_", "attr_scales"), ("zero_point_", "attr_zero_points")):
        if name.startswith(prefix):
            return enums.argument(base) | number(spec, name.removeprefix(prefix))
    if post_op := _POST_OP.fullmatch(name):
        index, post_ops = int(post_op[1]), spec.attr.post_ops
        if index < len(post_ops) and isinstance(post_ops[index], DepthwiseConv):
            return enums.argument("attr_post_op_dw") | enums.argument(post_op[2])
        return enums.argument("attr_multiple_post_op_base") * (index + 1) | enums.argument(post_op[2])
    source = _SOURCE.fullmatch(name)
    if source and kind_of(spec.kind).has_many_sources:
        return enums.argument("multiple_src") + int(source[1])
    return enums.argument(name)


def queried(spec: Spec) -> Iterator[str]:
    """Names of the arguments whose descriptors a primitive descriptor may be asked for."""
    if kind_of(spec.kind).has_many_sources:
        yield from spec.counted_sources
    yield from direction_of(spec).arguments
    for index, post_op in enumerate(spec.attr.post_ops):
        if isinstance(post_op, Binary):
            yield f"post_op_{index}_src_1"
        elif isinstance(post_op, DepthwiseConv):
            yield f"post_op_{index}_weights"
            yield f"post_op_{index}_bias"


def of_attributes(spec: Spec, descs: dict[str, Desc]) -> Iterator[tuple[str, MemoryDesc]]:
    """Attributes' arguments that a primitive descriptor does not list beside ``descs``: scales, zero points, slopes."""
    for name, mask in spec.attr.scales:
        yield f"scale_{name}", MemoryDesc((_masked(descs[name], mask),), "f32")
    for name, mask in spec.attr.zero_points:
        yield f"zero_point_{name}", MemoryDesc((_masked(descs[name], mask),), "s32")
    for index, post_op in enumerate(spec.attr.post_ops):
        if isinstance(post_op, Prelu):
            yield f"post_op_{index}_weights", _slopes(descs["dst"], post_op.mask)


def _masked(desc: Desc, mask: int) -> int:
    return math.prod(extent for dim, extent in enumerate(desc.dims) if mask >> dim & 1)


def _slopes(dst: Desc, mask: int) -> MemoryDesc:
    """One for each index where the mask has a bit; channels innermost, as the library reads them."""
    dims = tuple(extent if mask >> dim & 1 else 1 for dim, extent in enumerate(dst.dims))
    letters = "abcdefghijkl"[: len(dims)]
    return MemoryDesc(dims, "f32", letters if len(dims) < 3 else f"a{letters[2:]}b")


def results(spec: Spec) -> tuple[str, ...]:
    """Names of the arguments that executing it writes.

    Example:
        >>> from blocklayout import dnnl
        >>> results(dnnl.softmax(dnnl.MemoryDesc((2, 3)), n_threads=1))
        ('dst',)
    """
    return tuple(filter(spec.has, direction_of(spec).results))
