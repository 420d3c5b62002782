"""The protocol as KServe's own client speaks it, over HTTP and over gRPC."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("grpc", reason="the extra grpc is not installed")

import grpc

from blocklayout.http.grpc_service import MESSAGES
from tests.http.running import Serving, freed, scaling, serving
from tests.http.test_protocol import TYPES, two_outputs, typed

if "tritonclient.grpc" in sys.modules:
    text = "tritonclient.grpc is imported, whose messages have the same names: run this file by itself"
    pytest.skip(text, allow_module_level=True)
kserve: Any = pytest.importorskip("kserve", reason="kserve is not installed; .ci/slow kserve installs it")
httpx: Any = pytest.importorskip("httpx", reason="it comes with kserve")

IMAGE = np.random.default_rng(1).standard_normal((1, 3, 96, 96), dtype=np.float32)
X = np.array([[1, 2, 3]], np.float32)

MODELS = {"scaling": scaling(2), "image": two_outputs(), "rows": freed(scaling(3)), "absent": scaling(1)}


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # that f16 is computed in f32
        with serving(MODELS | {name.lower(): typed(name) for name in TYPES}, grpc_port=0) as server:
            yield server


Asking = Callable[[Any], Coroutine[Any, Any, Any]]


class Rest:
    """The client over HTTP, whose methods take the server's address each time."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def infer(self, request: Any) -> Any:
        return await self._client.infer(self._base, request, request.model_name)

    async def is_server_live(self) -> Any:
        return await self._client.is_server_live(self._base)

    async def is_server_ready(self) -> Any:
        return await self._client.is_server_ready(self._base)

    async def is_model_ready(self, name: str) -> Any:
        return await self._client.is_model_ready(self._base, name)


def by_http(server: Serving, ask: Asking) -> Any:
    return asyncio.run(_asked(lambda: Rest(server.port), ask))


def by_grpc(server: Serving, ask: Asking) -> Any:
    return asyncio.run(_asked(lambda: kserve.InferenceGRPCClient(f"127.0.0.1:{server.grpc_port}", retries=0), ask))


async def _asked(make: Callable[[], Any], ask: Asking) -> Any:
    async with make() as client:
        return await ask(client)


CLIENTS = pytest.mark.parametrize("call", [by_http, by_grpc])


def request(
    model: str, x: np.ndarray, datatype: str = "FP32", *, binary: bool = True, name: str = "x", **more: Any
) -> Any:
    given = kserve.InferInput(name, list(x.shape), datatype)
    given.set_data_from_numpy(x, binary_data=binary)
    return kserve.InferRequest(model, [given], **more)


def fields(message: Any) -> dict[str, Any]:
    """Number, type and, of a message, its own fields, by name."""
    return {
        field.name: (field.number, field.type, fields(field.message_type) if field.message_type else {})
        for field in message.fields
    }


def check_within(theirs: dict[str, Any], ours: dict[str, Any], where: str) -> None:
    for name, (number, kind, inner) in theirs.items():
        assert ours[name][:2] == (number, kind), (where, name)
        check_within(inner, ours[name][2], f"{where}.{name}")


def test_messages_are_those_of_the_client() -> None:
    theirs = pytest.importorskip("kserve.protocol.grpc.grpc_predict_v2_pb2")

    methods = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
    for name in (f"{method}{kind}" for method in methods for kind in ("Request", "Response")):
        check_within(fields(getattr(theirs, name).DESCRIPTOR), fields(MESSAGES[name].DESCRIPTOR), name)


@CLIENTS
def test_health(server: Serving, call: Any) -> None:
    assert call(server, lambda client: client.is_server_live()) is True
    assert call(server, lambda client: client.is_server_ready()) is True
    assert call(server, lambda client: client.is_model_ready("scaling")) is True


@CLIENTS
def test_a_model_that_is_not_loaded(server: Serving, call: Any) -> None:
    server.repository.find("absent").unload()
    try:
        assert call(server, lambda client: client.is_model_ready("absent")) is False
        with pytest.raises((httpx.HTTPStatusError, grpc.RpcError), match="model 'absent' is not there: unloaded"):
            call(server, lambda client: client.infer(request("absent", X)))
    finally:
        server.repository.find("absent").load()


