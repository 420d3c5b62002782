"""The server's application: the protocol's endpoints, metrics, and pages about its models."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from fastapi import Body, Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Metric, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from starlette.types import Message as Event

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
    Readiness,
    RefusalError,
    ServerMetadata,
)
from blocklayout.http.repository import Model, Repository
from blocklayout.http.settings import Settings
from blocklayout.show.models_page import models_page

_log = logging.getLogger(__name__)

_Kind = TypeVar("_Kind", bound=Message)


_INFER = re.compile(r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")


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
            exception_handlers={RefusalError: _refused, BlockLayoutError: _failed, HTTPException: _not_found},
        )
        self._repository = repository
        self._settings = settings
        self._room = asyncio.Semaphore(settings.max_requests)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Collector(repository))  # type: ignore[arg-type] # it has what a collector needs
        self._counter = Counter("blocklayout_http_requests", "HTTP requests.", ["status"], registry=registry)
        _add_model(self, "/v2/models/{name}", _by_name(repository))
        _add_model(self, "/v2/models/{name}/versions/{version}", _by_version(repository))
        _add_server(self, repository)
        _add_repository(self, repository, settings)
        _add_pages(self, repository, registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it. Runs of models go past FastAPI's layers, which take as long as the rest."""
        start = time.monotonic()

        async def counted(event: Event) -> None:
            if event["type"] == "http.response.start":
                self._count(scope, event["status"], 1e3 * (time.monotonic() - start))
            await send(event)

        found = _INFER.fullmatch(scope["path"]) if scope.get("method") == "POST" else None
        if found is None:
            await super().__call__(scope, receive, counted)
            return
        try:
            response = await self.infer(Request(scope, receive), found["name"], found["version"] or VERSION)
        except RefusalError as refusal:
            response = _refused(None, refusal)
        except Exception:
            _log.exception("a request failed")
            response = _error(500, "the server failed; its log says why")
        await response(scope, receive, counted)

    async def infer(self, request: Request, name: str, version: str = VERSION) -> Response:
        """Run a model once, if there is room."""
        model = self._repository.find(name, version)
        if self._room.locked():
            n = self._settings.max_requests
            raise RefusalError(503, f"{n} requests are served now (max_requests)", retry=True)
        async with self._room:
            return await infer(request, model, self._settings)

    def _count(self, scope: Scope, status: int, ms: float) -> None:
        self._counter.labels(status).inc()
        level = logging.WARNING if status >= 500 else logging.DEBUG
        if _log.isEnabledFor(level):
            fields = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(ms, 3)}
            _log.log(level, "request", extra={"fields": fields})


def _by_name(repository: Repository) -> Callable[..., Model]:
    def find(name: str) -> Model:
        return repository.find(name)

    return find


def _by_version(repository: Repository) -> Callable[..., Model]:
    def find(name: str, version: str) -> Model:
        return repository.find(name, version)

    return find


def _add_model(app: App, path: str, find: Callable[..., Model]) -> None:
    """The endpoints of a model, or of one version of it."""

    async def run(request: Request, model: Model = Depends(find), body: InferRequest = Body()) -> Response:  # noqa: ARG001
        """Run the model once."""
        return await app.infer(request, **request.path_params)

    _add_as_it_came(app, f"{path}/infer", run, InferAnswer)

    @app.get(path, tags=["models"])
    async def metadata(model: Model = Depends(find)) -> ModelMetadata:
        """Its inputs and outputs."""
        return model.metadata()

    @app.get(f"{path}/ready", tags=["models"])
    async def ready(model: Model = Depends(find)) -> Readiness:
        """Whether it answers; else the status is 503."""
        model.serving()
        return Readiness(name=model.name)


def _add_server(app: FastAPI, repository: Repository) -> None:
    """The endpoints of the server as a whole."""

    @app.get("/v2", tags=["server"])
    async def about() -> ServerMetadata:
        """Its name, version and extensions of the protocol."""
        return ServerMetadata(version=blocklayout.__version__)

    @app.get("/v2/health/live", tags=["server"])
    async def live() -> dict[str, bool]:
        """Whether it hears."""
        return {"live": True}

    @app.get("/v2/health/ready", tags=["server"])
    async def ready() -> dict[str, bool]:
        """Whether every model answers; else the status is 503."""
        absent = [model.name for model in repository if model.served is None]
        if absent:
            raise RefusalError(503, f"not loaded: {', '.join(absent)}")
        return {"ready": True}


