"""What does HTTP add to a run, and is any request lost under load?

``blocklayout serve`` serves each model in a process of its own. First one client asks, over a connection that stays
open, with binary tensors, in turn with ``session.run`` in this process: the difference is the overhead. ``bare`` is
what sockets take of it: the same bytes to a process that only receives them, and an answer of one byte. ``mean`` is a
model of one step, the mean of each channel of a 1x3x224x224 image (600 kB), whose run takes next to nothing; others are
of the zoo.

Then ``--clients`` clients make ``--requests`` requests. So many of them as ``--kills`` says are killed: the client
closes the connection while it sends, or while it waits. Each of the others must come back with the right answer, or
with an error that says why not; one that does neither is lost. In the end nothing may wait or run any more.

    python bench/serve.py
    python bench/serve.py --models mean,squeezenet1_1 --requests 10000 --clients 16 --kills 500 --json serve.json
    python bench/serve.py --models mean --requests 200 --repeats 20
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

import blocklayout as bl
from bench.records import add_files, keep, machine_text, read_measured
from blocklayout import dnnl, zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive, words
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEAN = "mean"
SHAPE = (1, 3, 224, 224)
PATIENCE_S = 60.0
N_ROUNDS = 5
MODEL = "model"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for; 1 if a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=words, default=(MEAN,), help=f"{MEAN}, or networks of the zoo")
    parser.add_argument("--clients", type=positive, default=16, help="that ask at a time (default: 16)")
    parser.add_argument("--requests", type=positive, default=10_000, help="of all clients together (default: 10000)")
    parser.add_argument("--kills", type=int, default=500, help="requests among these that are killed (default: 500)")
    parser.add_argument("--repeats", type=positive, default=2000, help="runs that overhead is of (default: 2000)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    parser.add_argument("--streams", type=positive, default=1, help="runs at a time under load (default: 1)")
    add_files(parser, has_page=False)
    args = parser.parse_args(argv)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    print(machine_text(record["environment"]))
    show(record["results"])
    return int(any(row["load"]["lost"] or row["load"]["left"] for row in record["results"]))


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """The rows of all models."""
    results = []
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{MODEL}.onnx")
            bl.save(mean() if name == MEAN else zoo.build(name), path)
            with served(path, args) as port:
                overhead = measure_overhead(path, port, args)
            with served(path, args, "--streams", str(args.streams)) as port:
                load = measure_load(path, port, args)
        results.append({"model": name, "overhead": overhead, "load": load})
    return {"environment": describe_environment(args.threads), "results": results}


def mean() -> bl.Builder:
    """A model that reads much and computes little."""
    b = bl.Builder()
    b.output("y", b.op("GlobalAveragePool", b.input("x", SHAPE)))
    return b


@contextmanager
def served(path: Path, args: argparse.Namespace, *options: str) -> Iterator[int]:
    """The port of a server of a model, which is stopped gracefully at the end."""
    command = [sys.executable, "-m", "blocklayout", "serve", str(path), "--port", "0", "--threads", str(args.threads)]
    command += ["--max-waiting", str(2 * args.clients), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if '"listening"' in line:
                break
        else:
            raise SystemExit(f"the server did not start:\n{said}")
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        try:
            yield int(json.loads(line)["address"].rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            drain.join(PATIENCE_S)
    if process.returncode:
        raise SystemExit(f"the server ended with status {process.returncode}")


@contextmanager
def bare_server(n_bytes: int) -> Iterator[int]:
    """The port of a process that receives so many bytes, and answers, again and again."""
    with subprocess.Popen([sys.executable, "-c", _BARE, str(n_bytes)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


_BARE = r"""
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
room = bytearray(int(sys.argv[1]))
while connection.recv_into(room, len(room), socket.MSG_WAITALL):
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n.")
"""


def request_of(feed: dict[str, np.ndarray], n: int = 0) -> tuple[bytes, bytes]:
    """The head and body of a request with binary tensors; its id is ``n``."""
    inputs = [
        {
            "name": name,
            "shape": array.shape,
            "datatype": "FP32",
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in feed.items()
    ]
    text = json.dumps({"id": str(n), "inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([text, *(array.tobytes() for array in feed.values())])
    lines = [f"POST /v2/models/{MODEL}/infer HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, f"Inference-Header-Content-Length: {len(text)}", "", ""]).encode(), body


class Client:
    """A connection that stays open; http.client would take longer than the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connect()

    def connect(self) -> None:
        """Begin anew."""
        self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: tuple[bytes, bytes]) -> tuple[int, bytes, bytes]:
        """The status, JSON and tensors of an answer."""
        for part in request:
            self._socket.sendall(part)
        text = self._socket.recv(1 << 20)
        while b"\r\n\r\n" not in text:
            text += self._more()
        lines, _, text = text.partition(b"\r\n\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines.split(b"\r\n")[1:])
        n = int(headers[b"content-length"])
        while len(text) < n:
            text += self._more()
        n_json = int(headers.get(b"inference-header-content-length", n))
        return int(lines.split()[1]), text[:n_json], text[n_json:]

    def kill(self, request: tuple[bytes, bytes], n: int) -> None:
        """Close the connection by a reset: of every third request in the middle of its body, else while it waits."""
        head, body = request
        self._socket.sendall(head + (body[: len(body) // 2] if n % 3 == 0 else body))
        time.sleep(0.005 * (n % 4))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
        self.connect()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _more(self) -> bytes:
        text = self._socket.recv(1 << 20)
        if not text:
            raise ConnectionError("closed before the answer")
        return text


def measure_overhead(path: Path, port: int, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of runs here and of requests there, in turn, and their difference round by round."""
    with bl.load(path, threads=args.threads) as session:
        feed = feed_of(session)
        request = request_of(feed)
        expected = session.run(None, feed)[0]
        n_bytes, client = sum(map(len, request)), Client(port)
        runs, requests, bare = [], [], []
        with bare_server(n_bytes) as bare_port:
            receiver = Client(bare_port)
            for _ in range(N_ROUNDS):
                n = max(1, args.repeats // N_ROUNDS)
                runs.append(times(n, lambda: session.run(None, feed)))
                requests.append(times(n, lambda: client.ask(request)))
                bare.append(times(n, lambda: receiver.ask(request)))
            receiver.close()
        if outcome(client, feed, 0, expected) != "right":
            raise SystemExit("the server answers otherwise than session.run")
        client.close()
    result: dict[str, Any] = {"request_nbytes": n_bytes}
    for name, percent in (("p50", 50), ("p99", 99)):
        of_runs, of_requests = ([float(np.percentile(each, percent)) for each in many] for many in (runs, requests))
        result[f"run_{name}_ms"] = statistics.median(of_runs)
        result[f"request_{name}_ms"] = statistics.median(of_requests)
        differences = [theirs - ours for ours, theirs in zip(of_runs, of_requests, strict=True)]
        result[f"overhead_{name}_ms"] = statistics.median(differences)
        result[f"bare_{name}_ms"] = statistics.median(float(np.percentile(each, percent)) for each in bare)
    return result


def feed_of(session: bl.Session) -> dict[str, np.ndarray]:
    """The same random image every time."""
    rng = np.random.default_rng(0)
    return {info.name: rng.standard_normal(info.shape, dtype=np.float32) for info in session.get_inputs()}


def times(n: int, call: Any) -> list[float]:
    """Milliseconds of so many calls, after some that do not count."""
    taken = []
    for place in range(n + n // 10):
        start = time.perf_counter()
        call()
        if place >= n // 10:
            taken.append(1e3 * (time.perf_counter() - start))
    return taken


def measure_load(path: Path, port: int, args: argparse.Namespace) -> dict[str, Any]:
    """Requests by how they ended, while some are killed."""
    with bl.load(path, threads=args.threads) as session:
        feed = feed_of(session)
        expected = session.run(None, feed)[0]
    killed = {*random.Random(0).sample(range(args.requests), min(args.kills, args.requests))}
    numbers, lock = iter(range(args.requests)), threading.Lock()
    counts = {"right": 0, "refused": 0, "killed": 0, "lost": 0}
    taken: list[float] = []

    def client() -> None:
        connection = Client(port)
        while True:
            with lock:
                n = next(numbers, None)
            if n is None:
                connection.close()
                return
            start = time.perf_counter()
            if n in killed:
                connection.kill(request_of(feed, n), n)
                end = "killed"
            else:
                end = outcome(connection, feed, n, expected)
            with lock:
                counts[end] += 1
                if end == "right":
                    taken.append(1e3 * (time.perf_counter() - start))

    clients = [threading.Thread(target=client) for _ in range(args.clients)]
    start = time.perf_counter()
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    seconds = time.perf_counter() - start
    left, server = left_over(port)
    p50, p99 = (float(np.percentile(taken, percent)) for percent in (50, 99))
    per_s = args.requests / seconds
    return {**counts, "left": left, "per_s": per_s, "p50_ms": p50, "p99_ms": p99, "server": server}


def outcome(connection: Client, feed: dict[str, np.ndarray], n: int, expected: np.ndarray) -> str:
    """How a request ends."""
    try:
        status, text, tensors = connection.ask(request_of(feed, n))
        answer = json.loads(text)
    except (OSError, ValueError):
        connection.close()
        connection.connect()
        return "lost"
    if status == 200:
        is_right = answer["id"] == str(n) and np.allclose(np.frombuffer(tensors, np.float32), expected.ravel(), 1e-5)
        return "right" if is_right else "lost"
    return "refused" if status in (503, 504) and answer.get("error") else "lost"


def left_over(port: int) -> tuple[int, dict[str, float]]:
    """How many requests still wait or run, after some time to end, and what the server counted."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        metrics = {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}
        left = int(sum(value for name, value in metrics.items() if "requests_waiting" in name))
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    kept = ("blocklayout_requests_total", "blocklayout_http_requests_total", "process_open_fds", "process_resident")
    return left, {name: value for name, value in metrics.items() if name.startswith(kept)}


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print tables of overheads, and of how requests ended."""
    measures = [(kind, name) for name in ("p50", "p99") for kind in ("run", "request", "overhead", "bare")]
    head = ["model", "bytes", *(f"{kind} {name}" for kind, name in measures)]
    names = [f"{kind}_{name}_ms" for kind, name in measures]
    rows = [
        [row["model"], str(row["overhead"]["request_nbytes"]), *(f"{row['overhead'][name]:.3f}" for name in names)]
        for row in results
    ]
    print_table(head, rows)
    ends = ("right", "refused", "killed", "lost", "left")
    loads = [
        [row["model"], *(str(row["load"][end]) for end in ends)]
        + [f"{row['load'][name]:.2f}" for name in ("per_s", "p50_ms", "p99_ms")]
        for row in results
    ]
    print_table(["model", *ends, "per s", "p50 ms", "p99 ms"], loads)
    for row in results:
        print(row["model"], *(f"{name} {value:g}" for name, value in row["load"]["server"].items()), sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
