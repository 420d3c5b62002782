"""``blocklayout serve`` in a process of its own: it starts, says so in JSON, drains, and stops."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from blocklayout.http.app import App
from blocklayout.http.repository import Repository
from blocklayout.http.running import Server
from blocklayout.http.settings import Settings
from tests.http.running import PATIENCE_S, Client, binary, infer_path, port_of, scaling, started

X = np.ones((1, 3), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    bl.save(scaling(2), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A model whose run takes some time, and is many steps."""
    b = bl.Builder()
    x = b.input("x", (1, 64, 96, 96))
    weights = np.random.default_rng(0).standard_normal((64, 64, 3, 3), dtype=np.float32) / 40
    for _ in range(240):
        x = x.conv(weights, pads=1).relu()
    b.output("y", x)
    bl.save(b, tmp_path / "slow.onnx")
    return tmp_path / "slow.onnx"


def refused(environ: Mapping[str, str], folder: Path, *arguments: object) -> str:
    command = [sys.executable, "-m", "blocklayout", "serve", *map(str, arguments)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**environ}, cwd=folder, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    *logged, last = done.stderr.splitlines()
    assert all(json.loads(line) for line in logged)
    return last


def test_it_says_where_it_listens_and_stops_when_told(
    model: Path, tree_environ: dict[str, str], tmp_path: Path
) -> None:
    environ = tree_environ | {"BLOCKLAYOUT_SERVE_PORT": "0"}
    (tmp_path / "serve.toml").write_text("log_level = 'debug'\nport = 1\n")
    with started([model, "--config", "serve.toml"], environ, tmp_path) as (process, lines):
        assert [line["message"] for line in lines] == ["model loaded", "listening"]
        assert {*lines[0]} == {"time", "level", "logger", "message", "model", "seconds"}
        with Client(port_of(lines)) as client:
            answer = client.ask("POST", infer_path("model"), *binary({"x": X}))
            assert answer.outputs()["y"] == (2 * X).tobytes()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        rest = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert [line["message"] for line in rest] == ["request", "draining", "model unloaded", "stopped"]
    assert (rest[0]["path"], rest[0]["status"]) == (infer_path("model"), 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_accepted_is_answered(
    slow: Path, tree_environ: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    x = np.random.default_rng(1).standard_normal((1, 64, 96, 96), dtype=np.float32)
    arguments = [slow, "--port", "0", "--threads", "1", "--tune", "model", "--drain-timeout", "300"]
    with started(arguments, tree_environ, tmp_path) as (process, lines):
        clients = [Client(port_of(lines)) for _ in range(3)]
        for client in clients:
            client.send("POST", infer_path("slow"), *binary({"x": x}))
        wait_for_requests(port_of(lines))
        process.send_signal(number)
        answers = [client.last() for client in clients]
        assert process.wait(PATIENCE_S) == 0
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [answer.headers["connection"] for answer in answers] == ["close"] * 3
    with pytest.raises(OSError, match="refused"):
        Client(port_of(lines))


def wait_for_requests(port: int, n_waiting: int = 2) -> None:
    """Until so many wait behind the one that runs."""
    deadline = time.monotonic() + PATIENCE_S
    with Client(port) as client:
        while True:
            found = re.search(
                r"^blocklayout_requests_waiting\S* (\S+)", client.get("/metrics").body.decode(), re.MULTILINE
            )
            if found and float(found[1]) >= n_waiting:
                return
            assert time.monotonic() < deadline


def test_a_second_signal_stops_at_once(slow: Path, tree_environ: dict[str, str], tmp_path: Path) -> None:
    x = np.ones((1, 64, 96, 96), np.float32)
    arguments = [slow, "--port", "0", "--threads", "1", "--tune", "model", "--max-waiting", "99"]
    with started(arguments, tree_environ, tmp_path) as (process, lines):
        clients = [Client(port_of(lines)) for _ in range(3)]
        for client in clients:
            client.send("POST", infer_path("slow"), *binary({"x": x}))
        wait_for_requests(port_of(lines))
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["message"] == "draining"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        last = json.loads(process.stderr.readline())
    assert last["message"] == "stopped by a second signal"
    for client in clients:
        client.socket.close()


def test_a_second_signal_counts_as_soon_as_the_first_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.read(models="never-loaded.onnx")
    server = Server(App(Repository({}), settings), settings)
    told: list[str] = []

    class Impatient(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            if told == ["draining"]:
                server.handle_exit(signal.SIGTERM, None)

    log = logging.getLogger("blocklayout.http.running")
    monkeypatch.setattr(log, "handlers", [Impatient()])
    caplog.set_level(logging.INFO, log.name)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as exited:
        server.handle_exit(signal.SIGTERM, None)
    assert exited.value.code == 128 + signal.SIGTERM
    assert told == ["draining", "stopped by a second signal"]


def test_draining_ends_in_time(slow: Path, tree_environ: dict[str, str], tmp_path: Path) -> None:
    x = np.ones((1, 64, 96, 96), np.float32)
    arguments = [slow, "--port", "0", "--threads", "1", "--tune", "model", "--drain-timeout", "1"]
    with started(arguments, tree_environ, tmp_path) as (process, lines):
        clients = [Client(port_of(lines)) for _ in range(60)]
        for client in clients:
            client.send("POST", infer_path("slow"), *binary({"x": x}))
        wait_for_requests(port_of(lines), 40)
        process.send_signal(signal.SIGTERM)
        statuses = {client.last().status for client in clients}
        assert process.wait(PATIENCE_S) == 0
    assert 503 in statuses
    assert statuses <= {200, 503}


def test_what_cannot_start_is_a_line(model: Path, tree_environ: dict[str, str], tmp_path: Path) -> None:
    assert "setting models: Field required" in refused(tree_environ, tmp_path)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert "model 'broken': " in refused(tree_environ, tmp_path, model, "broken.onnx", "--port", "0")
    assert "model 'absent': " in refused(tree_environ, tmp_path, "absent.onnx", "--port", "0")
    assert "closest are" in refused(tree_environ, tmp_path, "zoo:resnet51", "--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refusal = refused(tree_environ, tmp_path, model, "--port", port)
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in refusal
    assert "cannot listen on 203.0.113.1" in refused(tree_environ, tmp_path, model, "--host", "203.0.113.1")
