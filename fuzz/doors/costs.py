"""Measured costs, kept from process to process in a file of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from blocklayout import dnnl
from blocklayout.plan.costs.store import _RECORD, CostStore, _checks, cost_environment
from fuzz.choices import Choices

SUMMARY = "stores of costs"


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    specs = [
        dnnl.resolve(dnnl.eltwise(dnnl.MemoryDesc((n, 17)), algorithm="relu", n_threads=1)).spec for n in range(1, 5)
    ]
    seed = CostStore(folder / "seed.bin", environment=cost_environment())
    for spec in specs:
        seed.keep(spec, 1500.0)
    content = seed.path.read_bytes()
    number = iter(range(1 << 60))

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        path = folder / f"given{next(number)}.bin"
        try:
            _read(path, choices)
        finally:
            path.unlink()

    def _read(path: Path, choices: Choices) -> None:
        if choices.below(2):
            path.write_bytes(choices.spoilt(content))
        else:  # whole records of times that are none
            records = np.frombuffer(content, _RECORD).copy()
            records["ns"][choices.below(len(records))] = choices.number()
            records["check"] = _checks(records)
            path.write_bytes(records.tobytes())
        store = CostStore(path, environment=cost_environment())
        store.times(specs)
        store.has_times()
        store.keep(specs[0], 7.0)
        assert store.times(specs)[specs[0]] == 7.0

    return attempt
