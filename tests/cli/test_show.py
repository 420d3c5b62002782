"""The page of a model, from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_the_record_says_what_was_asked_for(cli: Command, tiny: Path) -> None:
    record = cli("show", str(tiny), "--runs", "0", "--threads", "1", "--json").json
    assert record["source"] == str(tiny)
    assert record["threads"] == 1
    assert record["profile"] is None
    assert [each["op_type"] for each in record["nodes"]]


def test_pins_are_in_the_record_with_the_kernel_that_has_them(cli: Command) -> None:
    shape = ("--shape", "x=1x3x64x64")
    options = ("--runs", "0", "--tune", "model", "--json")
    record = cli("show", "zoo:squeezenet1_1", *shape, "--pin", "fire2.conv1=nhwc", *options).json
    assert record["plan"]["pins"] == [{"key": "fire2.conv1", "wanted": "nhwc", "kernel": "fire2.conv1"}]
    assert record["shapes"] == [{"name": "x", "dims": [1, 3, 64, 64]}]
