"""``blocklayout inspect``."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.command import Command


def test_people_are_told_whether_the_library_agrees(cli: Command) -> None:
    out = cli.ok("inspect", "nChw16c", "1x17x5x4")
    assert "c 32" in out
    assert "agrees" in out


def test_json_holds_the_descriptor(cli: Command) -> None:
    told = cli("inspect", "nChw8c", "2x17x5x4", "--index", "1,16,4,3", "--offset", "953", "--json").json
    desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    assert told["padded_dims"] == list(desc.padded_dims)
    assert told["nbytes"] == desc.nbytes
    assert told["index_offset"] == desc.offset(1, 16, 4, 3) == 952
    assert told["element"] == "padding"
    assert told["library"] is None


def test_json_with_the_library(cli: Command) -> None:
    assert "agrees" in cli("inspect", "nhwc", "1x3x4x4", "--dtype", "u8", "--json", "--library").json["library"]


def test_offsets_are_drawn(cli: Command) -> None:
    assert "memory from front to back" in cli.ok("inspect", "nhwc", "1x3x2x2", "--offsets")


def test_it_works_without_the_library(tree_environ: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "blocklayout", "inspect", "nChw16c", "1x17x5x4"],
        check=True,
        capture_output=True,
        text=True,
        env=tree_environ | {"BLOCKLAYOUT_ONEDNN": "/nonexistent"},
        cwd=tmp_path,
    )
    assert "2,560 bytes" in done.stdout
    assert "not loaded: BLOCKLAYOUT_ONEDNN=/nonexistent" in done.stdout
    assert done.stderr == ""


def test_an_index_outside_is_refused(cli: Command) -> None:
    assert "17" in cli("inspect", "nChw16c", "1x17x5x4", "--index", "0,17,0,0").refusal


def test_a_misspelled_tag_is_refused_with_the_nearest(cli: Command) -> None:
    assert "nChw16c" in cli("inspect", "nchw16c", "1x17x5x4").refusal


def test_dims_that_are_none_are_refused(cli: Command) -> None:
    for dims in ("1x17xhxw", "", "1x-3", "1,2,3", "1xx3"):
        assert "1x3x224x224" in cli("inspect", "nchw", "--", dims).refusal


def test_a_type_that_is_none_is_refused(cli: Command) -> None:
    assert "bf16" in cli("inspect", "nchw", "1x2x3x4", "--dtype", "f31").refusal


def test_a_page_is_written_beside(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "nChw8c-2x17x5x4-to-nhwc.html" in cli.ok("inspect", "nChw8c", "2x17x5x4", "--to", "nhwc", "--html")
    assert (tmp_path / "nChw8c-2x17x5x4-to-nhwc.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    told = cli("inspect", "nhwc", "1x3x4x4", "--html", "here.html", "--json").json
    assert (tmp_path / "here.html").exists()
    assert len(told["map"]["offsets"]) == 48


def test_a_page_that_cannot_be_written_is_refused(cli: Command, tmp_path: Path) -> None:
    assert "cannot be written" in cli("inspect", "nhwc", "1x3x4x4", "--html", tmp_path / "no" / "page.html").refusal


def test_a_reorder_is_told_in_words_and_numbers(cli: Command) -> None:
    assert "reads come in 48 runs of 1 element (4 bytes)" in cli.ok("inspect", "nchw", "1x3x4x4", "--to", "nhwc")
    told = cli("inspect", "nchw", "1x3x4x4", "--to", "nhwc", "--json").json
    assert told["reorder"]["writes"]["longest"] == 48
    assert told["map"] is None
    assert "nChw16c" in cli("inspect", "nchw", "1x3x4x4", "--to", "nchw16c").refusal
