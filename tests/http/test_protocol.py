"""The Open Inference Protocol over loopback: metadata, tensors in JSON and in binary, the repository, pages."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blocklayout as bl

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from onnx import TensorProto, helper
from prometheus_client.parser import text_string_to_metric_families

from tests.http.running import Answer, Serving, binary, freed, head, in_json, infer_path, scaling, serving

X = np.arange(3, dtype=np.float32).reshape(1, 3)
IMAGE = np.random.default_rng(0).standard_normal((1, 3, 96, 96), dtype=np.float32)
TYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def typed(datatype: str) -> bytes:
    """A model whose output is its input, of some type."""
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[datatype]))
    x, y = (helper.make_tensor_value_info(name, dtype, [2, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], "typed", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    text: bytes = proto.SerializeToString()
    return text


def two_outputs() -> bl.Builder:
    b = bl.Builder()
    x = b.input("x", (1, 3, 96, 96))
    b.output("twice", x * np.float32(2))
    b.output("mean", b.op("GlobalAveragePool", x))
    return b


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    models = {"small": scaling(2), "large": two_outputs(), "rows": freed(scaling(3))}
    with serving(models) as server:
        yield server


def infer(server: Serving, model: str, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    return server.ask("POST", infer_path(model), body, headers)


def test_the_server_and_its_models(server: Serving) -> None:
    about = server.get("/v2").json
    assert about["name"] == "blocklayout"
    assert "binary_tensor_data" in about["extensions"]
    assert server.get("/v2/health/live").status == server.get("/v2/health/ready").status == 200
    assert server.get("/v2/models/small/ready").json == server.get("/v2/models/small/versions/1/ready").json
    expected = {
        "name": "rows",
        "versions": ["1"],
        "platform": "blocklayout",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    assert server.get("/v2/models/rows").json == server.get("/v2/models/rows/versions/1").json == expected


@pytest.mark.parametrize("data", [[0, 1, 2], [[0, 1, 2]], [0.0, 1.0, 2.0], [[0, 1.0, 2]]])
def test_numbers_in_json_flat_or_nested(server: Serving, data: Any) -> None:
    inputs = [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": data}]
    answer = infer(server, "small", json.dumps({"id": "seven", "inputs": inputs, "unknown": 1}).encode())
    outputs = [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [0.0, 2.0, 4.0]}]
    assert answer.json == {"model_name": "small", "model_version": "1", "id": "seven", "outputs": outputs}
    assert answer.headers["content-type"] == "application/json"


def test_bytes_behind_the_json(server: Serving) -> None:
    answer = server.ask("POST", "/v2/models/large/versions/1/infer", *binary({"x": IMAGE}))
    outputs = answer.outputs()
    assert [each["shape"] for each in answer.json["outputs"]] == [[1, 3, 96, 96], [1, 3, 1, 1]]
    np.testing.assert_array_equal(np.frombuffer(outputs["twice"], np.float32), 2 * IMAGE.ravel())
    mean = np.frombuffer(outputs["mean"], np.float32)
    np.testing.assert_allclose(mean, IMAGE.mean((2, 3)).ravel(), rtol=1e-4, atol=1e-5)


def test_outputs_that_are_asked_for_each_in_its_form(server: Serving) -> None:
    asked = [{"name": "mean"}, {"name": "twice", "parameters": {"binary_data": True}}]
    answer = infer(server, "large", in_json({"x": IMAGE}, outputs=asked))
    assert [each["name"] for each in answer.json["outputs"]] == ["mean", "twice"]
    outputs = answer.outputs()
    assert len(outputs["mean"]) == 3
    np.testing.assert_array_equal(np.frombuffer(outputs["twice"], np.float32), 2 * IMAGE.ravel())
    body, headers = binary({"x": IMAGE}, outputs=[{"name": "mean", "parameters": {"binary_data": False}}])
    assert infer(server, "large", body, headers).outputs() == {"mean": outputs["mean"]}


@pytest.mark.filterwarnings("ignore:the model is declared in f16")
@pytest.mark.parametrize("datatype", TYPES)
def test_every_type_in_json_and_in_binary(datatype: str) -> None:
    values = np.array([[1, 0], [1, 1]]).astype(TYPES[datatype])
    tensor = {"name": "x", "shape": [2, 2], "datatype": datatype}
    given: list[Any] = [datatype == "BOOL", False, datatype == "BOOL", True] if datatype == "BOOL" else [1, 0, 1, 1]
    with serving({"typed": typed(datatype)}) as server:
        assert server.get("/v2/models/typed").json["inputs"] == [tensor]
        answer = infer(server, "typed", json.dumps({"inputs": [tensor | {"data": given}]}).encode())
        assert answer.outputs() == {"y": [1, 1, 0, 1]}
        text = json.dumps(
            {
                "inputs": [tensor | {"parameters": {"binary_data_size": values.nbytes}}],
                "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
            }
        ).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        answer = infer(server, "typed", text + values.tobytes(), headers)
        assert answer.json["outputs"][0]["datatype"] == datatype
        assert answer.outputs()["y"] == values.T.tobytes()


def test_numbers_that_json_has_not(server: Serving) -> None:
    feed = {"x": np.array([[np.inf, 1, np.nan]], np.float32)}
    body, headers = binary(feed)
    answer = infer(server, "small", body, headers)
    np.testing.assert_array_equal(np.frombuffer(answer.outputs()["y"], np.float32), 2 * feed["x"][0])
    body, headers = binary(feed, outputs=[{"name": "y", "parameters": {"binary_data": False}}])
    assert "output 'y' has values that are not finite" in infer(server, "small", body, headers).error


def test_rows_of_any_number(server: Serving) -> None:
    for n in (1, 4, 0):
        answer = infer(server, "rows", *binary({"x": np.ones((n, 3), np.float32)}))
        assert answer.outputs()["y"] == np.full((n, 3), 3, np.float32).tobytes()


@pytest.mark.parametrize("model", ["small", "large"])
@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_requests(server: Serving, model: str, encoding: str, pack: Any) -> None:
    body, headers = binary({"x": X if model == "small" else IMAGE})
    packed = infer(server, model, pack(body), headers | {"Content-Encoding": encoding})
    assert packed.outputs() == infer(server, model, body, headers).outputs()


def test_a_body_in_chunks(server: Serving) -> None:
    body, headers = binary({"x": IMAGE})
    with server.client() as client:
        client.socket.sendall(head("POST", infer_path("large"), headers | {"Transfer-Encoding": "chunked"}))
        for start in range(0, len(body), 50_000):
            part = body[start : start + 50_000]
            client.socket.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        client.socket.sendall(b"0\r\n\r\n")
        chunked = client.receive()
    assert chunked.outputs() == infer(server, "large", body, headers).outputs()


def test_one_connection_for_requests_of_all_sizes(server: Serving) -> None:
    with server.client() as client:
        for model, x in (("large", IMAGE), ("small", X), ("large", 2 * IMAGE), ("large", IMAGE), ("small", X)):
            first = client.ask("POST", infer_path(model), *binary({"x": x})).outputs()
            np.testing.assert_array_equal(np.frombuffer(next(iter(first.values())), np.float32), 2 * x.ravel())


def test_requests_that_do_not_wait_for_answers(server: Serving) -> None:
    with server.client() as client:
        for x in (IMAGE, 3 * IMAGE):
            client.send("POST", infer_path("large"), *binary({"x": x}))
        for x in (IMAGE, 3 * IMAGE):
            outputs = client.receive().outputs()
            np.testing.assert_array_equal(np.frombuffer(outputs["twice"], np.float32), 2 * x.ravel())


def test_a_client_that_asks_before_it_sends(server: Serving) -> None:
    body, headers = binary({"x": IMAGE})
    with server.client() as client:
        headers |= {"Content-Length": str(len(body)), "Expect": "100-continue"}
        client.socket.sendall(head("POST", infer_path("large"), headers))
        assert client.socket.recv(1 << 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.socket.sendall(body)
        assert client.receive().outputs().keys() == {"twice", "mean"}


def test_rows_are_joined() -> None:
    with serving({"rows": freed(scaling(3))}, max_batch=4, max_delay_ms=500.0) as server:
        clients = [server.client() for _ in range(4)]
        for factor, client in enumerate(clients):
            client.send("POST", infer_path("rows"), *binary({"x": factor * X}))
        for factor, client in enumerate(clients):
            assert client.receive().outputs()["y"] == (3 * factor * X).tobytes()
            client.socket.close()
        assert server.stats("rows").batches == {4: 1}


def test_models_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    bl.save(scaling(2), path)
    with serving({"model": str(path), "other": scaling(5)}) as server:
        assert [each["state"] for each in server.ask("POST", "/v2/repository/index").json] == ["READY", "READY"]
        bl.save(scaling(4), path)
        assert server.ask("POST", "/v2/repository/models/model/load", b"{}").status == 200
        assert infer(server, "model", *binary({"x": X})).outputs()["y"] == (4 * X).tobytes()
        assert server.ask("POST", "/v2/repository/models/model/unload").status == 200
        assert "model 'model' is not there: unloaded" in infer(server, "model", *binary({"x": X})).error
        assert server.get("/v2/models/model/ready").status == server.get("/v2/health/ready").status == 503
        index = server.ask("POST", "/v2/repository/index", b'{"ready": true}').json
        assert [each["name"] for each in index] == ["other"]
        path.write_bytes(b"no model")
        refusal = server.ask("POST", "/v2/repository/models/model/load")
        assert (refusal.status, "ONNX" in refusal.error) == (400, True)
        [gone, _] = server.ask("POST", "/v2/repository/index").json
        assert (gone["state"], gone["reason"]) == ("UNAVAILABLE", refusal.error)
        bl.save(scaling(6), path)
        assert server.ask("POST", "/v2/repository/models/model/load").status == 200
        assert infer(server, "model", *binary({"x": X})).outputs()["y"] == (6 * X).tobytes()
        bl.save(renamed(), path)
        refusal = server.ask("POST", "/v2/repository/models/model/load")
        assert (refusal.status, "serve it as another one" in refusal.error) == (400, True)
        assert infer(server, "model", *binary({"x": X})).outputs()["y"] == (6 * X).tobytes()


def renamed() -> bl.Builder:
    b = bl.Builder()
    b.output("z", b.input("x", (1, 3)).relu())
    return b


def test_a_saved_session_and_a_network_of_the_zoo(tmp_path: Path) -> None:
    path = tmp_path / "saved.session"
    with bl.load(scaling(2), threads=1) as session:
        session.save(path)
    with serving({"saved": str(path), "zoo": "zoo:m3"}, {"tune": "model"}) as server:
        assert infer(server, "saved", *binary({"x": X})).outputs()["y"] == (2 * X).tobytes()
        assert server.get("/v2/models/zoo").json["inputs"][0]["shape"] == [1, 1, 32000]


def test_pages(server: Serving) -> None:
    page = server.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert '<a href="models/small">small</a></td><td>READY</td><td>x FP32 1x3</td>' in page.body.decode()
    layouts = server.get("/models/large")
    assert "default-src 'none'" in layouts.body.decode()
    assert '"network"' in layouts.body.decode()
    assert server.get("/docs").status == 200
    paths = server.get("/openapi.json").json["paths"]
    assert "InferRequest" in json.dumps(paths["/v2/models/{name}/versions/{version}/infer"])
    assert "no plan before its first request" in serve_unplanned()


def serve_unplanned() -> str:
    with serving({"free": freed(scaling(1), 2)}) as server:
        refusal = server.get("/models/free").error
        for x in (X, np.ones((2, 2), np.float32)):
            assert infer(server, "free", *binary({"x": x})).outputs()["y"] == x.tobytes()
        assert server.get("/models/free").status == 200
    return refusal


def test_metrics_of_all_models_each_once(server: Serving) -> None:
    infer(server, "small", *binary({"x": X}))
    text = server.get("/metrics").body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE blocklayout_requests_total counter") == 1
    of_models = {sample.labels["model"] for sample in families["blocklayout_requests"].samples}
    assert of_models == {"small", "large", "rows"}
    [ok] = [each.value for each in families["blocklayout_http_requests"].samples if each.labels.get("status") == "200"]
    assert ok > 0


def test_what_the_protocol_cannot_express_is_refused() -> None:
    x = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    refusal = pytest.raises(bl.UnsupportedError, match="'x' is sequence: the protocol has row-major tensors alone")
    with refusal, serving({"sequence": proto.SerializeToString()}):
        pass


def test_many_large_requests_of_one_connection(server: Serving) -> None:
    """Bodies of a connection are received in the same memory, once the run before is over."""
    with server.client() as client:
        for factor in range(20):
            outputs = client.ask("POST", infer_path("large"), *binary({"x": factor * IMAGE})).outputs()
            np.testing.assert_array_equal(np.frombuffer(outputs["twice"], np.float32), 2 * factor * IMAGE.ravel())
