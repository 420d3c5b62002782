"""The machine and the versions that a measurement holds for."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import blocklayout
from blocklayout import dnnl
from blocklayout.dnnl.processor import cpu_name


def describe_environment(n_threads: int) -> dict[str, Any]:
    """CPU, instruction set, threads, versions and date, for JSON; an UnsupportedError where oneDNN cannot be used."""
    return {
        "cpu": cpu_name(),
        "isa": dnnl.isa(),
        "n_threads": n_threads,
        "blocklayout": blocklayout.__version__,
        "oneDNN": ".".join(map(str, dnnl.version())),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "platform": platform.platform(),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def command_text() -> str:
    """The command line of this process: ``blocklayout ...``, or ``python bench/NAME.py ...`` of a script."""
    program = Path(sys.argv[0])
    name = f"python {program.parent.name}/{program.name}" if program.suffix == ".py" else program.name
    return f"{'blocklayout' if program.name == '__main__.py' else name} {shlex.join(sys.argv[1:])}".rstrip()
