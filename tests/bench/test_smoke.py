"""Benchmarks run at their smallest size; what they measure is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_policies(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    script = [str(ROOT / "bench" / "policies.py"), "--models", "digits", "--rounds", "1", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, *script, "--policies", "plain,per-op", "--isa", "avx2", "--threads", "1"],
        check=False,
        capture_output=True,
        text=True,
        env=tree_environ,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert [row["policy"] for row in result["policies"]] == ["auto", "plain", "per-op"]
    assert result["environment"]["isa"] in done.stdout
    if find_spec("onnxruntime"):
        assert all(row["error"] < 1e-5 for row in result["policies"])


def test_an_unknown_model_is_refused(tree_environ: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "policies.py"), "--models", "lenet"],
        check=False,
        capture_output=True,
        text=True,
        env=tree_environ,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 2
    assert "resnet50" in done.stderr
