"""Files that are written whole or not at all, and what a killed writer left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blocklayout.atomic_write import replacing


def test_the_new_file_takes_the_place_of_the_old(tmp_path: Path) -> None:
    target = tmp_path / "it"
    target.write_text("old")
    with replacing(target) as beside:
        beside.write_text("new")
        assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert target.read_text() == "new"


def test_where_writing_fails_all_is_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "it"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError), replacing(target) as beside:
        beside.write_text("half\ud800", encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert target.read_text() == "old"


def test_halves_that_were_left_for_a_day_go_with_the_next_write(tmp_path: Path) -> None:
    made = {}
    for name in ("abandoned", "on its way"):
        with replacing(tmp_path / name) as beside:
            made[name] = beside
            beside.write_text("half")
        (tmp_path / name).rename(beside)  # as a process leaves it that is killed
    others = tmp_path / ".somebody.else"
    others.write_text("whole")
    for path in (made["abandoned"], others):
        os.utime(path, (0, 0))
    with replacing(tmp_path / "it") as beside:
        beside.write_text("new")
    assert {*tmp_path.iterdir()} == {tmp_path / "it", made["on its way"], others}
