"""How many CPUs this process may use, which of them are neighbours, and how they are split."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from blocklayout.dnnl import cpus


def test_default_threads_is_the_least_of_all_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "_affinity", lambda: 8)
    monkeypatch.setattr(cpus, "_quota", lambda: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cpus.default_threads() == 8
    monkeypatch.setattr(cpus, "_quota", lambda: 4)
    assert cpus.default_threads() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert cpus.default_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    assert cpus.default_threads() == 4
    for meaningless in ("", "many", "0", "-2"):
        monkeypatch.setenv("OMP_NUM_THREADS", meaningless)
        assert cpus.default_threads() == 4


def test_shares_keep_neighbours_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, (package, core) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)] * 2):  # 4 is the other half of 0
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
    place_of = cpus.place_of
    monkeypatch.setattr(cpus, "place_of", lambda cpu, _: place_of(cpu, tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert list(map(sorted, cpus.cpu_shares(2, 4) or ())) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert list(map(sorted, cpus.cpu_shares(3, 2) or ())) == [[0, 4], [1, 2, 5], [3, 6, 7]]
    assert cpus.cpu_shares(3, 3) is None
    assert place_of(9, tmp_path) == (0, 9, 9)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/a/b", {"a/b/cpu.max": "250000 100000"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b", {"cpu.max": "50000 100000"}, 1),
        ("0::/../../outside", {"cpu.max": "400000 100000"}, 4),
        ("4:memory:/a\n3:cpu,cpuacct:/a\n0::/", {"cpu,cpuacct/a/cpu.cfs_quota_us": "150000"}, None),
        ("3:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("3:cpu:/not/mounted", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("2:cpuacct,cpu:/", {"cpu,cpuacct/cpu.cfs_quota_us": "700000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 7),
        ("garbage\n\n", {}, None),
    ],
)
def test_quota(tmp_path: Path, membership: str, files: dict[str, Any], expected: int | None) -> None:
    write(tmp_path / "cgroup", membership + "\n")
    for name, text in files.items():
        write(tmp_path / "fs" / name, text + "\n")
    assert cpus.quota(tmp_path / "cgroup", tmp_path / "fs") == expected


def test_no_cgroups_are_no_limit(tmp_path: Path) -> None:
    assert cpus.quota(tmp_path / "missing", tmp_path) is None
