"""Reversal: a tensor backwards; the library has no such primitive, nor negative strides."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, Kind, draft, validate
from blocklayout.dnnl.primitives._checks import check_dtype, check_no_attributes, require
from blocklayout.dnnl.primitives._windows import is_integers
from blocklayout.dnnl.spec import Spec


def reversal(src: Desc, dst: Desc, axes: Sequence[int], *, n_threads: int | None = None) -> Spec:
    """A copy in which elements follow each other backwards along some axes.

    Args:
        src: Any strides, without blocks.
        dst: Likewise, of the source's extents and data type.
        axes: Each once; at least one.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> reversal(MemoryDesc((4, 3)), MemoryDesc((4, 3), "f32", "ba"), (1,), n_threads=1).param("axes")
        (1,)
    """
    return validate(draft("reversal", {"src": src, "dst": dst}, {"axes": tuple(axes)}, n_threads=n_threads))


def _validate(spec: Spec) -> None:
    check_no_attributes(spec)
    src, axes = spec.desc("src"), spec.param("axes")
    check_dtype(spec, "dst", (src.dtype,), "reversal")
    fits = is_integers(axes, len(axes)) and len({*axes}) == len(axes) > 0 and {*axes} <= {*range(len(src.dims))}
    require(fits, spec, "axes", f"is {axes!r}; give some of {', '.join(map(str, range(len(src.dims))))}, each once")


KIND = Kind(directions={"": Direction("", laid_out=("src", "dst"), keeps_extents=True)}, validate=_validate)
