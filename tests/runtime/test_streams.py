"""Streams: runs beside one another, each future with its own end, and threads that go with their session."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from tests import nets

SHAPE = (1, 17, 12, 12)
IMAGE = nets.random_input(SHAPE)
FEED = {"x": IMAGE}


def load(streams: int = 2, threads: int = 2) -> bl.Session:
    """With as many threads as are asked for, whatever the machine has."""
    return bl.load(nets.chain(), layout="nhwc", streams=streams, threads=threads)


def of_any_batch() -> onnx.ModelProto:
    proto = nets.chain().to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


def owners() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("blocklayout-stream")}


def comes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.002)
    return condition()


def on_every_stream(session: bl.Session, call: Callable[[], Any]) -> list[Future[Any]]:
    """Futures of what ``call`` gives on each of the streams; all of them have begun."""
    are_in = threading.Barrier(session.streams + 1)

    def apart() -> Any:
        are_in.wait(timeout=30)
        return call()

    futures = [session._book.streams.submit(apart) for _ in range(session.streams)]
    are_in.wait(timeout=30)
    return futures


# What comes out.


@pytest.mark.parametrize(("streams", "threads"), [(1, 1), (1, 2), (2, 2), (3, 3), (2, 4), (2, 5)])
def test_every_future_gets_its_own_answer(streams: int, threads: int) -> None:
    with load(streams, threads) as session:
        assert session.streams == streams
        assert session.plan.n_threads == threads // streams
        images = [nets.random_input(SHAPE, seed) for seed in range(8)]
        alone = load(1, threads // streams)
        expected = [alone(image) for image in images]
        futures = [(number, session.submit({"x": images[number]})) for number in list(range(8)) * 4]
        for number, future in futures:
            np.testing.assert_array_equal(future.result(timeout=30)[0], expected[number])
        np.testing.assert_array_equal(session(images[3]), expected[3])


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_plain_kernels_run_beside_each_other() -> None:
    b = bl.Builder()
    b.output("y", b.op("Erf", b.input("x", (20, 30))))
    arrays = [nets.random_input((20, 30), seed) for seed in range(4)]
    alone = bl.load(b, threads=1)
    with bl.load(b, streams=2, threads=2) as session:
        futures = [(array, session.submit({"x": array})) for array in arrays * 5]
        for array, future in futures:
            np.testing.assert_array_equal(future.result()[0], alone(array))


def test_names_of_outputs_and_own_arrays_are_as_for_run() -> None:
    with load() as session:
        array = np.empty(SHAPE, np.float32)
        [y] = session.submit(FEED, ["y"], out={"y": array}).result()
        assert y is array
        np.testing.assert_array_equal(array, session(IMAGE))


def test_the_mapping_may_change_at_once() -> None:
    with load() as session:
        feed = dict(FEED)
        futures = [session.submit(feed) for _ in range(5)]
        feed.clear()
        for future in futures:
            np.testing.assert_array_equal(future.result()[0], session(IMAGE))


@pytest.mark.parametrize("streams", [1, 2])
def test_an_exception_reaches_its_own_future(streams: int) -> None:
    bad = {
        "missing input x": {},
        "no input 'picture'": {"picture": IMAGE},
        "rank 4": {"x": IMAGE[0]},
        "float32": {"x": IMAGE.astype(np.float64)},
    }
    with load(streams) as session:
        futures = [(message, session.submit(FEED), session.submit(feed)) for message, feed in bad.items()]
        for message, good, refused in futures:
            assert good.result()[0].shape == SHAPE
            with pytest.raises(bl.InputError, match=message):
                refused.result()
        with pytest.raises(bl.InputError, match="no output 'logits'"):
            session.submit(FEED, ["logits"]).result()
        with pytest.raises(bl.InputError, match="missing input"):
            session.run(None, {})


def test_a_new_shape_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with bl.load(of_any_batch(), streams=3, threads=3, layout="nhwc") as session:
        make_plan, made = session._book.maker.make, []

        def counting(shapes: Any, contents: Any) -> Any:
            made.append(shapes)
            return make_plan(shapes, contents)

        monkeypatch.setattr(type(session._book.maker), "make", lambda _, *asked: counting(*asked))
        images = {n: nets.random_input((n, *SHAPE[1:])) for n in (1, 2)}
        futures = [(n, session.submit({"x": images[n]})) for n in (1, 2) * 6]
        assert all(future.result()[0].shape == images[n].shape for n, future in futures)
        assert sorted(made) == [(("x", images[n].shape),) for n in (1, 2)]


def test_known_shapes_run_while_a_new_one_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    with bl.load(of_any_batch(), streams=2, threads=2, layout="nhwc", shapes={"x": SHAPE}) as session:
        make_plan, is_planning, may_go_on = session._book.maker.make, threading.Event(), threading.Event()

        def slow(shapes: Any, contents: Any) -> Any:
            is_planning.set()
            assert may_go_on.wait(timeout=30)
            return make_plan(shapes, contents)

        monkeypatch.setattr(type(session._book.maker), "make", lambda _, *asked: slow(*asked))
        new = session.submit({"x": np.ones((2, *SHAPE[1:]), np.float32)})
        assert is_planning.wait(timeout=30)
        for _ in range(3):
            session.submit(FEED).result(timeout=30)
        assert not new.done()
        may_go_on.set()
        assert new.result(timeout=30)[0].shape == (2, *SHAPE[1:])


def test_plans_that_make_room_are_right() -> None:
    with bl.load(of_any_batch(), streams=2, threads=2, layout="nhwc", max_plans=1) as session:
        images = {n: nets.random_input((n, *SHAPE[1:])) for n in (1, 2)}
        expected = {n: session(image) for n, image in images.items()}
        futures = [(n, session.submit({"x": images[n]})) for n in (1, 2, 1, 1, 2, 2)]
        for n, future in futures:
            np.testing.assert_allclose(future.result()[0], expected[n], rtol=1e-5, atol=1e-6)
        assert session.memory().n_plans == 1


def test_a_profile_is_of_one_stream() -> None:
    with load() as session:
        profile = session.profile(FEED, n_runs=2)
        assert {step.kind for step in profile.steps} >= {"work", "outside"}


# What streams have of their own, and what they share.


def test_weights_are_shared_and_activations_are_not() -> None:
    with load() as session:
        before = session.memory()
        wait(on_every_stream(session, lambda: session(IMAGE)))
        [kept] = session._book._plans.values()
        ready, workspaces = kept.ready, kept.workspaces
        after = session.memory()
        assert after.packed_nbytes == before.packed_nbytes > 0
        assert after.arena_nbytes == 2 * ready.plan.arena_nbytes > 0
        assert after.scratchpad_nbytes == 2 * ready.plan.scratchpad_nbytes
        assert workspaces[0]._ready.packed is workspaces[1]._ready.packed is ready.packed
        assert not np.shares_memory(workspaces[0].arena, workspaces[1].arena)


def test_nothing_is_started_before_it_is_needed() -> None:
    before = owners()
    with load(1, 1) as session:
        session(IMAGE)
        assert owners() <= before  # other tests' may go meanwhile
        session.submit(FEED).result()
        assert len(owners() - before) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be pinned on this platform")
def test_each_stream_has_its_share_of_the_cpus() -> None:
    ours = os.sched_getaffinity(0)
    if len(ours) < 2:
        pytest.skip("needs 2 CPUs")
    with load(2, 2) as session:
        first, second = (each.result() for each in on_every_stream(session, lambda: os.sched_getaffinity(0)))
        assert not first & second
        assert first | second == ours
    with load(2, 2 * len(ours)) as session:  # more threads than CPUs: whoever asks for that gets them unpinned
        assert [each.result() for each in on_every_stream(session, lambda: os.sched_getaffinity(0))] == [ours, ours]
    assert os.sched_getaffinity(0) == ours


def run_apart(code: str, environ: dict[str, str]) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, env=environ, check=True, timeout=60, capture_output=True, text=True).stdout


OS_THREADS = """
import os, threading, time
begun = set()
class Noted(threading.Thread):
    def run(self):
        begun.add(str(threading.get_native_id()))
        super().run()
