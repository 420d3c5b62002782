"""Memory that cannot be had, at each place where it is asked for: an error, and then everything goes on.

Allocations fail that the library makes for code, those of our own C, and numpy's. Others of the library's own end the
process, which nobody can prevent: its C++ throws through functions in C. docs/how-to/check-values.md tells which.
"""

from __future__ import annotations

import pytest

from blocklayout.dnnl import threads
from tests.faults.conftest import RunFailing

PRELUDE = """
import ctypes, mmap, threading
import numpy as np
import blocklayout as bl
from blocklayout import dnnl
from tests.dnnl.caches import clear_primitives
from tests import nets
from tests.forking import in_child

MALLOC, MMAP, NEW = 1, 2, 4
shim = ctypes.CDLL(None)
shim.failing_watch.argtypes = ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
shim.failing_at.argtypes = [ctypes.c_long]
shim.failing_counted.restype = ctypes.c_long
shared = mmap.mmap(-1, 8)

def count(attempt):
    def counting():
        shim.failing_at(0)
        attempt()
        shared[:] = shim.failing_counted().to_bytes(8, "little")
        return True
    assert in_child(counting) == 0
    return int.from_bytes(shared[:], "little")

def survives(attempt, is_right, n):
    shim.failing_at(n)
    try:
        first = is_right(attempt())
    except (MemoryError, bl.BlockLayoutError):
        first = True
    shim.failing_at(-1)
    return first and is_right(attempt())

def tell(attempt, is_right, library, kinds, least=0):
    assert shim.failing_watch(library, kinds, least) > 0
    n = count(attempt)
    print(n > 0, {in_child(lambda: survives(attempt, is_right, place)) for place in range(1, n + 1)})

source = nets.mobile()
feed = {"x": nets.random_input((1, 3, 20, 20))}
session = bl.load(source, threads=2)
[expected] = session.run(None, feed)

def is_right(answer):
    return bool(np.allclose(answer, expected, rtol=1e-4, atol=1e-5))

def load():
    return bl.load(source, threads=2).run(None, feed)[0]

def run():
    return session.run(None, feed)[0]

clear_primitives()  # loads make code again
"""
SURVIVED = "True {0}"

needs_team = pytest.mark.skipif(threads.team() is None, reason=f"no team here: threads are {threads.threads_name()}")


@needs_team
def test_our_own_c_in_a_load_and_a_run(run_failing: RunFailing) -> None:
    assert run_failing(PRELUDE + 'tell(load, is_right, b"_executor", MALLOC | MMAP)') == SURVIVED


def test_arrays_of_a_load(run_failing: RunFailing) -> None:
    assert run_failing(PRELUDE + 'tell(load, is_right, b"_multiarray_umath", MALLOC, 1024)') == SURVIVED


def test_arrays_of_a_run_and_of_a_call(run_failing: RunFailing) -> None:
    code = """
wide = bl.load(nets.chain(), threads=2)
image = nets.random_input((1, 17, 12, 12))
result = wide(image)
tell(lambda: wide(image), lambda answer: np.array_equal(answer, result), b"_multiarray_umath", MALLOC, 1024)
x = bl.from_array(image).to(memory_format="nChw8c")
called = bl.relu(x).numpy()
tell(lambda: bl.relu(x).numpy(), lambda answer: np.array_equal(answer, called), b"_multiarray_umath", MALLOC, 1024)
"""
    assert run_failing(PRELUDE + code).splitlines() == [SURVIVED] * 2


@needs_team
def test_the_librarys_code_in_a_load(run_failing: RunFailing) -> None:
    assert run_failing(PRELUDE + 'tell(load, is_right, b"libdnnl", MMAP)') == SURVIVED


@needs_team
def test_a_thread_that_had_no_memory_for_code_has_code_again(run_failing: RunFailing) -> None:
    code = """
assert shim.failing_watch(b"libdnnl", MMAP, 0) > 0
spec = dnnl.eltwise(dnnl.MemoryDesc((8, 16)), algorithm="relu", n_threads=1)
start = threading.Thread.start

def refuse(thread):
    raise RuntimeError("can't start new thread")

shim.failing_at(1)
threading.Thread.start = refuse
try:
    dnnl.Primitive(spec)
except bl.OutOfMemoryError as error:
    print("out of memory" in str(error) or "could not allocate" in str(error))
threading.Thread.start = start
shim.failing_at(-1)
x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
print(np.array_equal(dnnl.Primitive(spec)(src=x), np.maximum(x, 0)), not dnnl.refusals())
"""
    assert run_failing(PRELUDE + code) == "True\nTrue True"


def test_without_more_threads_a_load_goes_on_alone(run_failing: RunFailing) -> None:
    code = """
def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
print(is_right(load()))
"""
    assert run_failing(PRELUDE + code) == "True"
