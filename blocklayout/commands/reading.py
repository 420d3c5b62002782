"""Boxes of a picture cut out, and each read or classified by another network."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.api import load
from blocklayout.commands.answers import Classes, Text
from blocklayout.commands.feeds import open_model
from blocklayout.commands.findings import Question
from blocklayout.commands.pictures import picture_of
from blocklayout.errors import InputError
from blocklayout.ops.sampling import sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PIL.Image import Image

    from blocklayout.commands.answers import Boxes
    from blocklayout.commands.pictures import Picture
    from blocklayout.show.output import Tell

TALL = 1.5
"""A box that is higher than this many widths holds a line that is turned by 90 degrees."""
UPSIDE_DOWN = 0.9
"""Least score of a network's second class, for a line to be turned by 180 degrees."""
SMALLEST = 3
"""Boxes of no more pixels than this, across or down, hold nothing."""
GROUP = 6
MARGIN = 2
"""Pixels beside a box that its cubic interpolation reads."""


def read_boxes(
    args: Namespace, picture: Picture, boxes: Boxes, threshold: float, tell: Tell
) -> tuple[Text, str | None]:
    """The text or class of each box by the network of ``--then``, and how the first of them was fed.

    Raises:
        InputError: A network takes no images, or neither reads nor classifies.
        BlockLayoutError: It is no model, or cannot run here.
    """
    cuts = {index: cut_out(picture.image, box) for index, box in enumerate(boxes.corners)}
    cuts = {index: cut for index, cut in cuts.items() if min(cut.size) > SMALLEST}
    turned = ""
    if args.turn is not None:
        directions, _ = _answers(args, "--turn", args.turn, cuts, tell)
        found = [index for index, answer in directions.items() if _is_upside_down(answer)]
        cuts |= {index: cuts[index].rotate(180) for index in found}
        turned = f", {len(found)} of them upside down by {args.turn}"
    answers, told = _answers(args, "--then", args.then, cuts, tell)
    kept = [index for index in sorted(answers) if answers[index].said[1] >= threshold]
    n_dropped = len(boxes.corners) - len(kept)
    dropped = f"; {n_dropped} left out, smaller or of a score below {threshold:g}" if n_dropped else ""
    rule = f"boxes read by {args.then}{turned}{dropped}; sides in pixels of the picture"
    texts, scores = zip(*(answers[index].said for index in kept), strict=True) if kept else ((), ())
    return Text(texts, np.array(scores), boxes.corners[kept], rule), told


def _answers(
    args: Namespace, option: str, path: str, cuts: Mapping[int, Image], tell: Tell
) -> tuple[dict[int, Classes | Text], str | None]:
    """A network's answer for each picture, and how the first of them was fed."""
    fit = "line" if option == "--turn" else None
    own: dict[str, Any] = {
        "model": path,
        "then": None,
        "turn": None,
        "unclip": None,
        "fit": fit,
        "input": [],
        "shape": [],
    }
    args = Namespace(**(vars(args) | own | {"io_layout": [], "labels": args.labels if option == "--then" else None}))
    opened = open_model(args)
    policy = args.layout[0] if args.layout else "auto"
    session = load(opened, dtype=args.dtype, layout=policy, threads=args.threads, winograd=not args.no_winograd)
    names = [info.name for info in session.get_outputs()]
    answers: dict[int, Classes | Text] = {}
    told = None
    for group in _groups(cuts):
        widest = group[-1][1].size
        for index, cut in group:
            title = f"box {index + 1}"
            tell(f"{path}: {title}")
            picture = picture_of(args, opened, title, cut, widest)
            outputs = dict(zip(names, map(np.asarray, session.run(None, picture.feeds)), strict=True))
            answer = Question(picture.frame, picture.names, n_best=1).answer(outputs)
            if not isinstance(answer, Classes | Text):
                shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in outputs.items())
                counts = f"{shapes}; {len(picture.names)} names of classes or characters are known"
                raise InputError(f"{option} {path}: it neither reads nor classifies ({counts})")
            answers[index] = answer
            told = told or picture.told
    return answers, told


def _is_upside_down(answer: Classes | Text) -> bool:
    return isinstance(answer, Classes) and len(answer.scores) == 2 and bool(answer.scores[1] > UPSIDE_DOWN)


def _groups(cuts: Mapping[int, Image]) -> list[list[tuple[int, Image]]]:
    """Those of like proportions together, the widest last: they are fed in one width.

    Source: PP-OCR pads them so, and whether it sees a space depends on it.
    """
    ordered = sorted(cuts.items(), key=lambda item: item[1].width / item[1].height)
    return [ordered[start : start + GROUP] for start in range(0, len(ordered), GROUP)]


def cut_out(image: Image, corners: np.ndarray) -> Image:
    """A box of a picture, upright, and turned to the left where it is tall."""
    from PIL.Image import Transpose, fromarray

    sides = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    width, height = max(1, int(max(sides[0], sides[2]))), max(1, int(max(sides[1], sides[3])))
    x, y = np.arange(width)[:, None] / width, np.arange(height)[:, None, None] / height
    upper, lower = (start + (end - start) * x for start, end in ((corners[0], corners[1]), (corners[3], corners[2])))
    limits = np.array(image.size) - 1
    begin = (corners.min(axis=0).astype(int) - MARGIN).clip(0, limits)
    end = (corners.max(axis=0).astype(int) + MARGIN).clip(0, limits)
    around = np.asarray(image.crop((*begin, *(end + 1))), np.float32)[None].transpose(0, 3, 1, 2)
    points = 2 * (upper + (lower - upper) * y - begin) / np.maximum(end - begin, 1) - 1
    pixels = np.empty((1, 3, height, width), np.float32)
    sample(around, points[None], pixels, "cubic", "border", is_aligned=True)
    cut = fromarray(pixels[0].transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8))
    return cut.transpose(Transpose.ROTATE_90) if height >= TALL * width else cut
