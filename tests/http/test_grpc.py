"""The protocol over gRPC, as a client of NVIDIA's Triton Inference Server speaks it, and as it stands."""

from __future__ import annotations

import queue
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blocklayout as bl

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("grpc", reason="the extra grpc is not installed")

import grpc

from blocklayout.http.grpc_service import MESSAGES
from tests import gates
from tests.http import test_stopping
from tests.http.running import PATIENCE_S, Serving, freed, port_of, scaling, serving, started
from tests.http.test_protocol import typed
from tests.http.test_stopping import refused, wait_for_requests
from tests.http.test_triton_client import IMAGE, expected, network

triton: Any = pytest.importorskip("tritonclient.grpc", reason="tritonclient[grpc] is not installed")

slow = test_stopping.slow

MODELS = {
    "network": network(),
    "scaling": scaling(2),
    "gated": gates.gated(),
    "int8": typed("INT8"),
    "rows": freed(scaling(2)),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving(MODELS, grpc_port=0, max_waiting=1, max_body=1 << 20) as server:
        yield server


@pytest.fixture
def client(server: Serving) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        yield client


def given(name: str, x: np.ndarray, datatype: str = "FP32") -> Any:
    tensor = triton.InferInput(name, list(x.shape), datatype)
    tensor.set_data_from_numpy(x)
    return tensor


def call(server: Serving, method: str, **fields: Any) -> Any:
    """An answer to a message of any kind."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        ask = channel.unary_unary(
            f"/inference.GRPCInferenceService/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES[f"{method}Response"].FromString,
        )
        return ask(MESSAGES[f"{method}Request"](**fields), timeout=PATIENCE_S)


def refusal(server: Serving, **fields: Any) -> tuple[str, str]:
    """The code and words with which a run is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call(server, "ModelInfer", **fields)
    return caught.value.code().name, caught.value.details()


def test_messages_are_those_of_the_client() -> None:
    service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
    for name, message in MESSAGES.items():
        theirs = getattr(service_pb2, name, None)
        if theirs is not None:
            fields, others = message.DESCRIPTOR.fields, theirs.DESCRIPTOR.fields
            assert [(f.name, f.number, f.type) for f in fields] == [(f.name, f.number, f.type) for f in others]


def test_the_server_and_its_models(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("network", "1")
    about = client.get_server_metadata()
    assert (about.name, about.version) == ("blocklayout", bl.__version__)
    metadata = client.get_model_metadata("network")
    assert [(each.name, each.datatype, [*each.shape]) for each in metadata.inputs] == [
        ("image", "FP32", [1, 3, 64, 64])
    ]
    assert [each.name for each in metadata.outputs] == ["features", "mean"]


def test_answers_are_those_of_the_session(client: Any) -> None:
    answer = client.infer("network", [given("image", IMAGE)], request_id="seven")
    assert answer.get_response().id == "seven"
    for name, array in expected().items():
        np.testing.assert_allclose(answer.as_numpy(name), array, rtol=1e-5, atol=1e-5)
    mean = client.infer("network", [given("image", IMAGE)], outputs=[triton.InferRequestedOutput("mean")])
    assert [each.name for each in mean.get_response().outputs] == ["mean"]


def test_numbers_in_their_fields(server: Serving) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "contents": {"fp32_contents": [1, 2, 3]}}
    answer = call(server, "ModelInfer", model_name="scaling", inputs=[x])
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 4, 6]


def test_models_come_and_go(client: Any) -> None:
    client.unload_model("scaling")
    assert not client.is_model_ready("scaling")
    assert not client.is_server_ready()
    states = {each.name: each.state for each in client.get_model_repository_index().models}
    assert states["scaling"] == "UNAVAILABLE"
    with pytest.raises(triton.InferenceServerException, match="is not there: unloaded") as caught:
        client.infer("scaling", [given("x", np.ones((1, 3), np.float32))])
    assert caught.value.status() == "StatusCode.UNAVAILABLE"
    client.load_model("scaling")
    assert client.is_server_ready()
    with pytest.raises(triton.InferenceServerException, match=r"parameters\.config: a model is loaded from the file"):
        client.load_model("scaling", config="{}")


