"""The server's application: the protocol's endpoints, metrics, and pages about its models."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Metric, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.exceptions import HTTPException
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

import blocklayout
from blocklayout.errors import BlockLayoutError
from blocklayout.http.infer import infer, parsed, read_body, refusal_of
from blocklayout.http.messages import (
    VERSION,
    ErrorAnswer,
    IndexEntry,
    IndexRequest,
    InferAnswer,
    InferRequest,
    LoadRequest,
    Message,
    ModelMetadata,
    RefusalError,
    ServerMetadata,
)
from blocklayout.http.repository import Repository
from blocklayout.http.settings import Settings
from blocklayout.show.page import models_page

_log = logging.getLogger(__name__)

_Kind = TypeVar("_Kind", bound=Message)

_INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


class App(FastAPI):
    """The application that serves a repository's models; who makes it loads and unloads them."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        """Have all endpoints."""
        super().__init__(
            title="blocklayout",
            version=blocklayout.__version__,
            description="Models behind the Open Inference Protocol.",
            redoc_url=None,
            responses={"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}},
            exception_handlers={
                RefusalError: _refused,
                BlockLayoutError: _failed,
                HTTPException: _not_found,
                Exception: _broken,
            },
        )
        self._repository = repository
        self._settings = settings
        self._room = asyncio.Semaphore(settings.max_requests)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_Collector(repository))
        self._counter = Counter("blocklayout_http_requests", "HTTP requests.", ["status"], registry=self._registry)
        model = "/v2/models/{name}"
        for path, endpoint in (
            ("/v2", self.about),
            ("/v2/health/live", self.live),
            ("/v2/health/ready", self.ready),
            ("/metrics", self.metrics),
            (model, self.metadata),
            (f"{model}/versions/{{version}}", self.metadata),
            (f"{model}/ready", self.model_ready),
            (f"{model}/versions/{{version}}/ready", self.model_ready),
        ):
            self.add_api_route(path, endpoint)
        self.add_api_route("/v2/repository/models/{name}/unload", self.unload, methods=["POST"])
        self.add_api_route("/", self.models, response_class=HTMLResponse)
        self.add_api_route("/models/{name}", self.layouts, response_class=HTMLResponse)
        for path, asked, answer in (
            (f"{model}/infer", self.infer, InferAnswer),
            (f"{model}/versions/{{version}}/infer", self.infer, InferAnswer),
            ("/v2/repository/index", self.index, list[IndexEntry]),
            ("/v2/repository/models/{name}/load", self.load, dict),
        ):
            self.router.add_api_route(
                path, asked, methods=["POST"], response_model=answer, route_class_override=_AsItCame
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it. Runs of models go past FastAPI's layers, which take longer than the rest."""
        start = time.monotonic()
        found = _INFER.fullmatch(scope["path"]) if scope.get("method") == "POST" else None
        if found is None:

            async def counted(event: Event) -> None:
                if event["type"] == "http.response.start":
                    self._count(scope, event["status"], 1e3 * (time.monotonic() - start))
                await send(event)

            await super().__call__(scope, receive, counted)
            return
        try:
            response = await self.infer(Request(scope, receive), found[1], found[2] or VERSION)
        except RefusalError as refusal:
            response = await _refused(None, refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is an answer
            _log.exception("a request failed")
            response = await _broken(None, error)
        self._count(scope, response.status_code, 1e3 * (time.monotonic() - start))  # before it is seen
        await response(scope, receive, send)

    def _count(self, scope: Scope, status: int, ms: float) -> None:
        self._counter.labels(status).inc()
        level = logging.ERROR if status == 500 else logging.DEBUG
        if _log.isEnabledFor(level):
            fields = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(ms, 3)}
            _log.log(level, "request", extra={"fields": fields})

    async def infer(
        self, request: Request, name: str, version: str = VERSION, body: InferRequest | None = None
    ) -> Response:
        """Run the model once. Tensors may follow the JSON as bytes: see the protocol's binary tensor data."""
        del body  # the page of the API shows it; it is read from the request as it came
        model = self._repository.find(name, version)
        if self._room.locked():
            n = self._settings.max_requests
            raise RefusalError(503, f"{n} requests are served now (max_requests)", retry=True)
        async with self._room:
            return await infer(request, model, self._settings)

    async def about(self) -> ServerMetadata:
        """The server's name, version, and extensions of the protocol."""
        return ServerMetadata(version=blocklayout.__version__)

    async def live(self) -> dict[str, bool]:
        """Whether it hears."""
        return {"live": True}

    async def ready(self) -> dict[str, bool]:
        """Whether every model answers; else the status is 503."""
        absent = [model.name for model in self._repository if model.served is None]
        if absent:
            raise RefusalError(503, f"not loaded: {', '.join(absent)}")
        return {"ready": True}

    async def metadata(self, name: str, version: str = VERSION) -> ModelMetadata:
        """A model's inputs and outputs."""
        return self._repository.find(name, version).metadata()

    async def model_ready(self, name: str, version: str = VERSION) -> dict[str, Any]:
        """Whether a model answers; else the status is 503."""
        self._repository.find(name, version).serving()
        return {"name": name, "ready": True}

    async def index(self, request: Request, body: IndexRequest | None = None) -> Response:
        """All models, and their states."""
        body = await self._message(request, IndexRequest)
        return JSONResponse(self._repository.index(only_ready=body.ready))

    async def load(self, request: Request, name: str, body: LoadRequest | None = None) -> Response:
        """Load a model; what its file holds now replaces one that serves, without a request lost."""
        body = await self._message(request, LoadRequest)
        await asyncio.to_thread(self._repository.load_anew, name, [*body.parameters])
        return JSONResponse({})

    async def unload(self, name: str) -> dict[str, Any]:
        """Finish what a model has taken, and free it."""
        await asyncio.to_thread(self._repository.find(name).unload)
        return {}

    async def models(self) -> str:
        """All models, and where their layouts are shown."""
        return models_page(
            (model.entry().model_dump(), model.metadata().model_dump() if model.served else None)
            for model in self._repository
        )

    async def layouts(self, name: str) -> str:
        """The layouts of a model, as ``blocklayout show`` shows them."""
        return await asyncio.to_thread(self._repository.find(name).page)

    async def metrics(self) -> Response:
        """Counts and times, for Prometheus."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def _message(self, request: Request, kind: type[_Kind]) -> _Kind:
        """A small message; an empty one has the defaults."""
        body, _ = await read_body(request, self._settings)
        return parsed(kind, body.tobytes() or b"{}")


class _AsItCame(APIRoute):
    """A route whose endpoint reads the request itself; its parameter ``body`` is there for the API's page alone."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            response: Response = await self.endpoint(request, **request.path_params)
            return response

        return handle


class _Collector:
    """Counts of all models that are loaded, each metric once."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for model in self._repository:
            served = model.served
            text = "" if served is None else served.stats().prometheus(model=model.name)
            for metric in text_string_to_metric_families(text):
                known = metrics.setdefault(metric.name, metric)
                if known is not metric:
                    known.samples += metric.samples
        yield from metrics.values()


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, headers)


async def _refused(_: Request | None, refusal: RefusalError) -> Response:
    headers = {"Retry-After": "1"} if refusal.retry else {}
    return _error(refusal.status, str(refusal), headers | ({"Connection": "close"} if refusal.status == 408 else {}))


async def _failed(_: Request | None, error: BlockLayoutError) -> Response:
    return await _refused(None, refusal_of(error))


async def _not_found(_: Request | None, error: HTTPException) -> Response:
    return _error(error.status_code, f"{error.detail}: /docs lists paths and methods", error.headers)


async def _broken(_: Request | None, error: Exception) -> Response:
    return _error(500, f"the server failed ({type(error).__name__}); its log says more")
