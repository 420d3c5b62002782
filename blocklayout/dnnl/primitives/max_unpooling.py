"""Max unpooling: elements back to where max pooling found them; the library has no such primitive."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, Kind, draft, validate
from blocklayout.dnnl.primitives._checks import check_dims, check_dtype, require
from blocklayout.dnnl.primitives._windows import is_integers
from blocklayout.dnnl.spec import Spec

_ARGUMENTS = ("src", "indices", "dst")


def max_unpooling(
    src: Desc, indices: Desc, dst: Desc, numbered: Sequence[int] | None = None, *, n_threads: int | None = None
) -> Spec:
    """Zeros, and each element of the source where its index says.

    Args:
        src: Extents (N, C, spatial...); must have a layout, as the others.
        indices: s64, of the source's extents: numbers of the destination's elements. Running it refuses others.
        dst: Of the source's batch and channels.
        numbered: The extents by which indices count; the destination's by default, none larger.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> y, x = MemoryDesc((1, 16, 4, 4)), MemoryDesc((1, 16, 8, 8))
        >>> max_unpooling(y, y.with_dtype("s64"), x, n_threads=1).param("numbered")
        (1, 16, 8, 8)
    """
    params = {"numbered": tuple(getattr(dst, "dims", ()) if numbered is None else numbered)}
    return validate(draft("max_unpooling", {"src": src, "indices": indices, "dst": dst}, params, n_threads=n_threads))


def _validate(spec: Spec) -> None:
    src, dst = spec.desc("src"), spec.desc("dst")
    n_spatial = len(src.dims) - 2
    check_dims(spec, "indices", src.dims, "the source")
    check_dtype(spec, "indices", ("s64",), "max unpooling")
    check_dims(spec, "dst", (*src.dims[:2], *dst.dims[2:][:n_spatial]), "the source")
    check_dtype(spec, "dst", (src.dtype,), "max unpooling")
    numbered = spec.param("numbered")
    fits = is_integers(numbered, 2 + n_spatial) and all(0 < n <= d for n, d in zip(numbered, dst.dims, strict=True))
    require(fits, spec, "numbered", f"is {numbered!r}; give extents from 1 to the destination's {dst.dims}")


KIND = Kind(
    directions={"": Direction("", _ARGUMENTS, laid_out=_ARGUMENTS)},
    validate=_validate,
    ranks=(3, 5),
    other_dtypes=("s64",),
)
