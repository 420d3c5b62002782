"""Tensors in requests and answers: as numbers in JSON, or as little-endian bytes behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocklayout.errors import did_you_mean
from blocklayout.http.messages import DATATYPES, RefusalError, TensorMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.http.messages import InferRequest, RequestInput
    from blocklayout.runtime import InputInfo
    from blocklayout.session import Session


def metadata(info: InputInfo) -> TensorMetadata:
    """An input or output as the protocol describes it."""
    shape = [extent if isinstance(extent, int) else -1 for extent in info.shape or ()]
    return TensorMetadata(name=info.name, datatype=DATATYPES[info.dtype], shape=shape)


def read_feed(request: InferRequest, payload: np.ndarray, session: Session) -> dict[str, np.ndarray]:
    """The arrays of a request by input; those in binary are views of ``payload``, one behind the other.

    A RefusalError of an input that the model has not, that is there twice, or whose type or size is wrong.
    """
    infos = {info.name: info for info in (*session.get_inputs(), *session.get_overridable_initializers())}
    feed: dict[str, np.ndarray] = {}
    start = 0
    for place, given in enumerate(request.inputs):
        if given.name not in infos:
            known = ", ".join(infos)
            hint = did_you_mean(given.name, infos)
            raise RefusalError(400, f"inputs[{place}].name: no input {given.name!r}; there are {known}{hint}")
        if given.name in feed:
            raise RefusalError(400, f"inputs[{place}].name: {given.name!r} is there twice")
        info = infos[given.name]
        where = f"inputs[{place}] ({given.name})"
        if given.datatype != DATATYPES[info.dtype]:
            raise RefusalError(400, f"{where}.datatype: must be {DATATYPES[info.dtype]}, got {given.datatype!r:.40}")
        size = given.parameters.binary_data_size
        if size is None:
            feed[given.name] = _from_json(given, info.numpy_dtype, where)
            continue
        feed[given.name] = _from_bytes(given, info.numpy_dtype, where, payload[start : start + size])
        start += size
    if start != len(payload):
        text = f"{len(payload)} bytes follow the JSON, and binary_data_size of all inputs is {start} together"
        raise RefusalError(400, text)
    return feed


def _from_bytes(given: RequestInput, dtype: np.dtype, where: str, taken: np.ndarray) -> np.ndarray:
    size, wanted = given.parameters.binary_data_size, math.prod(given.shape) * dtype.itemsize
    if given.data is not None:
        raise RefusalError(400, f"{where}.data: leave it out where binary_data_size is given")
    if size != wanted:
        shape = f"{given.datatype} {given.shape}"
        raise RefusalError(400, f"{where}.parameters.binary_data_size: {shape} has {wanted} bytes, got {size}")
    if len(taken) < wanted:
        raise RefusalError(400, f"{where}: of its {wanted} bytes the request has {len(taken)}")
    if dtype == np.bool_ and taken.max(initial=0) > 1:
        raise RefusalError(400, f"{where}: a byte of BOOL is 0 or 1, got {taken.max()}")
    return _shaped(taken.view(dtype), given.shape, where)


def _from_json(given: RequestInput, dtype: np.dtype, where: str) -> np.ndarray:
    """The numbers of ``data`` as an array; nothing is rounded to an integer, wrapped around or read from a text."""
    if not isinstance(given.data, list):
        rule = "give a list of numbers, or parameters.binary_data_size and bytes behind the JSON"
        raise RefusalError(400, f"{where}.data: {rule}")
    try:
        found = np.array(given.data)
    except ValueError:
        raise RefusalError(400, f"{where}.data: its lists differ in length") from None
    kinds = {"b": "b", "u": "iu", "i": "iu"}.get(dtype.kind, "iuf")
    if found.size and found.dtype.kind not in kinds:
        raise RefusalError(400, f"{where}.data: {given.datatype} takes {_WORDS[kinds]}")
    n_wanted = math.prod(given.shape)
    if found.shape not in ((n_wanted,), tuple(given.shape)):
        rule = f"shape {given.shape} takes {n_wanted} elements, flat or nested so"
        raise RefusalError(400, f"{where}.data: {rule}, got {list(found.shape)}")
    with np.errstate(over="ignore"):
        array = found.astype(dtype)
    is_held = array == found if dtype.kind in "iu" else np.isinf(array) == np.isinf(found)
    if not np.all(is_held):
        raise RefusalError(400, f"{where}.data: {given.datatype} cannot hold all of {found.min()} to {found.max()}")
    return _shaped(array, given.shape, where)


def _shaped(array: np.ndarray, shape: Sequence[int], where: str) -> np.ndarray:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):  # of no elements: extents or a rank that no array has
        raise RefusalError(400, f"{where}.shape: no array has {len(shape)} extents like {shape[:4]}") from None


_WORDS = {"b": "true and false", "iu": "integers", "iuf": "numbers"}


class Output(NamedTuple):
    """An output as an answer has it: its elements in row-major order, or how many bytes follow."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    n_bytes: int | None
    data: list[Any] | None = None


def write_outputs(
    asked: InferRequest, session: Session, arrays: Sequence[np.ndarray]
) -> tuple[tuple[Output, ...], list[np.ndarray]]:
    """The outputs, and the bytes of those in binary.

    A RefusalError of a value that JSON has no number for.
    """
    returned = {info.name: info for info in session.get_outputs()}
    infos = [returned[output.name] for output in asked.outputs] or [*returned.values()]
    wanted = [output.parameters.binary_data for output in asked.outputs] or [None] * len(infos)
    outputs, payload = [], []
    for info, array, is_binary in zip(infos, arrays, wanted, strict=True):
        datatype = DATATYPES[info.dtype]
        if asked.parameters.binary_data_output if is_binary is None else is_binary:
            payload.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            outputs.append(Output(info.name, datatype, array.shape, array.nbytes))
        else:
            outputs.append(Output(info.name, datatype, array.shape, None, _numbers(info.name, array)))
    return tuple(outputs), payload


def _numbers(name: str, array: np.ndarray) -> list[Any]:
    if array.dtype.kind not in "biuf":  # of ml_dtypes
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rule = 'JSON has no such numbers: ask for it with "parameters": {"binary_data": true}'
        raise RefusalError(400, f"output {name!r} has values that are not finite, and {rule}")
    return list(array.reshape(-1).tolist())
