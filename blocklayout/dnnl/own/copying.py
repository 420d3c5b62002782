"""Copies in steps of any sign, in C of our own beside the executor: the library's strides are never negative."""

from __future__ import annotations

from typing import NamedTuple

from blocklayout.dnnl.own import Implementation, OwnPrimitive, problem
from blocklayout.dnnl.primitive_desc import Resolved
from blocklayout.dnnl.spec import Spec

_COPIES_PER_NS = 1.0
"""Pieces without holes that a thread copies in a nanosecond, beside the traffic."""


class _Loop(NamedTuple):
    """How many elements, and bytes from one to the next; negative where the source is read backwards."""

    extent: int
    src: int
    dst: int


def offer(spec: Spec, impl: str) -> Resolved | None:
    """Takes any strides, and no blocks."""
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    if src.inner_blks or dst.inner_blks or 0 in src.dims:
        return None
    return Resolved(spec.settled(descs=spec.descs, impl=impl), 0)


def compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
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


def _create(spec: Spec) -> OwnPrimitive:
    nbytes, loops = _pieces(spec)
    extents, src, dst = zip(*loops, strict=True)
    fields = {
        "n_threads": spec.n_threads,
        "n_loops": len(loops),
        "extents": extents,
        "src": src,
        "dst": dst,
        "begin": sum(-loop.src * (loop.extent - 1) for loop in loops if loop.src < 0),
        "nbytes": nbytes,
    }
    return OwnPrimitive("bl_copying", problem("bl_copying_t", fields), ("src", "dst"))


OURS = Implementation(kinds=("reversal",), isas=(), offer=offer, create=_create, compute_ns=compute_ns)
