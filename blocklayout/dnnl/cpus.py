"""How many CPUs this process may use: affinity mask, cgroup quota, and its user's limit."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

from blocklayout.resource_limits import system_text

_V1_FOLDERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")


def default_threads() -> int:
    """Default number of threads: the affinity mask, capped by cgroup quota and ``OMP_NUM_THREADS``.

    A quota of two and a half CPUs gives 2: threads that spin beyond the quota get the whole process suspended.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.default_threads() >= 1
        True
    """
    return min(usable_cpus(), _user_limit() or usable_cpus())


def usable_cpus() -> int:
    """CPUs that this process may use at a time: the affinity mask, capped by the cgroup quota."""
    return max(1, min(_affinity(), _quota() or _affinity()))


def cpu_shares(n_shares: int, n_threads: int) -> list[frozenset[int]] | None:
    """The CPUs this process may run on, split among streams; neighbours in one share. None where they cannot be split.

    Each share has ``n_threads`` CPUs at least. A CPU quota may allow less than all of them: shares are still of all, so
    that containers do not meet on the first.

    Example:
        >>> from blocklayout import dnnl
        >>> shares = dnnl.cpu_shares(1, 1)
        >>> shares is None or len(shares) == 1
        True
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    cpus = sorted(os.sched_getaffinity(0), key=lambda cpu: place_of(cpu, Path("/sys/devices/system/cpu")))
    if len(cpus) // n_shares < n_threads:
        return None
    ends = [len(cpus) * number // n_shares for number in range(n_shares + 1)]
    return [frozenset(cpus[begin:end]) for begin, end in pairwise(ends)]


def place_of(cpu: int, root: Path) -> tuple[int, int, int]:
    """Package, core and number: in this order CPUs of a package, and hyper-threads of a core, are neighbours."""
    folder = root / f"cpu{cpu}" / "topology"
    words = [*_words(folder / "physical_package_id"), *_words(folder / "core_id")]
    return (int(words[0]), int(words[1]), cpu) if len(words) == 2 else (0, cpu, cpu)


def pin_to(cpus: Iterable[int]) -> None:
    """Let the calling thread, and those that it starts, run on these CPUs only; where that cannot be, on any."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # they may have been taken away since
            os.sched_setaffinity(0, cpus)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _user_limit() -> int | None:
    """The first level of ``OMP_NUM_THREADS``, which may list one count for each level of nesting."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


@cache
def _quota() -> int | None:
    return quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def quota(membership: Path, root: Path) -> int | None:
    """Whole CPUs that the cgroups of this process, of either version, may use; ``None`` without a limit.

    Source: "Control Group v2" and "CPU bandwidth control", the Linux kernel's documentation.
    """
    limits = [limit for line in system_text(membership).splitlines() for limit in _limits(line, root)]
    return max(1, int(min(limits))) if limits else None


def _limits(line: str, root: Path) -> list[float]:
    """CPUs allowed by the cgroup a line of the membership file names, and by each one above it."""
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if not controllers:
        return _up_the_tree(root, path, "cpu.max") + _up_the_tree(root / "unified", path, "cpu.max")
    if "cpu" not in controllers.split(","):
        return []
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    return [limit for folder in _V1_FOLDERS for limit in _up_the_tree(root / folder, path, *files)]


def _up_the_tree(mount: Path, path: str, *files: str) -> list[float]:
    """Limits from a cgroup up to the mount; inside a container the path may lie outside of the mount."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    folders = [mount.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    found = (_ratio([word for file in files for word in _words(folder / file)]) for folder in folders)
    return [limit for limit in found if limit is not None]


def _ratio(words: list[str]) -> float | None:
    """Of two numbers; ``None`` with ``max`` or -1, which mean no limit."""
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _words(path: Path) -> list[str]:
    return system_text(path).split()
