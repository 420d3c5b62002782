"""Reads the text in a picture: one network finds lines, another reads each of them.

    pip install 'blocklayout[image]'
    python read_text.py det.onnx rec.onnx page.png --characters characters.txt

The first network says how likely each pixel is text: (1, 1, height, width). The second has scores at places along a
line, of no character first, then of each: (1, places, classes) or (places, 1, classes). Those of PP-OCR are such; a
last class without a name is the space. Pixels go from -1 to 1, in the order B, G, R, as PP-OCR's networks were trained
with, or in grey where a network has one channel. Lines are taken to be level.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

import blocklayout as bl

LIKELY, CERTAIN = 0.3, 0.5
"""Least probability of a pixel of a line; least mean of those of its pixels, and of its characters."""
SMALLEST = 3
"""Pixels that a line has at least, across and down."""
UNCLIP = 1.6
"""A box is moved outwards by its area over its perimeter, times this: such networks mark the core of a line."""
GRID, LEAST_SIDE = 32, 736
"""A page whose sides are free is fed in multiples of the one, its shorter side at least the other."""
LINE_HEIGHT, LEAST_WIDTH = 48, 320
"""Of a line whose sides are free; its width is a multiple of the grid, so that few plans serve all."""


class Line(NamedTuple):
    """A text, the mean score of its characters, and left, top, right and bottom in the picture."""

    text: str
    score: float
    box: tuple[int, ...]


def read(finder: bl.Session, reader: bl.Session, picture: Image.Image, characters: Sequence[str]) -> list[Line]:
    """The lines of a picture, from top to bottom and from left to right."""
    zoom = max(1.0, LEAST_SIDE / min(picture.size))
    width, height = (max(1, round(side * zoom / GRID)) * GRID for side in picture.size)
    [[[likely]], *_] = finder.run(None, fed(finder, picture, height, width))
    boxes = boxes_of(likely) * np.tile(np.divide(picture.size, likely.shape[::-1]), 2)
    lines = []
    for box in in_reading_order(boxes.round().clip(0, [*picture.size] * 2)):
        scores, *_ = reader.run(None, fed(reader, picture.crop(box), LINE_HEIGHT))
        text, score = text_of(scores.reshape(-1, scores.shape[2]), characters)
        lines += [Line(text, score, box)] if score >= CERTAIN else []
    return lines


def fed(session: bl.Session, picture: Image.Image, height: int, width: int | None = None) -> dict[str, np.ndarray]:
    """A network's input, of this height and width where its own are free; without a width, proportions are kept."""
    [info] = session.get_inputs()
    height = info.shape[2] if isinstance(info.shape[2], int) else height
    shown = width or -(-picture.width * height // picture.height)
    usual = width or -(-max(LEAST_WIDTH, shown) // GRID) * GRID
    total = info.shape[3] if isinstance(info.shape[3], int) else usual
    shown = total if width else min(shown, total)
    image = picture.convert("L" if info.shape[1] == 1 else "RGB").resize((shown, height), Image.Resampling.BILINEAR)
    pixels = np.zeros((1, info.shape[1], height, total), np.float32)
    pixels[..., :shown] = np.atleast_3d(image).transpose(2, 0, 1)[::-1] / np.float32(127.5) - 1
    return {info.name: pixels}


def boxes_of(likely: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of the lines in a map of probabilities. Shape (n, 4)."""
    y, x = np.nonzero(likely > LIKELY)
    region = np.unique(regions(likely > LIKELY)[y, x], return_inverse=True)[1]
    n = 1 + region.max(initial=-1)
    corners = np.tile([np.inf, np.inf, 0, 0], (n, 1))
    np.minimum.at(corners[:, :2], region, np.stack([x, y], axis=1))
    np.maximum.at(corners[:, 2:], region, np.stack([x, y], axis=1) + 1)
    means = np.bincount(region, likely[y, x], n) / np.bincount(region, minlength=n)
    extents = corners[:, 2:] - corners[:, :2]
    outwards = UNCLIP * extents.prod(axis=1) / (2 * extents.sum(axis=1))
    boxes = corners + np.outer(outwards, [-1, -1, 1, 1])
    return boxes[(means >= CERTAIN) & (extents.min(axis=1, initial=np.inf) >= SMALLEST)]


def regions(is_inside: np.ndarray) -> np.ndarray:
    """A number for each pixel, the same for those inside that touch, corners included; 0 outside.

    It is the highest index of them: each pixel takes the highest of its neighbours, and then that of the pixel there.
    """
    numbers = np.where(is_inside, 1 + np.arange(is_inside.size).reshape(is_inside.shape), 0)
    while True:
        padded = np.pad(numbers, 1)
        rows = np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])
        highest = np.maximum(np.maximum(rows[:, :-2], rows[:, 1:-1]), rows[:, 2:]) * is_inside
        highest = np.append(0, highest)[highest]
        if np.array_equal(highest, numbers):
            return numbers
        numbers = highest


def in_reading_order(boxes: np.ndarray) -> list[tuple[int, ...]]:
    """From the top, and from the left where tops are within half a height."""
    rows: list[list[tuple[int, ...]]] = []
    for box in sorted(map(tuple, boxes.astype(int).tolist()), key=lambda box: box[1]):
        if rows and box[1] - rows[-1][0][1] <= (rows[-1][0][3] - rows[-1][0][1]) / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row)]


def text_of(scores: np.ndarray, characters: Sequence[str]) -> tuple[str, float]:
    """The best character at each place, repetitions once, and the mean of their scores. Shape (places, classes)."""
    if ((scores < 0) | (scores > 1.001)).any():
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores = powers / powers.sum(axis=1, keepdims=True)
    best = scores.argmax(axis=1)
    is_new = np.append(True, best[1:] != best[:-1]) & (best > 0)
    names = ["", *characters, " "]
    score = scores.max(axis=1)[is_new].mean() if is_new.any() else 0.0
    return "".join(names[each] for each in best[is_new]), float(score)


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each that is read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("finder", help="the network that finds lines, as ONNX")
    parser.add_argument("reader", help="the network that reads them")
    parser.add_argument("picture")
    parser.add_argument("--characters", type=Path, required=True, help="those that are read, one a line")
    args = parser.parse_args(argv)
    picture = ImageOps.exif_transpose(Image.open(args.picture)).convert("RGB")
    characters = args.characters.read_text(encoding="utf-8").splitlines()
    with bl.load(args.finder) as finder, bl.load(args.reader) as reader:
        for text, score, box in read(finder, reader, picture, characters):
            print(f"{score:.2f}", *box, text)


if __name__ == "__main__":
    main()
