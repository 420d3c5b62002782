"""The Open Inference Protocol over gRPC: its requests are those over HTTP in other messages, and go the same way.

Messages are made of a table of their fields: nothing here is generated.

Source: "Open Inference Protocol", gRPC, version 2, with its extension "model repository".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from pydantic import ValidationError

import blocklayout
from blocklayout.errors import BlockLayoutError, InputError
from blocklayout.http.infer import LARGE_JSON, apart, joined, refusal_of, run
from blocklayout.http.messages import VERSION, InferRequest, RefusalError, ServerMetadata, faults
from blocklayout.http.protocol import Exchange
from blocklayout.http.tensors import read_feed, write_outputs

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.http.repository import Model, Repository
    from blocklayout.http.settings import Settings
    from blocklayout.session import Session

PACKAGE = "inference"

# Fields are numbered from 1 on. [each] is repeated, {each} a map from strings; of fields with | one is there.
_MESSAGES = """
ServerLiveRequest
ServerLiveResponse live:bool
ServerReadyRequest
ServerReadyResponse ready:bool
ModelReadyRequest name:string version:string
ModelReadyResponse ready:bool
ServerMetadataRequest
ServerMetadataResponse name:string version:string extensions:[string]
ModelMetadataRequest name:string version:string
ModelMetadataResponse name:string versions:[string] platform:string inputs:[Metadata] outputs:[Metadata]
Metadata name:string datatype:string shape:[int64]
ModelInferRequest model_name:string model_version:string id:string parameters:{Parameter} inputs:[Input] \
outputs:[RequestedOutput] raw_input_contents:[bytes]
Input name:string datatype:string shape:[int64] parameters:{Parameter} contents:Contents
RequestedOutput name:string parameters:{Parameter}
ModelInferResponse model_name:string model_version:string id:string parameters:{Parameter} outputs:[Output] \
raw_output_contents:[bytes]
Output name:string datatype:string shape:[int64] parameters:{Parameter} contents:Contents
Contents bool_contents:[bool] int_contents:[int32] int64_contents:[int64] uint_contents:[uint32] \
uint64_contents:[uint64] fp32_contents:[float] fp64_contents:[double] bytes_contents:[bytes]
Parameter bool_param:|bool int64_param:|int64 string_param:|string double_param:|double uint64_param:|uint64
RepositoryIndexRequest repository_name:string ready:bool
RepositoryIndexResponse models:[ModelIndex]
ModelIndex name:string version:string state:string reason:string
RepositoryModelLoadRequest repository_name:string model_name:string parameters:{RepositoryParameter}
RepositoryModelLoadResponse
RepositoryModelUnloadRequest repository_name:string model_name:string parameters:{RepositoryParameter}
RepositoryModelUnloadResponse
RepositoryParameter bool_param:|bool int64_param:|int64 string_param:|string bytes_param:|bytes
"""

CHOICE = "choice"
"""Of a message with ``|``: what ``WhichOneof`` takes."""

_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""gRPC's codes, by HTTP's statuses."""

_CONTENTS = dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents")
_CONTENTS |= dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents")
_CONTENTS |= {each: f"{each.lower()}_contents" for each in ("BOOL", "INT64", "UINT64", "FP32", "FP64")}
"""Fields of numbers, by data type; the others have none, and come as bytes."""

Handler = Callable[[Any, Any], Awaitable[dict[str, Any]]]


def _add_message(file: descriptor_pb2.FileDescriptorProto, line: str) -> None:
    name, *fields = line.split()
    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate((field.split(":") for field in fields), 1):
        made = message.field.add(name=field, number=number, label=3 if kind[0] in "[{" else 1)
        if kind[0] == "{":
            entry = message.nested_type.add(name=f"{field.title()}Entry", options={"map_entry": True})
            entry.field.add(name="key", number=1, label=1, type=9)
            _set_type(entry.field.add(name="value", number=2, label=1), kind[1:-1])
            _set_type(made, f"{name}.{entry.name}")
            continue
        _set_type(made, kind.strip("[]|"))
        if kind[0] == "|":
            if not message.oneof_decl:
                message.oneof_decl.add(name=CHOICE)
            made.oneof_index = 0


def _set_type(field: Any, kind: str) -> None:
    if kind[0].isupper():
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="blocklayout.proto", package=PACKAGE, syntax="proto3")
    for line in _MESSAGES.strip().splitlines():
        _add_message(file, line)
    pool = descriptor_pool.DescriptorPool()  # of our own: clients in this process have messages of the same names
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}"))
        for message in file.message_type
    }


MESSAGES = _messages()
"""Classes of messages, by name."""


