"""The documented fate of NaN and infinities is what runs give, on every instruction set up to AVX2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "special-values.md"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->"
ABSENT = "-"


def computed(isa: str, environ: dict[str, str]) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "tests.ops.special_values"],
        env=environ | {"ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def is_absent(cell: str) -> bool:
    """Whether this instruction set has no such code."""
    return set(cell.split(" / ")) == {ABSENT}


@pytest.mark.parametrize("isa", ["AVX2", "AVX", "SSE41"])
def test_the_documented_tables_are_what_runs_give(
    isa: str, tree_environ: dict[str, str], *, update_golden: bool
) -> None:
    made = computed(isa, tree_environ)
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    tables, after = rest.split(END)
    if update_golden and isa == "AVX2":
        DOCUMENT.write_text(f"{before}{BEGIN}{made}{END}{after}", encoding="utf-8")
        return
    differing = [
        (row[0], ours, documented)
        for row, documented_row in zip(cells(made), cells(tables), strict=True)
        for ours, documented in zip(row, documented_row, strict=True)
        if ours != documented and not is_absent(ours)
    ]
    assert not differing, "run pytest with --update-golden on a machine with AVX2"


def test_every_cell_is_known_where_avx2_is() -> None:
    tables = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert not [row for row in cells(tables) if any(is_absent(cell) for cell in row)]
