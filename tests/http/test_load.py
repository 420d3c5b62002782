"""Many clients at once, some of which go away: each of the others is answered, and nothing stays behind."""

from __future__ import annotations

import gc
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from blocklayout import dnnl
from tests import gates
from tests.http.running import Client, Serving, binary, freed, head, infer_path, scaling, serving

N_CLIENTS = 8
N_REQUESTS = 40
IMAGE = np.ones(gates.SHAPE, np.float32)


def n_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("settings", [{}, {"max_batch": 4, "max_delay_ms": 1.0, "streams": 2}])
def test_clients_that_are_killed_cost_nobody_an_answer(settings: dict[str, Any]) -> None:
    with serving({"rows": freed(scaling(2))}, {"threads": 2}, max_waiting=2 * N_CLIENTS, **settings) as server:
        wrong: list[object] = []
        before = n_descriptors()
        clients = [threading.Thread(target=ask_or_go, args=(server, seed, wrong)) for seed in range(N_CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert not wrong
        server.wait_until("rows", n_waiting=0)
        deadline = time.monotonic() + 20
        while n_descriptors() > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server.stats("rows").failed == 0


def ask_or_go(server: Serving, seed: int, wrong: list[object]) -> None:
    """Ask on one connection; now and then close one before its answer, by a reset or not."""
    draw = random.Random(seed)
    with server.client() as client:
        for n in range(N_REQUESTS):
            x = np.full((1, 3), N_REQUESTS * seed + n, np.float32)
            body, headers = binary({"x": x}, id=str(n))
            if draw.random() < 0.25:
                go_away(
                    server.client(),
                    head("POST", infer_path("rows"), headers | {"Content-Length": str(len(body))}) + body,
                    draw,
                )
                continue
            answer = client.ask("POST", infer_path("rows"), body, headers)
            if answer.status != 200 or answer.json["id"] != str(n) or answer.outputs()["y"] != (2 * x).tobytes():
                wrong.append(answer)


def go_away(client: Client, text: bytes, draw: random.Random) -> None:
    client.socket.sendall(text[: draw.choice([1, len(text) // 2, len(text)])])
    time.sleep(draw.choice([0, 0.002]))
    client.reset() if draw.random() < 0.5 else client.socket.close()


def test_a_client_that_goes_while_it_waits_makes_room() -> None:
    body, headers = binary({"x": IMAGE})
    with serving({"gated": gates.gated()}, max_waiting=1) as server, gates.closed() as gate:
        clients = [server.client() for _ in range(2)]
        clients[0].send("POST", infer_path("gated"), body, headers)
        gates.wait_for_a_run()
        clients[1].send("POST", infer_path("gated"), body, headers)
        server.wait_until("gated", n_waiting=1)
        clients[1].reset()
        server.wait_until("gated", n_waiting=0, cancelled=1)
        gate.set()
        assert clients[0].last().status == 200


def test_a_client_that_goes_ends_its_run_before_the_next_step() -> None:
    body, headers = binary({"x": IMAGE})
    with serving({"gated": gates.gated()}) as server:
        with gates.closed() as gate:
            client = server.client()
            client.send("POST", infer_path("gated"), body, headers)
            gates.wait_for_a_run()
            client.reset()
            with server.client() as other:  # by now the server has seen that the first is gone
                assert other.get("/v2/health/live").status == 200
            time.sleep(0.05)
            gate.set()
        server.wait_until("gated", cancelled=1, finished=0)
        assert server.ask("POST", infer_path("gated"), body, headers).status == 200


@pytest.mark.parametrize("part", [0, 10, 200_000])
def test_a_client_that_goes_while_it_sends(part: int) -> None:
    x = np.ones((100_000, 3), np.float32)
    body, headers = binary({"x": x})
    with serving({"rows": freed(scaling(2))}) as server:
        for _ in range(3):
            with server.client() as client:
                lines = head("POST", infer_path("rows"), headers | {"Content-Length": str(len(body))})
                client.socket.sendall(lines + body[:part])
                client.reset()
        answer = server.ask("POST", infer_path("rows"), body, headers)
        assert answer.outputs()["y"] == (2 * x).tobytes()
        stats = server.stats("rows")
        assert (stats.finished, stats.cancelled, stats.failed) == (1, 0, 0)


def test_models_that_are_replaced_and_unloaded_under_load() -> None:
    statuses: list[int] = []
    body, headers = binary({"x": np.ones((1, 3), np.float32)})
    with serving({"model": scaling(2)}) as server:
        is_over = threading.Event()

        def ask() -> None:
            with server.client() as client:
                while not is_over.is_set():
                    answer = client.ask("POST", infer_path("model"), body, headers)
                    assert answer.status == 503 or answer.outputs()["y"] == np.full(3, 2, np.float32).tobytes()
                    statuses.append(answer.status)

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for each in clients:
            each.start()
        with server.client() as client:
            for _ in range(3):
                assert client.ask("POST", "/v2/repository/models/model/load").status == 200
            assert {*statuses} == {200}
            assert client.ask("POST", "/v2/repository/models/model/unload").status == 200
            assert client.ask("POST", "/v2/repository/models/model/load").status == 200
        is_over.set()
        for each in clients:
            each.join()
    assert {*statuses} <= {200, 503}


def test_a_server_leaves_nothing_behind() -> None:
    def once() -> tuple[dict[str, int], int, int]:
        with serving({"model": scaling(2)}) as server:
            for _ in range(3):
                server.ask("POST", infer_path("model"), *binary({"x": np.ones((1, 3), np.float32)}))
        gc.collect()
        return dnnl.live_handles(), n_descriptors(), threading.active_count()

    before = once()
    assert [once(), once()] == [before, before]
