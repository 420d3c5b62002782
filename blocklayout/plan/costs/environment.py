"""Validity of measured times: one library on one kind of CPU, measured in one way."""

from __future__ import annotations

from blocklayout import dnnl
from blocklayout.dnnl import library, processor

COST_FORMAT = 2
"""Goes up when times are taken in another way, so that old ones are not compared with new ones."""


def cost_environment() -> str:
    """All that times depend on and that a Spec does not say.

    Threads are part of a Spec. Which CPUs of the machine a process may use makes no difference.

    Raises:
        UnsupportedError: oneDNN cannot be used here.
    """
    caches = " ".join(f"L{cache.level}:{cache.nbytes >> 10}K" for cache in processor.data_caches())
    version = ".".join(map(str, dnnl.version()))
    runtime = "sequential" if library.is_sequential() else "OpenMP"
    parts = (
        f"format {COST_FORMAT}",
        f"oneDNN {version} {library.version_hash()} {runtime}",
        dnnl.isa(),
        processor.cpu_name(),
        caches or "caches unknown",
    )
    return "; ".join(parts)
