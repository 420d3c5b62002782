"""The team of threads of our own: its memory order, and what a process that has one may do."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blocklayout.dnnl import cpus, threads
from blocklayout.dnnl.native import EXTENSION

STRESS = Path(__file__).with_name("team_stress.c")

RunPython = Callable[..., str]
CompileLibrary = Callable[..., Path]

needs_team = pytest.mark.skipif(threads.team() is None, reason=f"no team here: threads are {threads.threads_name()}")
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="teams are there on Linux only")


SANITIZERS = {
    "none": (),
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}


@pytest.fixture(scope="module")
def stress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stress test as a program, with a sanitizer; skips where it cannot be made or run."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    path, options = tmp_path_factory.mktemp("stress") / "stress", SANITIZERS[request.param]
    command = [compiler, "-std=c11", "-O1", "-g", *options, str(STRESS), "-o", str(path), "-pthread"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode and options and ("san" in done.stderr or "clang_rt" in done.stderr):
        pytest.skip(f"the compiler comes without the runtime of {options[0]}")
    assert done.returncode == 0, done.stderr
    if request.param != "none" and "LD_PRELOAD" in os.environ:
        pytest.skip("it has another sanitizer's runtime preloaded")
    if "unexpected memory mapping" in run_stress(path, "keys")[1]:
        pytest.skip("ThreadSanitizer does not run with this kernel's address space layout")
    return path


def run_stress(path: Path, part: str) -> tuple[str, str, int]:
    done = subprocess.run([path, part], check=False, capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr, done.returncode


def test_threads_that_come_first_at_once_put_it_in_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    served, results = [], []

    def serve(_: object) -> tuple[None, str]:
        served.append(1)
        time.sleep(0.05)
        return None, "as it happens"

    monkeypatch.setattr(threads, "_found", None)
    monkeypatch.setattr(threads, "_serve", serve)
    callers = [threading.Thread(target=lambda: results.append(threads.threads_name())) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert served == [1]
    assert results == ["as it happens"] * 8


@needs_linux
@pytest.mark.parametrize("stress", SANITIZERS, indirect=True)
@pytest.mark.parametrize("part", ["regions", "ends", "keys"])
def test_a_team_alone(stress: Path, part: str) -> None:
    """By AddressSanitizer leaks, too, and by ThreadSanitizer its memory order."""
    assert run_stress(stress, part) == ("right\n", "", 0)


@needs_linux
@pytest.mark.parametrize("stress", ["none"], indirect=True)  # no sanitizer's runtime goes on in children of threads
def test_forks_of_a_team_alone(stress: Path) -> None:
    assert run_stress(stress, "forks") == ("right\n", "", 0)


PRELUDE = """
import os, sys, threading, time, warnings
from contextlib import suppress
from pathlib import Path
import numpy as np
import blocklayout as bl
from tests import nets
from tests.forking import in_child

warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point

def n_os_threads():
    return len(os.listdir("/proc/self/task"))

def tasks():
    found = {}
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that ends meanwhile
            found[task] = Path(f"/proc/self/task/{task}/comm").read_text().strip()
    return found

def names():
    return sorted(tasks().values())

def loaded(threads, **options):
    return bl.load(nets.chain(), layout="nhwc", tune="model", threads=threads, **options)

image = nets.random_input((1, 17, 12, 12))
expected = loaded(1)(image)

def is_right(result):
    return bool(np.allclose(result, expected, rtol=1e-5, atol=1e-6))
"""


@needs_team
def test_workers_have_names_and_there_are_no_more_than_needed(run_python: RunPython) -> None:
    code = """
before = names()
session = loaded(3)
print(is_right(session(image)), [name for name in names() if name not in before])
"""
    assert run_python(PRELUDE + code) == "True ['blocklayout-1', 'blocklayout-2']"


@needs_team
def test_more_threads_than_cpus_and_sizes_that_change(run_python: RunPython) -> None:
    code = """
sessions = [loaded(n) for n in (2, 7, 3, 1)]
print(all(is_right(session(image)) for _ in range(10) for session in sessions))
"""
    assert run_python(PRELUDE + code) == "True"


@needs_team
def test_sessions_called_at_once_need_no_turns(run_python: RunPython) -> None:
    code = """
sessions = [loaded(2) for _ in range(4)]
right = []
def call(session):
    right.extend(is_right(session(image)) for _ in range(50))
