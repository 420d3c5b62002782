"""The server of a page: what it serves, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any

import pytest

from blocklayout.commands import serving
from blocklayout.commands.serving import MAX_BODY_NBYTES, PlanServer, Tell
from blocklayout.errors import InputError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAGE = "<!doctype html>page"
JSON = "application/json"


def told(pins: Mapping[str, str], _: Tell) -> dict[str, Any]:
    return {"pins": pins, "cost_ns": float("nan")}


@contextmanager
def serving_plans(make_plan: Callable[[Mapping[str, str], Tell], Any] = told) -> Iterator[PlanServer]:
    with PlanServer(0, PAGE, make_plan) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[PlanServer]:
    with serving_plans() as started:
        yield started


class Answer:
    """Status, headers and text of an answer; every answer has the headers that keep it to itself."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status, self.headers, self.text = response.status, response.headers, response.read().decode()
        assert self.headers["Cache-Control"] == "no-store"
        assert self.headers["X-Content-Type-Options"] == "nosniff"
        assert self.headers["Referrer-Policy"] == "no-referrer"
        assert not [name for name in self.headers if name.lower().startswith("access-control-")]
        assert "Traceback" not in self.text
        assert "Python" not in self.headers["Server"]


def ask(
    server: PlanServer, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.request(method, path, body, dict(headers or {}))
        return Answer(connection.getresponse())


def ask_raw(server: PlanServer, text: str) -> Answer:
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        response = HTTPResponse(connection)
        response.begin()
        return Answer(response)


def post(server: PlanServer, value: Any, **headers: str) -> Answer:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return ask(
        server, "POST", "/plan", body, {"Content-Type": JSON} | {k.replace("_", "-"): v for k, v in headers.items()}
    )


def asked(server: PlanServer, pins: Any) -> dict[str, Any]:
    return {"pins": pins, "token": server.token}


def test_the_page_is_at_the_address_that_is_shown(server: PlanServer) -> None:
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    answer = ask(server, "GET", f"/?token={server.token}")
    assert (answer.status, answer.text) == (200, PAGE)
    assert answer.headers.get_content_type() == "text/html"


def test_pins_are_answered_with_what_is_made_of_them(server: PlanServer) -> None:
    answer = post(server, asked(server, {"conv": "nhwc", "Größe": "nchw"}))
    assert (answer.status, answer.headers.get_content_type()) == (200, JSON)
    assert json.loads(answer.text) == {"pins": {"conv": "nhwc", "Größe": "nchw"}, "cost_ns": None}


def test_localhost_is_another_name_of_it(server: PlanServer) -> None:
    port = server.server_port
    assert ask(server, "GET", f"/?token={server.token}", headers={"Host": f"localhost:{port}"}).status == 200
    assert post(server, asked(server, {}), Origin=f"http://localhost:{port}").status == 200
    assert post(server, asked(server, {}), Origin=f"http://127.0.0.1:{port}").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:PORT", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_another_host_is_refused(server: PlanServer, method: str, host: str) -> None:
    named = {"Host": host.replace("PORT", str(server.server_port)), "Content-Type": JSON}
    path = "/plan" if method == "POST" else f"/?token={server.token}"
    answer = ask(server, method, path, json.dumps(asked(server, {})).encode(), named)
    assert answer.status == 421
    assert f"the host must be 127.0.0.1:{server.server_port} or localhost:{server.server_port}" in answer.text


def test_no_host_and_two_hosts_are_refused(server: PlanServer) -> None:
    own = f"Host: 127.0.0.1:{server.server_port}\n"
    assert ask_raw(server, f"GET /?token={server.token} HTTP/1.0\n\n").status == 421
    assert ask_raw(server, f"GET /?token={server.token} HTTP/1.0\n{own}Host: evil.example\n\n").status == 421
    assert ask_raw(server, f"GET /?token={server.token} HTTP/1.0\n{own}\n").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:PORT", "http://127.0.0.1:1"])
def test_another_origin_is_refused(server: PlanServer, origin: str) -> None:
    named = origin.replace("PORT", str(server.server_port))
    assert post(server, asked(server, {}), Origin=named).status == 403
    assert ask(server, "GET", f"/?token={server.token}", headers={"Origin": named}).status == 403


@pytest.mark.parametrize("token", ["", "x", "%C3%A9", "%00", "%FF%FE"])
def test_a_wrong_token_in_the_address_is_refused(server: PlanServer, token: str) -> None:
    answer = ask(server, "GET", f"/?token={token}")
    assert answer.status == 403
    assert "token" in answer.text
    assert PAGE not in answer.text


def test_no_token_in_the_address_is_refused(server: PlanServer) -> None:
    assert ask(server, "GET", "/").status == 403
    assert ask(server, "GET", f"/?token=x&token={server.token}").status == 403


@pytest.mark.parametrize("token", [None, 1, "", "x", "\ud800", ["a"]])
def test_a_wrong_token_in_a_request_for_a_plan_is_refused(server: PlanServer, token: Any) -> None:
    assert post(server, {"pins": {}, "token": token}).status in (400, 403)
    assert post(server, {"pins": 1, "token": "x"}).status == 403  # the token is looked at first
    assert post(server, {"pins": {}}).status == 403
    assert post(server, []).status == 403


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"])
def test_other_methods_are_refused(server: PlanServer, method: str) -> None:
    for path, allowed in (("/", "GET"), ("/plan", "POST"), ("/progress", "GET")):
        answer = ask(server, method, f"{path}?token={server.token}")
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)


