"""Watched sessions: each reorder, conversion, copy and loss of a run is told, with its caller and its time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import blocklayout as bl
from tests import nets
from tests.forking import in_child
from tests.here import line_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blocklayout.layout_events import Event

SHAPE = (1, 17, 12, 12)
NBYTES = 4 * 17 * 12 * 12
IMAGE = nets.random_input(SHAPE)
LAST = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def relu(dtype: str = "f32", **border: Any) -> bl.Session:
    """A network of one step, which reads and writes what it is given."""
    b = bl.Builder()
    b.output("y", b.input("x", SHAPE, dtype).relu())
    return bl.load(b, **border)


def flattened(layout: str) -> bl.Session:
    b = bl.Builder()
    y = b.input("x", (1, 8, 8, 8)).conv(nets.he(np.random.default_rng(0), 16, 8, 3, 3), pads=1, name="conv")
    b.output("y", y.flatten(name="flat"))
    return bl.load(b, layout=layout)


def of_integers() -> bl.Session:
    """A plain kernel on a type the library has no reorder of."""
    infos = [helper.make_tensor_value_info(name, TensorProto.INT64, (1, 2, 3)) for name in "xy"]
    node = helper.make_node("Neg", ["x"], ["y"], name="minus")
    graph = helper.make_graph([node], "integers", infos[:1], infos[1:])
    return bl.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def only(w: bl.Watch) -> Event:
    [event] = w
    return event


def test_a_plan_without_reorders_tells_of_nothing() -> None:
    with bl.watch("raise") as w:
        relu()(IMAGE)
    assert len(w) == 0


def test_packing_weights_is_no_reorder_of_a_run() -> None:
    session = bl.load(nets.free_model())
    with bl.watch("record") as w:
        session.run(None, {"x": nets.random_input((1, 3, 8, 8))})  # plans, too
    first = len(w)
    with w:
        session.run(None, {"x": nets.random_input((1, 3, 8, 8))})
    assert len(w) == 2 * first == 2 * len(session.plan.reorders)


def test_an_array_with_other_strides_takes_one_reorder() -> None:
    session = relu()
    with bl.watch("record") as w:
        line, [result] = line_here(), session.run(None, {"x": LAST})
    event = only(w)
    assert (event.kind, event.operator, event.nbytes) == ("reorder", "input x", 2 * NBYTES)
    assert (event.file, event.line) == (__file__, line)
    assert event.inputs == (bl.MemoryDesc.from_array(LAST),)
    assert event.result == session.plan.entries[0].desc
    assert event.ns is not None
    assert event.ns > 0
    assert event.reason.endswith("reads nchw, the caller gave nhwc")
    np.testing.assert_array_equal(result, np.maximum(IMAGE, 0))


def test_holes_between_elements_are_not_counted() -> None:
    with bl.watch("record") as w:
        relu()(np.repeat(IMAGE, 3, axis=3)[..., ::3])
    assert only(w).nbytes == 2 * NBYTES


def test_a_blocked_tensor_takes_one_reorder_from_its_blocks() -> None:
    tensor = bl.reorder(IMAGE, "nChw8c")
    with bl.watch("record") as w:
        [result] = relu().run(None, {"x": tensor})
    event = only(w)
    assert (event.kind, event.inputs) == ("reorder", (tensor.desc,))
    assert event.nbytes == NBYTES + 4 * 24 * 12 * 12
    np.testing.assert_array_equal(result, np.maximum(IMAGE, 0))


def test_what_the_plan_expects_is_told_in_its_words() -> None:
    session = bl.load(nets.chain(), layout="nhwc")
    with bl.watch("record") as w:
        session(IMAGE)
    assert [event.reason for event in w] == [each.reason for each in session.plan.reorders]
    assert [event.operator for event in w] == ["input x", "output y"]


def test_an_array_that_comes_as_the_plan_reads_it_takes_none() -> None:
    session = bl.load(nets.chain(), layout="nhwc")
    with bl.watch("record") as w:
        session(LAST)
    assert [event.operator for event in w] == ["output y"]


def test_every_reorder_of_a_plan_is_told_with_its_time() -> None:
    session = bl.load(nets.chain(), layout="nhwc")
    with bl.watch("record") as w:
        session(IMAGE)
    assert [event.nbytes for event in w] == [each.nbytes_moved for each in session.plan.reorders]
    assert [event.reason for event in w] == [each.reason for each in session.plan.reorders]
    assert {event.kind for event in w} == {"reorder"}
    assert all(event.ns is not None and event.ns > 0 for event in w)
    assert {event.operator for event in w} >= {"input x", "output y"}


def test_outputs_are_those_of_a_run_that_nobody_watches() -> None:
    session = bl.load(nets.residual())
    feed = nets.feed_of(session)
    expected = session.run(None, feed)
    with bl.watch("record"):
        np.testing.assert_array_equal(session.run(None, feed)[0], expected[0])


def test_out_is_written_to_directly_or_told() -> None:
    session = relu()
    strided = np.zeros((*SHAPE[:3], 24), np.float32)[..., ::2]
    with bl.watch("record") as w:
        session.run(None, {"x": IMAGE}, out={"y": np.zeros(SHAPE, np.float32)})
    assert len(w) == 0
    with w:
        session.run(None, {"x": IMAGE}, out={"y": strided})
    event = only(w)
    assert (event.kind, event.operator, event.nbytes) == ("copy", "output y", 2 * NBYTES)
    assert event.result == bl.MemoryDesc.from_array(strided)
    assert "holes" in event.reason
    np.testing.assert_array_equal(strided, np.maximum(IMAGE, 0))


def test_out_that_is_read_or_runs_backwards_is_told() -> None:
    session, array = relu(), IMAGE.copy()
    with bl.watch("record") as w:
        session.run(None, {"x": array}, out={"y": array})
        session.run(None, {"x": IMAGE}, out={"y": np.zeros(SHAPE, np.float32)[:, ::-1]})
    assert "shares memory" in w.events[0].reason
    assert w.events[1].result is None
    assert {event.kind for event in w} == {"copy"}


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_numpy_s_own_copies_on_the_way_in_are_told_and_timed() -> None:
    session, array = of_integers(), np.arange(6).reshape(1, 2, 3)
    transposed = np.ascontiguousarray(array.transpose(0, 2, 1)).transpose(0, 2, 1)
    blocked = bl.reorder(array, "nCw8c")
    with bl.watch("record") as w:
        results = [session(given) for given in (array, transposed, blocked)]
    assert [(event.kind, event.operator) for event in w] == [("reorder", "input x")] * 2
    assert all(event.ns for event in w)
    assert w.events[1].inputs == (blocked.desc,)
    for result in results:
        np.testing.assert_array_equal(result, -array)


@pytest.mark.filterwarnings("ignore:.*f16")
def test_conversions_at_the_border_are_told() -> None:
    session = relu("f16")
    with bl.watch("record") as w:
        session(IMAGE.astype(np.float16))
    assert [event.operator for event in w] == ["input x", "output y"][: len(session.plan.reorders)]
    assert [event.nbytes for event in w] == [each.nbytes_moved for each in session.plan.reorders]


@pytest.mark.parametrize("layout", ["nhwc", "nChw8c"])
def test_a_lost_layout_is_told_once_a_run(layout: str) -> None:
    session = flattened(layout)
    feed = nets.feed_of(session)
    with bl.watch("record") as w:
        session.run(None, feed)
        session.run(None, feed)
    losses = [event for event in w if event.kind == "loss"]
    assert len(losses) == 2
    assert losses[0].operator.startswith("flat (")
    assert losses[0].inputs == (session.plan.format_of(session.plan.choices[0].writes),)
    assert losses[0].reason.startswith("drops a run of 1 kernel in ")


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("layout", ["plain", "nChw8c"])
def test_a_plain_kernel_is_a_loss_where_its_input_is_not_plain(layout: str) -> None:
    b = bl.Builder()
    y = b.input("x", (1, 8, 9, 9)).conv(nets.he(np.random.default_rng(0), 16, 8, 3, 3), pads=1)
    b.output("y", b.op("Hardmax", y, name="error"))
    session = bl.load(b, layout=layout)
    with bl.watch("record") as w:
        session.run(None, nets.feed_of(session))
    losses = [(event.operator, event.reason.rpartition(": ")[2]) for event in w if event.kind == "loss"]
    assert losses == ([] if layout == "plain" else [("error (Hardmax)", "no primitive computes 'Hardmax'")])


def run(session: bl.Session) -> Any:
    return session.run(None, {"x": LAST})


def call(session: bl.Session) -> Any:
    return session(LAST)


def submit(session: bl.Session) -> Any:
    return session.submit({"x": LAST}).result()


ways = pytest.mark.parametrize("way", [run, call, submit])
each_number = pytest.mark.parametrize("streams", [1, 2])


@pytest.fixture
def session(streams: int) -> Iterator[bl.Session]:
    with relu(streams=streams, threads=streams) as made:
        yield made


@ways
@each_number
def test_a_warning_is_at_the_line_that_called(way: Callable[..., Any], session: bl.Session) -> None:
    with bl.watch("warn"), pytest.warns(bl.WatchWarning, match="input x") as seen:
        way(session)
    assert [(warning.filename, warning.lineno) for warning in seen] == [(__file__, way.__code__.co_firstlineno + 1)]


@ways
@each_number
def test_raise_raises_in_the_caller_and_the_session_goes_on(way: Callable[..., Any], session: bl.Session) -> None:
    where = f"test_watched_sessions.py:{way.__code__.co_firstlineno + 1}: reorder in input x"
    with bl.watch("raise") as w, pytest.raises(bl.WatchError, match=where):
        way(session)
    assert len(w) == 1
    way(session)
    assert len(w) == 1


def test_all_of_a_run_is_kept_before_it_raises() -> None:
    session = bl.load(nets.chain(), layout="nhwc")
    n_more = len(session.plan.reorders) - 1
    with bl.watch("raise") as w, pytest.raises(bl.WatchError, match=rf"input x: .* \(and {n_more} more\)$"):
        session(IMAGE)
    assert len(w) == n_more + 1 >= 2


def test_an_error_of_the_run_itself_comes_first() -> None:
    session = bl.load(nets.chain(), layout="per-op")
    with bl.watch("raise"), pytest.raises(bl.InputError, match="float32"):
        session(IMAGE.astype(np.float64))
    session(IMAGE)


@each_number
def test_what_is_submitted_in_a_block_belongs_to_it(session: bl.Session) -> None:
    may_run = threading.Event()
    for _ in range(session.streams):
        session._book.streams.submit(may_run.wait)
    with bl.watch("record") as w:
        line, future = line_here(), session.submit({"x": LAST})
    later = session.submit({"x": LAST})
    assert len(w) == 0
    may_run.set()
    future.result(), later.result()
    assert [(event.file, event.line) for event in w] == [(__file__, line)]


@each_number
def test_other_threads_are_not_seen(session: bl.Session) -> None:
    with bl.watch("record") as w, ThreadPoolExecutor(1) as pool:
        pool.submit(run, session).result()
    assert len(w) == 0


@each_number
def test_each_thread_sees_its_own(session: bl.Session) -> None:
    def watched(number: int) -> int:
        with bl.watch("record") as w:
            futures = [session.submit({"x": LAST}) for _ in range(number)]
            for _ in range(number):
                session(LAST)
        for future in futures:
            future.result()
        return len(w)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(watched, range(5))) == [0, 2, 4, 6, 8]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_as_well() -> None:
    session = relu(threads=2)
    session(IMAGE)

    def told() -> bool:
        with bl.watch("record") as w:
            session(LAST)
        return len(w) == 1

    assert in_child(told) == 0


def test_a_timed_run_is_not_told() -> None:
    session = bl.load(nets.chain(), layout="per-op")
    with bl.watch("record") as w:
        session.profile({"x": IMAGE}, n_runs=1)
    assert len(w) == 0


def test_a_copy_of_what_cannot_be_read_is_told_with_the_input() -> None:
    session = bl.load(nets.chain())
    with bl.watch("record") as w:
        session(IMAGE[:, :, ::-1])
    assert [(event.kind, event.operator) for event in w][:1] == [("copy", "input x")]
