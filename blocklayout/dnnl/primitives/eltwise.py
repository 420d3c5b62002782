"""Eltwise: a function of each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import NO_ATTR, Attr, check_eltwise
from blocklayout.dnnl.primitives._rules import (
    FORWARD,
    check_algorithm,
    check_concrete,
    check_descs,
    check_dims,
    draft,
    finish,
    require,
)

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec

ARGUMENTS = ("src", "dst", "diff_dst", "diff_src")


def eltwise(
    src: Desc,
    dst: Desc | None = None,
    algorithm: str = "",
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """A function of each element.

    Args:
        src: Must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        algorithm: ``relu`` (slope alpha below 0), ``clip`` (from alpha to beta), ``linear``
            (alpha * x + beta), ``pow`` (alpha * x ** beta), ``soft_relu`` (log(1 + exp(alpha * x)) / alpha),
            ``hardsigmoid`` and ``hardswish`` (clip(alpha * x + beta, 0, 1), times x), ``swish``
            (x / (1 + exp(-alpha * x))), ``elu`` (alpha * (exp(x) - 1) below 0), ``logistic``, ``tanh``, ...
        alpha: Parameter of the algorithm.
        beta: Parameter of the algorithm.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> eltwise(MemoryDesc((2, 17, 4, 4)), algorithm="clip", beta=6, n_threads=1).algorithm
        'eltwise_clip'
    """
    params = {"alpha": alpha, "beta": beta}
    spec = draft(
        "eltwise",
        {"src": src},
        attr=attr,
        n_threads=n_threads,
        algorithm=algorithm,
        prop_kind=prop_kind,
        params=params,
    )
    return finish(spec, dst, src.dims)


def validate(spec: Spec) -> None:
    """Check an eltwise.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    if spec.prop_kind not in FORWARD:
        from blocklayout.dnnl.backward.eltwise import validate as validate_backward

        validate_backward(spec)
        return
    check_descs(spec, ("src", "dst"))
    check_algorithm(spec)
    check_concrete(spec, "src")
    check_dims(spec, "dst", spec.desc("src").dims, "the source")
    for name in ("alpha", "beta"):
        value = spec.param(name)
        require(type(value) in (int, float), spec, name, f"is {value!r}; give a number")
    check_eltwise(spec.algorithm, spec.param("alpha"), spec.param("beta"))
