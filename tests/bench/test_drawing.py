"""Pictures of benchmarks are in one style, and the same each time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from bench import drawing
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from pathlib import Path


def picture(path: Path) -> str:
    """Of two networks and two contenders."""
    lanes = [drawing.Lane({name: Spread.of([0.5, value, 40.0])}) for name, value in (("nhwc", 1.0), ("plain", 3.0))]
    groups = {"resnet18": lanes, "vgg16": lanes}
    figure = drawing.new_figure(6.0, drawing.lanes_height(groups) + 0.8)
    axis = figure.subplots()
    drawing.draw_lanes(axis, groups)
    drawing.mark_one(axis, "auto")
    drawing.save(figure, str(path))
    return path.read_text(encoding="utf-8")


def test_numbers_are_plain_and_text_is_text(tmp_path: Path) -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture(tmp_path / "a.svg"))
    assert [*dict.fromkeys(texts)] == ["0.5", "1", "2", "5", "10", "20", "resnet18", "vgg16", "nhwc", "plain", "auto"]


def test_digits_of_text_are_kept(tmp_path: Path) -> None:
    figure = drawing.new_figure(3.0, 1.0)
    figure.subplots().set_xlabel("0.98765")
    drawing.save(figure, str(tmp_path / "a.svg"))
    assert "0.98765" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_the_same_data_make_the_same_file(tmp_path: Path) -> None:
    assert picture(tmp_path / "a.svg") == picture(tmp_path / "b.svg")


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0.9, 1.3, [0.9, 1, 1.1, 1.2, 1.3]),
        (0.9, 3.2, [1, 1.2, 1.5, 2, 3]),
        (0.3, 30.0, [0.5, 1, 2, 5, 10, 20]),
        (0.01, 1000.0, [0.01, 0.1, 1, 10, 100, 1000]),
    ],
)
def test_marks_are_round_and_have_room(low: float, high: float, marks: list[float]) -> None:
    assert drawing._ticks(low, high, 8) == marks
