"""Max pooling that keeps NaN and finds where results were, and the way back, in C of our own beside the executor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from msgspec import Struct

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import LANES, Implementation, lanes_of
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_MAX_REACH, _MAX_STRIDE = 512, 8
"""Of windows along a row that vectors of code are for."""

_MAX_NUMBER = 2**31 - 1
"""Elements of an image are counted in 32 bits."""

_TAPS_PER_NS, _ROW_NS = 6.0, 45.0
"""Elements of windows that a thread looks at in a nanosecond, and the time of a row of results of its own."""


class _Lines(Struct, frozen=True):
    """How the elements that are computed side by side lie.

    Attributes:
        along: ``channels``, ``images`` or ``columns``, the last spatial dimension.
        n_outer: Images; channels where lines are of images.
        n_groups: Groups of lanes in each: blocks of channels, or channels where lines are of columns.
        lanes: Of a group; 1 where lines are of columns, as a whole row of results is one task.
        last: Of the last group.
        padded: With the zeros behind it.
    """

    along: str
    n_outer: int
    n_groups: int
    lanes: int
    last: int
    padded: int

    @classmethod
    def common(cls, image: MemoryDesc, descs: Iterable[MemoryDesc]) -> _Lines | None:
        """The lines of an image that all of these have, too; ``None`` where there is no code for them.

        An image of one pixel lies alike in several layouts, and results of more pixels in one of them; all plain ones
        have columns.
        """
        lines = cls.of(image)
        if lines is None or all(map(lines.are_of, descs)):
            return lines
        columns = cls("columns", image.dims[0], image.dims[1], 1, 1, 1)
        return columns if prod(image.dims[2:]) == 1 and all(map(columns.are_of, descs)) else None

    @classmethod
    def of(cls, desc: MemoryDesc) -> _Lines | None:
        """The lines of a layout; ``None`` where there is no code for it."""
        n, c = desc.dims[:2]
        if desc.inner_blks:
            (block, *others), n_blocks = desc.inner_blks, -(-c // desc.inner_blks[0])
            is_usual = (
                not others and desc.inner_idxs == (1,) and desc.padded_dims == (n, n_blocks * block, *desc.dims[2:])
            )
            return cls("channels", n, n_blocks, block, c - (n_blocks - 1) * block, block) if is_usual else None
        if desc.padded_dims != desc.dims:
            return None
        if desc.strides[1] == 1 < c:
            return cls("channels", n, 1, c, c, c)
        if desc.strides[0] == 1 < n:
            return cls("images", c, 1, n, n, n)
        return cls("columns", n, c, 1, 1, 1)

    def are_of(self, desc: MemoryDesc) -> bool:
        """Whether another tensor's lines are the same but for the extents of windows."""
        if self.along == "columns":
            return not desc.inner_blks and desc.padded_dims == desc.dims
        if self.along == "images":
            return not desc.inner_blks and desc.padded_dims == desc.dims and desc.strides[0] == 1
        return _Lines.of(desc) == self

    def places(self, desc: MemoryDesc) -> dict[str, Any]:
        """Distances between elements of a tensor, by dimension of the problem in C."""
        image, channel, *spatial = desc.strides  # of blocks, where there are some
        place = {"spatial": _three(spatial, 0), "outer": image, "group": channel, "lane": 1}
        if self.along == "images":
            return place | {"outer": channel, "group": 0}
        if self.along == "columns":
            return place | {"lane": spatial[-1]}
        return place

    def numbers(self, dims: Sequence[int], numbering: str) -> dict[str, Any]:
        """The same of elements' numbers; a column's is its image's, of this channel."""
        _, channels, *spatial = dims
        plane, n = prod(spatial), range(len(spatial))
        steps = [prod(spatial[:i] if numbering == "column_major" else spatial[i + 1 :]) for i in n]
        number = {"spatial": _three(steps, 0), "outer": channels * plane, "group": self.lanes * plane, "lane": plane}
        if self.along == "images":
            return number | {"outer": plane, "group": 0, "lane": channels * plane}
        if self.along == "columns":
            return number | {"group": plane, "lane": 0}
        return number


