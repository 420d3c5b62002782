"""HTTP/1.1 by uvicorn, with large bodies received where they stay, and word of clients that go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from blocklayout.dnnl import aligned_empty
from blocklayout.errors import BlockLayoutError

if TYPE_CHECKING:
    import numpy as np

HEADER_LENGTH = b"inference-header-content-length"
"""Header of messages with binary tensors: bytes of the JSON that precedes these."""

EXCHANGE = "blocklayout.exchange"
"""Key of a request's :class:`Exchange` in its scope."""

_LARGE_NBYTES = 1 << 16
"""Bytes of a body from which on it is received in place."""


@dataclass
class Exchange:
    """The part of a request that ASGI has no words for.

    Attributes:
        body: The large body of a request, complete once an (empty) ASGI message says so; else ``None``.
        n_received: How much of it is there.
        on_gone: Called when the client goes away before its answer.
    """

    body: np.ndarray | None = None
    n_received: int = 0
    on_gone: Callable[[], object] | None = None


def aligned_body(n_bytes: int, n_json: int) -> np.ndarray:
    """Memory for a body in which the tensors behind its JSON are aligned."""
    skipped = -n_json % 64
    return aligned_empty(skipped + n_bytes)[skipped:]


class Protocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """A connection. The base class copies a body five times, which takes a large one longer than its way here."""

    _read = memoryview(bytearray(1 << 16))
    """For all connections: each read is taken before the next."""

    def __init__(self, max_body: int, **options: Any) -> None:
        """Begin a connection; of bodies of more bytes than ``max_body`` no memory is taken: they are refused."""
        super().__init__(**options)
        self._max_body = max_body
        self._exchange = Exchange()

    @property
    def _is_in_place(self) -> bool:
        """Whether the next bytes are those of a body that is received in place."""
        body = self._exchange.body
        return body is not None and self._exchange.n_received < len(body)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the base class's
        """Where the next bytes belong: in the body that is being received, or before the parser."""
        exchange = self._exchange
        return (
            self._read if exchange.body is None or not self._is_in_place else exchange.body.data[exchange.n_received :]
        )

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that came."""
        if not self._is_in_place:
            self.data_received(bytes(self._read[:nbytes]))
            return
        self._exchange.n_received += nbytes
        if not self._is_in_place:
            self.parser = httptools.HttpRequestParser(self)  # the old one still waits for the body
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.on_message_complete()

    def on_headers_complete(self) -> None:
        """Begin a request."""
        self._exchange = Exchange(self._place())
        self.scope[EXCHANGE] = self._exchange  # type: ignore[literal-required] # a key of ours
        super().on_headers_complete()
        self.cycle.transport = _InOneWrite(self.transport)  # type: ignore[assignment] # what a cycle takes of it

    def _place(self) -> np.ndarray | None:
        """Memory for the body, if it is large, its length is known, and there is room."""
        headers = dict(self.headers)
        n_bytes, n_json = int(headers.get(b"content-length", 0)), headers.get(HEADER_LENGTH, b"")
        if not _LARGE_NBYTES < n_bytes <= self._max_body:
            return None
        try:
            return aligned_body(n_bytes, int(n_json[:20]) if n_json.isdigit() else 0)
        except (BlockLayoutError, MemoryError):
            return None  # the application refuses it, in words

    def on_body(self, body: bytes) -> None:
        """Take the part of a body that came with the headers, or all of it where it is small."""
        exchange = self._exchange
        if exchange.body is None:
            super().on_body(body)
        else:
            exchange.body.data[exchange.n_received : exchange.n_received + len(body)] = body
            exchange.n_received += len(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is served."""
        super().connection_lost(exc)
        if self._exchange.on_gone is not None:
            self._exchange.on_gone()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in JSON as all else is refused."""
        text = json.dumps({"error": msg}).encode()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + text)
        self.transport.close()


class _InOneWrite:
    """A transport that writes the head of an answer with its body, so that the client is woken once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing
        self.close = transport.close

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
        else:
            self._transport.write(self._head + data)
            self._head = b""
