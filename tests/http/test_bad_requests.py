"""Every kind of bad request has a status and an error that names the field and the rule, and harms nobody else."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import gates
from tests.http.running import Client, Serving, binary, freed, head, in_json, infer_path, scaling, serving

X = np.arange(3, dtype=np.float32).reshape(1, 3)
TENSOR = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [0, 1, 2]}
PATH = infer_path("small")
MAX_BODY = 1 << 18


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    models = {"small": scaling(2), "rows": freed(scaling(2)), "free": freed(scaling(1), 2)}
    with serving(models, max_body=MAX_BODY, read_timeout=0.5) as server:
        yield server
        assert server.ask("POST", PATH, in_json({"x": X})).outputs() == {"y": [0.0, 2.0, 4.0]}
        assert server.stats("small").n_waiting == server.stats("rows").n_waiting == 0


def with_input(**fields: Any) -> bytes:
    return json.dumps({"inputs": [TENSOR | fields]}).encode()


def with_fields(**fields: Any) -> bytes:
    return json.dumps({"inputs": [TENSOR]} | fields).encode()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "Invalid JSON: EOF"),
        (b"{", "Invalid JSON: EOF"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (b"[]", "should be an object"),
        (b"{}", "inputs: Field required"),
        (b'{"inputs": 3}', "inputs: should be a valid array, got 3"),
        (b'{"inputs": []}', "missing input x"),
        (b'{"inputs": [3]}', "inputs[0]: should be an object"),
        (with_input(name="z"), "inputs[0].name: no input 'z'; there are x"),
        (with_input(name=7), "inputs[0].name: should be a valid string, got 7"),
        (with_fields(inputs=[TENSOR, TENSOR]), "inputs[1].name: 'x' is there twice"),
        (with_input(datatype="FP64"), "inputs[0] (x).datatype: must be FP32, got 'FP64'"),
        (with_input(datatype="BYTES", data=["a"]), "inputs[0] (x).datatype: must be FP32, got 'BYTES'"),
        (with_input(datatype=None), "inputs[0].datatype: should be a valid string"),
        (with_input(shape=[3]), "input 'x' has rank 2 (1x3), got rank 1 (3)"),
        (with_input(shape=[1, 4], data=[0, 1, 2, 3]), "axis 1 must be 3"),
        (with_input(shape=[1, -3]), "inputs[0].shape[1]: should be greater than or equal to 0, got -3"),
        (with_input(shape=[1, 3.0]), "inputs[0].shape[1]: should be a valid integer, got 3.0"),
        (with_input(shape="1x3"), "inputs[0].shape: should be a valid array"),
        (with_input(shape=[1 << 70, 0], data=[]), "inputs[0] (x).shape: no array has 2 extents"),
        (with_input(shape=[0] * 100, data=[]), "inputs[0] (x).shape: no array has 100 extents"),
        (with_input(shape=[1 << 40, 3]), "takes 3298534883328 elements"),
        (with_input(data=[1, 2]), "shape [1, 3] takes 3 elements, flat or nested so, got [2]"),
        (with_input(data=[[1], [2], [3]]), "got [3, 1]"),
        (with_input(data=[[1, 2], [3]]), "its lists differ in length"),
        (with_input(data=["1", "2", "3"]), "inputs[0] (x).data: FP32 takes numbers"),
        (with_input(data=[True, False, True]), "inputs[0] (x).data: FP32 takes numbers"),
        (with_input(data=[None, 1, 2]), "inputs[0] (x).data: FP32 takes numbers"),
        (with_input(data=[{}, 1, 2]), "inputs[0] (x).data: FP32 takes numbers"),
        (with_input(data=[1e300, 1, 2]), "FP32 cannot hold all of 1.0 to 1e+300"),
        (with_input(data=None), "give a list of numbers, or parameters.binary_data_size"),
        (with_input(data=3), "give a list of numbers"),
        (with_input(parameters=3), "inputs[0].parameters: should be an object"),
        (with_input(parameters={"binary_data_size": 12}), "leave it out where binary_data_size is given"),
        (
            with_input(parameters={"shared_memory_region": "r"}),
            "inputs[0].parameters: shared_memory_region: tensors are",
        ),
        (with_fields(outputs=[{"name": "z"}]), "no output 'z'"),
        (with_fields(outputs=[{}]), "outputs[0].name: Field required"),
        (with_fields(outputs=[{"name": "y", "parameters": {"classification": 3}}]), "classification: outputs are"),
        (with_fields(parameters={"timeout": -1}), "parameters.timeout: should be greater than or equal to 0"),
        (with_fields(parameters={"timeout": 1.5}), "parameters.timeout: should be a valid integer"),
        (with_fields(parameters={"priority": 1}), "priority: requests run in the order in which they come"),
        (with_fields(parameters={"sequence_id": 1}), "sequence_id: models here keep no state"),
        (with_fields(id=7), "id: should be a valid string, got 7"),
    ],
)
def test_json_that_does_not_fit(server: Serving, body: bytes, error: str) -> None:
    answer = server.ask("POST", PATH, body)
    assert (answer.status, error in answer.error) == (400, True), answer.error
    assert len(answer.error) < 500


BINARY = {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
TEXT = json.dumps({"inputs": [BINARY]}).encode()


@pytest.mark.parametrize(
    ("body", "length", "error"),
    [
        (TEXT + bytes(12), "x", "Inference-Header-Content-Length: give a number of bytes, not 'x'"),
        (TEXT + bytes(12), "-1", "Inference-Header-Content-Length: give a number"),
        (TEXT + bytes(12), "9" * 5000, "cannot be JSON"),
        (TEXT + bytes(12), len(TEXT) + 13, "cannot be JSON"),
        (TEXT + bytes(12), len(TEXT) - 1, "Invalid JSON"),
        (TEXT + bytes(12), 0, "Invalid JSON"),
        (TEXT + bytes(11), len(TEXT), "inputs[0] (x): of its 12 bytes the request has 11"),
        (TEXT + bytes(13), len(TEXT), "13 bytes follow the JSON, and binary_data_size of all inputs is 12 together"),
        (TEXT, len(TEXT), "of its 12 bytes the request has 0"),
        (TEXT.replace(b"12}", b"8}") + bytes(8), len(TEXT) - 1, "FP32 [1, 3] has 12 bytes, got 8"),
        (TEXT.replace(b"12}", b"-12}") + bytes(12), len(TEXT) + 1, "binary_data_size: should be greater than or equal"),
    ],
)
def test_bytes_that_do_not_fit(server: Serving, body: bytes, length: object, error: str) -> None:
    answer = server.ask("POST", PATH, body, {"Inference-Header-Content-Length": length})
    assert (answer.status, error in answer.error) == (400, True), answer.error


def test_binary_without_its_header(server: Serving) -> None:
    assert "Invalid JSON: trailing characters" in server.ask("POST", PATH, TEXT + bytes(12)).error


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", infer_path("absent"), 404),
        ("POST", infer_path("smal"), 404),
        ("POST", "/v2/models/small/versions/2/infer", 404),
        ("GET", "/v2/models/absent", 404),
        ("GET", "/v2/models/small/versions/0", 404),
        ("GET", "/v2/models/absent/ready", 404),
        ("GET", "/models/absent", 404),
        ("GET", "/v3", 404),
        ("GET", PATH, 405),
        ("DELETE", "/v2", 405),
        ("POST", "/v2/repository/models/absent/load", 404),
        ("POST", "/v2/repository/models/absent/unload", 404),
    ],
)
def test_paths_that_there_are_not(server: Serving, method: str, path: str, status: int) -> None:
    answer = server.ask(method, path, in_json({"x": X}) if "infer" in path else b"")
    assert (answer.status, bool(answer.error)) == (status, True)


def test_the_name_that_may_be_meant(server: Serving) -> None:
    assert server.get("/v2/models/smal").error.endswith("; did you mean 'small'?")


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/v2/repository/index", b'{"ready": 3}', "ready: should be a valid boolean"),
        ("/v2/repository/index", b"[", "Invalid JSON"),
        (
            "/v2/repository/models/small/load",
            b'{"parameters": {"config": "{}"}}',
            "parameters.config: a model is loaded",
        ),
        ("/v2/repository/models/small/load", b'{"parameters": 3}', "parameters: should be an object"),
    ],
)
def test_messages_to_the_repository(server: Serving, path: str, body: bytes, error: str) -> None:
    answer = server.ask("POST", path, body)
    assert (answer.status, error in answer.error) == (400, True), answer.error


def test_bodies_that_are_too_large(server: Serving) -> None:
    with server.client() as client:  # refused before it comes
        client.socket.sendall(head("POST", PATH, {"Content-Length": 1 << 50}))
        answer = client.receive()
        assert (answer.status, answer.error) == (413, f"the request has more than {MAX_BODY} bytes (max_body)")
    with server.client() as client:  # and while it comes
        client.socket.sendall(head("POST", PATH, {"Transfer-Encoding": "chunked"}))
        for _ in range(5):
            client.socket.sendall(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        assert client.receive().status == 413
    bomb = gzip.compress(bytes(MAX_BODY + 1))
    assert server.ask("POST", PATH, bomb, {"Content-Encoding": "gzip"}).status == 413


def test_a_connection_goes_on_after_what_was_too_large(server: Serving) -> None:
    with server.client() as client:
        assert client.ask("POST", PATH, bytes(MAX_BODY + 1)).status == 413
        assert client.ask("POST", PATH, in_json({"x": X})).status == 200


@pytest.mark.parametrize(
    ("encoding", "body", "status", "error"),
    [
        ("br", b"x", 415, "Content-Encoding: 'br' is none of identity, gzip, deflate"),
        ("gzip", b"no gzip", 400, "Content-Encoding: gzip: Error -3"),
        ("gzip", gzip.compress(in_json({"x": X}), mtime=0)[:-9], 400, "the body is cut off, or something follows"),
        ("deflate", b"", 400, "the body is cut off"),
    ],
    ids=["unknown", "other contents", "cut off", "empty"],
)
def test_codings_that_are_wrong(server: Serving, encoding: str, body: bytes, status: int, error: str) -> None:
    answer = server.ask("POST", PATH, body, {"Content-Encoding": encoding})
    assert (answer.status, error in answer.error) == (status, True), answer.error


@pytest.mark.parametrize("n_bytes", [100, 100_000])
def test_a_body_that_does_not_come(server: Serving, n_bytes: int) -> None:
    with server.client() as client:
        client.socket.sendall(head("POST", PATH, {"Content-Length": n_bytes}) + bytes(50))
        answer = client.receive()
    assert (answer.status, "did not come within 0.5 seconds (read_timeout)" in answer.error) == (408, True)
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("text", [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n: x\r\n\r\n"])
def test_what_is_no_http(server: Serving, text: bytes) -> None:
    with server.client() as client:
        client.socket.sendall(text)
        answer = client.receive()
    assert (answer.status, answer.error) == (400, "Invalid HTTP request received.")


def test_two_lengths_of_one_body(server: Serving) -> None:
    with server.client() as client:
        client.socket.sendall(head("POST", PATH, {"Content-Length": "5", "content-length": "6"}) + b"12345")
        assert client.receive().status == 400


def test_extents_that_no_plan_can_have(server: Serving) -> None:
    """A model of free extents is planned for what comes; for an empty rank nothing is."""
    answer = server.ask("POST", infer_path("free"), in_json({"x": np.ones((2, 2, 2), np.float32)}))
    assert (answer.status, "rank" in answer.error) == (400, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 65) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TENSOR, "parameters"]), inner),
    max_leaves=6,
)


@settings(max_examples=150)
@given(place=st.sampled_from([*TENSOR, "parameters", "outputs", "id", "inputs"]), value=JSON)
def test_a_field_of_anything_is_answered_or_named(server: Serving, place: str, value: Any) -> None:
    body = with_input(**{place: value}) if place in {*TENSOR, "parameters"} else with_fields(**{place: value})
    answer = server.ask("POST", PATH, body)
    assert answer.status in (200, 400)
    assert answer.status == 200 or answer.error


@settings(max_examples=150)
@given(start=st.integers(0, 200), text=st.binary(min_size=1, max_size=8), length=st.integers(0, 250))
def test_bytes_changed_at_random(server: Serving, start: int, text: bytes, length: int) -> None:
    body, _ = binary({"x": X})
    changed = body[:start] + text + body[start + len(text) :]
    answer = server.ask("POST", PATH, changed, {"Inference-Header-Content-Length": length})
    assert answer.status in (200, 400)


def test_full_queues_and_deadlines() -> None:
    image = np.ones(gates.SHAPE, np.float32)
    body, headers = binary({"x": image})
    with serving({"gated": gates.gated()}, max_waiting=1, max_requests=3) as server, gates.closed() as gate:
        clients = [asking(server, body, headers)]
        gates.wait_for_a_run()
        late, late_headers = binary({"x": image}, parameters={"timeout": 50_000, "binary_data_output": True})
        clients.append(asking(server, late, late_headers))
        server.wait_until("gated", n_waiting=1)
        threading.Event().wait(0.1)  # its deadline passes while it waits, and it makes room for the next
        clients.append(asking(server, body, headers))
        overdue = clients.pop(1).last()
        assert (overdue.status, "deadline" in overdue.error) == (504, True)
        refused = server.ask("POST", infer_path("gated"), body, headers)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "1 requests wait (max_waiting)" in refused.error
        gate.set()
        assert [client.last().status for client in clients] == [200, 200]
    with serving({"gated": gates.gated()}, max_requests=1) as server, gates.closed() as gate:
        client = asking(server, body, headers)
        gates.wait_for_a_run()
        refused = server.ask("POST", infer_path("gated"), body, headers)
        assert (refused.status, refused.error) == (503, "1 requests are served now (max_requests)")
        assert server.get("/v2/health/live").status == 200
        gate.set()
        assert client.last().status == 200


def asking(server: Serving, body: bytes, headers: Mapping[str, str]) -> Client:
    client = server.client()
    client.send("POST", infer_path("gated"), body, headers)
    return client


def test_the_deadline_of_all() -> None:
    with serving({"gated": gates.gated()}, timeout=0.05) as server, gates.closed() as gate:
        client = asking(server, *binary({"x": np.ones(gates.SHAPE, np.float32)}))
        gates.wait_for_a_run()
        threading.Event().wait(0.1)
        gate.set()
        assert client.last().status == 504
