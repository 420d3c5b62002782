"""The first section of docs/how-to/serve.md is run as it stands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import blocklayout as bl

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from tests.http.running import PATIENCE_S, port_of, scaling, started
from tests.structure.fences import blocks
from tests.structure.tree import ROOT


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_server_in_one_command(tree_environ: dict[str, str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    section = page.split("## A server in one command")[1].split("\n## ")[0]
    starting, asking, answer, others, _ = [block.text for block in blocks("docs/how-to/serve.md", section)]
    bl.save(scaling(2), tmp_path / "model.onnx")
    [install, command] = starting.splitlines()
    assert install == "pip install 'blocklayout[serve]'"
    arguments = command.removeprefix("blocklayout serve ").replace("--port 8000", "--port 0 --tune model").split()
    with started(arguments, tree_environ, tmp_path) as (process, lines):

        def shell(text: str) -> list[str]:
            text = text.replace("localhost:8000", f"127.0.0.1:{port_of(lines)}")
            done = subprocess.run(
                ["bash", "-c", text], check=True, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ
            )
            return done.stdout.splitlines()

        assert shell(asking) == answer.splitlines()
        said = [shell(line) for line in others.splitlines()]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert json.loads(said[0][0]) == {"ready": True}
    assert json.loads(said[1][0])["inputs"][0]["shape"] == [1, 3, 224, 224]
    assert any(line.startswith('blocklayout_requests_total{end="finished",model="model"} 1') for line in said[2])
    assert said[3] == ["{}"]


def test_the_command_without_its_extra(tree_environ: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pydantic_settings'] = None\n"
        "from blocklayout.cli import main\nsys.exit(main(['serve', 'model.onnx']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=tree_environ, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "serve needs more packages: pip install 'blocklayout[serve]'" in done.stderr
