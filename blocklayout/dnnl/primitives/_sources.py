"""Primitives of any number of sources: ``src_0``, ``src_1``, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.primitives._rules import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec


def source_names(kind: str, srcs: Sequence[Desc]) -> dict[str, Desc]:
    """The sources by argument.

    Raises:
        InvalidArgumentsError: There is none, or they are no sequence of descriptors.
    """
    if not isinstance(srcs, list | tuple) or not srcs:
        raise invalid(kind, "srcs", f"is {type(srcs).__name__}; give a list of one descriptor or more")
    for index, src in enumerate(srcs):
        if src is None:
            raise invalid(kind, f"srcs[{index}]", "is None; give a MemoryDesc or an AnyDesc")
    return {f"src_{index}": src for index, src in enumerate(srcs)}


def sources(spec: Spec) -> tuple[str, ...]:
    """Names of the sources, which must count from 0.

    Raises:
        InvalidArgumentsError: There is none.
    """
    n_sources = 0
    while spec.has(f"src_{n_sources}"):
        n_sources += 1
    if n_sources == 0:
        raise invalid(spec.kind, "src_0", "is missing; it takes src_0, src_1, ... and dst")
    return tuple(f"src_{index}" for index in range(n_sources))
