"""Servers in this process and in others, and a client that may do all that is wrong."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import blocklayout as bl
from blocklayout.http.app import App
from blocklayout.http.repository import Repository
from blocklayout.http.running import Server, service
from blocklayout.http.settings import Settings

if TYPE_CHECKING:
    from blocklayout.api import Source

PATIENCE_S = 300.0


@dataclass(frozen=True)
class Answer:
    """An answer, its JSON and what follows that."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        n = int(self.headers.get("inference-header-content-length", len(self.body)))
        return json.loads(self.body[:n])

    @property
    def error(self) -> str:
        """Why it was refused."""
        assert self.status >= 400, self
        assert self.json.keys() == {"error"}, self
        error: str = self.json["error"]
        return error

    def outputs(self) -> dict[str, Any]:
        """Outputs in JSON, by name; those in binary as bytes."""
        assert self.status == 200, self
        n = len(self.body) - sum(each.get("parameters", {}).get("binary_data_size", 0) for each in self.json["outputs"])
        found: dict[str, Any] = {}
        for each in self.json["outputs"]:
            size = each.get("parameters", {}).get("binary_data_size")
            found[each["name"]] = each["data"] if size is None else self.body[n : n + size]
            n += size or 0
        return found


class Client:
    """A connection to a server of this machine."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._left = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, Any] | None = None) -> Answer:
        self.send(method, path, body, headers)
        return self.receive()

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, Any] | None = None) -> None:
        self.socket.sendall(head(method, path, {"Content-Length": len(body), **(headers or {})}) + body)

    def receive(self) -> Answer:
        text = self._left
        while b"\r\n\r\n" not in text:
            text += self._more()
        lines, _, body = text.partition(b"\r\n\r\n")
        first, *rest = lines.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        n = int(headers.get("content-length", 0))
        while len(body) < n:
            body += self._more()
        self._left = body[n:]
        return Answer(int(first.split()[1]), headers, body[:n])

    def last(self) -> Answer:
        """The answer that is still to come, after which the connection is closed."""
        with self:
            return self.receive()

    def reset(self) -> None:
        """Close the connection so that nothing that was sent need arrive."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _more(self) -> bytes:
        text = self.socket.recv(1 << 16)
        if not text:
            raise ConnectionError("the server closed the connection")
        return text


def head(method: str, path: str, headers: Mapping[str, Any]) -> bytes:
    """The lines before a body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def infer_path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def binary(feed: Mapping[str, np.ndarray], **fields: Any) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request with binary tensors of f32, whose outputs are to be so as well."""
    inputs = [
        {"name": name, "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
        for name, x in feed.items()
    ]
    asked = {"inputs": inputs, "parameters": {"binary_data_output": True}} | fields
    text = json.dumps(asked).encode()
    return b"".join([text, *(x.tobytes() for x in feed.values())]), {"Inference-Header-Content-Length": str(len(text))}


def in_json(feed: Mapping[str, np.ndarray], **fields: Any) -> bytes:
    """A request with its tensors of f32 in JSON."""
    inputs = [
        {"name": name, "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()} for name, x in feed.items()
    ]
    return json.dumps({"inputs": inputs} | fields).encode()


@dataclass(frozen=True)
class Serving:
    """A server in this process."""

    port: int
    repository: Repository
    grpc_port: int | None = None

    def client(self) -> Client:
        return Client(self.port)

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, Any] | None = None) -> Answer:
        with self.client() as client:
            return client.ask(method, path, body, headers)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def stats(self, model: str) -> Any:
        return self.repository.find(model).serving().stats()

    def wait_until(self, model: str, **wanted: int) -> None:
        """Until a model's counts are so."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            stats = self.stats(model)
            found = {name: getattr(stats, name) for name in wanted}
            if found == wanted:
                return
            assert time.monotonic() < deadline, (found, wanted)
            time.sleep(0.01)


@contextmanager
def serving(
    sources: Mapping[str, Source], options: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[Serving]:
    """A server of these models in this process, on a loop in a thread of its own; ``options`` are those of bl.load."""
    read = Settings(models=[*sources], **settings)
    given = read.load_options | {"threads": 1} | dict(options or {})
    repository = Repository(sources, **given)
    for model in repository:
        model.load()
    server = Server(App(repository, read), read, service(repository, read))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield Serving(port, repository, None if server.service is None else server.service.port)
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
    assert not thread.is_alive()
    for model in repository:
        model.unload()


@contextmanager
def started(
    arguments: Sequence[object], environ: Mapping[str, str], folder: Path
) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """``blocklayout serve`` in a process of its own, once it listens, and the lines of its log until then."""
    command = [sys.executable, "-m", "blocklayout", "serve", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**environ}, cwd=folder) as process:
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        try:
            while not lines or lines[-1]["message"] != "listening":
                text = process.stderr.readline()
                assert text, lines
                lines.append(json.loads(text))
            yield process, lines
        finally:
            if process.poll() is None:
                process.kill()


def port_of(lines: Sequence[Mapping[str, Any]]) -> int:
    """The port that a log names."""
    return int(lines[-1]["address"].rpartition(":")[2])


def scaling(factor: float) -> bl.Builder:
    """A model that multiplies."""
    b = bl.Builder()
    b.output("y", b.input("x", (1, 3)) * np.float32(factor))
    return b


def freed(builder: bl.Builder, n_free: int = 1) -> bytes:
    """The same model for any of the first extents."""
    proto = builder.to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in range(n_free):
            value.type.tensor_type.shape.dim[dim].dim_param = "nm"[dim]
    text: bytes = proto.SerializeToString()
    return text
