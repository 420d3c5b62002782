"""Epsilon and flags of the normalisations."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from blocklayout.dnnl.primitives import Direction
from blocklayout.dnnl.primitives._checks import check_float, invalid, require
from blocklayout.dnnl.spec import Spec

VECTORS = ("mean", "variance", "scale", "shift")
FLAGS = ("use_global_stats", "use_scale", "use_shift", "fuse_norm_relu")


def flag_names(kind: str, flags: str | Iterable[str]) -> tuple[str, ...]:
    """Flags in the library's order, from their names or a text that joins them by ``|``; unknown ones are refused.

    Example:
        >>> flag_names("batch_normalization", "use_shift | use_scale")
        ('use_scale', 'use_shift')
    """
    given = [flag.strip() for flag in flags.split("|") if flag.strip()] if isinstance(flags, str) else list(flags)
    for flag in given:
        if flag not in FLAGS:
            raise invalid(kind, "flags", f"has {flag!r}; give names among {', '.join(FLAGS)}")
    return tuple(flag for flag in FLAGS if flag in given)


def check_normalization(spec: Spec) -> tuple[str, ...]:
    """Refuse an epsilon or flags that mean nothing; the flags."""
    require(check_float(spec, "epsilon") >= 0, spec, "epsilon", f"is {spec.param('epsilon')}; give at least 0")
    flags = spec.param("flags")
    require(isinstance(flags, tuple), spec, "flags", f"is {flags!r}; give a tuple of names")
    right = flag_names(spec.kind, flags)
    require(flags == right, spec, "flags", f"is {flags}; in order and once each that is {right}")
    return right


def adjusted_by_flags(spec: Spec, direction: Direction) -> Direction:
    """The arguments and results that flags leave; a primitive descriptor may list the others all the same."""
    flags = spec.param("flags")
    absent = {name for name in ("scale", "shift") if f"use_{name}" not in flags}
    absent |= {f"diff_{name}" for name in absent}
    statistics = {"mean", "variance"}
    if spec.prop_kind == "forward_inference" and "use_global_stats" not in flags:
        absent |= statistics
    read = statistics if "use_global_stats" in flags else set[str]()
    return replace(
        direction,
        arguments=tuple(name for name in direction.arguments if name not in absent),
        results=tuple(name for name in direction.results if name not in absent | read),
    )
