"""A model that is replaced while it is used: every request is answered, by the old or the new one."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl

X = np.ones((1, 4), np.float32)
FEED = {"x": X}


def scaling(factor: float, name: str = "y") -> bl.Builder:
    b = bl.Builder()
    b.output(name, b.input("x", (1, 4)) * np.float32(factor))
    return b


def test_new_requests_go_to_the_new_model() -> None:
    with bl.Served(scaling(2), threads=1) as served:
        before = served.session
        first = served.submit(FEED)
        served.replace(scaling(3))
        assert first.result()[0][0, 0] == 2
        assert served.submit(FEED).result()[0][0, 0] == 3
        assert served.run(None, FEED)[0][0, 0] == 3
        assert before._book.streams.is_closed
        assert served.session is not before
        assert served.stats().finished == 2


def test_no_request_is_lost() -> None:
    answers: list[float] = []
    failures: list[BaseException] = []
    is_over = threading.Event()

    with bl.Served(scaling(0), threads=1) as served:

        def call(is_submitted: bool) -> None:  # noqa: FBT001
            while not is_over.is_set():
                try:
                    found = served.submit(FEED).result(60) if is_submitted else served.run(None, FEED)
                    answers.append(found[0][0, 0])
                except BaseException as error:  # noqa: BLE001
                    failures.append(error)
                    return

        callers = [threading.Thread(target=call, args=(bool(number % 2),)) for number in range(8)]
        for caller in callers:
            caller.start()
        for factor in range(1, 6):
            served.replace(scaling(factor))
            assert served.run(None, FEED)[0][0, 0] == factor
        is_over.set()
        for caller in callers:
            caller.join(60)
    assert failures == []
    assert {*answers} <= {*range(6)}
    assert answers


@pytest.mark.parametrize("bad", ["missing", "damaged", "alien"])
def test_a_model_that_fails_leaves_the_old_one_serving(bad: str, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"no model")
    bl.save(scaling(1, "z"), tmp_path / "alien")
    with bl.Served(scaling(2), threads=1) as served:
        before = served.session
        with pytest.raises(bl.ModelError):
            served.replace(tmp_path / bad)
        assert served.session is before
        assert served.submit(FEED).result()[0][0, 0] == 2


def test_what_cannot_be_warmed_up_fails_before_it_serves() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 5)).relu())
    with bl.Served(scaling(2), warm=[{"x": (1, 4)}], threads=1) as served:
        with pytest.raises(bl.InputError, match="axis 1 must be 5"):
            served.replace(b)
        assert served.run(None, FEED)[0][0, 0] == 2


def test_closed_it_refuses() -> None:
    served = bl.Served(scaling(2), threads=1)
    served.close()
    for call in (lambda: served.run(None, FEED), lambda: served.submit(FEED), lambda: served.replace(scaling(1))):
        with pytest.raises(bl.ClosedError):
            call()


def test_it_loads_as_it_was_asked_to() -> None:
    with bl.Served(scaling(2), warm=None, threads=1, max_waiting=1) as served:
        served.replace(scaling(3))
        assert served.session.submissions._max_waiting == 1
