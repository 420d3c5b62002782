"""The service behind FastAPI: tensors in and out, and the right status for what goes wrong."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

import blocklayout as bl
from tests import gates

pytest.importorskip("fastapi", reason="fastapi is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "fastapi_server.py"
IMAGE = np.ones(gates.SHAPE, np.float32)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("fastapi_server", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Client:
    """Callers of an ASGI application, from any thread, while its loop runs in another."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._lifespan = self._app.router.lifespan_context(self._app)
        self._result(self._lifespan.__aenter__())
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://test", timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._result(self._http.aclose())
        self._result(self._lifespan.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def get(self, url: str) -> Any:
        return self._result(self._http.get(url))

    def post(self, url: str, **options: Any) -> Any:
        return self._result(self._http.post(url, **options))

    def _result(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


@pytest.fixture
def server() -> Any:
    return example()


@pytest.fixture
def client(server: Any) -> Iterator[Client]:
    with Client(server.create_app(gates.gated(), threads=1, max_waiting=1)) as client:
        yield client


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def post(client: Client, array: np.ndarray) -> Any:
    return client.post("/predict", content=npy(array), headers={"Content-Type": "application/x-npy"})


def expected() -> np.ndarray:
    answer: np.ndarray = bl.load(gates.gated(), threads=1)(IMAGE)
    return answer


def test_tensors_as_numpy_saves_them(client: Client) -> None:
    reply = post(client, IMAGE)
    assert reply.status_code == 200, reply.text
    np.testing.assert_allclose(np.load(io.BytesIO(reply.content)), expected(), rtol=1e-5, atol=1e-5)


def test_tensors_as_lists(client: Client) -> None:
    reply = client.post("/predict", json={"inputs": {"x": IMAGE.tolist()}, "deadline": 30})
    assert reply.status_code == 200, reply.text
    np.testing.assert_allclose(np.array(reply.json()["outputs"]["y"]), expected(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"inputs": 3}',
        b'{"inputs": {}}',
        b'{"inputs": {"x": "abc"}}',
        b'{"inputs": {"x": [[1, 2], [3]]}}',
        b'{"inputs": {"z": [1.0]}}',
        b'{"inputs": {"x": [1.0]}}',
        b'{"inputs": {"x": [1.0]}, "deadline": -1}',
        b'{"inputs": {"x": [1.0]}, "deadline": "soon"}',
    ],
)
def test_what_does_not_fit_is_a_bad_request(client: Client, body: bytes) -> None:
    assert client.post("/predict", content=body).status_code == 400


@pytest.mark.parametrize("body", [b"", b"\x93NUMPY", b"no array", npy(np.array([{}], object)), npy(IMAGE[0])])
def test_arrays_that_do_not_fit_are_a_bad_request(client: Client, body: bytes) -> None:
    reply = client.post("/predict", content=body, headers={"Content-Type": "application/x-npy"})
    assert reply.status_code == 400


def test_a_body_too_long_is_refused(server: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY_NBYTES", 100)
    assert post(client, IMAGE).status_code == 413


def test_a_full_queue_and_a_deadline(client: Client) -> None:
    replies: list[Any] = []
    with gates.closed() as gate:
        callers = [threading.Thread(target=lambda: replies.append(post(client, IMAGE)))]
        callers[0].start()
        gates.wait_for_a_run()
        late = {"inputs": {"x": IMAGE.tolist()}, "deadline": 0.3}
        callers.append(threading.Thread(target=lambda: replies.append(client.post("/predict", json=late))))
        callers[1].start()
        while not client.get("/health").json()["waiting"]:
            pass
        refused = post(client, IMAGE)
        threading.Event().wait(0.4)
        gate.set()
        for caller in callers:
            caller.join(60)
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert "1 requests wait" in refused.json()["detail"]
    assert sorted(reply.status_code for reply in replies) == [200, 504]


def test_metrics_and_health(client: Client) -> None:
    post(client, IMAGE)
    assert client.get("/health").json() == {"status": "ok", "waiting": 0}
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'blocklayout_requests_total{model="model",end="finished"} 1' in reply.text


def test_the_environment_says_what_is_served(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 2)) * np.float32(2))
    bl.save(b, tmp_path / "model.onnx")
    monkeypatch.setenv("MODEL", str(tmp_path / "model.onnx"))
    with Client(server.from_environment()) as client:
        reply = client.post("/predict", json={"inputs": {"x": [[1, 2]]}})
        assert reply.json() == {"outputs": {"y": [[2.0, 4.0]]}}
