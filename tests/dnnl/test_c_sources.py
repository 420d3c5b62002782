"""The C parts as compilers see them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(map(str, ROOT.joinpath("cdefs", "executor").glob("*.c")))
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wvla", "-Werror")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_warns_of_nothing_and_the_team_serves_what_it_makes(
    compiler: str, tmp_path: Path, run_python: Callable[..., str]
) -> None:
    """Of pragmas each would make calls of its own runtime."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    [extension] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    made = tmp_path / "made.so"
    options = [*extension["extra-compile-args"], "-std=c11", "-O0", "-fPIC", "-shared", *WARNINGS]
    command = [compiler, *options, *SOURCES, "-o", made, *extension["extra-link-args"]]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    if not sys.platform.startswith("linux"):
        pytest.skip("teams are there on Linux only")
    code = f"""
import ctypes
made = ctypes.CDLL({str(made)!r})
made.bl_serve.restype = ctypes.c_char_p
print(made.bl_serve(made.bl_run, 2))
"""
    assert run_python(code) == "None"
