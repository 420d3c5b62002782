"""Who measures holds a lock, and who waits for it does so no longer than it may."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from blocklayout.plan.costs.store import CostStore

HOLDER = """
import sys
from blocklayout.plan.costs.store import CostStore
with CostStore(sys.argv[1]).alone(lambda: True):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_another_process_is_waited_for_until_it_is_done_or_killed(tmp_path: Path) -> None:
    path = tmp_path / "not yet there" / "costs.bin"
    asked = 0

    def go_on() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            holder.kill()
        return time.monotonic() < until

    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        until = time.monotonic() + 60
        with CostStore(path).alone(go_on):
            assert asked >= 3
            assert time.monotonic() < until


def test_nobody_is_waited_for_longer_than_one_may(tmp_path: Path) -> None:
    path = tmp_path / "costs.bin"
    with CostStore(path).alone(lambda: True), CostStore(path).alone(lambda: False):
        pass
    with CostStore(path).alone(lambda: False):
        pass


def test_where_no_lock_can_be_made_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    path = tmp_path / "file" / "costs.bin"
    with CostStore(path).alone(lambda: False), CostStore(path).alone(lambda: False):
        pass
