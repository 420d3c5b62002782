"""Local response normalisation."""

from __future__ import annotations

from typing import Unpack

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, ForwardSettings, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_float, check_integer
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name
from blocklayout.dnnl.spec import Spec

_BLOCKED_SHARE = 0.11
"""Of the bandwidth."""


def lrn(
    src: Desc,
    dst: Desc | None = None,
    algorithm: str = "lrn_across_channels",
    local_size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    **settings: Unpack[ForwardSettings],
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
        **settings: ``prop_kind``, ``attr`` and ``n_threads``, as of all forward primitives.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> lrn(MemoryDesc((1, 64, 27, 27)), n_threads=1).algorithm
        'lrn_across_channels'
    """
    params = {"local_size": local_size, "alpha": alpha, "beta": beta, "k": k}
    spec = draft("lrn", {"src": src}, params, settings, algorithm=algorithm)
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
