"""The gradient of a function of each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.algorithms import full_algorithm
from blocklayout.dnnl.any_desc import AnyDesc
from blocklayout.dnnl.attr import check_eltwise
from blocklayout.dnnl.backward._rules import backward_spec, check_no_attributes
from blocklayout.dnnl.primitives._rules import (
    check_algorithm,
    check_choice,
    check_concrete,
    check_descs,
    check_dims,
    check_float,
    require,
)

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec

_USES_DST = "_use_dst_for_bwd"
_ONE_SIGN = ("eltwise_relu_use_dst_for_bwd", "eltwise_elu_use_dst_for_bwd")


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

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> x = MemoryDesc((2, 17, 4, 4))
        >>> [name for name, _ in eltwise_backward(x, x, x, "tanh_use_dst_for_bwd", n_threads=1).descs]
        ['dst', 'diff_dst', 'diff_src']
    """
    name = data_name(full_algorithm("eltwise", algorithm))
    if diff_src is None and hasattr(data, "dims"):
        diff_src = AnyDesc(data.dims, data.dtype)
    descs = {name: data, "diff_dst": diff_dst, "diff_src": diff_src}
    return backward_spec(
        "eltwise",
        descs,
        prop_kind="backward_data",
        n_threads=n_threads,
        algorithm=algorithm,
        params={"alpha": alpha, "beta": beta},
    )


def data_name(algorithm: str) -> str:
    """The argument that the gradient is computed from: ``src``, or ``dst`` for the algorithms that say so.

    Example:
        >>> data_name("eltwise_tanh"), data_name("eltwise_tanh_use_dst_for_bwd")
        ('src', 'dst')
    """
    return "dst" if algorithm.endswith(_USES_DST) else "src"


def validate(spec: Spec) -> None:
    """Check the gradient of an eltwise.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    check_choice(spec, "prop_kind", spec.prop_kind, ("backward_data",))
    check_algorithm(spec)
    require(spec.algorithm != "eltwise_round", spec, "algorithm", "eltwise_round is flat; it has no gradient")
    data = data_name(spec.algorithm)
    check_descs(spec, (data, "diff_dst", "diff_src"))
    check_concrete(spec, data, "diff_dst")
    check_no_attributes(spec)
    for name in ("diff_dst", "diff_src"):
        check_dims(spec, name, spec.desc(data).dims, data)
    alpha, beta = check_float(spec, "alpha"), check_float(spec, "beta")
    check_eltwise(spec.algorithm, alpha, beta)
    rule = f"is {alpha}; only with at least 0 does the result tell the sign of the source"
    require(spec.algorithm not in _ONE_SIGN or alpha >= 0, spec, "alpha", rule)