def test_a_server_that_is_not_ready(server: Serving) -> None:
    server.repository.find("absent").unload()
    try:
        assert by_grpc(server, lambda client: client.is_server_ready()) is False
        with pytest.raises(httpx.HTTPStatusError, match="not loaded: absent, '503 Service Unavailable'"):
            by_http(server, lambda client: client.is_server_ready())
    finally:
        server.repository.find("absent").load()


@CLIENTS
@pytest.mark.parametrize("given", ["binary", "json"])
@pytest.mark.parametrize("outputs", [None, {"binary_data_output": True}, True, False])
def test_infer(server: Serving, call: Any, given: str, outputs: Any) -> None:
    more: dict[str, Any] = {"parameters": outputs} if isinstance(outputs, dict) else {}
    if isinstance(outputs, bool):
        asked = [kserve.protocol.infer_type.RequestedOutput("mean", {"binary_data": outputs})]
        more["request_outputs"] = asked
    asking = request("image", IMAGE, binary=given == "binary", request_id="seven", **more)
    answer = call(server, lambda client: client.infer(asking))
    assert (answer.id, answer.model_name) == ("seven", "image")
    assert [each.name for each in answer.outputs] == (["mean"] if isinstance(outputs, bool) else ["twice", "mean"])
    found = {each.name: each.as_numpy() for each in answer.outputs}
    np.testing.assert_allclose(found["mean"], IMAGE.mean((2, 3), keepdims=True), rtol=1e-4, atol=1e-6)
    if "twice" in found:
        np.testing.assert_array_equal(found["twice"], 2 * IMAGE)


@CLIENTS
@pytest.mark.parametrize("datatype", [name for name in TYPES if name != "BF16"])  # the client has none
def test_every_type(server: Serving, call: Any, datatype: str) -> None:
    x = np.array([[1, 0], [1, 1]]).astype(TYPES[datatype])
    for binary in (True, False):
        if datatype == "FP16" and not binary:
            continue  # the client refuses to send it in JSON
        asked = {"binary_data_output": binary}
        asking = request(datatype.lower(), x, datatype, binary=binary, parameters=asked)
        answer = call(server, lambda client, asking=asking: client.infer(asking))
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), x.T)


@CLIENTS
def test_no_rows_at_all(server: Serving, call: Any) -> None:
    for n in (4, 0):
        answer = call(server, lambda client, n=n: client.infer(request("rows", np.ones((n, 3), np.float32))))
        assert answer.outputs[0].as_numpy().tolist() == [[3, 3, 3]] * n


@CLIENTS
@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (("scalin", X), "NOT_FOUND", "no model 'scalin'; .* did you mean 'scaling'"),
        (("scaling", X.reshape(3, 1)), "INVALID_ARGUMENT", "got 3x1: axis 0 must be 1"),
        (("scaling", X.astype(np.int32), "INT32"), "INVALID_ARGUMENT", "datatype: must be FP32, got 'INT32'"),
    ],
)
def test_errors_as_the_client_raises_them(
    server: Serving, call: Any, given: tuple[Any, ...], code: str, words: str
) -> None:
    with pytest.raises((httpx.HTTPStatusError, grpc.RpcError), match=words) as caught:
        call(server, lambda client: client.infer(request(*given)))
    if isinstance(caught.value, httpx.HTTPStatusError):
        assert caught.value.response.status_code == {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400}[code]
    else:
        assert caught.value.code().name == code


@CLIENTS
def test_a_name_that_is_wrong(server: Serving, call: Any) -> None:
    with pytest.raises((httpx.HTTPStatusError, grpc.RpcError), match=r"inputs\[0\].name: no input 'y'"):
        call(server, lambda client: client.infer(request("scaling", X, name="y")))


def test_requests_that_go_on_at_once(server: Serving) -> None:
    async def ask(client: Any) -> Any:
        return await asyncio.gather(*(client.infer(request("scaling", n * X, binary=n % 2 > 0)) for n in range(32)))

    for call in (by_http, by_grpc):
        for n, answer in enumerate(call(server, ask)):
            np.testing.assert_array_equal(answer.outputs[0].as_numpy(), 2 * n * X)
