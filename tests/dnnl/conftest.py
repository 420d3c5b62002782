"""What tests of the C boundary share."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RunPython = Callable[..., str]
CompileLibrary = Callable[..., Path]


@pytest.fixture
def run_python(tree_environ: dict[str, str], tmp_path: Path) -> RunPython:
    """Runs code in a process of its own, and gives what it printed."""

    def run(code: str, **environ: str) -> str:
        command = [sys.executable, "-W", "error", "-c", code]
        done = subprocess.run(
            command, env=tree_environ | environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def compile_library(tmp_path: Path) -> CompileLibrary:
    """Compiles a shared library from C."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")

    def compile_it(source: str, name: str, *options: str) -> Path:
        path = tmp_path / name
        code = tmp_path / f"{name}.c"
        code.write_text(source, encoding="ascii")
        subprocess.run([gcc, "-shared", "-fPIC", "-o", path, code, *options], check=True, timeout=60)
        return path

    return compile_it