callers = [threading.Thread(target=call, args=(session,)) for session in sessions * 2]
for caller in callers: caller.start()
for caller in callers: caller.join()
print(all(right), len(right), n_os_threads() <= 1 + 4 * 1 + 2)
"""
    assert run_python(PRELUDE + code) == "True 400 True"


@needs_team
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be pinned on this platform")
def test_workers_run_where_their_caller_may(run_python: RunPython) -> None:
    code = """
session = loaded(2)
session(image)
def cpus_of_worker():
    [task] = [task for task, name in tasks().items() if name == "blocklayout-1"]
    return os.sched_getaffinity(int(task))
everywhere = os.sched_getaffinity(0)
is_everywhere = cpus_of_worker() == everywhere
os.sched_setaffinity(0, {min(everywhere)})
right = [is_right(session(image)) for _ in range(20)]
print(is_everywhere, all(right), cpus_of_worker() == {min(everywhere)})
"""
    assert run_python(PRELUDE + code) == "True True True"


@needs_team
def test_children_make_workers_of_their_own(run_python: RunPython) -> None:
    code = """
session = loaded(3)
session(image)
def check():
    alone = n_os_threads() == 1
    return alone and is_right(session(image)) and is_right(loaded(2)(image)) and n_os_threads() >= 3
def workers():
    return [name for name in names() if name.startswith("blocklayout")]
before = workers()
codes = [in_child(check), in_child(lambda: in_child(check) == 0)]
print(codes, is_right(session(image)), workers() == before)
"""
    assert run_python(PRELUDE + code) == "[0, 0] True True"


@needs_team
def test_forks_while_others_are_inside(run_python: RunPython) -> None:
    code = """
sessions = [loaded(2) for _ in range(2)]
mine, stop, right = loaded(3), threading.Event(), []
def work(session):
    while not stop.is_set():
        right.append(is_right(session(image)))
workers = [threading.Thread(target=work, args=(session,)) for session in sessions]
for worker in workers: worker.start()
codes = {in_child(lambda: is_right(mine(image)) and is_right(sessions[0](image))) for _ in range(20)}
stop.set()
for worker in workers: worker.join()
print(codes, all(right))
"""
    assert run_python(PRELUDE + code) == "{0} True"


@needs_team
def test_an_exception_leaves_a_team_that_works(run_python: RunPython) -> None:
    code = """
from blocklayout.dnnl import run_parallel
def workers():
    return [name for name in names() if name.startswith("blocklayout")]
session = loaded(2)
session(image)
before, refused = workers(), 0
for _ in range(20):
    try:
        run_parallel(lambda: session(image)[7, 7, 7, 7, 7], 2)
    except IndexError:
        refused += 1
print(refused, is_right(session(image)), workers() == before)
"""
    assert run_python(PRELUDE + code) == "20 True True"


@needs_team
def test_denormals_are_zero_on_all_threads_and_the_callers_mode_is_back(run_python: RunPython) -> None:
    code = """
b = bl.Builder()
b.output("y", b.input("x", (1, 8, 64, 64)) * np.float32(0.5))
tiny = np.full((1, 8, 64, 64), 1e-39, np.float32)
flushing, keeping = (bl.load(b, threads=3, denormals=how) for how in ("flush", "keep"))
print([[float(np.abs(s(tiny)).max()) > 0, float(np.abs(s(tiny)).min()) > 0] for s in (flushing, keeping, flushing)],
      float((tiny * np.float32(0.5)).min()) > 0)
"""
    assert run_python(PRELUDE + code) == "[[False, False], [True, True], [False, False]] True"


@needs_team
def test_the_process_ends_with_workers_awake(run_python: RunPython) -> None:
    code = """
sessions = [loaded(n, streams=s) for n, s in ((3, 1), (4, 2))]
for session in sessions:
    session.submit({"x": image}).result()
print("ends", flush=True)
loaded(2)(image)
"""
    assert run_python(PRELUDE + code) == "ends"


NO_THREADS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
int refuses;
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *given) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return refuses ? EAGAIN : create(thread, how, fn, given);
}
"""


