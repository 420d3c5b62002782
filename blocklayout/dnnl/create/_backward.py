"""What primitive descriptors of gradients share: the forward one that they are derived from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.create._call import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.spec import Spec


def create_hint(spec: Spec, names: Mapping[str, str], create: Callable[[Call], Handle]) -> Handle:
    """The forward primitive descriptor a backward one is derived from.

    Args:
        spec: Of the gradient.
        names: The gradient's argument for each of the forward's; what the gradient has not is left out.
        create: The kind's own ``create``.
    """
    descs = tuple((name, spec.desc(given)) for name, given in names.items() if spec.has(given))
    return create(Call(spec.replace(descs=descs, prop_kind="forward_training", impl="")))
