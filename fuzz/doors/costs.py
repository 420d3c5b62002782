"""Measured costs, kept from process to process in a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from blocklayout import dnnl
from blocklayout.plan.costs.store import CostStore, cost_environment
from fuzz.choices import Choices

SUMMARY = "stores of costs"

_STATEMENTS = (
    "UPDATE times SET ns = ?",
    "UPDATE times SET spec = ?",
    "UPDATE environments SET description = ?",
    "INSERT INTO times VALUES (1, ?, 1)",
    "DROP TABLE times",
    "DROP TABLE environments",
    "PRAGMA user_version = 7",
    "ALTER TABLE times RENAME TO x",
    "CREATE VIEW y AS SELECT ?",
)


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    specs = [
        dnnl.resolve(dnnl.eltwise(dnnl.MemoryDesc((n, 17)), algorithm="relu", n_threads=1)).spec for n in range(1, 5)
    ]
    seed = folder / "seed.sqlite3"
    with CostStore(seed, environment=cost_environment()) as store:
        for spec in specs:
            store.keep(spec, 1500.0)
    content = seed.read_bytes()
    number = iter(range(1 << 60))

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        path = folder / f"given{next(number)}.sqlite3"
        try:
            _read(path, choices)
        finally:
            for each in folder.glob(f"{path.name}*"):
                each.unlink()

    def _read(path: Path, choices: Choices) -> None:
        if choices.below(2):
            path.write_bytes(choices.spoilt(content))
        else:
            path.write_bytes(content)
            value = choices.pick((choices.number(), choices.integer(), choices.text(), choices.rest(8), None))
            # sqlite refuses some of it
            with suppress(sqlite3.Error, UnicodeError), closing(sqlite3.connect(path)) as database:
                statement = choices.pick(_STATEMENTS)
                database.execute(statement, (value,) * statement.count("?"))
                database.commit()
        with CostStore(path, environment=cost_environment()) as store:
            store.times(specs)
            store.has_times()
            store.keep(specs[0], 7.0)

    return attempt
