"""A model behind FastAPI: /predict takes and gives tensors as .npy or JSON, /metrics is for Prometheus.

    pip install blocklayout fastapi uvicorn
    MODEL=model.onnx uvicorn --factory fastapi_server:from_environment --port 8000

    curl --data-binary @x.npy -H 'Content-Type: application/x-npy' localhost:8000/predict -o y.npy
    curl --json '{"inputs": {"x": [[1.0, 2.0]]}, "deadline": 0.5}' localhost:8000/predict

One process serves: its streams are the parallelism. 503 says that the queue is full (try another machine), 504 that the
deadline has passed, 400 that the request does not fit the model.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

import blocklayout as bl

DEADLINE_S = 2.0
MAX_BODY_NBYTES = 64 << 20
NPY = "application/x-npy"


def create_app(source: bl.api.Source, **options: Any) -> FastAPI:
    """The service; it loads and warms up the model when it starts. Options are those of ``bl.load``."""
    holder: list[bl.Served] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        holder.append(await asyncio.to_thread(bl.Served, source, **{"max_waiting": 64, **options}))
        yield
        await asyncio.to_thread(holder.pop().close)  # what was accepted is answered

    app = FastAPI(title="blocklayout", lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "waiting": holder[0].stats().n_waiting}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        text = holder[0].stats().prometheus(model=str(os.environ.get("MODEL", "model")))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        served = holder[0]
        body = await limited_body(request)
        is_npy = request.headers.get("content-type", "").split(";")[0] == NPY
        try:
            feed, deadline = read_npy(served, body) if is_npy else read_json(served, body)
            answers = await answer(served, feed, deadline)
        except bl.QueueFullError as error:
            raise HTTPException(503, str(error), {"Retry-After": "1"}) from None
        except bl.DeadlineExceededError as error:
            raise HTTPException(504, str(error)) from None
        except (bl.InputError, ValueError, TypeError, EOFError, MemoryError) as error:  # numpy's and json's
            raise HTTPException(400, str(error)) from None
        if is_npy:
            return Response(npy(answers[0]), media_type=NPY)
        names = [info.name for info in served.session.get_outputs()]
        return JSONResponse({"outputs": {name: each.tolist() for name, each in zip(names, answers, strict=True)}})

    return app


async def answer(served: bl.Served, feed: dict[str, np.ndarray], deadline: float) -> list[np.ndarray]:
    """What the model answers. A caller who goes away takes the run with them."""
    future = served.submit(feed, deadline=deadline)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.stop()
        raise


async def limited_body(request: Request) -> bytes:
    """The body, refused when it becomes too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_NBYTES:
            raise HTTPException(413, f"a request may have {MAX_BODY_NBYTES} bytes")
    return bytes(body)


def read_npy(served: bl.Served, body: bytes) -> tuple[dict[str, np.ndarray], float]:
    """A feed for a model of one input: the array as numpy saves it."""
    names = [info.name for info in served.session.get_inputs()]
    if len(names) != 1:
        raise ValueError(f"the model takes {', '.join(names)}: send them as JSON")
    return {names[0]: np.load(io.BytesIO(body), allow_pickle=False)}, DEADLINE_S


def read_json(served: bl.Served, body: bytes) -> tuple[dict[str, np.ndarray], float]:
    """A feed of nested lists, and seconds that the caller waits."""
    request = json.loads(body)
    if not isinstance(request, dict) or not isinstance(request.get("inputs"), dict):
        raise TypeError('send {"inputs": {"x": [[1.0, 2.0]]}, "deadline": 0.5}')
    types = {info.name: info.numpy_dtype for info in served.session.get_inputs()}
    feed = {name: np.asarray(values, types.get(name)) for name, values in request["inputs"].items()}
    return feed, request.get("deadline", DEADLINE_S)


def npy(array: np.ndarray) -> bytes:
    """An array as numpy saves it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def from_environment() -> FastAPI:
    """The service of the model that MODEL names; BATCH and DELAY_MS have it batch, STREAMS are runs at once."""
    batch = int(os.environ.get("BATCH", "1"))
    batching = (batch, float(os.environ.get("DELAY_MS", "2"))) if batch > 1 else None
    return create_app(os.environ["MODEL"], streams=int(os.environ.get("STREAMS", "1")), batching=batching)