def _three(values: Sequence[int], fill: int) -> list[int]:
    """As many as images of three dimensions have."""
    return [fill] * (3 - len(values)) + list(values)


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32 and bf16 in any order of dimensions, and in blocks of channels."""
    src, dst = spec.desc("src"), spec.desc("dst")
    if src.dtype not in ("f32", "bf16") or not isinstance(src, MemoryDesc):
        return None
    if not isinstance(dst, MemoryDesc):
        dst = src.resized(dst.dims)
    descs = {name: dst if name == "dst" else desc for name, desc in spec.descs}
    found = [desc for desc in descs.values() if isinstance(desc, MemoryDesc)]
    image = src if spec.kind == "max_pooling" else dst
    if _Lines.common(image, found) is None or prod(image.dims[2:]) > _MAX_NUMBER:
        return None
    if any(0 in desc.dims for desc in found) or (spec.kind == "max_unpooling" and not dst.is_dense):
        return None
    return descs


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Comparisons, one for each element of each window."""
    del peak_flops
    src, dims = spec.memory_desc("src"), spec.desc("dst").dims
    if spec.kind == "max_unpooling":
        return src.n_elements / n_threads
    lines = _Lines.of(src)
    rows_ns = _ROW_NS * prod(dims[:-1]) if lines and lines.along == "columns" else 0.0
    n_taps: int = prod(spec.param("kernel")) * prod(dims)
    return (n_taps / _TAPS_PER_NS + rows_ns) / n_threads


def _pooling(spec: Spec, lines: _Lines) -> dict[str, Any]:
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    n_spatial = src.ndims - 2
    is_across = lines.along != "columns"
    return {
        "lanes_at_once": _at_once(spec, lines),
        "is_across": is_across,
        "padded_lanes": lines.padded,
        "extents": _three(src.dims[2:], 1),
        "results": _three(dst.dims[2:], 1),
        "kernel": _three(spec.param("kernel"), 1),
        "strides": _three(spec.param("strides"), 1),
        "dilations": _three([each + 1 for each in spec.param("dilations")], 1),
        "pads": _three(spec.param("pads")[:n_spatial], 0),
        "number": lines.numbers(src.dims, spec.param("numbering")),
        "scanned": lines.numbers(src.dims, "row_major")["spatial"],
        "is_row_major": spec.param("numbering") == "row_major",
    }


def _at_once(spec: Spec, lines: _Lines) -> int:
    """Floats in a vector: no more than a line has, of results or of the source that is folded to them; or 1."""
    src, stride, tap = spec.memory_desc("src"), spec.param("strides")[-1], spec.param("dilations")[-1] + 1
    room = lines.padded
    if lines.along == "columns":
        is_usual = src.strides[-1] == 1 and spec.param("kernel")[-1] * tap <= _MAX_REACH and stride <= _MAX_STRIDE
        room = src.dims[-1] if is_usual else 1
    most = min(room, lanes_of(spec.impl))
    return max((n_lanes for n_lanes in LANES.values() if n_lanes <= most), default=1)


def _unpooling(spec: Spec, lines: _Lines) -> dict[str, Any]:
    src, dst, numbered = spec.memory_desc("src"), spec.memory_desc("dst"), spec.param("numbered")
    extents, to_dst = _three(src.dims[2:], 1), lines.places(dst)
    columns = {}
    if lines.along == "columns":
        extents[-1], to_dst["lane"] = 1, 0
        columns = dict.fromkeys(("lanes", "last_lanes"), src.dims[-1])
    return {
        "extents": extents,
        "numbered": [*numbered[:2], *_three(numbered[2:], 1)],
        "number": lines.numbers(numbered, "row_major"),
        "dst": to_dst,
        "image": dst.strides[0],
        "group": dst.strides[1],
        "in_group": dst.inner_blks[0] if dst.inner_blks else 1,
        "channel": 1,
        "nbytes": dst.nbytes,
        **columns,
    }


_PROBLEMS = {"max_pooling": _pooling, "max_unpooling": _unpooling}


def _fields(spec: Spec) -> Mapping[str, Any]:
    src = spec.memory_desc("src")
    image = src if spec.kind == "max_pooling" else spec.memory_desc("dst")
    lines = _Lines.common(image, [spec.memory_desc(name) for name, _ in spec.descs])
    if lines is None:
        raise TypeError(f"{spec} was not settled here")
    return {
        "itemsize": src.itemsize,
        "n_threads": spec.n_threads,
        "n_outer": lines.n_outer,
        "n_groups": lines.n_groups,
        "lanes": lines.lanes,
        "last_lanes": lines.last,
        **{name: lines.places(spec.memory_desc(name)) for name, _ in spec.descs},
        **_PROBLEMS[spec.kind](spec, lines),
    }


OURS = Implementation(
    kinds=tuple(_PROBLEMS),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "indices", "dst"),
    function=lambda spec: f"bl_{spec.kind}",
    compute_ns=_compute_ns,
    rule="indices holds a number that no element of the result has",
)
