"""Eltwise: a function of each element, and its gradient."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, check_eltwise
from blocklayout.dnnl.enums import full_algorithm
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_descs, check_dims, check_float, check_no_attributes, require
from blocklayout.dnnl.spec import Spec

_ONE_SIGN = ("eltwise_relu_use_dst_for_bwd", "eltwise_elu_use_dst_for_bwd")


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

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> eltwise(MemoryDesc((2, 17, 4, 4)), algorithm="clip", beta=6, n_threads=1).algorithm
        'eltwise_clip'
    """
    params = {"alpha": alpha, "beta": beta}
    spec = draft(
        "eltwise", {"src": src}, params, attr=attr, n_threads=n_threads, algorithm=algorithm, prop_kind=prop_kind
    )
    return finish(spec, dst, src.dims)


def eltwise_backward(
    data: Desc,
    diff_dst: Desc,
    diff_src: Desc | None = None,
    algorithm: str = "",
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    n_threads: int | None = None,
) -> Spec:
    """The gradient of an eltwise's source, from that of its destination and one of the two.

    Args:
        data: The forward's ``src``; its ``dst`` for the algorithms that end in ``use_dst_for_bwd``, and then that is
            the argument's name. Must have a layout.
        diff_dst: The same extents; must have a layout.
        diff_src: The same extents; ``None`` leaves the layout to the primitive.
        algorithm: As for :func:`blocklayout.dnnl.eltwise`; ``round`` has no gradient.
        alpha: Parameter of the algorithm.
        beta: Parameter of the algorithm.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> x = MemoryDesc((2, 17, 4, 4))
        >>> [name for name, _ in eltwise_backward(x, x, x, "tanh_use_dst_for_bwd", n_threads=1).descs]
        ['dst', 'diff_dst', 'diff_src']
    """
    descs = {_data_name(full_algorithm("eltwise", algorithm)): data, "diff_dst": diff_dst}
    params = {"alpha": alpha, "beta": beta}
    spec = draft("eltwise", descs, params, prop_kind="backward_data", n_threads=n_threads, algorithm=algorithm)
    return finish(spec, diff_src, data.dims, name="diff_src")


def _data_name(algorithm: str) -> str:
    """The argument that the gradient is computed from: ``src``, or ``dst`` for the algorithms that say so."""
    return "dst" if algorithm.endswith("_use_dst_for_bwd") else "src"


def _validate(spec: Spec) -> None:
    for name in ("alpha", "beta"):
        value = spec.param(name)
        require(type(value) in (int, float), spec, name, f"is {value!r}; give a number")
    check_eltwise(spec.algorithm, spec.param("alpha"), spec.param("beta"))


def _validate_backward(spec: Spec) -> None:
    require(spec.algorithm != "eltwise_round", spec, "algorithm", "eltwise_round is flat; it has no gradient")
    data = _data_name(spec.algorithm)
    check_descs(spec, (data, "diff_dst", "diff_src"))
    check_no_attributes(spec)
    for name in ("diff_dst", "diff_src"):
        check_dims(spec, name, spec.desc(data).dims, data)
    alpha, beta = check_float(spec, "alpha"), check_float(spec, "beta")
    check_eltwise(spec.algorithm, alpha, beta)
    rule = f"is {alpha}; only with at least 0 does the result tell the sign of the source"
    require(spec.algorithm not in _ONE_SIGN or alpha >= 0, spec, "alpha", rule)


KIND = Kind(
    directions={
        "forward": Direction("engine prop_kind algorithm src dst alpha beta attr", keeps_extents=True),
        "backward": Direction(
            c_order="engine algorithm diff_src diff_dst src|dst alpha beta hint attr",
            arguments=("src", "dst", "diff_dst", "diff_src"),
            results=("diff_src",),
            optional=("src", "dst"),
            laid_out=("src", "dst", "diff_dst"),
            hint={"src": "src|dst", "dst": "src|dst"},
            prop_kinds=("backward_data",),
            validate=_validate_backward,
        ),
    },
    validate=_validate,
    post_ops=(Binary,),
)
