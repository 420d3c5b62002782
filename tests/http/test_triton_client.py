"""The protocol as a client of NVIDIA's Triton Inference Server speaks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from tests.http.running import Serving, scaling, serving
from tests.http.test_protocol import typed

triton: Any = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")

SHAPE = (1, 3, 64, 64)
IMAGE = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)


def network() -> bl.Builder:
    """A small network of two outputs."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("image", SHAPE).conv(rng.standard_normal((17, 3, 3, 3), dtype=np.float32) / 5, pads=1).relu()
    b.output("features", x)
    b.output("mean", b.op("GlobalAveragePool", x))
    return b


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving({"network": network(), "scaling": scaling(2), "texts": typed("INT64")}) as server:
        yield server


@pytest.fixture
def client(server: Serving) -> Iterator[Any]:
    client = triton.InferenceServerClient(
        f"127.0.0.1:{server.port}", concurrency=4, network_timeout=300, connection_timeout=300
    )
    yield client
    client.close()


def image(*, binary: bool = True, data: np.ndarray = IMAGE) -> Any:
    given = triton.InferInput("image", list(data.shape), "FP32")
    given.set_data_from_numpy(data, binary_data=binary)
    return given


def expected() -> dict[str, np.ndarray]:
    with bl.load(network(), threads=1) as session:
        names = [info.name for info in session.get_outputs()]
        return dict(zip(names, session.run(None, {"image": IMAGE}), strict=True))


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("network")
    assert client.is_model_ready("network", "1")
    assert not client.is_model_ready("absent")
    assert client.get_server_metadata()["version"] == bl.__version__
    metadata = client.get_model_metadata("network")
    assert metadata["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [*SHAPE]}]
    assert [each["name"] for each in metadata["outputs"]] == ["features", "mean"]


@pytest.mark.parametrize("given", ["binary", "json"])
@pytest.mark.parametrize("asked", ["binary", "json", None])
def test_infer(client: Any, given: str, asked: str | None) -> None:
    outputs = asked and [triton.InferRequestedOutput(name, binary_data=asked == "binary") for name in expected()]
    result = client.infer("network", [image(binary=given == "binary")], outputs=outputs, request_id="7")
    assert result.get_response()["id"] == "7"
    for name, array in expected().items():
        np.testing.assert_allclose(result.as_numpy(name), array, rtol=1e-5, atol=1e-6)


def test_one_output_of_two(client: Any) -> None:
    result = client.infer("network", [image()], outputs=[triton.InferRequestedOutput("mean")], model_version="1")
    assert result.as_numpy("features") is None
    np.testing.assert_allclose(result.as_numpy("mean"), expected()["mean"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed(client: Any, algorithm: str) -> None:
    options = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    result = client.infer("network", [image()], **options)
    np.testing.assert_allclose(result.as_numpy("mean"), expected()["mean"], rtol=1e-5, atol=1e-6)


def test_integers(client: Any) -> None:
    values = np.array([[1, -2], [1 << 62, 0]], np.int64)
    for binary in (True, False):
        given = triton.InferInput("x", [2, 2], "INT64")
        given.set_data_from_numpy(values, binary_data=binary)
        np.testing.assert_array_equal(client.infer("texts", [given]).as_numpy("y"), values.T)


def test_requests_that_go_on_at_once(client: Any) -> None:
    waiting = [client.async_infer("network", [image(data=factor * IMAGE)]) for factor in range(8)]
    mean = expected()["mean"]
    for factor, each in enumerate(waiting):
        np.testing.assert_allclose(each.get_result().as_numpy("mean"), factor * mean, rtol=1e-4, atol=1e-5)


def test_errors_as_the_client_raises_them(client: Any) -> None:
    with pytest.raises(Exception, match=r"\[404\] no model 'netwrok'; .* did you mean 'network'"):
        client.infer("netwrok", [image()])
    with pytest.raises(Exception, match=r"\[400\] .*axis 3 must be 64"):
        client.infer("network", [image(data=np.ones((1, 3, 64, 63), np.float32))])
    texts = triton.InferInput("x", [2, 2], "BYTES")
    texts.set_data_from_numpy(np.array([["a", "b"], ["c", "d"]], object))
    with pytest.raises(Exception, match="must be INT64, got 'BYTES'"):
        client.infer("texts", [texts])
    with pytest.raises(Exception, match="models here keep no state"):
        client.infer("network", [image()], sequence_id=1, sequence_start=True)


def test_a_timeout_in_microseconds(client: Any) -> None:
    assert client.infer("network", [image()], timeout=60_000_000).as_numpy("mean") is not None


def test_the_repository(client: Any) -> None:
    names = [each["name"] for each in client.get_model_repository_index()]
    assert names == ["network", "scaling", "texts"]
    client.unload_model("scaling")
    assert not client.is_model_ready("scaling")
    assert not client.is_server_ready()
    client.load_model("scaling")
    assert client.is_model_ready("scaling")
    with pytest.raises(Exception, match=r"parameters\.config: a model is loaded from the file"):
        client.load_model("scaling", config="{}")


def test_a_network_of_the_zoo_by_several_clients(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    bl.save(zoo.build("squeezenet1_1", size=64), path)
    x = np.random.default_rng(2).standard_normal((1, 3, 64, 64), dtype=np.float32)
    with bl.load(path, threads=1) as session:
        [wanted] = session.run(None, {"x": x})
        [name] = [info.name for info in session.get_outputs()]
    right: list[bool] = []
    with serving({"model": str(path)}) as server:

        def ask() -> None:
            with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
                given = triton.InferInput("x", [*x.shape], "FP32")
                given.set_data_from_numpy(x)
                answers = [client.infer("model", [given]).as_numpy(name) for _ in range(10)]
                right.extend(np.allclose(answer, wanted, 1e-4, 1e-5) for answer in answers)

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
    assert right == [True] * 40
