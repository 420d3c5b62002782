"""What is submitted ends exactly once, with its own answer: whatever is cancelled, stopped, overdue or refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, as_completed, wait
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import blocklayout as bl
from tests import gates, nets
from tests.forking import in_child

PATIENCE_S = 20.0
IMAGE = nets.random_input(gates.SHAPE)
FEED = {"x": IMAGE}


@pytest.fixture
def session() -> Iterator[bl.Session]:
    with bl.load(gates.gated(), layout="nhwc", threads=1) as session:
        yield session


def bounded(max_waiting: int) -> bl.Session:
    return bl.load(gates.gated(), layout="nhwc", threads=1, max_waiting=max_waiting)


def ends(session: bl.Session) -> dict[str, int]:
    stats = session.stats()
    found = {end: getattr(stats, end) for end in ("finished", "failed", "cancelled", "overdue", "refused")}
    return {end: count for end, count in found.items() if count}


# The bound.


def test_one_more_than_may_wait_is_refused() -> None:
    with bounded(2) as session, gates.closed() as gate:
        running = session.submit(FEED)
        gates.wait_for_a_run()  # it waits no more
        waiting = [session.submit(FEED) for _ in range(2)]
        with pytest.raises(bl.QueueFullError, match=r"2 requests wait \(max_waiting\)"):
            session.submit(FEED)
        assert session.stats().n_waiting == 2
        gate.set()
        assert all(future.result(PATIENCE_S) for future in (running, *waiting))
        assert session.submit(FEED).result(PATIENCE_S)
        assert ends(session) == {"finished": 4, "refused": 1}


def test_what_is_cancelled_makes_room() -> None:
    with bounded(1) as session, gates.closed():
        session.submit(FEED)
        gates.wait_for_a_run()
        assert session.submit(FEED).cancel()
        assert session.stats().n_waiting == 0
        session.submit(FEED)
        assert ends(session) == {"cancelled": 1}


def test_what_is_overdue_makes_room() -> None:
    with bounded(1) as session, gates.closed():
        session.submit(FEED)
        gates.wait_for_a_run()
        overdue = session.submit(FEED, deadline=1e-6)
        session.submit(FEED)
        assert isinstance(overdue.exception(PATIENCE_S), bl.DeadlineExceededError)
        with pytest.raises(bl.QueueFullError):
            session.submit(FEED)


def test_run_is_not_bound() -> None:
    with bounded(1) as session:
        for _ in range(3):
            session.run(None, FEED)
        assert ends(session) == {}


@pytest.mark.parametrize("max_waiting", [0, -1, 1.0, True, "3"])
def test_the_bound_is_positive(max_waiting: object) -> None:
    with pytest.raises(bl.InputError, match=r"max_waiting=.*give a positive number"):
        bl.load(gates.gated(), max_waiting=max_waiting)  # type: ignore[arg-type]


# Deadlines.


def test_what_is_overdue_never_runs(session: bl.Session) -> None:
    with gates.closed() as gate:
        first = session.submit(FEED)
        gates.wait_for_a_run()
        out = np.full(gates.SHAPE, 7, np.float32)
        overdue = session.submit(FEED, out={"y": out}, deadline=1e-6)
        gate.set()
        with pytest.raises(bl.DeadlineExceededError, match="before the run began"):
            overdue.result(PATIENCE_S)
        first.result(PATIENCE_S)
        assert (out == 7).all()
    assert ends(session) == {"finished": 1, "overdue": 1}


def test_a_run_that_is_overdue_ends_and_the_session_goes_on(session: bl.Session) -> None:
    expected = session(IMAGE)
    with gates.closed() as gate:
        out = np.full(gates.SHAPE, 7, np.float32)
        running = session.submit(FEED, out={"y": out}, deadline=0.2)
        try:
            gates.wait_for_a_run()
            time.sleep(0.25)
        finally:
            gate.set()
        with pytest.raises(bl.DeadlineExceededError, match="before the run was done"):
            running.result(PATIENCE_S)
        assert (out == 7).all()
    np.testing.assert_array_equal(session(IMAGE), expected)


def test_an_error_of_a_deadline_is_a_timeout(session: bl.Session) -> None:
    with gates.closed(), pytest.raises(TimeoutError):
        session.submit(FEED, deadline=1e-9).result(PATIENCE_S)


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan"), float("inf"), True, "1", np.ones(2)])
def test_a_deadline_is_a_number_of_seconds(session: bl.Session, deadline: Any) -> None:
    with pytest.raises(bl.InputError, match="give a positive number of seconds"):
        session.submit(FEED, deadline=deadline)


# Ending them.


def test_what_waits_is_cancelled_and_never_runs(session: bl.Session) -> None:
    with gates.closed() as gate:
        running = session.submit(FEED)
        gates.wait_for_a_run()
        out = np.full(gates.SHAPE, 7, np.float32)
        cancelled = session.submit(FEED, out={"y": out})
        stopped = session.submit(FEED)
        stopped.stop()
        assert cancelled.cancel()
        assert cancelled.cancel()
        assert cancelled.cancelled()
        assert stopped.cancelled()
        assert not running.cancel()
        assert {*wait([cancelled, stopped], PATIENCE_S).done} == {cancelled, stopped}
        gate.set()
        assert [*as_completed([running], PATIENCE_S)] == [running]
        with pytest.raises(CancelledError):
            cancelled.result()
        assert (out == 7).all()
    assert ends(session) == {"finished": 1, "cancelled": 2}


def test_a_run_that_is_stopped_ends_before_its_next_step_and_the_session_goes_on(session: bl.Session) -> None:
    expected = session(IMAGE)
    with gates.closed() as gate:
        out = np.full(gates.SHAPE, 7, np.float32)
        running = session.submit(FEED, out={"y": out})
        behind = session.submit(FEED)
        gates.wait_for_a_run()
        running.stop()
        running.stop()
        gate.set()
        with pytest.raises(bl.StoppedError):
            running.result(PATIENCE_S)
        assert (out == 7).all()
        np.testing.assert_array_equal(behind.result(PATIENCE_S)[0], expected)
    assert ends(session) == {"finished": 1, "cancelled": 1}


def test_stopping_what_is_done_changes_nothing(session: bl.Session) -> None:
    done = session.submit(FEED)
    before = done.result(PATIENCE_S)
    done.stop()
    assert done.result() is before
    assert not done.cancelled()


def cut_model() -> onnx.ModelProto:
    """How many elements are not zero settles the extents behind the gate."""
    nodes = [
        helper.make_node("Gate", ["x"], ["g"], domain="tests.gates"),
        helper.make_node("NonZero", ["g"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["numbers"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 5))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, None))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("tests.gates", 1)]
    return helper.make_model(helper.make_graph(nodes, "cut", [x], [y]), opset_imports=opsets, ir_version=9)


def test_a_model_in_pieces_stops_between_them(session: bl.Session) -> None:
    del session
    with bl.load(cut_model(), threads=1) as cut:
        feed = {"x": np.eye(4, 5, dtype=np.float32)}
        expected = cut.run(None, feed)
        with gates.closed() as gate:
            running = cut.submit(feed)
            gates.wait_for_a_run()
            running.stop()
            gate.set()
            with pytest.raises(bl.StoppedError):
                running.result(PATIENCE_S)
        np.testing.assert_array_equal(cut.submit(feed).result(PATIENCE_S)[0], expected[0])


def test_close_answers_what_waits() -> None:
    session = bounded(10)
    with gates.closed() as gate:
        futures = [session.submit(FEED) for _ in range(4)]
        gates.wait_for_a_run()
        closing = threading.Thread(target=session.close)
        closing.start()
        while not session._book.streams.is_closed:
            time.sleep(0.001)
        with pytest.raises(bl.ClosedError, match="the session is closed"):
            session.submit(FEED)
        gate.set()
        closing.join(PATIENCE_S)
    assert all(future.done() and future.result() for future in futures)
    assert ends(session) == {"finished": 4}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_has_a_queue_of_its_own() -> None:
    with bounded(1) as session, gates.closed() as gate:
        session.submit(FEED)
        gates.wait_for_a_run()
        session.submit(FEED)

        def serves() -> bool:
            gate.set()
            return session.stats().n_waiting == 0 and bool(session.submit(FEED).result(PATIENCE_S))

        assert in_child(serves) == 0
        assert session.stats().n_waiting == 1


CTRL_C = """
import os, signal, threading, time
import numpy as np
import blocklayout as bl
from tests import gates
session = bl.load(gates.gated(), layout="nhwc", threads=1)
with gates.closed() as gate:
    future = session.submit({"x": np.ones(gates.SHAPE, np.float32)})
    gates.wait_for_a_run()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        future.result(60)
    except KeyboardInterrupt:
        print("interrupted", future.done())
    gate.set()
    print(len(future.result(60)), len(session.run(None, {"x": np.ones(gates.SHAPE, np.float32)})))