def test_methods_belong_to_their_paths(server: PlanServer) -> None:
    assert ask(server, "GET", "/plan").headers["Allow"] == "POST"
    assert ask(server, "POST", f"/?token={server.token}", b"{}", {"Content-Type": JSON}).headers["Allow"] == "GET"


@pytest.mark.parametrize("path", ["/favicon.ico", "/plan/", "/../etc/passwd", "*"])
def test_other_paths_are_refused(server: PlanServer, path: str) -> None:
    assert ask(server, "GET", path).status == 404


def test_another_address_in_the_request_line_is_refused(server: PlanServer) -> None:
    own = f"Host: 127.0.0.1:{server.server_port}\n"
    assert ask_raw(server, f"GET http://evil.example/ HTTP/1.0\n{own}\n").status == 404


def test_a_body_that_is_too_long_is_refused_before_it_is_read(server: PlanServer) -> None:
    own = f"POST /plan HTTP/1.0\nHost: 127.0.0.1:{server.server_port}\nContent-Type: {JSON}\n"
    for length in (MAX_BODY_NBYTES + 1, 10**4000):
        answer = ask_raw(server, f"{own}Content-Length: {length}\n\n")
        assert answer.status == 413
        assert str(MAX_BODY_NBYTES) in answer.text


def test_a_body_may_be_as_long_as_is_said(server: PlanServer) -> None:
    body = json.dumps(asked(server, {})).encode()
    assert post(server, body + b" " * (MAX_BODY_NBYTES - len(body))).status == 200


def test_a_body_whose_length_is_not_clear_is_refused(server: PlanServer) -> None:
    own = f"POST /plan HTTP/1.0\nHost: 127.0.0.1:{server.server_port}\nContent-Type: {JSON}\n"
    assert ask_raw(server, f"{own}\n").status == 411
    assert ask_raw(server, f"{own}Content-Length: 2\nTransfer-Encoding: chunked\n\n").status == 411
    for length in ("-1", "+1", "1.0", "²", "", "1\nContent-Length: 2"):
        assert ask_raw(server, f"{own}Content-Length: {length}\n\n").status == 400


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense"])
def test_another_content_type_is_refused(server: PlanServer, kind: str) -> None:
    assert post(server, asked(server, {}), Content_Type=kind).status == 415


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe", "malformed"),
        ({"pins": {"conv": 1}}, "$.pins[...]"),
        ({"pins": ["conv"]}, "$.pins"),
        ({"pins": None}, "$.pins"),
        ({}, "pins"),
        ({"pins": {}, "policy": "auto"}, "policy"),
        (b'{"token": "TOKEN", "pins": ' + b"[" * 30_000, ""),
    ],
)
def test_json_that_is_not_as_expected_is_refused_by_its_field(server: PlanServer, value: Any, named: str) -> None:
    if isinstance(value, dict):
        value = {"token": server.token} | value
    if isinstance(value, bytes):
        value = value.replace(b"TOKEN", server.token.encode())
    answer = post(server, value)
    assert answer.status == 400
    assert named in answer.text


