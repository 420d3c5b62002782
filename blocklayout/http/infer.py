"""The way of a request: its bytes, its arrays, the run, its answer. The event loop waits for what is brief alone."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from starlette.responses import Response

from blocklayout.errors import (
    BlockLayoutError,
    ClosedError,
    DeadlineExceededError,
    OutOfMemoryError,
    QueueFullError,
    StoppedError,
)
from blocklayout.http.messages import AnswerTensor, InferAnswer, InferRequest, Message, RefusalError, faults
from blocklayout.http.protocol import EXCHANGE, HEADER_LENGTH, Exchange, aligned_body
from blocklayout.http.tensors import read_feed, write_outputs

if TYPE_CHECKING:
    import numpy as np
    from starlette.requests import Request

    from blocklayout.http.repository import Model
    from blocklayout.http.settings import Settings
    from blocklayout.http.tensors import Output
    from blocklayout.serve import Submission
    from blocklayout.served import Served
    from blocklayout.session import Session

LARGE_JSON = 1 << 16
"""Bytes of JSON from which on another thread reads it."""

_SMALL_JSON = 1 << 10
"""Bytes of JSON up to which it is remembered."""

_WINDOW_BITS = {"gzip": 31, "deflate": 15}
"""Of zlib, by content encoding."""

_CLIENT_GONE = 499

_BRIEF_S = 0.001
"""Seconds up to which the event loop waits for a run: to hand it to another thread and back takes 0.15 ms."""

_Message = TypeVar("_Message", bound=Message)


async def infer(request: Request, model: Model, settings: Settings) -> Response:
    """The answer to a request to run a model; a RefusalError where it is not served, for whatever reason."""
    served = model.serving()
    body, n_json = await read_body(request, settings)
    asked, feed = await apart(n_json > LARGE_JSON, _read, body, n_json, served.session)
    arrays = await run(request.scope.get(EXCHANGE) or Exchange(), model, served, asked, feed, settings)
    is_long = sum(array.size for array in arrays) > LARGE_JSON and not asked.parameters.binary_data_output
    outputs, payload = await apart(is_long, write_outputs, asked, served.session, arrays)
    is_short = n_json < _SMALL_JSON and len(payload) == len(outputs)
    text = (_repeated_text if is_short else _text)(model.name, asked.id, outputs)
    if not payload:
        return Response(text, media_type="application/json")
    headers = {HEADER_LENGTH.decode(): str(len(text))}
    return Response(
        b"".join([text, *(each.data for each in payload)]), headers=headers, media_type="application/octet-stream"
    )


def _text(name: str, id_: str | None, outputs: Sequence[Output]) -> bytes:
    """The JSON of a model's answer."""
    tensors = [
        AnswerTensor(
            name=each.name,
            datatype=each.datatype,
            shape=[*each.shape],
            data=each.data,
            parameters=None if each.n_bytes is None else {"binary_data_size": each.n_bytes},
        )
        for each in outputs
    ]
    return InferAnswer(model_name=name, id=id_, outputs=tensors).model_dump_json(exclude_none=True).encode()


_repeated_text = lru_cache(maxsize=64)(_text)
"""Where all outputs are in binary, the JSON of one answer is often that of the next."""


async def apart(is_long: bool, call: Callable[..., Any], *args: Any) -> Any:  # noqa: FBT001
    """Call it here, or where it takes long, on another thread."""
    return await asyncio.to_thread(call, *args) if is_long else call(*args)


async def read_body(request: Request, settings: Settings) -> tuple[np.ndarray, int]:
    """The request's bytes, and how many of them are JSON; behind it they are aligned, so that tensors stay in place.

    A RefusalError where it is too large, comes too slowly, or is coded otherwise than its headers say.
    """
    limit, headers = int(settings.max_body), dict(request.scope["headers"])
    given = headers.get(HEADER_LENGTH)
    if given is not None and not given.isdigit():
        text = f"give a number of bytes, not {given.decode('latin-1')!r:.40}"
        raise RefusalError(400, f"Inference-Header-Content-Length: {text}")
    _check_size(int(headers.get(b"content-length", 0)), limit)
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if encoding != "identity" and encoding not in _WINDOW_BITS:
        raise RefusalError(415, f"Content-Encoding: {encoding!r:.40} is none of identity, {', '.join(_WINDOW_BITS)}")
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(settings.read_timeout):
            n_bytes, is_more = 0, True
            while is_more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RefusalError(_CLIENT_GONE, "the client went away")
                parts.append(message["body"])
                n_bytes += len(message["body"])
                _check_size(n_bytes, limit)
                is_more = message["more_body"]
    except TimeoutError:
        text = f"the request did not come within {settings.read_timeout:g} seconds (read_timeout)"
        raise RefusalError(408, text) from None
    exchange = request.scope.get(EXCHANGE)
    body = None if exchange is None else exchange.body
    if encoding in _WINDOW_BITS:
        parts = [await asyncio.to_thread(_inflated, b"".join(parts) if body is None else body.data, encoding, limit)]
        body = None
    n_bytes = sum(map(len, parts)) if body is None else len(body)
    n_json = n_bytes if given is None else int(given[:20])
    if n_json > n_bytes:
        raise RefusalError(400, f"Inference-Header-Content-Length: {n_json} bytes of {n_bytes} cannot be JSON")
    return joined(parts, n_json) if body is None else body, n_json


