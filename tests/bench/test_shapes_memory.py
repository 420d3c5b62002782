"""The benchmark runs at its smallest size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no resident set to read on this platform")
def test_two_shapes(tree_environ: dict[str, str], tmp_path: Path) -> None:
    script = [str(ROOT / "bench" / "shapes_memory.py"), "--shapes", "2", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(
        [sys.executable, *script],
        check=False,
        capture_output=True,
        text=True,
        env=tree_environ,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    curves = json.loads((tmp_path / "out.json").read_text())["curves"]
    assert {name: [point["n_plans"] for point in curve] for name, curve in curves.items()} == {
        "8 plans": [1, 2],
        "2 plans": [1, 2],
    }
