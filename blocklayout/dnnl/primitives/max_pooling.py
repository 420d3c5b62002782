"""Max pooling that keeps NaN and says where in the tensor each result was; the library has no such primitive."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_dims, check_dtype, require
from blocklayout.dnnl.primitives._windows import Ints, window_params
from blocklayout.dnnl.primitives.pooling import pooled_dims
from blocklayout.dnnl.spec import Spec

_NUMBERINGS = ("row_major", "column_major")


def max_pooling(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    dst: Desc | None = None,
    indices: Desc | None = None,
    kernel: Ints = 2,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    *,
    numbering: str = "row_major",
    n_threads: int | None = None,
) -> Spec:
    """The largest element of each window, or its first NaN.

    Args:
        src: Extents (N, C, spatial...); must have a layout.
        dst: ``None`` has the source's layout.
        indices: s64, of the destination's extents: the number of each result, the first of equal ones, among the
            source's elements. ``None`` is none.
        kernel: One integer, or one for each spatial dimension.
        strides: One integer, or one for each spatial dimension.
        pads: One integer, or ``(begin..., end...)``.
        dilations: Elements skipped between taps; 0 is dense (ONNX's 1).
        numbering: Of an image's elements: ``row_major`` or ``column_major``.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> max_pooling(MemoryDesc((1, 64, 112, 112)), None, None, 3, 2, 1, n_threads=1).desc("dst").dims
        (1, 64, 56, 56)
    """
    params = window_params("max_pooling", src, kernel=kernel, strides=strides, dilations=dilations, pads=pads)
    descs = {"src": src, "indices": indices}
    spec = draft("max_pooling", descs, params | {"numbering": numbering}, n_threads=n_threads)
    return finish(spec, dst, pooled_dims(spec))


def _validate(spec: Spec) -> None:
    dims = pooled_dims(spec)
    check_dims(spec, "dst", dims, "source, kernel, strides and pads")
    check_dtype(spec, "dst", (spec.desc("src").dtype,), "max pooling")
    if spec.has("indices"):
        check_dims(spec, "indices", dims, "the destination")
        check_dtype(spec, "indices", ("s64",), "max pooling")
    numbering = spec.param("numbering")
    require(numbering in _NUMBERINGS, spec, "numbering", f"is {numbering!r}; give {' or '.join(_NUMBERINGS)}")


KIND = Kind(
    directions={
        "": Direction("", ("src", "indices", "dst"), ("dst", "indices"), ("indices",), laid_out=("src", "indices"))
    },
    validate=_validate,
    other_dtypes=("s64",),
)
