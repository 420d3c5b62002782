"""A server of one page and of plans made anew, for the browser on this machine alone.

It listens on 127.0.0.1. A page of another site cannot ask it anything: requests must name this server as their host,
carry the token that is in the page's address, and come from no other origin; answers may be read by none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from socketserver import TCPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from blocklayout.errors import BlockLayoutError, InputError

HOST = "127.0.0.1"
MAX_BODY_NBYTES = 64 * 1024
"""Thousands of pins."""

MAX_IDLE_S = 10.0
"""How long a client may take between two pieces of a request, or of an answer."""

MAX_WAIT_S = 60.0
"""How long a request waits for the plans of others."""

METHODS = {"/": "GET", "/plan": "POST", "/progress": "GET"}
"""Of each path."""

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_TEXT = "text/plain; charset=utf-8"

Pins = Mapping[str, str]
Tell = Callable[[str], None]


class RefusalError(Exception):
    """A request that is not served, with the status and headers of its answer."""

    def __init__(self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or {}


class _Bearer(Struct):
    token: str


class _Asked(_Bearer, forbid_unknown_fields=True):
    """A plan that is asked for: formats by kernels, nodes or values."""

    pins: dict[str, str]


class PlanServer(ThreadingHTTPServer):
    """Serves a page at ``/`` and plans at ``/plan``, until it is shut down; each server has a token of its own.

    At ``/progress`` is the stage of the plan that is being made; nothing while none is.
    """

    daemon_threads = True

    def __init__(self, port: int, page: str, make_plan: Callable[[Pins, Tell], Any]) -> None:
        """Listen on a port, 0 for one that is free; an InputError where it cannot be had.

        ``make_plan`` returns the answer to pins, as values that JSON can hold, and tells its stages; one thread at a
        time calls it.
        """
        self.page = page.encode()
        self.progress = ""
        self.token = token_urlsafe(24)
        self._make_plan = make_plan
        self._planning = Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"--port {port}: {reason}; by default it is one that is free") from error

    def server_bind(self) -> None:
        """Bind without asking a name server who this is, as the base class does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def address(self) -> str:
        """Of the page, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which a browser may know it; of others, some site may have made this machine's."""
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def knows(self, token: str) -> bool:
        """Whether a token is the one; how long that takes does not tell how much of it is right."""
        return compare_digest(token.encode("utf-8", "surrogatepass"), self.token.encode())

    def plan(self, pins: Pins) -> bytes:
        """The answer to pins, as JSON; a RefusalError where there is no such plan, or others take too long."""
        if not self._planning.acquire(timeout=MAX_WAIT_S):
            raise RefusalError(
                HTTPStatus.SERVICE_UNAVAILABLE, "other plans are being made: ask again later", {"Retry-After": "10"}
            )
        try:
            return msgspec.json.encode(self._make_plan(pins, self._tell))
        except BlockLayoutError as error:
            raise RefusalError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except Exception as error:
            _say(f"POST /plan: {type(error).__name__}: {error}")
            reason = "the plan could not be made; the terminal of the server says why"
            raise RefusalError(HTTPStatus.INTERNAL_SERVER_ERROR, reason) from error
        finally:
            self.progress = ""
            self._planning.release()

    def _tell(self, stage: str) -> None:
        self.progress = stage

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Say an error in a line, unless it is only that the client went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            _say(f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    timeout = MAX_IDLE_S
    server: PlanServer

    def do_GET(self) -> None:
        self._reply(self._shown)

    def do_POST(self) -> None:
        self._reply(self._plan)

    def _reply(self, answer: Callable[[], tuple[str, bytes]]) -> None:
        try:
            self._check_sender()
            self._check_method()
            kind, body = answer()
        except RefusalError as refusal:
            self._refuse(refusal)
        else:
            self._send(HTTPStatus.OK, kind, body, {})

    def _shown(self) -> tuple[str, bytes]:
        path, _, query = self.path.partition("?")
        self._check_token(parse_qs(query).get("token", [""])[0])
        if path == "/progress":
            return _TEXT, self.server.progress.encode("utf-8", "backslashreplace")
        return "text/html; charset=utf-8", self.server.page

    def _plan(self) -> tuple[str, bytes]:
        body = self._body()
        try:
            try:
                self._check_token(msgspec.json.decode(body, type=_Bearer).token)
            except msgspec.ValidationError:
                self._check_token("")
            asked = msgspec.json.decode(body, type=_Asked)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RefusalError(HTTPStatus.BAD_REQUEST, f'{error}; send {{"pins": {{}}, "token": ""}}') from None
        return "application/json", self.server.plan(asked.pins)

    def _check_sender(self) -> None:
        """Refuse requests of other sites' pages, and by a name that only just became this machine's."""
        if not {*self.headers.get_all("Host", [""])} <= {*self.server.hosts}:
            raise RefusalError(HTTPStatus.MISDIRECTED_REQUEST, f"the host must be {' or '.join(self.server.hosts)}")
        own = {f"http://{host}" for host in self.server.hosts}
        if not {*self.headers.get_all("Origin", [])} <= own:
            raise RefusalError(HTTPStatus.FORBIDDEN, "another site may not ask this server")

    def _check_method(self) -> None:
        path = self.path.partition("?")[0]
        if path not in METHODS:
            raise RefusalError(HTTPStatus.NOT_FOUND, f"there are {', '.join(METHODS)}, no other paths")
        if METHODS[path] != self.command:
            allowed = METHODS[path]
            raise RefusalError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {allowed} alone", {"Allow": allowed})

    def _check_token(self, token: str) -> None:
        if not self.server.knows(token):
            raise RefusalError(HTTPStatus.FORBIDDEN, "the token is not that of the address which the terminal shows")

    def _body(self) -> bytes:
        """The body of a request, read only where its kind and size are right."""
        if self.headers.get_content_type() != "application/json":
            raise RefusalError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json")
        lengths = self.headers.get_all("Content-Length", [])
        if not lengths or "Transfer-Encoding" in self.headers:
            raise RefusalError(HTTPStatus.LENGTH_REQUIRED, "say how long the body is: Content-Length")
        length = lengths[0]
        if len(lengths) > 1 or not (length.isascii() and length.isdecimal()):
            raise RefusalError(HTTPStatus.BAD_REQUEST, "Content-Length must be one number of bytes")
        if len(length) > len(str(MAX_BODY_NBYTES)) or int(length) > MAX_BODY_NBYTES:
            raise RefusalError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have {MAX_BODY_NBYTES} bytes at most"
            )
        return self.rfile.read(int(length))

    def _refuse(self, refusal: RefusalError) -> None:
        self._send(refusal.status, _TEXT, f"{refusal}\n".encode("utf-8", "backslashreplace"), refusal.headers)

    def _send(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | {"Content-Type": kind, "Content-Length": str(len(body)), **headers}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer requests that the base class refuses: of methods that it does not know, or that are no HTTP."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._reply(lambda: (_TEXT, b""))  # no path takes such a method
        else:
            self._refuse(RefusalError(HTTPStatus(code), message or HTTPStatus(code).phrase))

    def version_string(self) -> str:
        """Without the version of Python."""
        return "blocklayout"

    def log_message(self, *_: Any) -> None:
        """Say nothing of requests that are answered."""


def _say(text: str) -> None:
    sys.stderr.write(f"blocklayout: {' '.join(text.split())}\n")
