"""Benchmarks as their users run them: scripts with arguments, in a folder."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "bench"


def run_bench(name: str, *arguments: str, environ: dict[str, str], folder: Path) -> CompletedProcess[str]:
    """What ``python bench/NAME`` prints and returns, run in a folder by this process, which has imported much of it.

    Processes of its own that a benchmark starts are started.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")
        for variable, value in ({"COLUMNS": "200"} | environ).items():
            patch.setenv(variable, value)
        patch.chdir(folder)
        patch.setattr(sys, "argv", [str(SCRIPTS / name), *arguments])
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            status = status_of(name)
    return CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def status_of(name: str) -> int:
    """What a script's process would end with."""
    try:
        return int(import_module(f"bench.{Path(name).stem}").main())
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(ended.code)
            return 1
        return ended.code or 0
