"""Runs the application in this process until a signal ends it, and logs as lines of JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from blocklayout.errors import InputError
from blocklayout.http.app import App
from blocklayout.http.protocol import Protocol
from blocklayout.http.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from blocklayout.http.grpc_service import Service
    from blocklayout.http.settings import Settings

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Load the models, listen, and answer until SIGTERM or SIGINT; what was accepted by then is finished first.

    A second signal ends the process at once.

    Raises:
        InputError: The address cannot be had.
        ModelError: A model cannot be loaded.
    """
    _log_as_json(settings.log_level)
    repository = Repository(settings.sources, **settings.load_options)
    with _bound(settings.host, settings.port) as listener:
        repository.load()
        Server(App(repository, settings), settings, service(repository, settings)).run([listener])
    repository.close()
    _log.info("stopped")


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the address, and does not listen before the models are there."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise InputError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
    return listener


def service(repository: Repository, settings: Settings) -> Callable[[], Service] | None:
    """Makes the service over gRPC, if it is asked for."""
    if settings.grpc_port is None:
        return None
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it writes lines that are no JSON
    try:
        from blocklayout.http.grpc_service import Service
    except ImportError as error:
        raise InputError(f"gRPC needs more packages: pip install 'blocklayout[grpc]' ({error})") from None
    return partial(Service, repository, settings)


class Server(uvicorn.Server):
    """Drains at the first signal, and ends the process at the second, of whatever kind they are."""

    def __init__(self, app: App, settings: Settings, make_service: Callable[[], Service] | None = None) -> None:
        """Serve an application, and beside it gRPC, made on the event loop; ``run`` takes the sockets to listen on."""
        self._make_service = make_service
        self.service: Service | None = None
        config = uvicorn.Config(
            app,
            loop="asyncio",  # uvloop reads no more than 64 KiB at a time
            http=partial(Protocol, int(settings.max_body)),  # type: ignore[arg-type] # it is called with the rest
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_timeout,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say where."""
        if self._make_service is not None:
            self.service = self._make_service()
            await self.service.start()
            _log.info("listening for gRPC", extra={"fields": {"port": self.service.port}})
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            _log.info("listening", extra={"fields": {"address": address}})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was taken, by HTTP and by gRPC."""
        stopping = [] if self.service is None else [self.service.stop()]
        await asyncio.gather(super().shutdown(sockets), *stopping)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the base class's
        if self.should_exit:
            _log.warning("stopped by a second signal", extra={"fields": {"unanswered": len(self.server_state.tasks)}})
            os._exit(128 + sig)
        self.should_exit = True  # set before logging: a reader of the log may send the second signal at once
        _log.info("draining", extra={"fields": {"signal": sig}})


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": " ".join(record.getMessage().split()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _log_as_json(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_AsJson())
    logging.captureWarnings(capture=True)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("blocklayout").setLevel(level.upper())