session.close()
"""


def test_ctrl_c_ends_waiting_and_nothing_else(tree_environ: dict[str, str]) -> None:
    assert signal.getsignal(signal.SIGINT) is not None
    command = [sys.executable, "-W", "ignore", "-c", CTRL_C]
    done = subprocess.run(command, env=tree_environ, check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == "interrupted False\n1 1\n"


@pytest.mark.usefixtures("no_garbage")
def test_what_failed_holds_nothing(session: bl.Session) -> None:
    import weakref

    for feed in (FEED, {"x": IMAGE[0]}, {}):
        future = session.submit(feed)
        future.exception(PATIENCE_S)
        seen = weakref.ref(future)
        del future
        session.submit(FEED).result(PATIENCE_S)  # the stream has let go of the one before
        assert seen() is None


# All at once.


@given(seed=st.integers(0, 1 << 30), streams=st.integers(1, 2), max_waiting=st.sampled_from([None, 1, 3, 20]))
def test_every_request_ends_once_and_is_counted_so(seed: int, streams: int, max_waiting: int | None) -> None:
    images = [nets.random_input(gates.SHAPE, number) for number in range(4)]
    options = {"layout": "nhwc", "threads": streams, "streams": streams, "max_waiting": max_waiting}
    with bl.load(nets.chain(convs=1), **options) as session:  # type: ignore[arg-type]
        expected = [session(image) for image in images]
        told: list[str] = []

        def call(caller: int) -> None:
            rng = random.Random(seed + caller)
            told.extend(outcome(rng) for _ in range(6))

        def outcome(rng: random.Random) -> str:
            number = rng.randrange(len(images))
            feed = {"x": images[number]} if rng.random() < 0.8 else {"x": images[number][0]}
            calls: list[Future[Any]] = []
            try:
                future = session.submit(feed, deadline=rng.choice([None, 1e-7, 1e-3, 100.0]))
            except bl.QueueFullError:
                return "refused"
            future.add_done_callback(calls.append)
            if rng.random() < 0.3:
                future.cancel()
            elif rng.random() < 0.3:
                future.stop()
            end = ended(future, feed, expected[number])
            assert calls == [future]
            return end

        callers = [threading.Thread(target=call, args=(caller,)) for caller in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(PATIENCE_S)
        counted = ends(session)
        assert len(told) == 48
        assert counted == {end: told.count(end) for end in {*told}}
        assert session.stats().n_waiting == 0


def ended(future: Future[Any], feed: dict[str, np.ndarray], expected: np.ndarray) -> str:
    try:
        [answer] = future.result(PATIENCE_S)
    except (CancelledError, bl.StoppedError):
        return "cancelled"
    except bl.DeadlineExceededError:
        return "overdue"
    except bl.InputError:
        assert feed["x"].ndim == 3
        return "failed"
    np.testing.assert_array_equal(answer, expected)
    return "finished"
