"""Messages of the Open Inference Protocol over gRPC, made of a table of their fields: nothing here is generated.

Source: "Open Inference Protocol", gRPC, version 2, with its extension "model repository".
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

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
