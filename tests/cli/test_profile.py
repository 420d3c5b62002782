"""``blocklayout profile``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_each_step_has_a_line(cli: Command, tiny: Path) -> None:
    out = cli.ok("profile", tiny, "--runs", 2, "--threads", 1, "--layout", "nhwc")
    assert "a typical run of" in out
    assert "of ceiling" in out


def test_json_and_the_trace(cli: Command, tmp_path: Path) -> None:
    told = json.loads(cli.ok("profile", "--runs", 1, "--json", "--trace", tmp_path / "trace.json"))
    assert told["model"] == "digits"
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == len(told["steps"])


def test_a_trace_that_cannot_be_written_is_one_line(cli: Command, tiny: Path, tmp_path: Path) -> None:
    assert "--trace" in cli("profile", tiny, "--runs", 1, "--trace", tmp_path / "none" / "trace.json").refusal
    assert "give a number of at least 1" in cli("profile", tiny, "--runs", 0).refusal
