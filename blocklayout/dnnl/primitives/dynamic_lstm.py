"""LSTM whose state is quantised at each place, and multiplied by bytes; the library has no such primitive."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, Kind, draft, validate
from blocklayout.dnnl.primitives._checks import check_dims, check_dtype, check_no_attributes, require
from blocklayout.dnnl.spec import Spec

_DTYPES = {"weights_iter": "s8", "zero_point": "s32"}
"""Of all other arguments f32."""


def dynamic_lstm(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    weights_iter: Desc,
    scale: Desc,
    zero_point: Desc,
    src_iter: Desc,
    src_iter_c: Desc,
    dst: Desc,
    *,
    src_1: Desc | None = None,
    dst_iter: Desc | None = None,
    dst_iter_c: Desc | None = None,
    is_reverse: bool = False,
    n_threads: int | None = None,
) -> Spec:
    """States of an LSTM with sigmoid and tanh, of sums of its gates that the source and the bias make.

    At each place the state is brought to bytes as by ONNX's DynamicQuantizeLinear, and its product with bytes is added.

    Args:
        src: (T * N, 4 * C) in f32, of gates of input, output, forgetting and cell.
        weights_iter: (D, C, 4 * C) in s8, of D directions.
        scale: Of each column of these, (D, 4 * C).
        zero_point: Likewise, in s32.
        src_iter: The state before the first place, (D, N, C).
        src_iter_c: The cells' likewise.
        dst: The states, (T, D, N, C).
        src_1: As ``src``, of a second direction, which is backwards; ``None`` where there is one.
        dst_iter: The state behind the last place; ``None`` where it is not asked for.
        dst_iter_c: The cells' likewise.
        is_reverse: Whether the only direction is backwards.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> weights, vector = MemoryDesc((1, 8, 32), "s8", "aCB16b32c2b"), MemoryDesc((1, 32))
        >>> state, dst = MemoryDesc((1, 3, 8)), MemoryDesc((5, 1, 3, 8))
        >>> operands = (weights, vector, vector.with_dtype("s32"), state, state, dst)
        >>> dynamic_lstm(MemoryDesc((15, 32)), *operands, n_threads=1).desc("src").dims
        (15, 32)
    """
    given = src, src_1, weights_iter, scale, zero_point, src_iter, src_iter_c, dst, dst_iter, dst_iter_c
    descs = dict(zip(_ARGUMENTS, given, strict=True))
    return validate(draft("dynamic_lstm", descs, {"is_reverse": is_reverse}, n_threads=n_threads))


def _validate(spec: Spec) -> None:
    check_no_attributes(spec)
    for name, _ in spec.descs:
        check_dtype(spec, name, (_DTYPES.get(name, "f32"),), "it")
    state = spec.desc("src_iter").dims
    require(len(state) == 3, spec, "src_iter", f"has {len(state)} dimensions; give directions, sequences and channels")
    n_sides, batch, size = state
    n_places = spec.desc("src").dims[0] // max(batch, 1)
    require(n_sides == 1 + spec.has("src_1"), spec, "src_iter", f"is of {n_sides} directions; each has a source")
    require(isinstance(spec.param("is_reverse"), bool), spec, "is_reverse", "must be True or False")
    dims = {
        "weights_iter": (n_sides, size, 4 * size),
        "scale": (n_sides, 4 * size),
        "dst": (n_places, n_sides, batch, size),
    }
    dims |= dict.fromkeys(("src", "src_1"), (n_places * batch, 4 * size)) | {"zero_point": dims["scale"]}
    for name, _ in spec.descs:
        check_dims(spec, name, dims.get(name, state), "the state before the first place")


_RESULTS = ("dst", "dst_iter", "dst_iter_c")
_ARGUMENTS = ("src", "src_1", "weights_iter", "scale", "zero_point", "src_iter", "src_iter_c", *_RESULTS)
KIND = Kind(
    directions={"": Direction("", _ARGUMENTS, _RESULTS, ("src_1", *_RESULTS[1:]), laid_out=_ARGUMENTS)},
    validate=_validate,
)
