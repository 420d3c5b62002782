"""``blocklayout bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands import bench
from blocklayout.plan import POLICIES
from tests.show.records import record_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.command import Command


def test_every_policy_is_compared_with_auto(cli: Command, tiny: Path, tmp_path: Path) -> None:
    told = cli("bench", tiny, "--rounds", 2, "--json", "--html", tmp_path / "bench.html").json
    rows = told["policies"]
    assert [row["policy"] for row in rows] == list(POLICIES)
    assert rows[0]["ratio"] == {"median": 1, "low": 1, "high": 1}
    for row in rows:
        assert 0 < row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert row["difference"] < 1e-5
    assert [len(row["ratio"]["values"]) for row in rows[1:]] == [2] * len(rows[1:])
    assert told["n_rounds"] == 2
    shown = record_of(tmp_path / "bench.html")
    ratios, times = shown["charts"]
    assert [row["name"] for row in times["rows"]] == list(POLICIES)
    assert [row["values"] for row in ratios["rows"][1:]] == [row["ratio"]["values"] for row in rows[1:]]
    assert ratios["baseline"] == "auto"
    assert [row[3] for row in shown["tables"][0]["rows"]] == [row["n_reorders"] for row in rows]
    assert shown["environment"]["n_rounds"] == 2


def test_auto_is_measured_even_if_it_is_not_asked_for(cli: Command, tiny: Path) -> None:
    out = cli.ok("bench", tiny, "--policies", "nhwc", "--rounds", 1)
    assert "tiny" in out
    assert "auto" in out
    assert "blocked" not in out.split("tiny:")[1]


def test_streams_are_told_by_runs_a_second(
    cli: Command, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "TURN_S", 0.001)
    streams = ("--streams", 2, "--threads", 2, "--rounds", 2)
    page = ("--html", tmp_path / "bench.html")
    told = cli("bench", tiny, "--shape", "x=3x3x8x8", *streams, "--policies", "nhwc,plain", "--json", *page).json
    assert [(row["policy"], row["n_threads"]) for row in told["policies"]] == [("nhwc", 1), ("plain", 1)]
    for row in told["policies"]:
        assert 0 < row["runs_per_s"]["low"] <= row["runs_per_s"]["median"] <= row["runs_per_s"]["high"]
        assert row["images_per_s"]["median"] == 3 * row["runs_per_s"]["median"]
    charts = record_of(tmp_path / "bench.html")["charts"]
    assert [(chart["unit"], len(chart["rows"])) for chart in charts] == [("runs/s", 2), ("images/s", 2)]
    assert charts[0]["rows"][0]["values"] == told["policies"][0]["runs_per_s"]["values"]
    assert "runs/s" in cli.ok("bench", tiny, *streams)


def test_a_page_that_cannot_be_written_loses_no_measurement(cli: Command, tiny: Path, tmp_path: Path) -> None:
    done = cli("bench", tiny, "--policies", "auto", "--rounds", 1, "--html", tmp_path / "nowhere" / "bench.html")
    assert done.status == 2
    assert "the page cannot be written to" in done.err
    assert "auto" in done.out


def test_streams_that_cannot_be_are_one_line(cli: Command, tiny: Path) -> None:
    assert "streams=3: each has a thread" in cli("bench", tiny, "--streams", 3, "--threads", 2).refusal
    assert "leave out --streams" in cli("bench", tiny, "--streams", 2, "--why").refusal
    assert "leave out --against" in cli("bench", tiny, "--streams", 2, "--against", "all").refusal
