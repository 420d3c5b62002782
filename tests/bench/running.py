"""Benchmarks as their users run them: scripts in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_bench(name: str, *arguments: str, environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``python bench/NAME`` printed and returned, run in a folder."""
    return subprocess.run(
        [sys.executable, str(ROOT / "bench" / name), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={"COLUMNS": "200"} | environ,
        cwd=folder,
        timeout=120,
    )
