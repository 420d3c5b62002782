"""Handles are destroyed once, and a failed call ends in the one exception that says what happened."""

from __future__ import annotations

import gc
import threading

import pytest

from blocklayout.dnnl import enums, handles, library, status
from blocklayout.errors import (
    DnnlError,
    InvalidArgumentsError,
    OutOfMemoryError,
    UnimplementedError,
)


def n_engines() -> int:
    return handles.live_handles()["engine"]


def new_engine() -> handles.Handle:
    return handles.create("engine", "dnnl_engine_create", enums.value("engine_kind", "cpu"), 0)


@pytest.mark.usefixtures("no_garbage")
def test_a_handle_goes_with_its_object() -> None:
    before = n_engines()
    handle = new_engine()
    assert n_engines() == before + 1
    del handle
    gc.collect()
    assert n_engines() == before


@pytest.mark.usefixtures("no_garbage")
def test_a_handle_is_destroyed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = new_engine()
    before = n_engines()
    handle.destroy()
    assert n_engines() == before - 1
    monkeypatch.setattr(library, "load", lambda: pytest.fail("destroyed again"))
    handle.destroy()


@pytest.mark.usefixtures("no_garbage")
def test_a_handle_keeps_what_it_refers_to() -> None:
    before = n_engines()
    first = new_engine()
    stream = handles.create("stream", "dnnl_stream_create", first.c, 1, keep=first)
    del first
    gc.collect()
    assert n_engines() == before + 1
    stream.destroy()
    del stream
    gc.collect()
    assert n_engines() == before


def test_the_process_has_one_engine_and_one_stream() -> None:
    found: list[tuple[int, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append((id(handles.cpu_engine()), id(handles.cpu_stream()))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("out_of_memory", OutOfMemoryError),
        ("invalid_arguments", InvalidArgumentsError),
        ("unimplemented", UnimplementedError),
        ("last_impl_reached", UnimplementedError),
        ("runtime_error", DnnlError),
    ],
)
def test_each_status_has_its_exception(name: str, expected: type[DnnlError]) -> None:
    number = enums.value("status", name)
    with pytest.raises(DnnlError) as caught:
        status.check(number, "dnnl_some_call", "the spec")
    assert type(caught.value) is expected
    assert caught.value.status == number
    for part in ("dnnl_some_call", "the spec", f"dnnl_{name}", "ONEDNN_VERBOSE=check"):
        assert part in str(caught.value)


def test_success_is_silent() -> None:
    status.check(0, "dnnl_some_call")


def test_a_real_call_that_fails() -> None:
    with pytest.raises(InvalidArgumentsError, match="dnnl_engine_create"):
        handles.create("engine", "dnnl_engine_create", enums.value("engine_kind", "cpu"), 99)


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidArgumentsError, match="eltwise_relu"):
        enums.value("alg_kind", "relu")
    with pytest.raises(InvalidArgumentsError, match="no execution argument"):
        enums.argument("source")
