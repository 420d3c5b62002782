"""Limits of memory and time that callers set for what strangers wrote."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout.resource_limits import check_time, in_force, interrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

X = np.ones((1, 3, 8, 8), np.float32)


def _network() -> bl.Builder:
    b = bl.Builder("small")
    x = b.input("x", X.shape)
    b.output("y", x.conv(np.ones((16, 3, 3, 3), np.float32), pads=1).relu())
    return b


def _endless() -> bytes:
    """A loop whose condition stays true."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, (2,)),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, (2,)),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "true", "x"], ["y"], name="loop", body=body)],
        "endless",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))],
        [numpy_helper.from_array(np.array(True), "true")],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    return content


def test_a_loop_without_end_ends() -> None:
    session = bl.load(_endless(), tune="model")
    with bl.limits(seconds=0.2), pytest.raises(bl.LimitError, match=r"the 0\.2 seconds that bl\.limits allows"):
        session.run(None, {"x": np.zeros(2, np.float32)})


def test_a_load_stops_where_its_time_is_over() -> None:
    with bl.limits(seconds=1e-9), pytest.raises(bl.LimitError, match="1e-09 seconds"):
        bl.load(_network(), tune="model")


def test_a_run_stops_between_steps_and_the_session_goes_on() -> None:
    session = bl.load(_network(), tune="model")
    expected = session.run(None, {"x": X})[0]
    with bl.limits(seconds=1e-9), pytest.raises(bl.LimitError, match="small, after step"):
        session.run(None, {"x": X})
    with bl.limits(seconds=3600):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


@pytest.mark.parametrize(
    "do",
    [
        lambda: bl.load(_network(), tune="model"),
        lambda: bl.zeros((16, 16)),
        lambda: bl.reorder(np.ones((1, 3, 16, 16), np.float32), "nChw16c"),
        lambda: bl.MemoryDesc((64, 64)).offsets(),
        lambda: bl.MemoryDesc((64, 64)).pack(np.ones((64, 64), np.float32)),
    ],
    ids=["load", "zeros", "reorder", "offsets", "pack"],
)
def test_memory_is_limited(do: Callable[[], object]) -> None:
    with bl.limits(nbytes=512), pytest.raises(bl.LimitError, match=r"bl\.limits allows 512 here"):
        do()
    do()


def test_a_file_is_weighed_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # without taking any
    with bl.limits(nbytes=1 << 20), pytest.raises(bl.LimitError, match=r"x\.onnx would have 1,099,511,627,776 bytes"):
        bl.load(path)


def test_a_run_counts_as_a_whole() -> None:
    session = bl.load(_network(), tune="model")
    with bl.limits(nbytes=5000), pytest.raises(bl.LimitError, match="a run of small, its constants included, would"):
        session.run(None, {"x": X})


def test_constants_count_together() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 64))
    for _ in range(8):
        x = b.op("MatMul", x, b.constant(np.ones((64, 64), np.float32)))
    b.output("y", x)
    with bl.limits(nbytes=4 * 64 * 64 * 4), pytest.raises(bl.LimitError, match="its constants would have"):
        bl.load(b, tune="model")


def test_a_block_within_another_is_never_more_generous() -> None:
    with bl.limits(nbytes=100, seconds=1e-9), bl.limits(nbytes=10**9, seconds=3600):
        limits = in_force.get()
        assert limits is not None
        assert limits.nbytes == 100
        with pytest.raises(bl.LimitError, match="1e-09"):
            check_time("here")
    assert in_force.get() is None


def test_another_thread_has_its_own() -> None:
    found: list[object] = []
    with bl.limits(nbytes=1):
        thread = threading.Thread(target=lambda: found.append(bl.zeros((4, 4)).shape))
        thread.start()
        thread.join()
    assert found == [(4, 4)]


def test_what_is_submitted_has_those_of_its_caller() -> None:
    with bl.load(_network(), tune="model", streams=2, threads=2) as session:
        with bl.limits(seconds=1e-9):
            limited = session.submit({"x": X})
        free = session.submit({"x": X})
        with pytest.raises(bl.LimitError):
            limited.result()
        assert free.result()[0].shape == (1, 16, 8, 8)


@pytest.mark.parametrize("limits", [{"nbytes": 0}, {"nbytes": 1.5}, {"nbytes": True}, {"seconds": 0}])
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "1", -1])
def test_a_limit_is_a_positive_number(limits: dict[str, int], seconds: float) -> None:
    for wrong in (limits, {"seconds": seconds}):
        with pytest.raises(bl.InputError, match="greater than 0"), bl.limits(**wrong):
            pass


