"""Finds things in a picture: the boxes of a detector, printed and drawn.

    pip install 'blocklayout[image]'
    python detect_objects.py yolov8n.onnx photo.jpg --labels coco.txt --save boxes.png

Two kinds of detectors are read, which cover most exports:

- one output of candidates, as YOLO from version 8 on has it: (1, 4 + classes, N), centres and extents in pixels of the
  input, then a score for each class. Of candidates that overlap, the best is kept here.
- boxes, scores and classes, an output each, as detectors with a NonMaxSuppression inside have them: corners in pixels
  or in fractions of the input, and classes that are integers, or an output that is named so.

For others, change ``found_in``: nothing else knows of outputs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageOps

import blocklayout as bl

OVERLAP = 0.45
"""Share of their union that two boxes of a class may have in common."""
USUAL_SIDE = 640
"""Of an input that leaves its height and width open."""
GREY = (114, 114, 114)
"""Beside a picture of other proportions than the input, as YOLO's networks were trained with."""
COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#f032e6", "#9a6324")


class Found(NamedTuple):
    """Boxes as left, top, right, bottom, (n, 4); their scores and classes, (n,)."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


def detect(session: bl.Session, picture: Image.Image, least: float) -> Found:
    """The boxes of a score of at least ``least``, in pixels of the picture, the best first."""
    [info] = session.get_inputs()
    height, width = (side if isinstance(side, int) else USUAL_SIDE for side in info.shape[2:])
    fitted = ImageOps.pad(picture, (width, height), Image.Resampling.BILINEAR, color=GREY)
    image = np.asarray(fitted, np.float32).transpose(2, 0, 1)[None] / 255
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, map(np.asarray, session.run(None, {info.name: image})), strict=True))
    found = found_in(outputs, (width, height))
    order = np.argsort(-found.scores, kind="stable")
    found = Found(*(each[order[found.scores[order] >= least]] for each in found))
    found = without_overlaps(found) if len(outputs) == 1 else found
    zoom = min(width / picture.width, height / picture.height)
    beside = (np.array([width, height]) - np.array(picture.size) * zoom) / 2
    boxes = (found.boxes - [*beside, *beside]) / zoom
    return found._replace(boxes=boxes.clip(0, [*picture.size, *picture.size]))


def found_in(outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> Found:
    """All boxes of a run, in pixels of the input, whose width and height are ``size``."""
    if len(outputs) == 1:
        [[candidates]] = outputs.values()  # of the one picture
        rows = candidates if len(candidates) > candidates.shape[1] else candidates.T
        centres, extents, scores = rows[:, :2], rows[:, 2:4], rows[:, 4:]
        boxes = np.concatenate([centres - extents / 2, centres + extents / 2], axis=1)
        return Found(boxes, scores.max(axis=1), scores.argmax(axis=1))
    parts: dict[str, np.ndarray] = {}
    for name, array in outputs.items():
        is_class = array.dtype.kind in "iu" or "label" in name or "class" in name
        parts["boxes" if array.shape[-1:] == (4,) else "classes" if is_class else "scores"] = array
    if len(parts) != len(Found._fields):
        raise ValueError(f"no boxes, scores and classes: {', '.join(outputs)}")
    boxes = parts["boxes"].reshape(-1, 4)
    is_relative = boxes.size and np.abs(boxes).max() <= 2  # a little may lie outside
    boxes = boxes * (size * 2) if is_relative else boxes
    return Found(boxes, parts["scores"].ravel(), parts["classes"].ravel().astype(int))


def without_overlaps(found: Found) -> Found:
    """Without those that a better one of their class overlaps, which stands before them."""
    corners = found.boxes[:, :2], found.boxes[:, 2:]
    areas = np.prod(corners[1] - corners[0], axis=1)
    left, kept = np.arange(len(areas)), []
    while left.size:
        first, rest = left[0], left[1:]
        kept.append(first)
        sides = np.minimum(corners[1][first], corners[1][rest]) - np.maximum(corners[0][first], corners[0][rest])
        shared = np.prod(sides.clip(0), axis=1)
        is_same = found.classes[rest] == found.classes[first]
        left = rest[~(is_same & (shared > OVERLAP * (areas[first] + areas[rest] - shared)))]
    return Found(*(each[np.array(kept, int)] for each in found))


def draw(picture: Image.Image, found: Found, names: Sequence[str]) -> Image.Image:
    """A copy of the picture with boxes in the colours of their classes."""
    drawn = picture.copy()
    brush = ImageDraw.Draw(drawn)
    for box, score, number in zip(found.boxes.tolist(), found.scores, found.classes, strict=True):
        colour = COLOURS[number % len(COLOURS)]
        brush.rectangle(box, outline=colour, width=max(1, max(picture.size) // 250))
        brush.text(box[:2], f"{names[number]} {score:.2f}", fill=colour, stroke_width=2, stroke_fill="white")
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each box, and save the picture with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a detector, as ONNX")
    parser.add_argument("picture")
    parser.add_argument("--labels", type=Path, help="names of the classes, one a line")
    parser.add_argument("--least", type=float, default=0.5, help="score of a box (default: 0.5)")
    parser.add_argument("--save", help="where to write the picture with its boxes")
    args = parser.parse_args(argv)
    picture = ImageOps.exif_transpose(Image.open(args.picture)).convert("RGB")
    with bl.load(args.model) as session:
        found = detect(session, picture, args.least)
    known = args.labels.read_text().splitlines() if args.labels else []
    names = [*known, *(f"class {number}" for number in range(len(known), 1 + max(found.classes, default=0)))]
    for box, score, number in zip(found.boxes, found.scores, found.classes, strict=True):
        print(f"{names[number]} {score:.2f}", *box.round().astype(int))
    if args.save:
        draw(picture, found, names).save(args.save)


if __name__ == "__main__":
    main()
