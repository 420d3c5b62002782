"""Executions in a row, in C and in Python: the same results, errors that name their Spec, and whose denormals."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import Executable, MemoryDesc, executable
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.native import native
from blocklayout.dnnl.threads import team
from blocklayout.errors import DnnlError

EXTENT = 1000
DESC = MemoryDesc((1, EXTENT))
SMALLEST = np.float32(np.finfo(np.float32).tiny)


@pytest.fixture(params=["C", "Python"])
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Python":
        monkeypatch.setattr(executable, "native", lambda: None)
    elif not dnnl.has_native_executor():
        pytest.skip("no compiler built the executor")
    return str(request.param)


def linear(src: np.ndarray, dst: np.ndarray, alpha: float) -> dnnl.Execution:
    """``dst = alpha * src``."""
    spec = dnnl.eltwise(DESC, algorithm="linear", alpha=alpha, n_threads=2)
    return dnnl.Primitive(spec).bind({"src": dnnl.Memory(DESC, src), "dst": dnnl.Memory(DESC, dst)})


def buffers(n: int, value: float | np.float32 = 1.0) -> list[np.ndarray]:
    return [np.full(EXTENT, value, np.float32) for _ in range(n)]


def run(executions: list[dnnl.Execution | None], *, keeps_denormals: bool = False) -> None:
    Executable(executions, 2, keeps_denormals=keeps_denormals).run()


@pytest.mark.usefixtures("language")
def test_they_run_in_order() -> None:
    a, b, c = buffers(3)
    run([linear(a, b, 2.0), None, linear(b, c, 3.0)])
    assert (c == 6).all()


@pytest.mark.usefixtures("language")
def test_none_at_all_is_fine() -> None:
    run([])
    run([None, None])


class Nothing:
    """A step that is not the library's."""

    def run(self) -> None:
        pass


@pytest.mark.usefixtures("language")
@pytest.mark.parametrize("others", [[], [Nothing()]], ids=["alone", "beside others"])
def test_each_run_has_buffers_of_its_own(others: list[Any]) -> None:
    src, dst = dnnl.Memory(DESC), dnnl.Memory(DESC)
    spec = dnnl.eltwise(DESC, algorithm="linear", alpha=2.0, n_threads=2)
    step = dnnl.Primitive(spec).bind({"src": src, "dst": dst})
    twice = Executable([*others, step, *others], 2, given=[[src]], fresh=[(DESC.nbytes, [dst])])
    spread = np.full(2 * EXTENT, 5, np.float32)[::2]
    for source in (np.full(EXTENT, 3, np.float32), np.full(EXTENT, 4, np.float32)):
        [made] = twice.run([source])
        assert made.ctypes.data % 64 == 0
        assert (made.view(np.float32) == 2 * source).all()
    assert src.address == dst.address == 0
    assert twice.run([spread])[0].nbytes == DESC.nbytes


@pytest.mark.usefixtures("language")
def test_what_numpy_computes_lies_between() -> None:
    a, b, c = buffers(3)

    class Add:
        def run(self) -> None:
            b.__iadd__(1)

    times: list[int] = []
    Executable([linear(a, b, 2.0), Add(), linear(b, c, 3.0)], 2).run(times=times)
    assert (c == 9).all()
    assert len(times) == 3
    assert min(times) > 0


@pytest.mark.usefixtures("language", "refusing")
def test_a_failure_names_the_spec_and_stops() -> None:
    a, b, c = buffers(3)
    broken = linear(a, b, 2.0)
    broken._c_args[0].arg = 9999  # the library misses its source
    with pytest.raises(DnnlError, match=r"dnnl_primitive_execute for .*eltwise"):
        run([linear(a, b, 3.0), broken, linear(b, c, 2.0)])
    assert (b == 3).all()
    assert (c == 1).all()


@pytest.mark.usefixtures("language")
def test_times_are_one_for_each_place() -> None:
    a, b = buffers(2)
    times: list[int] = []
    Executable([None, linear(a, b, 2.0), linear(b, a, 2.0)], 2).run(times=times)
    assert len(times) == 3
    assert times[0] == 0
    assert min(times[1:]) > 0
    assert (a == 4).all()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_denormals_are_zero_on_every_thread_unless_kept(n_threads: int) -> None:
    if not dnnl.has_native_executor():
        pytest.skip("no compiler built the executor")
    a, b = buffers(2, SMALLEST)
    halve = linear(a, b, 0.5)
    for keeps in (False, True, False):
        row = Executable([halve], n_threads, keeps_denormals=keeps)
        b[:] = 1
        row.run()
        assert (b == (SMALLEST / 2 if keeps else 0)).all()
    # Each thread's own mode is back.
    b[:] = 1
    dnnl.run_parallel(halve.run, n_threads)
    assert (b == SMALLEST / 2).all()
    assert SMALLEST * np.float32(0.5) > 0


def test_other_python_threads_go_on() -> None:
    if not dnnl.has_native_executor():
        pytest.skip("no compiler built the executor")
    src, dst = (np.ones(4_000_000, np.float32) for _ in range(2))
    desc = MemoryDesc((1, src.size))
    spec = dnnl.eltwise(desc, algorithm="tanh", n_threads=1)
    step = dnnl.Primitive(spec).bind({"src": dnnl.Memory(desc, src), "dst": dnnl.Memory(desc, dst)})
    row = Executable([step] * 40, 1)
    over, seen = threading.Event(), []

    def look() -> None:
        while not over.is_set():
            seen.append(time.monotonic())
            time.sleep(0.001)

    looker = threading.Thread(target=look)
    looker.start()
    start = time.monotonic()
    row.run()
    end = time.monotonic()
    over.set()
    looker.join()
    assert any(start < moment < end for moment in seen[1:-1])


def test_where_there_is_a_compiler_there_is_an_executor() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    assert dnnl.has_native_executor(), "gcc is here, but the extension was not built: pip install -e . builds it"


def test_an_executor_that_does_not_load_is_none() -> None:
    script = (
        "from blocklayout.dnnl import native; native.EXTENSION = '/dev/null'\n"
        "from blocklayout import dnnl; assert not dnnl.has_native_executor()\n"
        "import blocklayout as bl; from tests import nets; s = bl.load(nets.chain()); s.run(None, nets.feed_of(s))\n"
        "assert s.executor == 'Python'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


class Probe(dnnl.Execution):
    """A step that notes how wide parallel regions are where it runs."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.widths: list[int] = []
        self.c_execute = ffi.callback("bl_execute_t", self.note)

    def note(self, *_: object) -> int:
        self.widths.append(native().bl_width())  # type: ignore[union-attr]
        return 0

    @property
    def c_step(self) -> tuple[Any, Any, Any, int, int]:
        return self.c_execute, ffi.NULL, ffi.NULL, 0, self.n_threads


@pytest.mark.skipif(team() is None, reason="widths are those of our own team")
def test_a_step_of_fewer_threads_opens_narrower_regions() -> None:
    steps = [Probe(3), Probe(1), Probe(2), Probe(3)]
    Executable(steps, 3).run()
    assert [step.widths for step in steps] == [[3], [1], [2], [3]]
