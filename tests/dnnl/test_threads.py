"""Parallel regions: turns, thread counts, pools and forks. What a process does once runs in one of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from blocklayout.dnnl import library, threads
from blocklayout.errors import InvalidArgumentsError

PRELUDE = """
import os, sys, threading, time, warnings
import numpy as np
from blocklayout.dnnl import Memory, aligned_empty, c_desc, engine, status, threads
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.handles import create
from blocklayout.dnnl.threads import own_stream, release_pool, run_parallel
from blocklayout.layout import MemoryDesc
from tests.forking import in_child

warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point

def make_relu(seed):
    desc = MemoryDesc((1, 64, 32, 32))
    array = np.random.default_rng(seed).standard_normal(desc.dims, np.float32)
    src, dst = Memory(desc, array), Memory.empty(desc)
    c = c_desc.to_c(desc).c
    pd = create("primitive_desc", "dnnl_eltwise_forward_primitive_desc_create",
                engine.cpu_engine().c, 96, 0x20, c, c, 0.0, 0.0, ffi.NULL)
    primitive = create("primitive", "dnnl_primitive_create", pd.c)
    c_args = ffi.new("dnnl_exec_arg_t[]", [(1, src.c), (17, dst.c)])
    def run(keep=(src, pd)):
        dst.buffer[:] = 255
        status.call("dnnl_primitive_execute", primitive.c, engine.cpu_stream().c, 2, c_args)
        return bool((dst.buffer.view(np.float32).reshape(desc.dims) == np.maximum(array, 0)).all())
    return run

def n_os_threads():
    return len(os.listdir("/proc/self/task"))

def settles_at(n):  # threads that end are listed a little longer
    deadline = time.monotonic() + 10
    while n_os_threads() != n and time.monotonic() < deadline:
        time.sleep(0.005)
    return n_os_threads() == n or f"{n_os_threads()} instead of {n}"
"""

RunPython = Callable[..., str]


def omp_count() -> int:
    return int(library.load().omp_get_max_threads())


def test_the_result_comes_back() -> None:
    assert threads.run_parallel(lambda: "result", 2) == "result"


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_exception_comes_back(n_threads: int) -> None:
    before = omp_count()
    with pytest.raises(ZeroDivisionError):
        threads.run_parallel(lambda: 1 // 0, n_threads)
    assert omp_count() == before
    assert threads.run_parallel(lambda: "still works", n_threads) == "still works"


@pytest.mark.parametrize("n_threads", [0, -1])
def test_no_threads_are_refused(n_threads: int) -> None:
    with pytest.raises(InvalidArgumentsError, match="1 thread or more"):
        threads.run_parallel(lambda: None, n_threads)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_the_count_is_set_and_restored(n_threads: int) -> None:
    openmp = library.load()
    before = omp_count()
    try:
        openmp.omp_set_num_threads(7)
        assert threads.run_parallel(omp_count, n_threads) == n_threads
        assert omp_count() == 7
    finally:
        openmp.omp_set_num_threads(before)


@pytest.mark.parametrize(("outer", "inner"), [(2, 3), (3, 1), (1, 2)])
def test_a_nested_call_runs(outer: int, inner: int) -> None:
    def nested() -> tuple[int, int, int]:
        return omp_count(), threads.run_parallel(omp_count, inner), omp_count()

    assert threads.run_parallel(nested, outer) == (outer, inner, outer)


def test_calls_take_turns() -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    workers = [threading.Thread(target=lambda: [threads.run_parallel(work, 2) for _ in range(20)]) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
    assert len(most) == 160
    assert max(most) == 1


def test_one_thread_needs_no_turn() -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    def occupy() -> None:
        is_inside.set()
        may_end.wait(timeout=30)

    worker = threading.Thread(target=lambda: threads.run_parallel(occupy, 2))
    worker.start()
    assert is_inside.wait(timeout=30)
    assert threads.run_parallel(lambda: "at once", 1) == "at once"
    may_end.set()
    worker.join(timeout=30)
    assert not worker.is_alive()


def test_eight_threads_get_right_answers_and_leave_no_workers(run_python: RunPython) -> None:
    code = """
relu = make_relu(0)
base = n_os_threads()
right = [run_parallel(relu, 4)]
counts = [settles_at(base + 3)]  # the only caller keeps its workers
barrier = threading.Barrier(9)
def work(seed):
    mine = make_relu(seed)
    for _ in range(10):
        right.append(run_parallel(mine, 4))
    barrier.wait()
    barrier.wait()
callers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for caller in callers: caller.start()
barrier.wait()
counts.append(settles_at(base + 8 + 3))  # so it still does
right.append(run_parallel(relu, 4))
counts.append(settles_at(base + 8))
barrier.wait()
for caller in callers: caller.join()
print(all(right), len(right), counts)
"""
    assert run_python(PRELUDE + code) == "True 82 [True, True, True]"


def test_a_thread_that_runs_alone_again_keeps_its_workers_again(run_python: RunPython) -> None:
    code = """
relu = make_relu(0)
base = n_os_threads()
run_parallel(relu, 3)
other = threading.Thread(target=lambda: run_parallel(make_relu(1), 3)); other.start(); other.join()
run_parallel(relu, 3)
counts = [settles_at(base)]
for _ in range(threads._SETTLING_RUNS):
    run_parallel(relu, 3)
counts.append(settles_at(base + 2))
print(counts)
"""
    assert run_python(PRELUDE + code) == "[True, True]"


def test_release_pool_hands_the_workers_back(run_python: RunPython) -> None:
    code = """
