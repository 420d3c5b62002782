"""Copies in steps of any sign, in C of our own beside the executor: the library's strides are never negative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import Implementation
from blocklayout.dnnl.spec import Spec

_COPIES_PER_NS = 1.0
"""Pieces without holes that a thread copies in a nanosecond, beside the traffic."""


class _Loop(NamedTuple):
    """How many elements, and bytes from one to the next; negative where the source is read backwards."""

    extent: int
    src: int
    dst: int


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes any strides, and no blocks."""
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    return None if src.inner_blks or dst.inner_blks or 0 in src.dims else dict(spec.descs)


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Pieces, one after the other."""
    del peak_flops, n_threads
    nbytes, _ = _pieces(spec)
    src = spec.memory_desc("src")
    return src.n_elements * src.itemsize / nbytes / _COPIES_PER_NS


def _pieces(spec: Spec) -> tuple[int, list[_Loop]]:
    """Bytes that are copied at once, and the loops around them, outermost first."""
    src, dst, axes = spec.memory_desc("src"), spec.memory_desc("dst"), spec.param("axes")
    itemsize = src.itemsize
    loops = [
        _Loop(extent, itemsize * (-src.strides[axis] if axis in axes else src.strides[axis]), itemsize * step)
        for axis, (extent, step) in enumerate(zip(src.dims, dst.strides, strict=True))
        if extent > 1
    ]
    nbytes, found = itemsize, list[_Loop]()
    for loop in sorted(loops, key=lambda loop: loop.dst):
        if not found and loop.src == loop.dst == nbytes:
            nbytes *= loop.extent
        elif found and (loop.src, loop.dst) == (found[-1].src * found[-1].extent, found[-1].dst * found[-1].extent):
            found[-1] = found[-1]._replace(extent=found[-1].extent * loop.extent)
        else:
            found.append(loop)
    return nbytes, found[::-1] or [_Loop(1, 0, 0)]


def _fields(spec: Spec) -> Mapping[str, Any]:
    nbytes, loops = _pieces(spec)
    extents, src, dst = zip(*loops, strict=True)
    return {
        "n_threads": spec.n_threads,
        "n_loops": len(loops),
        "extents": extents,
        "src": src,
        "dst": dst,
        "begin": sum(-loop.src * (loop.extent - 1) for loop in loops if loop.src < 0),
        "nbytes": nbytes,
    }


OURS = Implementation(
    kinds=("reversal",),
    isas=lambda _: (),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "dst"),
    compute_ns=_compute_ns,
)
