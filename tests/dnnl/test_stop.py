"""Runs that end between two of their steps: when somebody asks, and when a deadline passes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import Executable, MemoryDesc, Stop, executable
from blocklayout.errors import DeadlineExceededError, StoppedError

DESC = MemoryDesc((1 << 22,))


@pytest.fixture(params=["C", "Python"])
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(executable, "native", lambda: None)
    elif not dnnl.has_native_executor():
        pytest.skip("no compiler built the executor")


def copy(src: np.ndarray, dst: np.ndarray) -> dnnl.Execution:
    primitive = dnnl.Primitive(dnnl.reorder(DESC, DESC, n_threads=1))
    return primitive.bind({"src": dnnl.Memory(DESC, src), "dst": dnnl.Memory(DESC, dst)})


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones(DESC.dims, np.float32), np.zeros(DESC.dims, np.float32), np.zeros(DESC.dims, np.float32)


@pytest.mark.usefixtures("language")
def test_nothing_runs_once_it_was_asked(arrays: tuple[np.ndarray, ...]) -> None:
    one, zero, _ = arrays
    stop = Stop()
    stop.ask()
    with pytest.raises(StoppedError, match="before its last step"):
        Executable([copy(one, zero)], 1).run(stop=stop)
    assert not zero.any()


@pytest.mark.usefixtures("language")
def test_a_deadline_ends_it_between_two_steps(arrays: tuple[np.ndarray, ...]) -> None:
    one, first, last = arrays
    to_first = copy(one, first)
    steps = Executable([*[to_first] * 2000, copy(one, last)], 1)  # 64 GB to be moved
    with pytest.raises(DeadlineExceededError, match="the deadline passed"):
        steps.run(stop=Stop(time.monotonic_ns() + 20_000_000))
    assert first.any()
    assert not last.any()


@pytest.mark.usefixtures("language")
def test_the_next_run_is_whole(arrays: tuple[np.ndarray, ...]) -> None:
    one, zero, _ = arrays
    steps = Executable([copy(one, zero)], 1)
    stop = Stop(1)
    assert stop.is_overdue
    with pytest.raises(DeadlineExceededError):
        steps.run(stop=stop)
    steps.run(stop=Stop(time.monotonic_ns() + 10**12))
    assert zero.all()


@pytest.mark.usefixtures("language")
def test_a_step_in_python_is_one_that_can_be_stopped_behind(arrays: tuple[np.ndarray, ...]) -> None:
    one, zero, _ = arrays
    stop = Stop()

    class Asks:
        def run(self) -> None:
            stop.ask()

    with pytest.raises(StoppedError):
        Executable([Asks(), copy(one, zero)], 1).run(stop=stop)
    assert not zero.any()
