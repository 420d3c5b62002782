"""Answers about a picture: classes, boxes, a mask or text; each as a table, for JSON, and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image

    Table = tuple[tuple[str, ...], list[tuple[str, ...]]]

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#46f0f0", "#f032e6", "#bcf60c", "#008080", "#9a6324")
SIDES = ("left", "top", "right", "bottom")


class Answer(Protocol):
    """Meaning of a network's outputs."""

    @property
    def rule(self) -> str:
        """How the outputs were read."""

    def facts(self) -> dict[str, Any]:
        """For JSON."""

    def table(self) -> Table:
        """Header and rows."""

    def drawn(self, image: Image) -> Image:
        """The picture, an RGB copy of the caller's own, with the answer drawn into it."""


class Classes(Struct, frozen=True):
    """A score for each class.

    Attributes:
        scores: Shape (classes,).
        names: Those of classes, as far as they are known.
        rule: Where the scores come from.
        n_best: How many are told.
    """

    scores: np.ndarray
    names: Sequence[str]
    rule: str
    n_best: int

    def best(self) -> list[tuple[int, float]]:
        """The best classes and their scores, the best first."""
        order = np.argsort(-self.scores, kind="stable")[: self.n_best]
        return [(int(each), float(self.scores[each])) for each in order]

    @property
    def said(self) -> tuple[str, float]:
        """The best class and its score."""
        best, score = self.best()[0]
        return name_of(best, self.names), score

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        classes = [_class_facts(each, self.names) | {"score": score} for each, score in self.best()]
        return {"kind": "classes", "rule": self.rule, "classes": classes}

    def table(self) -> Table:
        """Classes and scores."""
        return ("class", "score"), [(name_of(each, self.names), f"{score:.4f}") for each, score in self.best()]

    def drawn(self, image: Image) -> Image:
        """A line for each class, in the left upper corner."""
        text = "\n".join(f"{name_of(each, self.names)} {score:.2f}" for each, score in self.best())
        _label(image, (0, 0), text, "#000000")
        return image


class Boxes(Struct, frozen=True):
    """Things found.

    Attributes:
        corners: Of each box, clockwise from its left upper one, in the picture's pixels. Shape (n, 4, 2).
        scores: Shape (n,).
        classes: Shape (n,).
        names: Those of classes, as far as they are known.
        rule: What the boxes were read from.
    """

    corners: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    names: Sequence[str]
    rule: str

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        found = zip(_facts_of_boxes(self.corners, self.scores), self.classes.tolist(), strict=True)
        boxes = [_class_facts(each, self.names) | box for box, each in found]
        return {"kind": "boxes", "rule": self.rule, "boxes": boxes}

    def table(self) -> Table:
        """A row for each box."""
        return _table_of_boxes("class", self._labels(), self.scores, self.corners)

    def drawn(self, image: Image) -> Image:
        """Outlines in the colours of their classes."""
        colours = [COLOURS[each % len(COLOURS)] for each in self.classes]
        return _outlined(image, self.corners, self._labels(), self.scores, colours)

    def _labels(self) -> list[str]:
        return [name_of(each, self.names) for each in self.classes]


class Text(Struct, frozen=True):
    """Lines or words of text, and their places.

    Attributes:
        texts: In reading order, a line or a word each.
        scores: Shape (n,).
        corners: As those of :class:`Boxes`.
        rule: How the outputs were read.
    """

    texts: Sequence[str]
    scores: np.ndarray
    corners: np.ndarray
    rule: str

    @property
    def said(self) -> tuple[str, float]:
        """The first line and its score."""
        return self.texts[0], float(self.scores[0])

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        found = zip(self.texts, _facts_of_boxes(self.corners, self.scores), strict=True)
        return {"kind": "text", "rule": self.rule, "lines": [{"text": text} | box for text, box in found]}

    def table(self) -> Table:
        """A row for each line."""
        return _table_of_boxes("text", self.texts, self.scores, self.corners)

    def drawn(self, image: Image) -> Image:
        """Outlines in turning colours."""
        colours = [COLOURS[each % len(COLOURS)] for each in range(len(self.texts))]
        return _outlined(image, self.corners, self.texts, self.scores, colours)


class Mask(Struct, frozen=True):
    """The class of each pixel of the picture, -1 where the network did not see it."""

    classes: np.ndarray
    names: Sequence[str]
    rule: str = "share: of the picture, as what it shows most likely; class 0 is drawn as it is"

    def shares(self) -> list[tuple[int, float]]:
        """The classes, and how much of the picture each covers, the largest first."""
        found, counts = np.unique(self.classes[self.classes >= 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [(int(found[each]), float(counts[each] / self.classes.size)) for each in order]

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        classes = [_class_facts(each, self.names) | {"share": share} for each, share in self.shares()]
        return {"kind": "mask", "classes": classes}

    def table(self) -> Table:
        """Classes and what they cover."""
        return ("class", "share"), [(name_of(each, self.names), f"{share:.1%}") for each, share in self.shares()]

    def drawn(self, image: Image) -> Image:
        """Half the class's colour, half the picture, but for class 0 and what the network did not see."""
        from PIL import Image, ImageColor

        colours = np.array([ImageColor.getrgb(colour) for colour in COLOURS])
        pixels = np.asarray(image)
        tinted = (pixels + colours[self.classes % len(COLOURS)]) // 2
        return Image.fromarray(np.where(self.classes[..., None] > 0, tinted, pixels).astype(np.uint8))


def name_of(index: int, names: Sequence[str]) -> str:
    """The name of a class, or its number."""
    return names[index] if 0 <= index < len(names) else f"class {index}"


def _class_facts(index: int, names: Sequence[str]) -> dict[str, Any]:
    return {"class": int(index), "name": names[index] if 0 <= index < len(names) else None}


def upright(corners: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of boxes. Shape (n, 4)."""
    sides: np.ndarray = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return sides


def _facts_of_boxes(corners: np.ndarray, scores: np.ndarray) -> list[dict[str, Any]]:
    found = zip(scores.tolist(), upright(corners).tolist(), corners.tolist(), strict=True)
    return [{"score": score, "box": box, "corners": points} for score, box, points in found]


def _table_of_boxes(title: str, labels: Sequence[str], scores: np.ndarray, corners: np.ndarray) -> Table:
    found = zip(labels, scores, upright(corners), strict=True)
    rows = [(label, f"{score:.4f}", *(f"{side:.0f}" for side in box)) for label, score, box in found]
    return (title, "score", *SIDES), rows


def _outlined(
    image: Image, corners: np.ndarray, labels: Sequence[str], scores: np.ndarray, colours: Sequence[str]
) -> Image:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(image)
    for points, label, score, colour in zip(corners.tolist(), labels, scores, colours, strict=True):
        draw.polygon([tuple(point) for point in points], outline=colour, width=_line(image))
        _label(image, tuple(points[0]), f"{label} {score:.2f}", colour)
    return image


def _line(image: Image) -> int:
    return max(1, round(max(image.size) / 250))


def _label(image: Image, corner: tuple[float, ...], text: str, colour: str) -> None:
    """Text on a ground of a colour above the corner, or below where there is no room."""
    from PIL import ImageDraw, ImageFont

    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(max(10, 6 * _line(image)))
    left, top = corner
    height = draw.multiline_textbbox((0, 0), text, font=font)[3] + 2
    top = top - height if top >= height else top
    right = draw.multiline_textbbox((left, top), text, font=font)[2] + 2
    draw.rectangle((left, top, right, top + height), fill=colour)
    draw.multiline_text((left, top), text, fill="#ffffff", font=font)
