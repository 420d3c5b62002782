"""What tests of faults share: a process in which calls of the C library fail, or end it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blocklayout import dnnl

SOURCE = Path(__file__).with_name("failing.c")
RunFailing = Callable[[str], str]


@pytest.fixture(scope="session")
def failing_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of ``failing.c``; skips where it cannot be made, or would see nothing."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("takes Linux, and a C compiler")
    if "LD_PRELOAD" in os.environ:
        pytest.skip("a library is preloaded, such as a sanitizer's, that has to come first")
    if not dnnl.has_native_executor():
        pytest.skip("no compiler built our own extension")
    path = tmp_path_factory.mktemp("failing") / "failing.so"
    options = ["-shared", "-fPIC", "-O1", "-fexceptions", "-fno-builtin"]
    command = [compiler, *options, str(SOURCE), "-o", str(path), "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"the C library is none that failing.c knows: {done.stderr.splitlines()[0]}")
    return path


@pytest.fixture
def run_failing(failing_library: Path, tree_environ: dict[str, str], tmp_path: Path) -> RunFailing:
    """Runs code in a process that has the library preloaded, in a folder of its own, and gives what it printed."""

    def run(code: str) -> str:
        environ = tree_environ | {"LD_PRELOAD": str(failing_library), "BLOCKLAYOUT_CACHE_DIR": str(tmp_path / "cache")}
        # -B: a compiled module whose writing fails would be left behind, cut short
        command = [sys.executable, "-B", "-W", "ignore", "-c", code]
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
