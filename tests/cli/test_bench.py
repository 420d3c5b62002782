"""``blocklayout bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.plan import POLICIES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_every_policy_is_compared_with_auto(cli: Command, tiny: Path) -> None:
    told = cli("bench", tiny, "--rounds", 2, "--json").json
    rows = told["policies"]
    assert [row["policy"] for row in rows] == list(POLICIES)
    assert rows[0]["ratio"] == {"median": 1, "low": 1, "high": 1}
    for row in rows:
        assert 0 < row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert row["difference"] < 1e-5
    assert told["n_rounds"] == 2


def test_auto_is_measured_even_if_it_is_not_asked_for(cli: Command, tiny: Path) -> None:
    out = cli.ok("bench", tiny, "--policies", "nhwc", "--rounds", 1)
    assert "tiny" in out
    assert "auto" in out
    assert "blocked" not in out