def _add_repository(app: FastAPI, repository: Repository, settings: Settings) -> None:
    """The endpoints of the extension "model repository"."""

    async def index(request: Request, body: IndexRequest = Body(IndexRequest())) -> Response:  # noqa: ARG001
        """All models, and their states."""
        asked = await _message(request, settings, IndexRequest)
        entries = [model.entry() for model in repository]
        shown = [entry.model_dump() for entry in entries if entry.state == "READY" or not asked.ready]
        return JSONResponse(shown)

    async def load(request: Request, name: str = "", body: LoadRequest = Body(LoadRequest())) -> Response:  # noqa: ARG001
        """Load a model; one that serves is replaced by what its file holds now."""
        return await change(request, Model.load)

    async def unload(request: Request, name: str = "", body: LoadRequest = Body(LoadRequest())) -> Response:  # noqa: ARG001
        """Finish what a model has taken, and free it."""
        return await change(request, Model.unload)

    async def change(request: Request, how: Callable[[Model], None]) -> Response:
        model = repository.find(request.path_params["name"])
        asked = await _message(request, settings, LoadRequest)
        unknown = asked.parameters.keys() - {"unload_dependents"}
        if unknown:
            rule = "a model is loaded from the file and with the options that the server was started with"
            raise RefusalError(400, f"parameters.{min(unknown)}: {rule}")
        await asyncio.to_thread(how, model)
        return JSONResponse({})

    _add_as_it_came(app, "/v2/repository/index", index, list[IndexEntry])
    _add_as_it_came(app, "/v2/repository/models/{name}/load", load, dict)
    _add_as_it_came(app, "/v2/repository/models/{name}/unload", unload, dict)


def _add_pages(app: FastAPI, repository: Repository, registry: CollectorRegistry) -> None:
    """Pages for people, and metrics."""

    @app.get("/", response_class=HTMLResponse, tags=["pages"])
    async def models() -> str:
        """All models, and where their layouts are shown."""
        shown = [(model.entry(), model.metadata() if model.served else None) for model in repository]
        return models_page([(entry.model_dump(), data and data.model_dump()) for entry, data in shown])

    @app.get("/models/{name}", response_class=HTMLResponse, tags=["pages"])
    async def layouts(name: str) -> str:
        """The layouts of a model, as ``blocklayout show`` shows them."""
        return await asyncio.to_thread(repository.find(name).page)

    @app.get("/metrics", tags=["server"])
    async def metrics() -> Response:
        """Counts and times, for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _AsItCame(APIRoute):
    """A route whose endpoint reads the request itself: further parameters are there for the API's page alone."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def _add_as_it_came(app: FastAPI, path: str, endpoint: Callable[..., Any], answer: Any) -> None:
    app.router.add_api_route(
        path, endpoint, methods=["POST"], response_model=answer, route_class_override=_AsItCame, tags=["models"]
    )


async def _message(request: Request, settings: Settings, kind: type[_Kind]) -> _Kind:
    """A small message; an empty one has the defaults."""
    body, _ = await read_body(request, settings)
    return parsed(kind, body.tobytes() or b"{}")


class _Collector:
    """Counts of all models that are loaded, each metric once."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for model in self._repository:
            if model.served is not None:
                for metric in text_string_to_metric_families(model.served.stats().prometheus(model=model.name)):
                    metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                    metrics[metric.name].samples += metric.samples
        yield from metrics.values()


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, headers)


def _refused(_: Any, refusal: Exception) -> Response:
    assert isinstance(refusal, RefusalError)  # noqa: S101 - for mypy: it is called for no other
    headers = {"Retry-After": "1"} if refusal.retry else {}
    return _error(refusal.status, str(refusal), headers | ({"Connection": "close"} if refusal.status == 408 else {}))


def _failed(_: Any, error: Exception) -> Response:
    assert isinstance(error, BlockLayoutError)  # noqa: S101 - likewise
    return _refused(None, refusal_of(error))


def _not_found(_: Any, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - likewise
    return _error(error.status_code, f"{error.detail}: /docs lists paths and methods", error.headers)
