"""One session among threads, after a fork, and beside torch."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from tests import nets

N_CALLERS = 8


def _os_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _omp_max_threads() -> int:
    return int(ctypes.CDLL("libgomp.so.1").omp_get_max_threads())


def test_eight_threads_on_one_session() -> None:
    session = bl.load(nets.residual())
    feeds = [nets.feed_of(session, seed)["image"] for seed in range(N_CALLERS)]
    expected = [session(feed) for feed in feeds]
    before = _os_threads()
    wrong: list[int] = []
    most: list[int] = []

    def call(index: int) -> None:
        for _ in range(20):
            if not np.array_equal(session(feeds[index]), expected[index]):
                wrong.append(index)
            most.append(_os_threads())

    callers = [threading.Thread(target=call, args=(index,)) for index in range(N_CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []
    assert max(most) <= before + N_CALLERS + session.plan.n_threads


class _SlowLock:
    """A lock whose holder loses the CPU as soon as it has let go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def locked(self) -> bool:
        return self._lock.locked()

    def acquire(self, *, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        self._lock.release()
        time.sleep(0.01)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_callers_who_wait_for_a_run_have_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    session = bl.load(nets.residual(), threads=2)
    feed = nets.feed_of(session)["image"]
    session(feed)
    before = _os_threads()
    most: list[int] = []
    [kept] = session._book._plans.values()
    monkeypatch.setattr(kept.workspaces[0].room, "lock", _SlowLock())

    def call() -> None:
        for _ in range(3):
            session(feed)
            most.append(_os_threads())

    callers = [threading.Thread(target=call) for _ in range(N_CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert max(most) <= before + N_CALLERS + (session.plan.n_threads - 1)


def test_the_callers_thread_count_is_as_it_was() -> None:
    session = bl.load(nets.chain(), threads=1)
    before = _omp_max_threads()
    session(nets.random_input((1, 17, 12, 12)))
    assert _omp_max_threads() == before


CALLS_ITSELF = """
import sys
import numpy as np
import blocklayout as bl

@bl.register_operator("my.domain", "Calls")
class Calls:
    layouts = (bl.contiguous_format,)

    def compute(self, result: bl.Tensor, x: bl.Tensor) -> None:
        np.copyto(result.blocks(), session(x))

b = bl.Builder()
b.output("y", b.op("my.domain.Calls", b.input("x", (1, 4, 3, 3))))
session = bl.load(b, streams=int(sys.argv[1]))
for _ in range(2):
    try:
        session(np.ones((1, 4, 3, 3), np.float32))
    except bl.OperatorError as error:
        print(error)
"""


@pytest.mark.parametrize("streams", ["1", "2"])
def test_a_session_that_an_operator_of_its_own_calls_says_so(streams: str, tree_environ: dict[str, str]) -> None:
    """It would wait for itself."""
    command = [sys.executable, "-c", CALLS_ITSELF, streams]
    done = subprocess.run(command, env=tree_environ, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.count("by an operator in a run of its own; load the model a second time") == 2


FORK = """
import os, sys
import numpy as np
import blocklayout as bl
from tests import nets
session = bl.load(nets.residual())
feed = nets.feed_of(session)["image"]
expected = session(feed)
child = os.fork()
if child == 0:
    again = [np.array_equal(session(feed), expected) for _ in range(3)]
    fresh = np.allclose(bl.load(nets.residual())(feed), expected)
    os._exit(0 if all(again) and fresh else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert np.array_equal(session(feed), expected)
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_forked_after_a_run_computes_the_same(tree_environ: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], env=tree_environ, check=True, timeout=120)


TORCH = """
import numpy as np
import torch
import blocklayout as bl
from tests import nets
session = bl.load(nets.residual())
feed = nets.feed_of(session)["image"]
expected = session(feed)
count = torch.get_num_threads()
product = torch.ones(300, 300) @ torch.ones(300, 300)
for _ in range(3):
    assert np.array_equal(session(feed), expected)
    assert torch.equal(torch.ones(300, 300) @ torch.ones(300, 300), product)
assert torch.get_num_threads() == count
"""


def test_torch_in_the_same_process(tree_environ: dict[str, str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    subprocess.run([sys.executable, "-c", TORCH], env=tree_environ, check=True, timeout=120)


@pytest.mark.usefixtures("no_garbage")
def test_nothing_is_left_when_a_session_goes() -> None:
    session = bl.load(nets.residual())
    session.run(None, nets.feed_of(session))
    del session
    before = bl.dnnl.live_handles()
    for _ in range(3):
        session = bl.load(nets.residual())
        session.run(None, nets.feed_of(session))
        del session
    assert bl.dnnl.live_handles() == before
