"""The service behind Ray Serve, where Ray is installed."""

from __future__ import annotations

import importlib.util
import io
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blocklayout as bl

pytest.importorskip("ray.serve", reason="ray[serve] is not installed")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "ray_serve.py"
with socket.socket() as _free:
    _free.bind(("127.0.0.1", 0))
    PORT = _free.getsockname()[1]

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def scaling(path: Path, factor: float) -> str:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 4)) * np.float32(factor))
    bl.save(b, path)
    return str(path)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import ray
    from ray import serve

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLE.parent), str(EXAMPLE.parents[2])]))
    spec = importlib.util.spec_from_file_location("ray_serve", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"port": PORT})
    yield module
    serve.shutdown()
    ray.shutdown()


def post(body: bytes) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", body, timeout=60) as reply:
        content: bytes = reply.read()
    return content


def test_it_serves_and_its_model_can_be_replaced(example: Any, tmp_path: Path) -> None:
    from ray import serve

    file = io.BytesIO()
    np.save(file, np.ones((1, 4), np.float32))
    app = example.Model.options(user_config={"path": scaling(tmp_path / "a.onnx", 2)}).bind(str(tmp_path / "a.onnx"))
    handle = serve.run(app)
    assert np.load(io.BytesIO(post(file.getvalue())))[0, 0] == 2
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(b"no array")
    assert handle.predict.remote(np.full((1, 4), 3, np.float32)).result()[0][0, 0] == 6
    assert 'end="finished"} 2' in handle.metrics.remote().result()
    config = {"path": scaling(tmp_path / "b.onnx", 5)}
    serve.run(example.Model.options(user_config=config).bind(str(tmp_path / "a.onnx")))
    assert np.load(io.BytesIO(post(file.getvalue())))[0, 0] == 5
