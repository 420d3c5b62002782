"""Sum: several tensors of equal extents, each times a factor."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_dims, invalid, require, source_names
from blocklayout.dnnl.spec import Spec


def sum(  # noqa: A001 - oneDNN's name for it
    srcs: Sequence[Desc],
    dst: Desc | None = None,
    scales: Sequence[float] | None = None,
    *,
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``dst = scales[0] * srcs[0] + scales[1] * srcs[1] + ...``; its arguments are ``src_0``, ``src_1``, ...

    Args:
        srcs: Of equal extents, each with a layout.
        dst: ``None`` leaves the layout to the primitive.
        scales: One for each source; ``None`` is all ones.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> sum([MemoryDesc((2, 17))] * 3, n_threads=1).param("scales")
        (1.0, 1.0, 1.0)
    """
    descs = source_names("sum", srcs)
    factors = tuple(float(scale) for scale in (scales if scales is not None else [1.0] * len(descs)))
    spec = draft("sum", descs, {"scales": factors}, attr=attr, n_threads=n_threads)
    return finish(spec, dst, srcs[0].dims)


def _validate(spec: Spec) -> None:
    names = spec.counted_sources
    for name in (*names, "dst"):
        check_dims(spec, name, spec.desc("src_0").dims, "src_0")
    scales = spec.param("scales")
    if not isinstance(scales, tuple) or not all(type(scale) in (int, float) for scale in scales):
        raise invalid("sum", "scales", f"is {scales!r}; give a tuple of numbers")
    require(len(scales) == len(names), spec, "scales", f"has {len(scales)} entries; there are {len(names)} sources")


KIND = Kind(
    directions={"": Direction("engine dst n_srcs scales srcs attr", ("dst",))},
    validate=_validate,
    has_many_sources=True,
)