def _check_size(n_bytes: int, limit: int) -> None:
    if n_bytes > limit:
        raise RefusalError(413, f"the request has more than {limit} bytes (max_body)")


def _inflated(body: bytes | memoryview, encoding: str, limit: int) -> bytes:
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        text = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise RefusalError(400, f"Content-Encoding: {encoding}: {error}") from None
    _check_size(len(text), limit)
    if not inflater.eof or inflater.unused_data:
        raise RefusalError(400, f"Content-Encoding: {encoding}: the body is cut off, or something follows")
    return text


def joined(parts: Sequence[bytes], n_json: int) -> np.ndarray:
    """The parts of a body one behind the other; what follows its JSON is aligned."""
    body = aligned_body(sum(map(len, parts)), n_json)
    view, start = body.data, 0
    for part in parts:
        view[start : start + len(part)] = part
        start += len(part)
    return body


def parsed(kind: type[_Message], text: bytes) -> _Message:
    """A message of this kind; a RefusalError that names its fields where it is none."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise RefusalError(400, faults(error)) from None


@lru_cache(maxsize=64)
def _repeated(text: bytes) -> InferRequest:
    """A small request. Those of a client that sends its numbers in binary often have the same JSON."""
    return parsed(InferRequest, text)


def _read(body: np.ndarray, n_json: int, session: Session) -> tuple[InferRequest, dict[str, np.ndarray]]:
    text = body[:n_json].tobytes()
    asked = _repeated(text) if n_json < _SMALL_JSON else parsed(InferRequest, text)
    return asked, read_feed(asked, body[n_json:], session)


async def run(
    exchange: Exchange,
    model: Model,
    served: Served,
    asked: InferRequest,
    feed: dict[str, np.ndarray],
    settings: Settings,
) -> list[np.ndarray]:
    """The arrays of the outputs that are asked for: here where the last run like it was brief, else by the queue."""
    deadline = min((each for each in (asked.parameters.timeout / 1e6, settings.timeout) if each), default=None)
    names: list[str] | None = [output.name for output in asked.outputs]
    if not names or names == [info.name for info in served.session.get_outputs()]:
        names = None
    extents, start = [array.shape for array in feed.values()], time.monotonic()
    try:
        arrays = None
        if extents == model.brief and names is None and deadline is None:
            arrays = served.session.submissions.run_at_once(feed)
        if arrays is None:
            arrays = await _submitted(exchange, partial(served.submit, feed, names, deadline=deadline))
    except (CancelledError, StoppedError):
        raise RefusalError(_CLIENT_GONE, "the client went away") from None
    except BlockLayoutError as error:
        raise refusal_of(error) from None
    except MemoryError:
        raise RefusalError(503, "not enough memory for this request now", retry=True) from None
    model.brief = extents if time.monotonic() - start < _BRIEF_S else None
    return arrays


async def _submitted(exchange: Exchange, submit: Callable[[], Submission]) -> list[np.ndarray]:
    """The arrays of a run that is submitted; it is stopped where the client goes away."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    submission = submit()
    submission.add_done_callback(lambda _: loop.call_soon_threadsafe(_set, done))
    exchange.on_gone = submission.stop
    try:
        await done
    except asyncio.CancelledError:
        submission.stop()
        raise RefusalError(503, "the server is stopping", retry=True) from None
    finally:
        exchange.on_gone = None
    return submission.result()


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def refusal_of(error: BlockLayoutError) -> RefusalError:
    """The answer to a request that ended with an error."""
    if isinstance(error, QueueFullError | OutOfMemoryError | ClosedError | StoppedError):
        return RefusalError(503, str(error), retry=True)
    return RefusalError(504 if isinstance(error, DeadlineExceededError) else 400, str(error))
