"""Requests that run together: each gets its own row, and no neighbour of it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.dnnl import Stop
from blocklayout.serve.joining import N_TRIES, Joining, Row
from blocklayout.serve.queue import Batching, Queue
from tests import gates, nets

PATIENCE_S = 20.0
ROW = (17, 12, 12)
LONG_MS = 20_000.0  # a batch that is not full would wait for longer than the test


def free(builder: bl.Builder) -> onnx.ModelProto:
    proto = builder.to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


def load(batching: tuple[int, float] = (4, 0.0), **options: Any) -> bl.Session:
    return bl.load(free(nets.chain(convs=1)), **{"layout": "nhwc", "threads": 1, **options}, batching=batching)


IMAGES = [nets.random_input(ROW, seed) for seed in range(9)]


@cache
def answers() -> list[np.ndarray]:
    alone = bl.load(free(nets.chain(convs=1)), layout="nhwc", threads=1)
    return [alone(image[None]) for image in IMAGES]


@pytest.fixture
def expected() -> list[np.ndarray]:
    return answers()


@pytest.fixture
def session() -> Iterator[bl.Session]:
    with load() as session:
        yield session


@contextmanager
def busy(session: bl.Session) -> Iterator[None]:
    """Its stream does nothing else until the block ends."""
    begun, may_end = threading.Event(), threading.Event()

    def stay() -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    session._book.streams.submit(stay)
    assert begun.wait(PATIENCE_S)
    try:
        yield
    finally:
        may_end.set()


def assert_close(answer: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=30)
@given(kinds=st.lists(st.sampled_from(["bare", "row", "several", "wrong"]), min_size=1, max_size=20))
def test_each_gets_its_own_answer(kinds: list[str]) -> None:
    expected = answers()
    with load() as session:
        with busy(session):
            futures = []
            for number, kind in enumerate(kinds):
                image = IMAGES[number % 9]
                feed = {"bare": image, "row": image[None], "several": np.stack([image, image]), "wrong": image[1:]}[
                    kind
                ]
                futures.append((number % 9, kind, session.submit({"x": feed})))
        for number, kind, future in futures:
            if kind == "wrong":
                with pytest.raises(bl.InputError, match="axis 1 must be 17"):
                    future.result(PATIENCE_S)
                continue
            [answer] = future.result(PATIENCE_S)
            wanted = {"bare": expected[number][0], "row": expected[number]}
            assert_close(answer, wanted.get(kind, np.concatenate([expected[number]] * 2)))
            assert answer.base is None or len(answer.base) <= 2
        assert session.stats().failed == kinds.count("wrong")
        assert sum(size * n for size, n in session.stats().batches.items()) == len(kinds)


def test_what_waits_runs_together(session: bl.Session) -> None:
    session.warm_up()
    with busy(session):
        futures = [session.submit({"x": image}) for image in IMAGES[:4]]
        assert session.stats().n_waiting == 4
    wait(futures)
    assert session.stats().finished == 4
    assert sum(session.stats().batches.values()) <= 4


def test_a_full_batch_waits_for_nobody(expected: list[np.ndarray]) -> None:
    with load((3, LONG_MS)) as session:
        futures = [session.submit({"x": image}) for image in IMAGES[:6]]
        for future, answer in zip(futures, expected, strict=False):
            assert_close(future.result(PATIENCE_S)[0], answer[0])
        last = session.submit({"x": IMAGES[0]})
        assert last.cancel()  # it waits for two more
        assert session._book.streams.submit(int).result(PATIENCE_S) == 0  # the stream waits with it no longer


def test_callers_on_eight_threads(expected: list[np.ndarray]) -> None:
    wrong: list[int] = []
    with load((4, 1.0), streams=2, threads=2) as session:

        def call(number: int) -> None:
            for _ in range(10):
                [answer] = session.submit({"x": IMAGES[number]}).result(PATIENCE_S)
                if not np.allclose(answer, expected[number][0], rtol=1e-5, atol=1e-5):
                    wrong.append(number)

        callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(PATIENCE_S)
        assert wrong == []
        assert session.stats().finished == 80


def test_outputs_and_arrays_of_ones_own(session: bl.Session, expected: list[np.ndarray]) -> None:
    with busy(session):
        outs = [np.zeros(ROW, np.float32) for _ in range(2)]
        wrong = np.zeros((2, 3), np.float32)
        futures = [
            session.submit({"x": image}, ["y"], out={"y": out}) for image, out in zip(IMAGES, outs, strict=False)
        ]
        refused = session.submit({"x": IMAGES[2]}, ["y"], out={"y": wrong})
        nobody = session.submit({"x": IMAGES[2]}, ["logits"])
    for future, out, answer in zip(futures, outs, expected, strict=False):
        assert future.result(PATIENCE_S)[0] is out
        assert_close(out, answer[0])
    with pytest.raises(bl.InputError, match="out: y has shape"):
        refused.result(PATIENCE_S)
    with pytest.raises(bl.InputError, match="no output 'logits'"):
        nobody.result(PATIENCE_S)


def test_members_end_apart(session: bl.Session, expected: list[np.ndarray]) -> None:
    with busy(session):
        kept, cancelled, overdue = (
            session.submit({"x": IMAGES[number]}, deadline=deadline)
            for number, deadline in enumerate((None, None, 1e-6))
        )
        assert cancelled.cancel()
    assert_close(kept.result(PATIENCE_S)[0], expected[0][0])
    assert isinstance(overdue.exception(PATIENCE_S), bl.DeadlineExceededError)
    stats = session.stats()
    assert (stats.finished, stats.cancelled, stats.overdue) == (1, 1, 1)


def test_those_that_run_together_stop_when_all_are_stopped() -> None:
    gated = bl.load(free(gates.gated()), layout="nhwc", threads=1)
    queue = Queue(None, Batching(2, LONG_MS, lambda *_: None))  # no proof: nothing is known of what a gate does
    gated = bl.Session(gated._book, gated._write, queue)
    images = [nets.random_input(ROW, seed) for seed in range(2)]
    for n_stopped in (1, 2):
        with gates.closed() as gate:
            futures = [gated.submit({"x": image}) for image in images]
            gates.wait_for_a_run()
            for future in futures[:n_stopped]:
                future.stop()
            gate.set()
            for future in futures[:n_stopped]:
                assert isinstance(future.exception(PATIENCE_S), bl.StoppedError)
            for future, image in zip(futures[n_stopped:], images[n_stopped:], strict=True):
                assert_close(future.result(PATIENCE_S)[0], gated(image[None])[0])
    assert gated.stats().cancelled == 3
    gated.close()


def test_a_run_of_all_that_fails_is_made_for_each(
    session: bl.Session, expected: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.submit({"x": IMAGES[0]}).result(PATIENCE_S)
    joining = session.submissions.joining
    assert joining is not None
    run, sizes = joining.run, []

    def refusing(rows: list[Row], stop: Stop) -> Any:
        sizes.append(len(rows))
        if len(rows) > 1:
            raise MemoryError
        return run(rows, stop)

    monkeypatch.setattr(joining, "run", refusing)
    with busy(session):
        futures = [session.submit({"x": image}) for image in IMAGES[:3]]
    for future, answer in zip(futures, expected, strict=False):
        assert_close(future.result(PATIENCE_S)[0], answer[0])
    assert max(sizes) > 1


def joining_of(times_s: dict[int, float], max_batch: int = 8) -> Joining:
    book = bl.load(nets.chain(convs=1))._book
    joining = Joining(book, Batching(max_batch, 0.0, print))
    for size, time_s in times_s.items():
        joining._times_s[(), size] = [time_s] * N_TRIES  # type: ignore[assignment]
    return joining


def portions(times_s: dict[int, float], n: int) -> list[int]:
    row = Row({}, is_bare=True, names=None, out=None, key=((), None))
    return joining_of(times_s).portions([row] * n)


def test_rows_are_parted_as_it_takes_least_time() -> None:
    by_rows = {size: float(size) + 0.1 for size in (1, 2, 4, 8)}
    by_weights = dict.fromkeys((1, 2, 4, 8), 1.0)
    assert sorted(portions(by_rows, 5)) == [1, 4]
    assert portions(by_weights, 5) == [5]
    assert portions({1: 1.0, 2: 1.4, 4: 2.4, 8: 8.7}, 8) == [4, 4]
    assert portions({}, 3) == [3]  # nothing is known


@given(
    times=st.lists(st.floats(0.01, 10), min_size=4, max_size=4),
    n=st.integers(1, 8),
)
def test_portions_are_all_rows_and_none_takes_less(times: list[float], n: int) -> None:
    by_size = dict(zip((1, 2, 4, 8), times, strict=True))
    found = portions(by_size, n)
    assert sum(found) == n
    assert min(found) > 0

    def takes(rows: int) -> float:
        return by_size[next(size for size in by_size if size >= rows)]

    assert sum(map(takes, found)) <= min(takes(n), n * by_size[1]) + 1e-9


@pytest.mark.parametrize("kind", ["Tensor", "in blocks", "transposed"])
def test_rows_may_be_fed_as_everything_else(session: bl.Session, expected: list[np.ndarray], kind: str) -> None:
    row = IMAGES[0][None]
    tensor = bl.from_array(row)
    transposed = np.ascontiguousarray(row.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    fed = {"Tensor": tensor, "in blocks": tensor.to(memory_format="nChw8c"), "transposed": transposed}[kind]
    with busy(session):
        futures = [session.submit({"x": each}) for each in (fed, IMAGES[1])]
    assert_close(futures[0].result(PATIENCE_S)[0], expected[0])
    assert_close(futures[1].result(PATIENCE_S)[0], expected[1][0])


def test_a_row_that_runs_alone_is_what_run_gives(session: bl.Session) -> None:
    [answer] = session.submit({"x": IMAGES[0]}).result(PATIENCE_S)
    np.testing.assert_array_equal(answer, session(IMAGES[0][None])[0])


def test_rows_that_are_watched_or_checked_run_alone(session: bl.Session, expected: list[np.ndarray]) -> None:
    with bl.watch("record") as watch, busy(session):
        watched = [session.submit({"x": IMAGES[0]}) for _ in range(2)]
    with bl.checking("padding"):
        checked = session.submit({"x": IMAGES[0]})
    for future in (*watched, checked):
        assert_close(future.result(PATIENCE_S)[0], expected[0][0])
    assert watch.events
    assert session.stats().batches == {1: 3}


def test_it_shows_how_it_serves() -> None:
    with load(max_waiting=9) as session:
        assert "batches of up to 4, at most 9 wait" in repr(session)


def test_closing_waits_for_no_more_rows(expected: list[np.ndarray]) -> None:
    session = load((4, 1e9))
    futures = [session.submit({"x": image}) for image in IMAGES[:3]]
    session.close()
    for future, answer in zip(futures, expected, strict=False):
        assert_close(future.result(0)[0], answer[0])


@pytest.mark.usefixtures("no_garbage")
def test_neither_rows_nor_answers_keep_the_session() -> None:
    session = load()
    kept = [session.submit({"x": image}) for image in IMAGES]
    wait(kept)
    seen = weakref.ref(session)
    session._book.streams.submit(int).result()  # the stream has let go of the last batch
    del session
    assert seen() is None


# What is refused.


def test_a_fixed_first_extent_is_refused() -> None:
    with pytest.raises(bl.UnsupportedError, match="'x' is 1x17x12x12, without rows to join: export the model"):
        bl.load(nets.chain(), batching=(4, 1.0))


def test_a_model_that_mixes_rows_is_refused_when_it_is_loaded() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (2, 8)).softmax(0))
    with pytest.raises(bl.UnsupportedError, match=r"Softmax .* is not known to compute each row apart"):
        bl.load(free(b), batching=(4, 1.0))


def test_blocks_at_the_border_are_refused() -> None:
    with pytest.raises(bl.UnsupportedError, match="crosses the border as nChw8c"):
        load(io_layout={"x": "nChw8c"})


def test_channels_last_at_the_border_is_joined(expected: list[np.ndarray]) -> None:
    with load(io_layout={"x": "nhwc"}) as session:
        turned = session.submit({"x": np.ascontiguousarray(IMAGES[0].transpose(1, 2, 0))})
        assert_close(turned.result(PATIENCE_S)[0], expected[0][0])


@pytest.mark.parametrize("batching", [4, (4,), (0, 1.0), (4, -1.0), (4, float("nan")), (True, 1.0), (2.0, 1.0), "ab"])
def test_batching_is_a_size_and_a_time(batching: Any) -> None:
    with pytest.raises(bl.InputError, match="batching="):
        load(batching)


# Saved sessions.


def test_a_saved_session_has_the_proof_of_what_was_warmed_up(tmp_path: Path, expected: list[np.ndarray]) -> None:
    path = tmp_path / "warm.session"
    with load() as session:
        session.warm_up()
        session.save(path)
    with bl.load(path, threads=1, batching=(4, 0.0)) as again:
        again.warm_up()
        with busy(again):
            futures = [again.submit({"x": image}) for image in IMAGES]
        for future, answer in zip(futures, expected, strict=True):
            assert_close(future.result(PATIENCE_S)[0], answer[0])
    with pytest.raises(bl.UnsupportedError, match="saved without a proof that up to 8 rows of x 1x17x12x12"):
        bl.load(path, threads=1, batching=(8, 0.0))
