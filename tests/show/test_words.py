"""Tables line up whatever their cells hold, and are printed wherever there is a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from blocklayout.show.output import json_text, print_table
from blocklayout.show.words import percent, table, width_of


def test_letters_that_take_two_columns_keep_columns_apart() -> None:
    header, *rows = table(("text", "score"), [("文字", "0.9"), ("word", "10.0")], numbers=(1,))
    assert header == "text  score"
    assert [width_of(row) for row in rows] == [len(header)] * 2


def test_a_table_of_no_rows_is_its_header() -> None:
    assert [*table(("kernel", "us"), [])] == ["kernel  us"]


@pytest.mark.parametrize(("encoding", "rule"), [("utf-8", "─"), ("ascii", "-")])
def test_a_printed_table_has_a_rule_that_the_terminal_can_show(
    encoding: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding))
    print_table(("kernel", "us"), [("conv", "12.5")], title="one")
    sys.stdout.flush()
    title, header, line, row = out.getvalue().decode(encoding).splitlines()
    assert (title, header, row) == ("one", "kernel    us", "conv    12.5")
    assert {*line} == {rule}
    assert len(line) >= len(header)


def test_shares_below_a_hundredth_are_not_rounded_away() -> None:
    assert [percent(share) for share in (0.0, 0.0004, 0.0099, 0.01, 0.5, -0.002)] == [
        *("0.0%", "0.04%", "0.99%", "1.0%", "50.0%", "-0.20%"),
    ]


def test_numbers_that_json_cannot_hold_are_null() -> None:
    assert json_text([float("inf"), {"a": (float("nan"), 1.5)}]) == '[null, {"a": [null, 1.5]}]'
