"""Boxes of detectors: made of offsets from others, and the best of those that overlap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue

    Boxes = dict[str, BuildValue]

_SHIFT, _GROWTH = 10, 5
"""What offsets of a box's centre, and of the logarithm of its extents, are divided by."""

_MOST = math.log(1000 / 16)
"""Of the logarithm by which a box grows."""


def decoded(offsets: BuildValue, centres: BuildValue | np.ndarray, extents: BuildValue | np.ndarray) -> BuildValue:
    """Boxes as corners, left, top, right and bottom, within an image of 1x1.

    Args:
        offsets: Four for each box: of the centre in extents, and of the logarithm of the extents.
        centres: Of the boxes that they are offsets from, (..., 2).
        extents: Of those, (..., 2).
    """
    shift, growth = offsets.split((2, 2), axis=-1)
    middle = shift * (1 / _SHIFT) * extents + centres
    half = (growth * (1 / _GROWTH)).clip(hi=_MOST).exp() * extents * 0.5
    return offsets.builder.concat([middle - half, middle + half], axis=-1).clip(0, 1)


def best(
    boxes: BuildValue, scores: BuildValue, *, n: int, overlap: float, score: float, is_centred: bool = False
) -> Boxes:
    """At most ``n`` boxes of each class, those with the highest scores among such that overlap.

    Args:
        boxes: (batch, boxes, 4).
        scores: (batch, classes, boxes).
        n: How many there may be of a class.
        overlap: Intersection over union above which only the better one is kept.
        score: What one must have at least.
        is_centred: Whether boxes are centres and extents; otherwise they are corners.
    """
    limits = (np.int64([n]), np.float32([overlap]), np.float32([score]))
    op = boxes.builder.op
    found = op("NonMaxSuppression", boxes, scores, *limits, center_point_box=int(is_centred))
    return {
        "boxes": op("GatherND", boxes, op("Gather", found, np.int64([0, 2]), axis=1)),
        "scores": op("GatherND", scores, found),
        "classes": op("Gather", found, np.int64(1), axis=1),
    }
