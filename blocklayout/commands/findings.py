"""Outputs read as classes, boxes, a mask or text of a picture, told apart by their extents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from blocklayout.commands import regions
from blocklayout.commands.answers import Boxes, Classes, Mask, Text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from blocklayout.commands.answers import Answer

OVERLAP = 0.45
"""Of two boxes of one class that share more of their union, the better is kept."""

UNCLIP = 1.6
"""Of boxes that are read by another network, as PP-OCR has it."""

STRIDES = (4, 8, 16, 32, 64, 128)
"""Pixels from one place of a map of candidates to the next."""

BLANKS = {"", "blank", "<blank>", "[blank]"}
"""Names of the class that stands for no character."""


class Frame(Struct, frozen=True):
    """Where a picture lies in an input: widths and heights in pixels.

    Attributes:
        picture: Extents of the picture.
        size: Extents of the input.
        resized: Extents of the picture in the input's pixels.
        corner: Where its left upper corner is in the input.
        is_channels_last: Where the input's channels are.
    """

    picture: tuple[int, int]
    size: tuple[int, int]
    resized: tuple[int, int]
    corner: tuple[int, int]
    is_channels_last: bool = False

    def points_in_picture(self, points: np.ndarray) -> np.ndarray:
        """Points x, y in the picture's pixels, of points in the input's.

        Example:
            >>> frame = Frame((200, 100), (64, 64), (64, 32), (0, 16))
            >>> frame.points_in_picture(np.array([[0, 16], [32, 80]])).tolist()
            [[0.0, 0.0], [100.0, 100.0]]
        """
        moved: np.ndarray = (points - self.corner) * self.picture / self.resized
        inside: np.ndarray = np.clip(moved, 0, self.picture)
        return inside

    def mask_in_picture(self, classes: np.ndarray) -> np.ndarray:
        """The class of each of the picture's pixels, of a mask of the input; -1 where that does not show them."""
        (x, x_seen), (y, y_seen) = (self._positions(axis, classes.shape[1 - axis]) for axis in (0, 1))
        return np.where(y_seen[:, None] & x_seen, classes[y[:, None], x], -1)

    def _positions(self, axis: int, extent: int) -> tuple[np.ndarray, np.ndarray]:
        """Where each column (or row) of the picture is in a mask, and whether it is in it at all."""
        centres = (np.arange(self.picture[axis]) + 0.5) * self.resized[axis] / self.picture[axis] + self.corner[axis]
        found = np.floor(centres * extent / self.size[axis]).astype(int)
        return found.clip(0, extent - 1), (found >= 0) & (found < extent)


