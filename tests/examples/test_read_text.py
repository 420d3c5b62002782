"""The example that reads the text in a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import blocklayout as bl
from blocklayout import zoo

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "read_text.py"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORDS = {"BLOCKED": (16, 16), "LAYOUT": (160, 20), "READS": (16, 56), "WORDS": (160, 52)}
"""Where the left upper corners are on the page, some a little lower than what they stand beside."""


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("read_text", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(word: str) -> Image.Image:
    """A word in letters of 16 pixels, 24 high."""
    cells = Image.new("L", (16 * len(word), 24), "white")
    font = ImageFont.load_default(18)
    for index, letter in enumerate(word):
        ImageDraw.Draw(cells).text((16 * index + 8, 18), letter, fill="black", font=font, anchor="ms")
    return cells


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Four words."""
    image = Image.new("L", (288, 112), "white")
    for word, place in WORDS.items():
        image.paste(written(word), place)
    image.save(tmp_path / "page.png")
    return tmp_path / "page.png"


def ink_of(x: Any) -> Any:
    """1 for black pixels, 0 for white ones, of pixels of -1 to 1."""
    return x.conv(np.full((1, 1, 1, 1), -0.5, np.float32), np.full(1, 0.5, np.float32))


def finding(path: Path) -> Path:
    """Says where ink is near."""
    b = bl.Builder()
    near = ink_of(b.input("page", (1, 1, 112, 288))).max_pool(4, strides=4)
    b.output("likely", near.max_pool((3, 5), strides=1, pads=(1, 2, 1, 2)))
    bl.save(b, path)
    return path


def reading(path: Path) -> Path:
    """Slides along a line and compares 16 pixels with each letter, and with none."""
    glyphs = np.stack([1 - np.asarray(written(each), np.float32)[None] / 255 for each in " " + LETTERS])
    black = (glyphs**2).sum(axis=(1, 2, 3))
    black[0] = 4  # the sum of squares that may differ before it is none of the letters
    b = bl.Builder()
    ink = ink_of(b.input("line", (1, 1, 24, 160)))
    everywhere = np.broadcast_to(np.float32(black > 4).reshape(-1, 1, 1, 1), glyphs.shape).copy()
    likeness = ink.conv(2 * glyphs, -black) - (ink * ink).conv(everywhere)
    b.output("likeness", likeness.reshape((1, 27, 145)).transpose((0, 2, 1)))
    bl.save(b, path)
    return path


def test_words_are_read_where_they_are(
    example: Any, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "UNCLIP", 0.0)  # that network marks all of a line, and more
    (tmp_path / "letters.txt").write_text("\n".join(LETTERS))
    models = [str(finding(tmp_path / "finding.onnx")), str(reading(tmp_path / "reading.onnx"))]
    example.main([*models, str(page), "--characters", str(tmp_path / "letters.txt")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines] == [*WORDS]
    for score, *box, word in lines:
        (left, top), width = WORDS[word], 16 * len(word)
        assert np.abs(np.array(box, int) - [left, top, left + width, top + 24]).max() <= 8
        assert float(score) > 0.9


def test_networks_of_the_zoo_fit_together(example: Any, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights find and read something, or nothing: extents are those that such networks have."""
    monkeypatch.setattr(example, "CERTAIN", 0.0)
    with bl.load(zoo.build("unet", size=64, is_padded=True, width=4, depth=2, classes=1), threads=1) as finder:
        picture = Image.open(page).convert("RGB")
        fed = example.fed(finder, picture, 736, 736)
        assert [array.shape for array in fed.values()] == [(1, 1, 64, 64)]
        with bl.load(zoo.build("crnn"), threads=1) as reader:
            lines = example.read(finder, reader, picture, [*"0123456789", *LETTERS])
    for text, score, (left, top, right, bottom) in lines:
        assert {*text} <= {*"0123456789", *LETTERS}
        assert 0 <= score <= 1
        assert 0 <= left < right <= 288
        assert 0 <= top < bottom <= 112


@pytest.mark.parametrize(
    ("best", "n_classes", "text"),
    [
        ([0, 1, 1, 0, 1, 2, 2, 0], 3, "aab"),
        ([1, 3, 2, 0, 3, 3], 4, "a b "),  # the last class is the space
        ([0, 0], 3, ""),
    ],
)
def test_repetitions_count_once(example: Any, best: list[int], n_classes: int, text: str) -> None:
    likely = np.eye(n_classes, dtype=np.float32)[best]
    for scores in (likely, 40 * likely - 20):
        found, score = example.text_of(scores, ["a", "b"])
        assert (found, round(score, 6)) == (text, 1.0 if text else 0.0)


def test_regions_are_boxed_whatever_their_form(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    likely = np.zeros((40, 60), np.float32)
    likely[5:15, 10:30] = 0.9
    likely[20:38, 2] = likely[37, 2:50] = likely[20:38, 50] = likely[20, 30:51] = likely[20:30, 30] = 0.9  # a spiral
    likely[0, 59] = 1  # a speck
    likely[30:34, 20:24] = 0.4  # unlikely
    boxes = example.boxes_of(likely)
    widened = [0.5 * 1.6 * 10 * 20 / 30 * sign for sign in (-1, -1, 1, 1)]
    np.testing.assert_allclose(boxes[0], np.array([10, 5, 30, 15]) + widened, atol=1e-6)
    monkeypatch.setattr(example, "UNCLIP", 0.0)
    assert example.boxes_of(likely).tolist() == [[10, 5, 30, 15], [2, 20, 51, 38]]
    assert example.boxes_of(np.zeros((9, 9), np.float32)).shape == (0, 4)


@pytest.mark.parametrize(
    ("own", "size", "expected"),
    [
        ((1, 3, "h", "w"), (100, 20), (1, 3, 48, 320)),
        ((1, 3, "h", "w"), (200, 20), (1, 3, 48, 480)),
        ((1, 3, 32, "w"), (202, 20), (1, 3, 32, 352)),
        ((1, 1, 32, 100), (10, 20), (1, 1, 32, 100)),
    ],
)
def test_lines_keep_their_proportions(
    example: Any, own: tuple[int | str, ...], size: tuple[int, int], expected: tuple[int, ...]
) -> None:
    class Session:
        def get_inputs(self) -> list[Any]:
            return [type("Info", (), {"name": "x", "shape": own})]

    line = Image.new("RGB", size, (255, 0, 0))
    [array] = example.fed(Session(), line, 48).values()
    assert array.shape == expected
    shown = -(-size[0] * expected[2] // size[1])
    if expected[1] == 3:
        np.testing.assert_allclose(array[0, :, 5, shown - 1], [-1, -1, 1])  # B, G, R
    assert not array[..., shown:].any()
