"""Parallel regions: how wide they are, and what a call leaves behind."""

from __future__ import annotations

import threading

import pytest

from blocklayout.dnnl import library, threads
from blocklayout.errors import DnnlError, InvalidArgumentsError


def width() -> int:
    """Of regions: what the library makes primitives for."""
    functions = threads.team()
    return int(functions.bl_width() if functions is not None else library.load().omp_get_max_threads())


def test_the_result_comes_back() -> None:
    assert threads.run_parallel(lambda: "result", 2) == "result"


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_exception_comes_back(n_threads: int) -> None:
    before = width()
    with pytest.raises(ZeroDivisionError):
        threads.run_parallel(lambda: 1 // 0, n_threads)
    assert width() == before
    assert threads.run_parallel(lambda: "still works", n_threads) == "still works"


@pytest.mark.parametrize("n_threads", [0, -1])
def test_no_threads_are_refused(n_threads: int) -> None:
    with pytest.raises(InvalidArgumentsError, match="1 thread or more"):
        threads.run_parallel(lambda: None, n_threads)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_the_width_is_set_and_the_callers_own_count_stays(n_threads: int) -> None:
    openmp = library.load()
    before, own = width(), openmp.omp_get_max_threads()
    try:
        openmp.omp_set_num_threads(7)
        assert threads.run_parallel(width, n_threads) == n_threads
        assert openmp.omp_get_max_threads() == 7
    finally:
        openmp.omp_set_num_threads(own)
    assert width() == before


@pytest.mark.parametrize(("outer", "inner"), [(2, 3), (3, 1), (1, 2)])
def test_a_nested_call_runs(outer: int, inner: int) -> None:
    def nested() -> tuple[int, int, int]:
        return width(), threads.run_parallel(width, inner), width()

    assert threads.run_parallel(nested, outer) == (outer, inner, outer)


def test_callers_do_not_wait_for_each_other() -> None:
    meet = threading.Barrier(2)

    def work() -> None:
        meet.wait(timeout=30)

    if threads.team() is None:
        pytest.skip(f"regions of several callers take turns: threads are {threads.threads_name()}")
    other = threading.Thread(target=lambda: threads.run_parallel(work, 2))
    other.start()
    threads.run_parallel(work, 2)
    other.join(timeout=30)
    assert not other.is_alive()


def test_what_may_spoil_its_thread_has_one_of_its_own() -> None:
    here = threading.get_ident()
    seen: list[int] = []

    def refuse() -> None:
        seen.append(threading.get_ident())
        raise DnnlError("no")

    def create() -> None:
        for _ in range(2):
            threads.run_apart(lambda: seen.append(threading.get_ident()), 1)
        with pytest.raises(DnnlError):
            threads.run_apart(refuse, 1)
        threads.run_apart(lambda: seen.append(threading.get_ident()), 1)

    threads.run_apart(create, 1)
    first, second, spoilt, after = seen
    assert first == second == spoilt != here
    assert after not in (here, spoilt)
