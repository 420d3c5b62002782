"""Local response normalisation."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_float, check_integer
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name
from blocklayout.dnnl.spec import Spec

_BLOCKED_SHARE = 0.11
"""Of the bandwidth."""


def lrn(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    dst: Desc | None = None,
    algorithm: str = "lrn_across_channels",
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``src / (k + alpha / n * sum(src ** 2)) ** beta``, the sum over n neighbours.

    Args:
        src: Extents (N, C) or (N, C, spatial...); must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        algorithm: ``across_channels`` (n = local_size) or ``within_channel`` (a window of local_size
            along each spatial dimension).
        local_size: Odd sizes are centred; of an even one the library and ONNX differ in the odd element out.
        alpha: Parameter of the algorithm.
        beta: Parameter of the algorithm.
        k: Added to the scaled sum.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> lrn(MemoryDesc((1, 64, 27, 27)), n_threads=1).algorithm
        'lrn_across_channels'
    """
    params = {"local_size": local_size, "alpha": alpha, "beta": beta, "k": k}
    spec = draft("lrn", {"src": src}, params, attr=attr, n_threads=n_threads, algorithm=algorithm, prop_kind=prop_kind)
    return finish(spec, dst, src.dims)


def _validate(spec: Spec) -> None:
    check_integer(spec, "local_size", 1)
    for name in ("alpha", "beta", "k"):
        check_float(spec, name)


KIND = Kind(
    directions={
        "forward": Direction(
            c_order="engine prop_kind algorithm src dst local_size alpha beta k attr",
            arguments=("src", "dst", "workspace"),
            results=("dst", "workspace"),
            optional=("workspace",),
            keeps_extents=True,
        )
    },
    validate=_validate,
    ranks=(2, 5),
    bandwidth_share=lambda spec: bandwidth_share_by_name(
        spec, others=_BLOCKED_SHARE if spec.memory_desc("dst").inner_blks else 1.0
    ),
)
