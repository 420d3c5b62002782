"""Copies in steps of any sign, or of several tensors in turn, in C of our own beside the executor.

The library's strides are never negative, and single elements in turn it has references for alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dnnl.own import Implementation
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_COPIES_PER_NS, _PAIRS_PER_NS = 1.0, 4.0
"""Pieces without holes that a thread copies in a nanosecond, beside the traffic; and those of two tensors in turn."""

_MAX_SRCS = 8
"""``BL_COPY_SRCS`` in C."""


class _Loop(NamedTuple):
    """How many elements, and bytes from one to the next; negative where the source is read backwards."""

    extent: int
    src: int
    dst: int

    @property
    def end(self) -> tuple[int, int]:
        """Bytes from its first element to behind its last one, in source and result."""
        return self.src * self.extent, self.dst * self.extent


def _sources(spec: Spec) -> tuple[str, ...]:
    return spec.counted_sources or ("src",)


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes any strides, and no blocks.

    Of a concatenation, tensors of one element along its axis that lie alike; the axis is the innermost of the result.
    """
    *srcs, dst = (spec.desc(name) for name in (*_sources(spec), "dst"))
    src, *others = srcs
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc) or any(each != src for each in others):
        return None
    if src.inner_blks or dst.inner_blks or 0 in src.dims:
        return None
    if spec.kind == "concat":
        axis = spec.param("axis")
        has_code = spec.attr == NO_ATTR and len(srcs) <= _MAX_SRCS and not (src.offset0 or dst.offset0)
        if not has_code or (src.dims[axis], dst.strides[axis]) != (1, 1):
            return None
    return dict(spec.descs)


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Pieces, one after the other."""
    del peak_flops
    nbytes, _ = _pieces(spec)
    srcs, dst = _sources(spec), spec.memory_desc("dst")
    per_ns = _PAIRS_PER_NS * n_threads if len(srcs) == 2 else _COPIES_PER_NS
    return dst.n_elements * dst.itemsize / nbytes / per_ns


def _pieces(spec: Spec) -> tuple[int, list[_Loop]]:
    """Bytes that are copied at once, and the loops around them, outermost first."""
    srcs, dst = _sources(spec), spec.memory_desc("dst")
    src, axes = spec.memory_desc(srcs[0]), spec.param("axes") if spec.kind == "reversal" else ()
    itemsize = src.itemsize
    loops = [
        _Loop(extent, itemsize * (-src.strides[axis] if axis in axes else src.strides[axis]), itemsize * step)
        for axis, (extent, step) in enumerate(zip(src.dims, dst.strides, strict=True))
        if extent > 1
    ]
    nbytes, found = itemsize, list[_Loop]()
    in_turn = len(srcs) > 1  # their rows stay rows, which threads share in the order in which they read
    for loop in sorted(loops, key=lambda loop: loop.src if in_turn else loop.dst):
        if not found and loop.src == loop.dst == nbytes:
            nbytes *= loop.extent
        elif len(found) > in_turn and (loop.src, loop.dst) == found[-1].end:
            found[-1] = found[-1]._replace(extent=found[-1].extent * loop.extent)
        else:
            found.append(loop)
    return nbytes, found[::-1] or [_Loop(1, 0, 0)]


def _fields(spec: Spec) -> Mapping[str, Any]:
    nbytes, loops = _pieces(spec)
    extents, src, dst = zip(*loops, strict=True)
    return {
        "n_threads": spec.n_threads,
        "n_srcs": len(_sources(spec)),
        "n_loops": len(loops),
        "extents": extents,
        "src": src,
        "dst": dst,
        "begin": sum(-loop.src * (loop.extent - 1) for loop in loops if loop.src < 0),
        "nbytes": nbytes,
    }


OURS = Implementation(
    kinds=("concat", "reversal"),
    isas=lambda _: (),
    offer=_offer,
    fields=_fields,
    arguments=lambda spec: ("dst", *_sources(spec), *("",) * (_MAX_SRCS - len(_sources(spec)))),
    compute_ns=_compute_ns,
    is_favourite=lambda _: True,
)