relu = make_relu(0)
release_pool()
base = n_os_threads()
run_parallel(relu, 4)
release_pool()
counts = [settles_at(base)]
def serve():
    run_parallel(relu, 4)
    counts.append(settles_at(base + 1 + 3))
other = threading.Thread(target=serve); other.start(); other.join()
print(counts)
"""
    assert run_python(PRELUDE + code) == "[True, True]"


def test_owners_of_streams_run_beside_each_other_and_keep_their_workers(run_python: RunPython) -> None:
    code = """
relu = make_relu(0)
base = n_os_threads()
may_end, meet = threading.Event(), threading.Barrier(2)
right, counts = [], []
def own(n_threads):
    own_stream(n_threads)
    mine = make_relu(n_threads)
    right.append(run_parallel(lambda: meet.wait(30) >= 0 and mine(), n_threads))  # both are inside
    meet.wait(30)
    may_end.wait(30)
owners = [threading.Thread(target=own, args=(n_threads,)) for n_threads in (2, 3)]
for owner in owners: owner.start()
while len(right) < 2: time.sleep(0.001)
counts.append(settles_at(base + 2 + 1 + 2))
for _ in range(2 * threads._SETTLING_RUNS):
    right.append(run_parallel(relu, 4))
counts.append(settles_at(base + 2 + 1 + 2))  # others keep none beside them
may_end.set()
for owner in owners: owner.join()
for _ in range(threads._SETTLING_RUNS + 1):
    right.append(run_parallel(relu, 4))
counts.append(settles_at(base + 3))
print(all(right), counts)
"""
    assert run_python(PRELUDE + code) == "True [True, True, True]"


def test_a_fork_waits_until_no_owner_is_inside(run_python: RunPython) -> None:
    code = """
is_inside, order = threading.Event(), []
def own():
    own_stream(1)
    def stay():
        is_inside.set()
        time.sleep(0.05)
        order.append("out")
    run_parallel(stay, 1)
owner = threading.Thread(target=own); owner.start()
is_inside.wait(30)
relu = make_relu(0)
code = in_child(lambda: order == ["out"] and run_parallel(relu, 4))
owner.join()
print(code, run_parallel(relu, 4))
"""
    assert run_python(PRELUDE + code) == "0 True"


def test_a_child_of_an_owner_owns_nothing(run_python: RunPython) -> None:
    code = """
codes = []
def own():
    own_stream(3)
    relu = make_relu(0)
    run_parallel(relu, 3)
    codes.append(in_child(lambda: threads._caller.stream is None and run_parallel(relu, 3)))
    codes.append(run_parallel(relu, 3))
owner = threading.Thread(target=own); owner.start(); owner.join()
print(codes)
"""
    assert run_python(PRELUDE + code) == "[0, True]"


def test_a_child_gets_right_answers(run_python: RunPython) -> None:
    code = """
relu = make_relu(0)
first = run_parallel(relu, 4)
def check():
    return run_parallel(relu, 4) and run_parallel(relu, 4) and not threads._caller.is_inherited
codes = [in_child(check) for _ in range(5)]
codes.append(in_child(lambda: in_child(check) == 0))
print(first, codes, run_parallel(relu, 4))
"""
    assert run_python(PRELUDE + code) == "True [0, 0, 0, 0, 0, 0] True"


def test_a_child_with_a_pool_it_cannot_end_uses_fresh_threads(run_python: RunPython) -> None:
    code = """
threads._pause = lambda openmp: False
relu = make_relu(0)
first = run_parallel(relu, 4)
def check():
    release_pool()
    try:
        run_parallel(lambda: 1 // 0, 4)
    except ZeroDivisionError:
        return run_parallel(relu, 4) and run_parallel(relu, 1) and threads._caller.is_inherited
print(first, in_child(check), in_child(lambda: in_child(check) == 0))
"""
    assert run_python(PRELUDE + code) == "True 0 0"


def test_a_child_of_a_busy_process_gets_right_answers(run_python: RunPython) -> None:
    code = """
stop = threading.Event()
right = []
def work(seed):
    mine = make_relu(seed)
    while not stop.is_set():
        right.append(run_parallel(mine, 4))
workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
for worker in workers: worker.start()
relu = make_relu(9)
codes = [in_child(lambda: run_parallel(relu, 4)) for _ in range(10)]
stop.set()
for worker in workers: worker.join()
print(set(codes), all(right))
"""
    assert run_python(PRELUDE + code) == "{0} True"


def test_a_child_made_before_the_library_was_loaded(run_python: RunPython) -> None:
    code = """
from blocklayout.dnnl import library
assert not library.is_loaded()
print(in_child(lambda: run_parallel(make_relu(0), 4) and not threads._caller.is_inherited))
"""
    assert run_python(PRELUDE + code) == "0"


def test_a_child_of_a_process_where_others_use_the_runtime(run_python: RunPython) -> None:
    code = """
from blocklayout.dnnl import library
from blocklayout.dnnl.find_library import find_library
other = ffi.dlopen(str(find_library()))  # not through us
assert not library.is_loaded() and threads._loaded_openmp() is not None
print(in_child(lambda: run_parallel(make_relu(0), 4) and not threads._caller.is_inherited))
"""
    assert run_python(PRELUDE + code) == "0"


def test_a_child_made_inside_of_a_call(run_python: RunPython) -> None:
    code = """
relu = make_relu(0)
print(run_parallel(lambda: relu() and in_child(lambda: run_parallel(relu, 4)), 4), run_parallel(relu, 4))
"""
    assert run_python(PRELUDE + code) == "0 True"
