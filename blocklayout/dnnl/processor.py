"""The CPU's name and its caches, for which a measurement holds."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

from msgspec import Struct

from blocklayout.resource_limits import system_text

_CPU_INFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Cache(Struct, frozen=True, order=True):
    """One cache of a core that holds data; level 1 is the nearest."""

    level: int
    nbytes: int


@cache
def cpu_name() -> str:
    """The system's name of the CPU."""
    lines = system_text(_CPU_INFO).splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    # Asked for its processor, the platform module starts another program.
    return name or platform.processor() or platform.machine()


@cache
def data_caches(folder: Path = _CACHES) -> tuple[Cache, ...]:
    """Caches of the first core that hold data, the nearest first; none where the system does not tell.

    Source: "Documentation/ABI/testing/sysfs-devices-system-cpu", the Linux kernel's documentation.
    """
    found = (
        _cache_in(index) for index in folder.glob("index*") if system_text(index / "type").strip() != "Instruction"
    )
    return tuple(sorted(each for each in found if each is not None))


def _cache_in(folder: Path) -> Cache | None:
    level, size = system_text(folder / "level").strip(), system_text(folder / "size").strip()
    number = size.rstrip("KMG")
    if not level.isdecimal() or not number.isdecimal():
        return None
    return Cache(int(level), int(number) * _UNITS.get(size[-1], 1))
