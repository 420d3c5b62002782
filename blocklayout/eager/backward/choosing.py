"""Which way to compute a gradient: in the forward's format where that is optimised, else in the next best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.errors import UnimplementedError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable


def first_optimised(ways: Iterable[tuple[dnnl.Spec, ...]]) -> tuple[int, tuple[dnnl.Spec, ...]]:
    """The first way that takes no reference implementation, resolved, and its place among them.

    Args:
        ways: Specs that run one after the other, the best way first. Where all take references, the first is taken.

    Raises:
        UnsupportedError: oneDNN implements none of them here.
    """
    references: list[tuple[int, tuple[dnnl.Spec, ...]]] = []
    refusal = ""
    for place, specs in enumerate(ways):
        try:
            resolved = tuple(dnnl.resolve(spec).spec for spec in specs)
        except (UnimplementedError, UnsupportedError) as error:  # the latter where it has no such layout
            refusal = str(error)
            continue
        if not _share_workspace(resolved):
            continue
        if not any(dnnl.is_reference(spec.impl) for spec in resolved):
            return place, resolved
        references.append((place, resolved))
    if not references:
        raise UnsupportedError(refusal)
    return references[0]


def _share_workspace(specs: tuple[dnnl.Spec, ...]) -> bool:
    """Whether what one writes as its workspace is what the next reads."""
    return len({spec.desc("workspace") for spec in specs if spec.has("workspace")}) <= 1
