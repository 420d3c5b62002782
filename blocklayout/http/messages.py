"""Messages of the Open Inference Protocol: requests, answers and metadata, as JSON has them.

Source: "Open Inference Protocol", REST, version 2, with its extensions "binary tensor data" and "model repository".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, SkipValidation, ValidationError, model_validator

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DATATYPES = {
    "bool": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "s8": "INT8",
    "s16": "INT16",
    "s32": "INT32",
    "s64": "INT64",
    "f16": "FP16",
    "bf16": "BF16",
    "f32": "FP32",
    "f64": "FP64",
}
"""The protocol's names of data types, by oneDNN's."""

VERSION = "1"
"""The version of every model: there is one at a time."""


class RefusalError(Exception):
    """A request that is not served.

    Attributes:
        status: The HTTP status of its answer.
        retry: Whether the same request may succeed in a second.
    """

    def __init__(self, status: int, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.retry = retry


class Message(BaseModel):
    """A message; fields that it does not know are passed over, as the protocol has it."""

    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())


_REFUSED = {
    "shared_memory_region": "tensors are not shared in memory: send them in the request",
    "classification": "outputs are returned as the model has them: take the largest yourself",
    "priority": "requests run in the order in which they come",
} | dict.fromkeys(("sequence_id", "sequence_start", "sequence_end"), "models here keep no state between requests")
"""Parameters of other servers that would change the answer; the rest of theirs is passed over."""


class Parameters(Message):
    """Parameters of a request, an input or an output."""

    timeout: NonNegativeInt = Field(
        default=0, description="of a request: microseconds, after which it is a 504; 0 for none"
    )
    binary_data_output: bool = Field(
        default=False, description="of a request: whether outputs follow the JSON as bytes"
    )
    binary_data: bool | None = Field(default=None, description="of an output: the same for this one")
    binary_data_size: NonNegativeInt | None = Field(
        default=None, description="of an input: bytes behind the JSON, for data"
    )

    @model_validator(mode="before")
    @classmethod
    def refuse(cls, given: Any) -> Any:
        """Refuse parameters that ask for what this server does not do."""
        asked = [name for name in _REFUSED if isinstance(given, dict) and given.get(name)]
        if asked:
            raise ValueError(f"{asked[0]}: {_REFUSED[asked[0]]}")
        return given


class RequestInput(Message):
    """A tensor that is fed."""

    name: str
    shape: list[NonNegativeInt]
    datatype: str
    parameters: Parameters = Parameters()
    data: Any = Field(default=None, description="elements in row-major order, flat or nested as the shape has it")


class RequestOutput(Message):
    """A tensor that is asked for."""

    name: str
    parameters: Parameters = Parameters()


class InferRequest(Message):
    """A request to run a model once."""

    id: str | None = None
    parameters: Parameters = Parameters()
    inputs: list[RequestInput]
    outputs: list[RequestOutput] = []


class TensorMetadata(Message):
    """An input or output as the model declares it; free extents are -1."""

    name: str
    datatype: str
    shape: list[int]


class AnswerTensor(TensorMetadata):
    """An output: its elements in ``data``, or its size where its bytes follow the JSON."""

    data: SkipValidation[list[Any] | None] = None
    parameters: dict[str, Any] | None = None


class InferAnswer(Message):
    """The outputs of a run."""

    model_name: str
    model_version: str = VERSION
    id: str | None = None
    outputs: list[AnswerTensor]


class ModelMetadata(Message):
    """A model's inputs and outputs."""

    name: str
    versions: list[str] = [VERSION]
    platform: str = "blocklayout"
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(Message):
    """The server, and what it has of the protocol's extensions."""

    name: str = "blocklayout"
    version: str
    extensions: list[str] = ["binary_tensor_data", "model_repository"]


class IndexRequest(Message):
    """Which models to list."""

    ready: bool = Field(default=False, description="only those that answer")


class IndexEntry(Message):
    """A model of the repository."""

    name: str
    version: str = VERSION
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str = ""


class LoadRequest(Message):
    """How to load or unload a model: as the server was started, so that parameters are not taken."""

    parameters: dict[str, Any] = {}


class ErrorAnswer(Message):
    """Why a request was not served."""

    error: str


def faults(error: ValidationError) -> str:
    """The first few faults that a validation found, by field: ``inputs[0].shape[1]: should be a valid integer``."""
    found = error.errors(include_url=False)
    return "; ".join(map(_fault, found[:3])) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _fault(error: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    given = f", got {error['input']!r:.40}" if error["type"] not in ("missing", "value_error", "json_invalid") else ""
    return ": ".join(filter(None, (place, f"{message}{given}")))