def test_no_limit_is_no_limit() -> None:
    with bl.limits():
        assert in_force.get() is None  # so that runs take their shortest way
        time.sleep(0)
        check_time("here")
        assert bl.zeros((4, 4)).shape == (4, 4)


def test_boxes_are_compared_no_longer_than_there_is_time() -> None:
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"])],
        "boxes",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, (1, 5000, 4)),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 50, 5000)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array([5000]), "most")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    corners = np.arange(5000, dtype=np.float32)[:, None] + np.array([0, 0, 0.5, 0.5], np.float32)  # none overlaps
    feed = {"boxes": corners[None], "scores": np.ones((1, 50, 5000), np.float32)}
    session = bl.load(model, tune="model")
    with bl.limits(seconds=0.5), pytest.raises(bl.LimitError, match=r"0\.5 seconds"):
        session.run(None, feed)


def _long(*, is_constant: bool) -> bytes:
    """A node that nothing but loops in Python compute, for minutes."""
    shapes = {"x": (1, 8, 128, 128), "w": (8, 8, 5, 5), "offset": (1, 50, 128, 128)}
    constants = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("DeformConv", ["x", "w", "offset"], ["z"], name="long", pads=[2, 2, 2, 2]),
        helper.make_node("Add", ["z", "more"], ["y"]),
    ]
    more = helper.make_tensor_value_info("more", TensorProto.FLOAT, ())
    x = [] if is_constant else [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes["x"])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "loops", [*x, more], [y], constants[len(x) :])
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]).SerializeToString()
    return content


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_loops_of_another_library_end_in_the_middle() -> None:
    session = bl.load(_long(is_constant=False), tune="model", threads=1)
    feed = {"x": np.zeros((1, 8, 128, 128), np.float32), "more": np.float32(0)}
    before = sys.gettrace()
    with bl.limits(seconds=0.3), pytest.raises(bl.LimitError, match=r"^long: the 0\.3 seconds"):
        session.run(None, feed)
    assert sys.gettrace() is before


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_what_traces_already_goes_on() -> None:
    """As a debugger does: it sees every line of the block, and stays."""
    seen: list[str] = []

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        if frame.f_code is step.__code__:
            seen.append(event)
        return trace

    def step() -> None:
        sum([1])
        sum([2])

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with bl.limits(seconds=60), interrupted("steps"):
            step()
        with bl.limits(seconds=0.1), pytest.raises(bl.LimitError, match=r"^for ever: the 0\.1 seconds"):
            _for_ever()
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert seen == ["call", "line", "line", "return"]
    assert after is trace


def _for_ever() -> None:
    def go_on() -> None:
        while True:
            pass

    with interrupted("for ever"):
        go_on()


def test_a_limit_that_ends_an_evaluator_in_the_making_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_model: object) -> None:
        while True:
            pass

    monkeypatch.setattr("onnx.reference.ReferenceEvaluator", endless)
    with bl.limits(seconds=0.5), pytest.raises(bl.LimitError, match=r"^node 'long': the 0\.5 seconds"):
        bl.load(_long(is_constant=False), tune="model", threads=1)


def test_code_that_ends_just_before_its_time_does_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    before = sys.gettrace()
    with bl.limits(seconds=1):
        with interrupted("a step"):
            clock_s[0] = 2.0
        assert sys.gettrace() is before
        with pytest.raises(bl.LimitError, match="the next: the 1 seconds"):
            check_time("the next")


def test_constants_are_computed_no_longer_than_there_is_time() -> None:
    with bl.limits(seconds=1), pytest.raises(bl.LimitError, match=r"^node 'long': the 1 seconds"):
        bl.load(_long(is_constant=True), tune="model", threads=1)


def test_windows_of_nothing_but_padding_take_no_time() -> None:
    """Millions of windows: in Python, one after the other, these take a minute."""
    b = bl.Builder()
    pads = [2, 2, 2, 100_000]
    b.output("y", b.op("AveragePool", b.input("x", (1, 3, 28, 28)), kernel_shape=[3, 3], pads=pads))
    with bl.limits(seconds=20):
        [result] = bl.load(b, tune="model", threads=1).run(None, {"x": np.ones((1, 3, 28, 28), np.float32)})
    assert np.nanmax(result) == np.nanmin(result) == 1
    assert np.isnan(result[..., 30:]).all()
