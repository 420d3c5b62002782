"""The machine and the versions that a measurement holds for."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import blocklayout
from blocklayout import dnnl


def describe_environment(n_threads: int) -> dict[str, Any]:
    """CPU, instruction set, threads and versions, for JSON.

    Raises:
        UnsupportedError: oneDNN cannot be used here.
    """
    return {
        "cpu": cpu_name(),
        "isa": dnnl.isa(),
        "n_threads": n_threads,
        "blocklayout": blocklayout.__version__,
        "oneDNN": ".".join(map(str, dnnl.version())),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "platform": platform.platform(),
    }


def cpu_name() -> str:
    """The CPU's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
