"""Runs that are brief are waited for by the event loop itself; no others are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.http import infer
from blocklayout.serve.submissions import Submissions
from tests import gates
from tests.http.running import Answer, Serving, binary, freed, infer_path, scaling, serving

needs_executor = pytest.mark.skipif(not dnnl.has_native_executor(), reason="Python runs the loop")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every run is brief; the attempts to run one on the event loop, and whether it was done."""
    attempts: list[bool] = []
    run_at_once = Submissions.run_at_once

    def recorded(submissions: Submissions, feed: dict[str, np.ndarray]) -> list[np.ndarray] | None:
        results = run_at_once(submissions, feed)
        attempts.append(results is not None)
        return results

    monkeypatch.setattr(infer, "_BRIEF_S", math.inf)
    monkeypatch.setattr(Submissions, "run_at_once", recorded)
    return attempts


def ask(server: Serving, n_rows: int = 1, **fields: Any) -> Answer:
    x = np.full((n_rows, 3), n_rows, np.float32)
    answer = server.ask("POST", infer_path("model"), *binary({"x": x}, **fields))
    assert answer.status != 200 or answer.outputs()["y"] == (2 * x).tobytes()
    return answer


@needs_executor
def test_a_run_like_the_last_is_made_at_once_and_counted(at_once: list[bool]) -> None:
    with serving({"model": freed(scaling(2))}) as server:
        for n_rows in (1, 1, 5, 5, 5, 1):
            assert ask(server, n_rows).status == 200
        assert at_once == [True] * 3
        stats = server.stats("model")
        assert (stats.finished, stats.run.n, stats.batches) == (6, 6, {1: 6})


@needs_executor
def test_all_outputs_by_name_are_all_outputs(at_once: list[bool]) -> None:
    with serving({"model": scaling(2)}) as server:
        for _ in range(2):
            assert ask(server, outputs=[{"name": "y"}]).status == 200
    assert at_once == [True]


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"max_batch": 2}, {}),
        ({"streams": 2}, {}),
        ({"timeout": 300.0}, {}),
        ({}, {"parameters": {"timeout": 300_000_000, "binary_data_output": True}}),
    ],
)
def test_what_is_joined_shared_or_due_is_submitted(
    settings: dict[str, Any], fields: dict[str, Any], at_once: list[bool]
) -> None:
    with serving({"model": freed(scaling(2))}, {"threads": 2}, **settings) as server:
        for _ in range(3):
            assert ask(server, **fields).status == 200
        assert not any(at_once)
        assert server.stats("model").finished == 3


def test_a_long_run_is_submitted(at_once: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer, "_BRIEF_S", 0.0)
    with serving({"model": scaling(2)}) as server:
        assert [ask(server).status for _ in range(3)] == [200] * 3
    assert not at_once


def test_a_run_in_python_is_submitted_and_the_loop_goes_on_meanwhile(at_once: list[bool]) -> None:
    body, headers = binary({"x": np.ones(gates.SHAPE, np.float32)})
    with serving({"model": gates.gated()}) as server:
        assert server.ask("POST", infer_path("model"), body, headers).status == 200
        with gates.closed() as gate:
            client = server.client()
            client.send("POST", infer_path("model"), body, headers)
            gates.wait_for_a_run()
            assert server.get("/v2/health/live").status == 200
            gate.set()
            assert client.last().status == 200
    assert at_once == [False]


@needs_executor
def test_a_model_that_is_loaded_anew_has_to_show_that_it_is_brief(at_once: list[bool]) -> None:
    with serving({"model": scaling(2)}) as server:
        for _ in range(2):
            for _ in range(2):
                assert ask(server).status == 200
            assert server.ask("POST", "/v2/repository/models/model/load").status == 200
    assert at_once == [True] * 2


def test_a_closed_session_runs_nothing_at_once() -> None:
    session = bl.load(scaling(2), threads=1)
    feed = {"x": np.ones((1, 3), np.float32)}
    session.run(None, feed)
    session.close()
    assert session.submissions.run_at_once(feed) is None