X = {"name": "x", "datatype": "FP32", "shape": [1, 3]}
RAW = np.ones((1, 3), np.float32).tobytes()


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"model_name": "scalin"}, "NOT_FOUND", "did you mean 'scaling'"),
        ({"model_version": "2"}, "NOT_FOUND", "has version 1, not '2'"),
        ({"inputs": [], "raw_input_contents": []}, "INVALID_ARGUMENT", "x"),
        ({"inputs": [X | {"name": "y"}]}, "INVALID_ARGUMENT", r"inputs\[0\].name: no input 'y'"),
        ({"inputs": [X | {"datatype": "BYTES"}]}, "INVALID_ARGUMENT", "datatype: must be FP32, got 'BYTES'"),
        ({"inputs": [X | {"shape": [-1, 3]}]}, "INVALID_ARGUMENT", r"inputs\[0\].shape\[0\]: should be greater"),
        ({"raw_input_contents": []}, "INVALID_ARGUMENT", "takes 3 elements"),
        ({"raw_input_contents": [RAW, RAW]}, "INVALID_ARGUMENT", "2 of them for 1 inputs"),
        ({"raw_input_contents": [RAW[:-1]]}, "INVALID_ARGUMENT", "has 12 bytes, got 11"),
        ({"inputs": [X | {"contents": {"fp32_contents": [1.0]}}]}, "INVALID_ARGUMENT", "leave it out"),
        ({"outputs": [{"name": "z"}]}, "INVALID_ARGUMENT", "z"),
        ({"parameters": {"timeout": {"string_param": "1s"}}}, "INVALID_ARGUMENT", "timeout: should be a valid integer"),
        ({"parameters": {"priority": {"uint64_param": 1}}}, "INVALID_ARGUMENT", "priority: requests run in the order"),
        ({"raw_input_contents": [bytes(2 << 20)]}, "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_a_bad_request_is_refused(server: Serving, fields: dict[str, Any], code: str, words: str) -> None:
    right = {"model_name": "scaling", "inputs": [X], "raw_input_contents": [RAW]}
    assert call(server, "ModelInfer", **right).outputs[0].name == "y"
    found, said = refusal(server, **(right | fields))
    assert found == code
    assert re.search(words, said), said


def test_many_numbers_in_their_fields(server: Serving) -> None:
    x = np.arange(3 << 14, dtype=np.float32).reshape(-1, 3)
    rows = {"name": "x", "datatype": "FP32", "shape": x.shape, "contents": {"fp32_contents": x.ravel().tolist()}}
    answer = call(server, "ModelInfer", model_name="rows", inputs=[rows])
    assert answer.raw_output_contents[0] == (2 * x).tobytes()


def test_every_field_of_integers(server: Serving) -> None:
    x = {"name": "x", "datatype": "INT8", "shape": [2], "contents": {"int_contents": [-1, 300]}}
    code, words = refusal(server, model_name="int8", inputs=[x])
    assert code == "INVALID_ARGUMENT"
    assert "INT8 cannot hold all" in words


def test_a_full_queue_a_deadline_and_a_client_that_goes(server: Serving, client: Any) -> None:
    x = given("x", np.ones(gates.SHAPE, np.float32))
    with gates.closed() as gate:
        client.async_infer("gated", [x], lambda **_: None)
        gates.wait_for_a_run()
        with pytest.raises(triton.InferenceServerException) as caught:
            client.infer("gated", [x], client_timeout=0.3)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        server.wait_until("gated", n_waiting=0)
        gone = client.async_infer("gated", [x], lambda **_: None)
        server.wait_until("gated", n_waiting=1)
        with pytest.raises(triton.InferenceServerException, match="max_waiting") as caught:
            client.infer("gated", [x])
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        gone.cancel()
        server.wait_until("gated", n_waiting=0)
        gate.set()
        server.wait_until("gated", finished=1, cancelled=2, refused=1)


def test_many_clients(server: Serving) -> None:
    wrong: list[object] = []

    def ask(seed: int) -> None:
        with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            for n in range(20):
                x = np.full((1, 3), 20 * seed + n, np.float32)
                try:
                    y = client.infer("scaling", [given("x", x)]).as_numpy("y")
                except triton.InferenceServerException as error:  # one may wait
                    if "max_waiting" not in str(error):
                        wrong.append(error)
                else:
                    wrong.extend([] if np.array_equal(y, 2 * x) else [y])

    clients = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert not wrong


def test_the_command_says_where_it_listens_and_drains(tree_environ: dict[str, str], tmp_path: Path) -> None:
    bl.save(scaling(2), tmp_path / "model.onnx")
    with started(["model.onnx", "--port", "0", "--grpc-port", "0"], tree_environ, tmp_path) as (process, lines):
        [port] = [line["port"] for line in lines if line["message"] == "listening for gRPC"]
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert client.infer("model", [given("x", np.ones((1, 3), np.float32))]).as_numpy("y").tolist() == [
                [2, 2, 2]
            ]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_what_was_taken_is_answered_before_it_ends(slow: Path, tree_environ: dict[str, str], tmp_path: Path) -> None:
    x = np.ones((1, 64, 96, 96), np.float32)
    arguments = [slow, "--port", "0", "--grpc-port", "0", "--threads", "1", "--tune", "model"]
    with started(arguments, tree_environ, tmp_path) as (process, lines):
        [port] = [line["port"] for line in lines if line["message"] == "listening for gRPC"]
        ended: queue.Queue[Any] = queue.Queue()
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            for _ in range(3):
                client.async_infer("slow", [given("x", x)], lambda result, error: ended.put((result, error)))
            wait_for_requests(port_of(lines))
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
            assert [ended.get(timeout=PATIENCE_S)[1] for _ in range(3)] == [None] * 3


def test_what_cannot_start_is_a_line(tree_environ: dict[str, str], tmp_path: Path) -> None:
    bl.save(scaling(2), tmp_path / "model.onnx")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = refused(tree_environ, tmp_path, "model.onnx", "--port", "0", "--grpc-port", port)
    assert f"cannot listen on 127.0.0.1, port {port}, for gRPC" in said
