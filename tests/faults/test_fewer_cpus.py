"""CPUs that are taken away while sessions run, and half a CPU for all threads: everything goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PRELUDE = """
import os, threading, time
from contextlib import suppress
import numpy as np
import blocklayout as bl
from tests import nets

image = nets.random_input((1, 17, 12, 12))
sessions = [
    bl.load(nets.chain(), layout="nhwc", tune="model", threads=threads, streams=streams)
    for threads, streams in ((1, 1), (2, 1), (3, 1), (4, 2))
]
expected = sessions[0](image)

def is_right(answer):
    return bool(np.allclose(answer, expected, rtol=1e-4, atol=1e-5))
"""

TAKEN_AWAY = """
everywhere = sorted(os.sched_getaffinity(0))
stop, right = threading.Event(), [[] for _ in sessions]

def work(session, answers):
    while not stop.is_set():
        answers.append(is_right(session.submit({"x": image}).result()[0] if session.streams > 1 else session(image)))

callers = [threading.Thread(target=work, args=each) for each in zip(sessions, right)]
for caller in callers:
    caller.start()
for turn in range(60):
    cpus = everywhere if turn % 2 else [everywhere[turn // 2 % len(everywhere)]]
    for task in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(task, cpus)
    n_before = [len(each) for each in right]
    while any(len(each) == n for each, n in zip(right, n_before)):  # each has come on
        time.sleep(0.001)
stop.set()
for caller in callers:
    caller.join()
for session in sessions:
    session.close()
print(all(map(all, right)))
"""

HALF_A_CPU = """
with open(GROUP, "w") as group:
    group.write(str(os.getpid()))
print(all(is_right(session(image)) for _ in range(40) for session in sessions))
for session in sessions:
    session.close()
"""

NAME = f"blocklayout-tests-{os.getpid()}"
QUOTAS = {
    Path("/sys/fs/cgroup", NAME): {"cpu.max": "50000 100000"},
    Path("/sys/fs/cgroup/cpu", NAME): {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
}
"""Half a CPU, in both versions of control groups."""


def told_by(code: str, environ: dict[str, str], **options: object) -> str:
    """What a process of its own prints; one that hangs fails."""
    command = [sys.executable, "-W", "error", "-c", PRELUDE + code]
    done = subprocess.run(  # type: ignore[call-overload]
        command, env=environ, capture_output=True, text=True, timeout=100, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be pinned on this platform")
def test_affinity_that_changes_during_runs(tree_environ: dict[str, str]) -> None:
    assert told_by(TAKEN_AWAY, tree_environ) == "True"


def is_made(group: Path) -> bool:
    """Whether a control group could be made, and given its quota."""
    try:
        group.mkdir()
        for file, text in QUOTAS[group].items():
            with (group / file).open("r+") as quota:  # none of these is made by opening it
                quota.write(text)
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return False
    return True


@pytest.fixture
def half_a_cpu() -> Iterator[Path]:
    """The list of processes of a control group that has half a CPU."""
    group = next(filter(is_made, QUOTAS), None)
    if group is None:
        pytest.skip("no control group can be made here")
    yield group / "cgroup.procs"
    group.rmdir()


def test_half_a_cpu(half_a_cpu: Path, tree_environ: dict[str, str]) -> None:
    assert told_by(f"GROUP = {str(half_a_cpu)!r}{HALF_A_CPU}", tree_environ) == "True"
