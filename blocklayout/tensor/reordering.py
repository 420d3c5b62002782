"""Reorders: the same values in another layout or data type, by oneDNN where it can and by numpy where not."""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder, to_numpy
from blocklayout.errors import InputError, UnimplementedError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.packing import pack, unpack
from blocklayout.layout_events import is_watched, report
from blocklayout.recording import recorded
from blocklayout.resource_limits import check_nbytes, in_force
from blocklayout.tensor.conversion import convert
from blocklayout.tensor.formats import placed
from blocklayout.tensor.interop import as_memory
from blocklayout.tensor.tensor_class import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from blocklayout.dnnl import Primitive

_MAX_IDLE = 128
"""Reorders that are kept for the next time."""

_SMALL_NBYTES = 1 << 18  # read and written: below, a second thread costs more than it saves

_ONE_BY_ONE = "simple:any"
"""oneDNN's way with types that the CPU has no instructions for; 4096 elements of f32 to bf16 take it 0.3 ms."""


@recorded()
def reorder(source: ArrayLike | Tensor, layout: str | FormatTag | MemoryDesc, *, threads: int | None = None) -> Tensor:
    """Bring a tensor into another layout: bytes move, values stay.

    Args:
        source: A numpy array, anything with ``__dlpack__`` (a torch tensor), or a Tensor.
        layout: A memory format: ``contiguous_format``, ``channels_last``, a oneDNN tag of the source's rank or a
            FormatTag. Or a descriptor, which is taken as it is, strides and all; one of another data type converts,
            as :meth:`Tensor.astype` does.
        threads: Threads to use; by default as many as this process may use, and one for small tensors.

    Raises:
        LayoutError: No such layout for these extents.
        InputError: Not a tensor.
        UnsupportedError: oneDNN is not available here.

    Example:
        >>> x = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
        >>> t = reorder(x, "nChw8c")
        >>> t.shape, t.desc.nbytes, bool((t.numpy() == x).all())
        ((2, 17, 5, 4), 3840, True)
    """
    given: Any = threads
    if given is not None and (not isinstance(given, int) or given < 1):
        raise InputError(f"reorder: threads is {threads!r:.80}; give how many to use, or None")
    src, buffer = as_memory(source, "reorder")
    dst = layout if isinstance(layout, MemoryDesc) else placed(src, layout)
    return moved(src, buffer, dst, operator="reorder", threads=threads)


def moved(
    src: MemoryDesc,
    buffer: np.ndarray,
    dst: MemoryDesc,
    *,
    operator: str,
    inputs: tuple[MemoryDesc, ...] = (),
    reason: str = "",
    threads: int | None = None,
) -> Tensor:
    """A new Tensor as :func:`bytes_in` makes it, reported to watches as a move of ``operator``, of these inputs."""
    if not is_watched() or not dst.n_elements:
        return Tensor(dst, bytes_in(src, buffer, dst, threads))
    start = perf_counter_ns()
    made = bytes_in(src, buffer, dst, threads)
    ns = perf_counter_ns() - start
    reason = reason or f"{src.memory_format} was brought into {dst.memory_format}"
    report("reorder", operator, inputs or (src,), dst, nbytes=src.nbytes + dst.nbytes, ns=ns, reason=reason)
    return Tensor(dst, made)


def bytes_in(
    src: MemoryDesc, buffer: np.ndarray, dst: MemoryDesc, threads: int | None = None, *, is_kept: bool = True
) -> np.ndarray:
    """The values of a memory, bytes or an array in logical order, as bytes in another layout, padding zero.

    By default on the threads that this process may use, on one where there are few bytes. The primitive is kept for the
    next time if ``is_kept``. Nothing is reported.

    A DnnlError where the extents differ, a LimitError where the result is larger than is allowed, or than is left.
    """
    if dst.nbytes > _SMALL_NBYTES or in_force.get() is not None:
        check_nbytes(dst.nbytes, dst)
    is_native = has_reorder(src.dtype) and has_reorder(dst.dtype) and dst.n_elements
    if is_native or src.dims != dst.dims:
        is_small = src.nbytes + dst.nbytes <= _SMALL_NBYTES
        n_threads = threads or (1 if is_small else dnnl.default_threads())
        primitive = (_kept if is_kept else _primitive)(src, dst, n_threads)
        if primitive is not None:
            return primitive.run({"src": buffer})["dst"]
    return _by_numpy(src, buffer, dst)


def _primitive(src: MemoryDesc, dst: MemoryDesc, n_threads: int) -> Primitive | None:
    """The reorder; ``None`` where oneDNN has none."""
    spec = dnnl.reorder(src, dst, n_threads=n_threads)
    if not (dnnl.is_expressible(src) and dnnl.is_expressible(dst)):
        dnnl.version()  # refuses where there is no library at all
        return None
    try:
        primitive = dnnl.Primitive(spec if src.dtype == dst.dtype else dnnl.favourite(spec).spec)
    except UnimplementedError:
        return None
    return None if src.dtype != dst.dtype and primitive.spec.impl == _ONE_BY_ONE else primitive


_kept = lru_cache(maxsize=_MAX_IDLE)(_primitive)


def _by_numpy(src: MemoryDesc, buffer: np.ndarray, dst: MemoryDesc) -> np.ndarray:
    made = dnnl.aligned_empty(dst.nbytes)
    dtype = to_numpy(src.dtype)
    if src.placement == dst.placement and src.is_dense and buffer.flags.c_contiguous:
        made.view(to_numpy(dst.dtype))[:] = convert(buffer.reshape(-1).view(dtype), dst.dtype)  # padding stays zero
        return made
    is_array = buffer.shape == src.dims and buffer.dtype == dtype
    packed = pack(convert(buffer if is_array else unpack(buffer, src), dst.dtype), dst)
    made[:] = packed.view(np.uint8)
    return made
