"""The benchmark runs at its smallest size."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.bench.running import run_bench

PICTURE = ("--picture", "picture.svg") if find_spec("matplotlib") else ()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no resident set to read on this platform")
def test_two_shapes(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = ("--shapes", "2", "--json", str(path), *PICTURE)
    done = run_bench("shapes_memory.py", *arguments, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not PICTURE or "8 plans: resident set" in (tmp_path / "picture.svg").read_text()
    curves = json.loads(path.read_text())["curves"]
    assert {name: [point["n_plans"] for point in curve] for name, curve in curves.items()} == {
        "8 plans": [1, 2],
        "2 plans": [1, 2],
    }
