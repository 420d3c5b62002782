"""Dynamic quantisation: numbers as bytes by a scale that is found among them; the library has no such primitive."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, Kind, draft, validate
from blocklayout.dnnl.primitives._checks import check_dims, check_dtype, check_no_attributes
from blocklayout.dnnl.spec import Spec

_DTYPES = {"src": "f32", "dst": "u8", "scale": "f32", "zero_point": "u8"}


def dynamic_quantization(
    src: Desc, dst: Desc, scale: Desc | None = None, zero_point: Desc | None = None, *, n_threads: int | None = None
) -> Spec:
    """The nearest bytes, of which the source's least and largest elements, and 0, are the ends; ONNX has the formula.

    Args:
        src: f32, in any dense layout without padding.
        dst: u8, in the source's layout.
        scale: One f32, a result; ``None`` where it is not asked for.
        zero_point: One u8, likewise.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> src = MemoryDesc((4, 16))
        >>> dynamic_quantization(src, src.with_dtype("u8"), n_threads=1).desc("dst").dtype
        'u8'
    """
    descs = {"src": src, "dst": dst, "scale": scale, "zero_point": zero_point}
    return validate(draft("dynamic_quantization", descs, n_threads=n_threads))


def _validate(spec: Spec) -> None:
    check_no_attributes(spec)
    for name, _ in spec.descs:
        check_dtype(spec, name, (_DTYPES[name],), "dynamic quantization")
        if name in _NUMBERS:
            check_dims(spec, name, (1,), "one number")


_NUMBERS = ("scale", "zero_point")
_ALL = ("src", "dst", *_NUMBERS)
KIND = Kind(
    directions={"": Direction("", _ALL, ("dst", *_NUMBERS), _NUMBERS, laid_out=_ALL, keeps_extents=True)},
    validate=_validate,
)