@pytest.mark.parametrize(
    "line", ["nonsense", "GET /", "GET / HTTP/9.9", "GET / HTTP/1.0\nHost", f"GET /{'x' * 70_000} HTTP/1.0"]
)
def test_what_is_no_http_is_refused(server: PlanServer, line: str) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as connection:
        connection.sendall(f"{line}\n\n".replace("\n", "\r\n").encode())
        answer = connection.recv(1 << 16).decode()
    assert "Traceback" not in answer
    assert PAGE not in answer


def test_what_cannot_be_planned_is_answered_with_the_reason() -> None:
    def refuse(pins: Mapping[str, str], _: Tell) -> Any:
        raise PlanError(f"no kernel {', '.join(pins)} \ud800")

    with serving_plans(refuse) as server:
        answer = post(server, asked(server, {"<b>": "nhwc"}))
    assert answer.status == 422
    assert answer.headers.get_content_type() == "text/plain"
    assert answer.text.startswith("no kernel <b>")


def test_other_failures_are_told_to_the_terminal_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(pins: Mapping[str, str], _: Tell) -> Any:
        raise ZeroDivisionError(f"a secret\nof {len(pins)} pins")

    with serving_plans(fail) as server:
        answer = post(server, asked(server, {"a": "b"}))
        assert post(server, asked(server, {})).status == 500  # it goes on
    assert answer.status == 500
    assert "secret" not in answer.text
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "blocklayout: POST /plan: ZeroDivisionError: a secret of 1 pins"
    assert len(said) == 2


def test_one_plan_is_made_at_a_time_while_pages_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_WAIT_S", 0.05)
    may_end, has_begun = threading.Event(), threading.Event()

    def wait(pins: Mapping[str, str], tell: Tell) -> Any:
        tell("waiting for <b>")
        has_begun.set()
        may_end.wait(10)
        return pins

    with serving_plans(wait) as server:
        answers: list[Answer] = []
        first = threading.Thread(target=lambda: answers.append(post(server, asked(server, {"a": "b"}))))
        first.start()
        has_begun.wait(10)
        second = post(server, asked(server, {}))
        assert (second.status, second.headers["Retry-After"]) == (503, "10")
        assert ask(server, "GET", f"/?token={server.token}").status == 200
        stage = ask(server, "GET", f"/progress?token={server.token}")
        assert (stage.text, stage.headers.get_content_type()) == ("waiting for <b>", "text/plain")
        may_end.set()
        first.join()
        assert answers[0].status == 200
        assert ask(server, "GET", f"/progress?token={server.token}").text == ""


def test_a_slow_client_keeps_nobody_waiting_and_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving._Handler, "timeout", 0.2)
    with serving_plans() as server, socket.create_connection(("127.0.0.1", server.server_port), 10) as slow:
        own = f"POST /plan HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\nContent-Type: {JSON}\r\n"
        slow.sendall(f"{own}Content-Length: 100\r\n\r\n{{".encode())
        assert post(server, asked(server, {})).status == 200
        began = time.monotonic()
        assert slow.recv(100) == b""
        assert time.monotonic() - began < 5
    assert capsys.readouterr().err == ""


def test_a_client_that_goes_away_is_not_spoken_of(capsys: pytest.CaptureFixture[str]) -> None:
    began = threading.Event()

    def make(_: Mapping[str, str], __: Tell) -> Any:
        began.set()
        time.sleep(0.1)
        return "x" * 10_000_000

    with serving_plans(make) as server:
        body = json.dumps(asked(server, {})).encode()
        with socket.create_connection(("127.0.0.1", server.server_port), 10) as connection:
            head = f"POST /plan HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\nContent-Type: {JSON}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            began.wait(10)
        assert post(server, asked(server, {})).status == 200
    assert capsys.readouterr().err == ""


def test_it_listens_to_this_machine_alone(server: PlanServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_port_that_cannot_be_had_is_named(server: PlanServer) -> None:
    for port in (server.server_port, 70_000):
        with pytest.raises(InputError, match=f"--port {port}: .*by default it is one that is free"):
            PlanServer(port, PAGE, told)


def test_each_server_has_a_token_of_its_own(server: PlanServer) -> None:
    with PlanServer(0, PAGE, told) as other:
        assert other.token != server.token
        assert len(other.token) >= 32