class Question(Struct, frozen=True):
    """How outputs are read.

    Attributes:
        frame: Where the picture lies in the input.
        names: Those of classes, or the characters of text; empty if they are not known.
        threshold: The least score of a box.
        n_best: How many classes are told.
        unclip: Of maps of probabilities that are read as boxes, as :func:`~blocklayout.commands.regions.boxes_of` has
            it; ``None`` where maps are masks.
    """

    frame: Frame
    names: Sequence[str] = ()
    threshold: float = 0.5
    n_best: int = 5
    unclip: float | None = None

    @classmethod
    def asked(cls, args: argparse.Namespace, frame: Frame, names: Sequence[str]) -> Question:
        """As the command line asks it."""
        unclip = UNCLIP if args.then is not None and args.unclip is None else args.unclip
        asked = {"threshold": args.threshold, "n_best": args.top, "unclip": unclip}
        return cls(frame, names, **{key: value for key, value in asked.items() if value is not None})

    def answer(self, outputs: Mapping[str, np.ndarray]) -> Answer | None:
        """The outputs' meaning; ``None`` where it is not known. Of a batch, the first image's."""
        if any(array.ndim >= 3 and not len(array) for array in outputs.values()):  # nothing for the first image
            return None
        return (
            self._listed_boxes(outputs)
            or self._boxes_in_rows(outputs)
            or self._text(outputs)
            or self._yolo_boxes(outputs)
            or self._levels(outputs)
            or self._regions(outputs)
            or self._mask(outputs)
            or self._classes(outputs)
        )

    def _listed_boxes(self, outputs: Mapping[str, np.ndarray]) -> Boxes | None:
        """Of boxes, scores and labels, each an output, as SSD, Faster R-CNN and TensorFlow's detectors have them."""
        for name, boxes in outputs.items():
            others = {other: array for other, array in outputs.items() if array.shape == boxes.shape[:-1]}
            labels = [
                each for each, array in others.items() if array.dtype.kind in "iu" or _says(each, "label", "class")
            ]
            scores = [each for each in others if each not in labels]
            if boxes.shape[-1:] != (4,) or boxes.ndim not in (2, 3) or len(labels) != 1 or len(scores) != 1:
                continue
            arrays = (boxes, outputs[scores[0]], outputs[labels[0]])
            corners, good, found = arrays if boxes.ndim == 2 else (array[0] for array in arrays)
            corners = corners[:, [1, 0, 3, 2]] if _says(name, "detection_boxes") else corners  # TensorFlow has y first
            return self._boxes(corners, good, found, f"{name}, {scores[0]} and {labels[0]}", is_relative=None)
        return None

    def _boxes_in_rows(self, outputs: Mapping[str, np.ndarray]) -> Boxes | None:
        """Of one output with a row for each box, behind a NonMaxSuppression in the graph."""
        name, array = next(iter(outputs.items()))
        if len(outputs) == 1 and array.ndim == 3 and array.shape[2] == 6 and _are_whole(array[0, :, 5]):
            rows = array[0]
            rule = f"rows of {name}: corners, score, class"
            return self._boxes(rows[:, :4], rows[:, 4], rows[:, 5], rule, is_relative=None)
        if len(outputs) == 1 and array.ndim == 4 and array.shape[:2] == (1, 1) and array.shape[3] == 7:
            rows = array[0, 0][array[0, 0, :, 0] == 0]  # those of the first image; what is unused has -1
            rule = f"rows of {name}: image, class, score, corners"
            return self._boxes(rows[:, 3:], rows[:, 2], rows[:, 1], rule, is_relative=True)
        return None

    def _yolo_boxes(self, outputs: Mapping[str, np.ndarray]) -> Boxes | None:
        """Of YOLO's candidates: centre, extents, (one score of being anything,) a score for each class, (masks)."""
        name, array = next(iter(outputs.items()))
        n_more = sum(other.shape[1] for other in outputs.values() if other.ndim == 4)
        if array.ndim != 3 or not self.names:
            return None
        for n_first in (4, 5):
            for rows in (array[0], array[0].T):
                if rows.shape[1] == n_first + len(self.names) + n_more:
                    return self._of_candidates(rows, n_first, name)
        return None

    def _of_candidates(self, rows: np.ndarray, n_first: int, name: str) -> Boxes:
        corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1)
        by_class = rows[:, n_first : n_first + len(self.names)]
        return self._without_overlaps(corners, by_class * (rows[:, 4:5] if n_first == 5 else 1), name)

    def _levels(self, outputs: Mapping[str, np.ndarray]) -> Boxes | None:
        """Of PicoDet's maps of several strides: scores of classes of all, then how far off each side is, in shares."""
        half = len(outputs) // 2
        arrays = [array[0] for array in outputs.values() if array.ndim == 3]
        pairs = list(zip(arrays[:half], arrays[half:], strict=False))
        if not half or len(arrays) != 2 * half or len(outputs) != 2 * half:
            return None
        width, height = self.frame.size
        corners = []
        for scores, shares in pairs:
            n_columns = [(-(-width // stride), stride) for stride in STRIDES]
            found = [(n, stride) for n, stride in n_columns if n * -(-height // stride) == len(scores)]
            is_known = scores.shape[1] == len(self.names) and len(shares) == len(scores)
            if not found or not is_known or shares.shape[1] % 4 or shares.shape[1] < 8:
                return None
            n, stride = found[0]
            bins = _softmax(shares.reshape(len(shares), 4, -1).astype(np.float64))
            sides = bins @ np.arange(bins.shape[2])
            centres = np.stack(np.divmod(np.arange(len(scores)), n)[::-1], axis=1) + 0.5
            corners.append(stride * np.concatenate([centres - sides[:, :2], centres + sides[:, 2:]], axis=1))
        return self._without_overlaps(
            np.concatenate(corners), np.concatenate(arrays[:half]), f"{half} maps from {next(iter(outputs))} on"
        )

    def _without_overlaps(self, corners: np.ndarray, by_class: np.ndarray, name: str) -> Boxes:
        classes, scores = by_class.argmax(axis=1), by_class.max(axis=1)
        good = np.flatnonzero(scores >= self.threshold)
        kept = good[without_overlaps(corners[good], scores[good], classes[good])]
        rule = f"candidates of {name}, overlaps above {OVERLAP} dropped"
        return self._boxes(corners[kept], scores[kept], classes[kept], rule, is_relative=False)

    def _boxes(
        self, corners: np.ndarray, scores: np.ndarray, classes: np.ndarray, rule: str, *, is_relative: bool | None
    ) -> Boxes:
        """Those that are good enough, the best first; ``is_relative=None`` looks whether all are within 0..1."""
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] >= self.threshold]
        is_finite = np.isfinite(corners[order]).all(axis=1) & np.isfinite(classes[order])
        rule += "" if is_finite.all() else f", {np.count_nonzero(~is_finite)} that are not finite dropped"
        order = order[is_finite]
        corners = corners[order].astype(np.float64)
        if is_relative is None:
            is_relative = bool(corners.size) and bool((np.abs(corners) <= 2).all())  # a little is outside at times
        told = f"{rule}, in {'fractions' if is_relative else 'pixels'} of the input"
        scaled = corners * np.array(self.frame.size * 2) if is_relative else corners
        ordered = np.concatenate(
            [np.minimum(scaled[:, :2], scaled[:, 2:]), np.maximum(scaled[:, :2], scaled[:, 2:])], 1
        )
        points = self.frame.points_in_picture(ordered[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2))
        told += f"; those of a score of at least {self.threshold:g}; sides in pixels of the picture"
        return Boxes(points, scores[order], classes[order].astype(int), self.names, told)

    def _text(self, outputs: Mapping[str, np.ndarray]) -> Text | None:
        """Of a score for each character, and for none, at each place along a line: 1 x places x classes, or 2nd first.

        Characters are those of the names; a class without a name is none (a blank, the first), and one more is the
        space, as PP-OCR has it, the last.
        """
        name, array = next(iter(outputs.items()))
        is_text = array.dtype.kind == "f" and may_be_text([each.shape for each in outputs.values()], self.names)
        if not is_text or array.size == array.shape[2]:
            return None
        is_whole = array.shape[2] == len(self.names)
        characters = list(self.names) if is_whole else ["", *self.names, " "][: array.shape[2]]
        blanks = [index for index, each in enumerate(characters) if each in BLANKS]
        rows = (array[:, 0] if array.shape[1] == 1 else array[0]).astype(np.float64)
        is_share = _are_within_unit(rows)
        shares = rows if is_share else _softmax(rows)
        best = rows.argmax(axis=1)
        is_new = np.append(True, best[1:] != best[:-1]) & ~np.isin(best, blanks)
        found = shares.max(axis=1)[is_new]
        of = "" if is_share else "softmax of "
        rule = f"characters: best of {name} at each of {len(rows)} places; score: mean of {of}theirs"
        corners = np.array([[(0, 0), (1, 0), (1, 1), (0, 1)]]) * self.frame.picture
        text = "".join(characters[each] for each in best[is_new])
        return Text([text], np.array([found.mean() if found.size else 0.0]), corners, rule)

    def _regions(self, outputs: Mapping[str, np.ndarray]) -> Boxes | None:
        """Of a map of probabilities: boxes around what is connected, in reading order."""
        if self.unclip is None:
            return None
        name, array = next(iter(outputs.items()))
        planes = self._planes(array)
        if planes is None or len(planes) != 1 or not _are_within_unit(planes):
            return None
        corners, scores = regions.boxes_of(planes[0].astype(np.float64), self.threshold, self.unclip)
        zoom = np.array(self.frame.size) / planes.shape[:0:-1]
        points = np.rint(self.frame.points_in_picture(corners * zoom))
        order = regions.in_reading_order(points)
        rule = (
            f"regions of {name} above {regions.PIXEL}, boxes moved outwards by {self.unclip:g} of area over perimeter; "
            f"those of a mean of at least {self.threshold:g}; sides in pixels of the picture"
        )
        return Boxes(points[order], scores[order], np.zeros(len(order), int), self.names, rule)

    def _mask(self, outputs: Mapping[str, np.ndarray]) -> Mask | None:
        """Of a score for each class (or of one for what is not background), or the class, at each position."""
        planes = [self._planes(array) for array in outputs.values()]
        found = [each for each in planes if each is not None]
        if not found or found[0] is not planes[0] or len({each.shape[1:] for each in found}) > 1:
            return None
        scores = found[0]
        if len(scores) > 1:
            classes = scores.argmax(axis=0)
        elif scores.dtype.kind in "iub":
            classes = scores[0].astype(int)
        else:
            border = 0.5 if _are_within_unit(scores) else 0.0  # a probability, or what a sigmoid makes one
            classes = (scores[0] > border).astype(int)
        return Mask(self.frame.mask_in_picture(classes), self.names)

    def _planes(self, array: np.ndarray) -> np.ndarray | None:
        """Classes first; ``None`` where an output is no map."""
        if array.ndim == 3 and array.dtype.kind in "iu" and min(array.shape[1:]) > 1:
            return array[:1]
        if array.ndim != 4:
            return None
        planes: np.ndarray = array[0].transpose(2, 0, 1) if self.frame.is_channels_last else array[0]
        return planes if min(planes.shape[1:]) > 1 else None

    def _classes(self, outputs: Mapping[str, np.ndarray]) -> Classes | None:
        """Of one number for each class; probabilities are taken as they are."""
        name, array = next(iter(outputs.items()))
        if array.ndim < 2 or not array.size or max(array.shape[1:]) != array[0].size or array[0].size < 2:
            return None
        scores = array[0].ravel().astype(np.float64)
        if _are_within_unit(scores):
            return Classes(scores, self.names, f"score: {name} as it is", self.n_best)
        return Classes(_softmax(scores), self.names, f"score: softmax of {name}", self.n_best)


def may_be_text(shapes: Sequence[Sequence[object]], names: Sequence[str]) -> bool:
    """Whether outputs are one of a score for each character, one for none, and one for a space that has no name."""
    if len(shapes) != 1 or len(shapes[0]) != 3 or not names:
        return False
    n_unnamed = {len(names) + 1, len(names) + 2} if BLANKS.isdisjoint(names) else {len(names)}
    return shapes[0][2] in n_unnamed


def without_overlaps(corners: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Indices of the boxes that no better one of their class overlaps, the best first.

    Example:
        >>> corners = np.array([[0, 0, 10, 10], [1, 1, 10, 10], [20, 0, 30, 10.0]])
        >>> without_overlaps(corners, np.array([0.8, 0.9, 0.7]), np.zeros(3, int)).tolist()
        [1, 2]
    """
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    order = np.argsort(-scores, kind="stable")
    kept = []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(best)
        sides = np.minimum(corners[best, 2:], corners[rest, 2:]) - np.maximum(corners[best, :2], corners[rest, :2])
        shared = np.prod(np.maximum(sides, 0), axis=1)
        is_same = classes[rest] == classes[best]
        order = rest[~(is_same & (shared > OVERLAP * (areas[best] + areas[rest] - shared)))]
    return np.array(kept, int)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _says(name: str, *words: str) -> bool:
    return any(word in name.lower() for word in words)


def _are_whole(values: np.ndarray) -> bool:
    return bool((values == np.rint(values)).all())


def _are_within_unit(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values <= 1 + 1e-3)).all())