@needs_team
def test_a_run_that_the_system_gives_no_threads_is_an_error(
    run_python: RunPython, compile_library: CompileLibrary
) -> None:
    """Some primitives' threads wait for each other: with fewer than they were made for, they would for ever."""
    library = compile_library(NO_THREADS, "no_threads.so", "-ldl")
    code = f"""
import ctypes
refuses = ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), "refuses")

def told(call):
    try:
        return is_right(call())
    except bl.OutOfMemoryError as error:
        return "3 threads" in str(error) and "threads=" in str(error)

alone, refuses.value = loaded(1), 1
print(told(lambda: loaded(3)(image)), is_right(alone(image)))
refuses.value = 0
session = loaded(3)
def check():
    refuses.value = 1
    is_told = [told(lambda: session(image)), told(lambda: session.profile({{"x": image}}))]
    refuses.value = 0
    return is_told == [True, True] and is_right(session(image))
print(is_right(session(image)), in_child(check))
"""
    preloaded = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))
    assert run_python(PRELUDE + code, LD_PRELOAD=preloaded) == "True True\nTrue 0"


SERVABLE = "int omp_get_num_threads(void); int width(void) { return omp_get_num_threads(); }"
UNSERVABLE = "void GOMP_critical_start(void); void enter(void) { GOMP_critical_start(); }"


@needs_team
def test_all_objects_are_served_or_none(compile_library: CompileLibrary) -> None:
    """Else one would have regions as wide as the other was not made for."""

    class Served(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p))

    fill = ctypes.CDLL(str(EXTENSION)).bl_fill_imports
    fill.restype = ctypes.c_char_p
    width = ctypes.CDLL(str(compile_library(SERVABLE, "servable.so", "-lgomp"))).width
    enter = ctypes.CDLL(str(compile_library(UNSERVABLE, "unservable.so", "-lgomp"))).enter
    ours = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 42)
    served = Served(b"omp_get_num_threads", ctypes.cast(ours, ctypes.c_void_p))

    def fill_in(*functions: Any) -> bytes | None:
        addresses = (ctypes.c_void_p * len(functions))(*(ctypes.cast(each, ctypes.c_void_p) for each in functions))
        reason: bytes | None = fill(addresses, len(functions), ctypes.byref(served), 1)
        return reason

    assert fill_in(width, enter) == b"it calls GOMP_critical_start"
    assert width() == 1
    assert fill_in(width) is None
    assert width() == 42


OPENMP = """
#include <omp.h>
int count(void) {
    int n = 0;
#pragma omp parallel num_threads(3) reduction(+ : n)
    n += omp_get_num_threads() == 3 && omp_in_parallel();
    return n;
}
"""


@needs_team
def test_others_keep_their_own_openmp(run_python: RunPython, compile_library: CompileLibrary) -> None:
    other = compile_library(OPENMP, "other.so", "-fopenmp")
    code = f"""
import ctypes
other, before = ctypes.CDLL({str(other)!r}), names()
session = loaded(2)
told = [(other.count(), is_right(session(image))) for _ in range(20)]
new = [name for name in names() if name not in before]
print(set(told), "blocklayout-1" in new, "blocklayout-2" in new)
"""
    assert run_python(PRELUDE + code) == "{(3, True)} True False"


def test_the_user_may_leave_regions_to_libgomp(run_python: RunPython) -> None:
    code = """
from blocklayout import dnnl
session = loaded(3)
right = [is_right(session(image))]
def call():
    right.extend(is_right(session(image)) for _ in range(20))
callers = [threading.Thread(target=call) for _ in range(8)]
for caller in callers: caller.start()
for caller in callers: caller.join()
def check():
    return is_right(session(image)) and is_right(loaded(2)(image))
with loaded(4, streams=2) as streamed:
    right += [is_right(future.result()[0]) for future in [streamed.submit({"x": image}) for _ in range(8)]]
    codes = [in_child(check), in_child(lambda: in_child(check) == 0), in_child(lambda: is_right(streamed(image)))]
print(dnnl.threads_name(), all(right), len(right), codes, "GOMP_SPINCOUNT" in os.environ)
"""
    told = "sequential" if threads.threads_name() == "sequential" else "libgomp (BLOCKLAYOUT_TEAM=0)"
    assert run_python(PRELUDE + code, BLOCKLAYOUT_TEAM="0") == f"{told} True 169 [0, 0, 0] False"


def test_usable_cpus_are_not_what_openmp_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cpus.usable_cpus() == max(1, min(cpus._affinity(), cpus._quota() or cpus._affinity()))