threading.Thread = Noted
import numpy as np
import blocklayout as bl
from tests import nets
from tests.runtime.test_streams import on_every_stream
def n_threads():  # the system lists a thread for some milliseconds after it was joined
    alive = {str(thread.native_id) for thread in threading.enumerate()}
    return len([task for task in os.listdir("/proc/self/task") if task in alive or task not in begun])
def settles_at(n):
    deadline = time.monotonic() + 10
    while n_threads() != n and time.monotonic() < deadline:
        time.sleep(0.005)
    return n_threads() == n or f"{n_threads()} instead of {n}"
before = n_threads()
session = bl.load(nets.chain(), streams=2, threads=6, layout="nhwc")
told, most = [n_threads() <= before + 2 or n_threads()], 0  # those that packed the weights serve a stream later
feed = {"x": np.ones((1, 17, 12, 12), np.float32)}
for future in on_every_stream(session, lambda: session.run(None, feed)):  # makes primitives, on threads that then go
    future.result()
settles_at(before + 6)
for _ in range(40):
    futures = [session.submit(feed) for _ in range(6)]
    for future in futures:
        future.result()
        most = max(most, n_threads())
told.append(most == before + 6 or most)
session.close()
told.append(settles_at(before))
print(told)
"""


def test_there_are_as_many_threads_as_were_asked_for(tree_environ: dict[str, str]) -> None:
    assert run_apart(OS_THREADS, tree_environ) == "[True, True, True]\n"


# Without threads.


@pytest.mark.parametrize("streams", [1, 2])
def test_a_request_for_which_no_thread_starts_is_refused_and_never_runs(
    streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[None] = []
    with load(streams) as session:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(bl.OutOfMemoryError):
                session._book.streams.submit(lambda: ran.append(None))
            with pytest.raises(bl.OutOfMemoryError, match=r"no stream can begin: .*ulimit -u"):
                session.submit(FEED)
        expected = session.run(None, FEED)[0]
        np.testing.assert_array_equal(session.submit(FEED).result(timeout=30)[0], expected)
        assert session.stats().n_waiting == 0
    assert not ran


def test_without_more_threads_the_first_stream_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with load(streams=2) as session:
        expected = session.submit(FEED).result(timeout=30)[0]
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for future in [session.submit(FEED) for _ in range(6)]:
            np.testing.assert_array_equal(future.result(timeout=30)[0], expected)


def refuse(_: threading.Thread) -> None:
    """As where the system has no more threads."""
    raise RuntimeError("can't start new thread")


# How it ends.


def test_what_was_submitted_is_finished_on_close() -> None:
    session = load()
    may_end = threading.Event()
    on_every_stream(session, lambda: may_end.wait(timeout=30))
    futures = [session.submit(FEED) for _ in range(6)]
    closing = threading.Thread(target=session.close)
    closing.start()
    assert comes_true(lambda: session._book.streams.is_closed)
    assert not any(future.done() for future in futures)
    may_end.set()
    closing.join(timeout=30)
    assert all(future.done() and future.result()[0].shape == SHAPE for future in futures)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_closed_session_refuses_to_run_and_can_be_looked_at(streams: int) -> None:
    before = owners()
    with load(streams) as session:
        session.submit(FEED).result()
    session.close()
    assert owners() <= before
    calls: list[Callable[[], object]] = [
        lambda: session.run(None, FEED),
        lambda: session.submit(FEED),
        lambda: session.profile(FEED),
        lambda: session.prepare({"x": SHAPE}),
    ]
    for call in calls:
        with pytest.raises(bl.InputError, match="the session is closed"):
            call()
    assert session.memory().arena_nbytes == 0
    assert session.plan.n_threads == 2 // streams


def test_what_waits_can_be_cancelled() -> None:
    with load() as session:
        may_end = threading.Event()
        on_every_stream(session, lambda: may_end.wait(timeout=30))
        assert session.submit(FEED).cancel()
        may_end.set()


@pytest.mark.parametrize("streams", [1, 2])
def test_a_stream_itself_may_run_submit_and_close(streams: int) -> None:
    session = load(streams)

    def as_callbacks_do() -> tuple[Any, Future[list[Any]]]:
        result, future = session(IMAGE), session.submit(FEED)
        session.close()
        return result, future

    wait(on_every_stream(session, lambda: session(IMAGE)))
    result, future = session._book.streams.submit(as_callbacks_do).result(timeout=30)
    np.testing.assert_array_equal(future.result(timeout=30)[0], result)
    session.close()


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("streams", [1, 2])
def test_threads_and_handles_go_with_the_session(streams: int) -> None:
    others = owners()
    load(streams).submit(FEED).result()  # what is made once
    assert comes_true(lambda: owners() <= others)
    before = bl.dnnl.live_handles()
    session = load(streams)
    futures = [session.submit(FEED) for _ in range(4)]
    seen = weakref.ref(session)
    del session  # what was submitted is done all the same
    assert all(future.result()[0].shape == SHAPE for future in futures)
    assert comes_true(lambda: seen() is None and owners() <= others)
    assert bl.dnnl.live_handles() == before


EXIT = """
import atexit
import numpy as np
import blocklayout as bl
from tests import nets
session = bl.load(nets.chain(), streams=2, threads=2, layout="nhwc")
done = []
for _ in range(20):
    session.submit({"x": np.ones((1, 17, 12, 12), np.float32)}).add_done_callback(done.append)
atexit.register(lambda: print(len(done)))
"""


def test_the_interpreter_ends_when_all_is_done(tree_environ: dict[str, str]) -> None:
    assert run_apart(EXIT, tree_environ) == "20\n"


# Arguments.


def test_more_streams_than_threads_are_refused() -> None:
    with pytest.raises(bl.InputError, match="streams=3: each has a thread at least, and threads gives them 2"):
        load(3, 2)
    n = bl.dnnl.default_threads() + 1
    with pytest.raises(
        bl.InputError, match=f"streams={n}: each has a thread at least, and this process may use {n - 1}"
    ):
        bl.load(nets.chain(), streams=n)


@pytest.mark.parametrize("streams", [0, -1, 2.0, True, "2", None])
def test_the_number_of_streams_is_positive(streams: object) -> None:
    with pytest.raises(bl.InputError, match=r"streams=.*give a positive number"):
        bl.load(nets.chain(), streams=streams)  # type: ignore[arg-type]
