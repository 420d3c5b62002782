"""PReLU: a leaky ReLU whose slopes are a tensor."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_broadcast
from blocklayout.dnnl.spec import Spec


def prelu(
    src: Desc,
    weights: Desc,
    dst: Desc | None = None,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``src`` where it is positive, ``src * weights`` elsewhere.

    Args:
        src: Up to five dimensions; must have a layout.
        weights: Each extent the source's, or 1.
        dst: The same extents as the source; ``None`` has its layout.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout import dnnl
        >>> from blocklayout.layout import MemoryDesc
        >>> prelu(MemoryDesc((1, 17, 4, 4)), dnnl.AnyDesc((1, 17, 1, 1), "f32"), n_threads=1).desc("dst").dims
        (1, 17, 4, 4)
    """
    descs = {"src": src, "weights": weights}
    spec = draft("prelu", descs, attr=attr, n_threads=n_threads, prop_kind=prop_kind)
    return finish(spec, dst, src.dims)


def _validate(spec: Spec) -> None:
    src, weights = spec.desc("src").dims, spec.desc("weights").dims
    check_broadcast(spec, "weights", weights, src, "source")


KIND = Kind(
    directions={
        "forward": Direction("engine prop_kind src weights dst attr", ("src", "weights", "dst"), keeps_extents=True)
    },
    validate=_validate,
    ranks=(1, 5),
)