class Service:
    """A repository's models over gRPC; ``port`` is the one that it listens on."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        """Bind the port; an InputError where it cannot be had."""
        self._repository = repository
        self._settings = settings
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=settings.max_requests,
            options=[
                ("grpc.max_receive_message_length", int(settings.max_body)),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # else another process may have the same port
            ],
        )
        handlers = {
            "ServerLive": self.live,
            "ServerReady": self.ready,
            "ModelReady": self.model_ready,
            "ServerMetadata": self.about,
            "ModelMetadata": self.metadata,
            "ModelInfer": self.infer,
            "RepositoryIndex": self.index,
            "RepositoryModelLoad": self.load,
            "RepositoryModelUnload": self.unload,
        }
        methods = {name: _method(name, handler) for name, handler in handlers.items()}
        service = grpc.method_handlers_generic_handler(f"{PACKAGE}.GRPCInferenceService", methods)
        self._server.add_generic_rpc_handlers((service,))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        try:
            self.port: int = self._server.add_insecure_port(f"{host}:{settings.grpc_port}")
        except RuntimeError:
            raise InputError(f"cannot listen on {settings.host}, port {settings.grpc_port}, for gRPC") from None

    async def start(self) -> None:
        """Answer from now on."""
        await self._server.start()

    async def stop(self) -> None:
        """Take nothing more, and finish what was taken, within ``drain_timeout``."""
        await self._server.stop(self._settings.drain_timeout)

    async def live(self, _request: Any, _context: Any) -> dict[str, Any]:
        """Whether it hears."""
        return {"live": True}

    async def ready(self, _request: Any, _context: Any) -> dict[str, Any]:
        """Whether every model answers."""
        return {"ready": all(model.served is not None for model in self._repository)}

    async def model_ready(self, request: Any, _context: Any) -> dict[str, Any]:
        """Whether a model answers."""
        return {"ready": self._find(request.name, request.version).served is not None}

    async def about(self, _request: Any, _context: Any) -> dict[str, Any]:
        """The server's name, version, and extensions of the protocol."""
        return ServerMetadata(version=blocklayout.__version__).model_dump()

    async def metadata(self, request: Any, _context: Any) -> dict[str, Any]:
        """A model's inputs and outputs."""
        return self._find(request.name, request.version).metadata().model_dump()

    async def infer(self, request: Any, _context: Any) -> dict[str, Any]:
        """Run a model once; outputs come as bytes."""
        model = self._find(request.model_name, request.model_version)
        served = model.serving()
        is_long = not request.raw_input_contents and request.ByteSize() > LARGE_JSON
        asked, feed = await apart(is_long, _read, request, served.session)
        arrays = await run(Exchange(), model, served, asked, feed, self._settings)
        outputs, raw = write_outputs(asked, served.session, arrays)
        return {
            "model_name": model.name,
            "model_version": VERSION,
            "id": request.id,
            "outputs": [{"name": each.name, "datatype": each.datatype, "shape": each.shape} for each in outputs],
            "raw_output_contents": [each.tobytes() for each in raw],
        }

    async def index(self, request: Any, _context: Any) -> dict[str, Any]:
        """All models, and their states."""
        return {"models": self._repository.index(only_ready=request.ready)}

    async def load(self, request: Any, _context: Any) -> dict[str, Any]:
        """Load a model; what its file holds now replaces one that serves, without a request lost."""
        await asyncio.to_thread(self._repository.load_anew, request.model_name, [*request.parameters])
        return {}

    async def unload(self, request: Any, _context: Any) -> dict[str, Any]:
        """Finish what a model has taken, and free it."""
        await asyncio.to_thread(self._find(request.model_name).unload)
        return {}

    def _find(self, name: str, version: str = "") -> Model:
        return self._repository.find(name, version or VERSION)


def _method(name: str, handler: Handler) -> Any:
    """A method of the service, whose refusals are gRPC's."""
    answer = MESSAGES[f"{name}Response"]

    async def handle(request: Any, context: Any) -> Any:  # cancelled by gRPC where the deadline passes
        try:
            return answer(**await handler(request, context))
        except (RefusalError, BlockLayoutError) as error:
            refusal = error if isinstance(error, RefusalError) else refusal_of(error)
            await context.abort(_STATUS[refusal.status], str(refusal))

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=MESSAGES[f"{name}Request"].FromString, response_serializer=answer.SerializeToString
    )


def _read(request: Any, session: Session) -> tuple[InferRequest, dict[str, np.ndarray]]:
    """The same request as over HTTP, and its arrays."""
    raw = [*request.raw_input_contents]
    if raw and len(raw) != len(request.inputs):
        raise RefusalError(400, f"raw_input_contents: {len(raw)} of them for {len(request.inputs)} inputs")
    inputs = [_tensor(each) for each in request.inputs]
    for given, content in zip(inputs, raw, strict=False):
        given["data"] = given["data"] or None
        given["parameters"]["binary_data_size"] = len(content)
    outputs = [{"name": each.name, "parameters": _parameters(each) | {"binary_data": True}} for each in request.outputs]
    fields = {"inputs": inputs, "outputs": outputs, "parameters": _parameters(request) | {"binary_data_output": True}}
    try:
        asked = InferRequest.model_validate(fields)
    except ValidationError as error:
        raise RefusalError(400, faults(error)) from None
    return asked, read_feed(asked, joined(raw, 0), session)


def _tensor(given: Any) -> dict[str, Any]:
    field = _CONTENTS.get(given.datatype)
    data = [*getattr(given.contents, field)] if field else []
    common = {"name": given.name, "shape": [*given.shape], "datatype": given.datatype}
    return common | {"parameters": _parameters(given), "data": data}


def _parameters(given: Any) -> dict[str, Any]:
    chosen = {name: value.WhichOneof(CHOICE) for name, value in given.parameters.items()}
    return {name: getattr(given.parameters[name], field) for name, field in chosen.items() if field}
