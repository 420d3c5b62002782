"""What backward Specs are checked for alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dnnl.primitives._rules import draft, require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec


def backward_spec(
    kind: str,
    descs: Mapping[str, Desc | None],
    *,
    prop_kind: str,
    n_threads: int | None,
    algorithm: str = "",
    params: Mapping[str, Any] | None = None,
) -> Spec:
    """The checked Spec of a gradient.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.
    """
    spec = draft(
        kind, descs, attr=NO_ATTR, n_threads=n_threads, algorithm=algorithm, prop_kind=prop_kind, params=params
    )
    return spec.validate()


def check_no_attributes(spec: Spec) -> None:
    """Refuse post-ops, scales and zero points: gradients take none."""
    attr = spec.attr
    require(not (attr.post_ops or attr.scales or attr.zero_points), spec, "attr", "is given; gradients take none")
