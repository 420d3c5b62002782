"""The machine and the versions that a measurement holds for."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import blocklayout
from blocklayout import dnnl
from blocklayout.dnnl.processor import cpu_name


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
