"""The C parts as compilers see them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = sorted(Path(__file__).parents[2].joinpath("cdefs", "executor").glob("*.c"))
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wvla", "-Werror")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_warns_of_nothing(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    command = [compiler, "-std=c11", "-fPIC", "-fsyntax-only", *WARNINGS, *SOURCES]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
