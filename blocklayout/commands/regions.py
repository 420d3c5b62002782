"""Connected regions of a map of probabilities as boxes, turned as the regions are: how text detectors are read.

Source: "Real-time Scene Text Detection with Differentiable Binarization" (Liao et al., 2019), section 3.4; steps and
constants are those of PP-OCR's post-processing.
"""

from __future__ import annotations

import numpy as np

PIXEL = 0.3
"""Least probability of a pixel of a region."""
SHORTEST = 3
"""Least extent of a region in pixels; boxes are two larger."""


def boxes_of(probabilities: np.ndarray, least: float, unclip: float) -> tuple[np.ndarray, np.ndarray]:
    """Boxes around regions, and their mean probabilities.

    Args:
        probabilities: Shape (height, width).
        least: Least mean probability of a box.
        unclip: A box is moved outwards by its area over its perimeter, times this: networks mark the core of a line.

    Returns:
        Corners, clockwise from the left upper one, in the map's pixels, shape (n, 4, 2); and scores, shape (n,).

    Example:
        >>> probabilities = np.zeros((20, 40))
        >>> probabilities[5:15, 10:30] = 0.9
        >>> corners, scores = boxes_of(probabilities, 0.5, 0.0)
        >>> corners.tolist(), scores.round(2).tolist()
        ([[[10.0, 5.0], [30.0, 5.0], [30.0, 15.0], [10.0, 15.0]]], [0.78])
    """
    corners, scores = [], []
    for points in _outlines(probabilities > PIXEL):
        box = least_rectangle(points)
        score = _mean_inside(probabilities, box) if min(_extents(box)) >= SHORTEST else 0.0
        if score < least or not score:
            continue
        box = least_rectangle(_moved_outwards(box, unclip))
        if min(_extents(box)) >= SHORTEST + 2:
            corners.append(box)
            scores.append(score)
    return np.array(corners).reshape(-1, 4, 2), np.array(scores)


def in_reading_order(corners: np.ndarray) -> np.ndarray:
    """Indices of boxes from top to bottom, and from left to right where tops are within half a height.

    Example:
        >>> sides = np.array([[50, 12, 60, 22], [0, 40, 10, 50], [0, 10, 10, 20]])
        >>> in_reading_order(sides[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)).tolist()
        [2, 0, 1]
    """
    order: list[int] = []
    row: list[int] = []
    tops, heights = corners[:, :2, 1].mean(axis=1), np.linalg.norm(corners[:, 3] - corners[:, 0], axis=1)
    for each in np.argsort(tops, kind="stable").tolist():
        if row and tops[each] - tops[row[0]] > heights[row[0]] / 2:
            order += sorted(row, key=lambda index: corners[index, 0, 0])
            row = []
        row.append(each)
    return np.array(order + sorted(row, key=lambda index: corners[index, 0, 0]), int)


def _outlines(is_inside: np.ndarray) -> list[np.ndarray]:
    """The ends of rows of each connected region, as x and y; regions begin one pixel before they end.

    A region is a row of pixels with all that touch it in the rows beside it, corners included.
    """
    grown = is_inside.copy()
    grown[1:] |= is_inside[:-1]
    grown[:, 1:] |= grown[:, :-1].copy()
    steps = np.diff(grown.astype(np.int8), axis=1, prepend=0, append=0)
    rows, begins = np.nonzero(steps == 1)
    ends = np.nonzero(steps == -1)[1] - 1
    if not rows.size:
        return []
    stride = is_inside.shape[1] + 2  # rows one behind the other, apart by more than what touches
    first = np.searchsorted(rows * stride + ends, (rows + 1) * stride + begins - 1)
    last = np.searchsorted(rows * stride + begins, (rows + 1) * stride + ends + 1, side="right")
    counts = np.maximum(last - first, 0)
    above = np.repeat(np.arange(rows.size), counts)
    below = np.arange(above.size) + np.repeat(first - np.cumsum(counts) + counts, counts)
    region = _joined(rows.size, above, below)
    order = np.argsort(region, kind="stable")
    points = np.stack([begins, rows, ends, rows], axis=1)[order].reshape(-1, 2)
    borders = np.flatnonzero(np.diff(region[order])) + 1
    return [each.astype(np.float64) for each in np.split(points, 2 * borders)]


def _joined(n: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The lowest of all that each of ``n`` is joined to by pairs, itself included."""
    lowest = np.arange(n)
    while (differ := lowest[left] != lowest[right]).any():
        left, right = left[differ], right[differ]
        roots = np.minimum(lowest[left], lowest[right])
        np.minimum.at(lowest, lowest[left], roots)
        np.minimum.at(lowest, lowest[right], roots)
        while (lowest[lowest] != lowest).any():
            lowest = lowest[lowest]
    return lowest


def least_rectangle(points: np.ndarray) -> np.ndarray:
    """Corners of the rectangle of least area around points: one of its sides lies on a side of their hull.

    Example:
        >>> least_rectangle(np.array([[9, 2], [1, 0], [5, 3], [0, 4], [8, 6.0]])).round().astype(int).tolist()
        [[1, 0], [9, 2], [8, 6], [0, 4]]
    """
    hull = _hull(points)
    sides = np.roll(hull, -1, axis=0) - hull
    lengths = np.linalg.norm(sides, axis=1)
    along = sides[lengths > 0] / lengths[lengths > 0, None]
    if not len(along):
        return np.repeat(hull[:1], 4, axis=0)
    across = along[:, ::-1] * (-1, 1)
    u, v = along @ hull.T, across @ hull.T
    best = int(np.argmin(np.round(np.ptp(u, axis=1) * np.ptp(v, axis=1), 6)))
    (low, high), (near, far) = ((each[best].min(), each[best].max()) for each in (u, v))
    frame = np.stack([along[best], across[best]])
    return _clockwise(np.array([[low, near], [high, near], [high, far], [low, far]]) @ frame)


def _clockwise(corners: np.ndarray) -> np.ndarray:
    """The upper of the two left corners first, then the upper of the two right ones."""
    order = np.argsort(corners[:, 0].round(6), kind="stable")
    left, right = (pair[np.argsort(pair[:, 1], kind="stable")] for pair in (corners[order[:2]], corners[order[2:]]))
    return np.array([left[0], right[0], right[1], left[1]])


def _hull(points: np.ndarray) -> np.ndarray:
    """The convex hull, by Andrew's chains."""
    ordered = [tuple(point) for point in np.unique(points, axis=0).tolist()]
    chains = []
    for way in (ordered, ordered[::-1]):
        chain: list[tuple[float, ...]] = []
        for x, y in way:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], (x, y)) <= 0:
                chain.pop()
            chain.append((x, y))
        chains += chain[:-1]
    return np.array(chains or ordered)


def _turn(a: tuple[float, ...], b: tuple[float, ...], c: tuple[float, ...]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _extents(box: np.ndarray) -> tuple[float, float]:
    width, height = np.linalg.norm(box[1] - box[0]), np.linalg.norm(box[3] - box[0])
    return float(width), float(height)


def _mean_inside(probabilities: np.ndarray, box: np.ndarray) -> float:
    """The mean of the pixels in a box whose corners are cut to whole pixels, its outline included."""
    height, width = probabilities.shape
    limits = (width - 1, height - 1)
    (left, top), (right, bottom) = (
        np.clip(each, 0, limits).astype(int) for each in (np.floor(box.min(axis=0)), np.ceil(box.max(axis=0)))
    )
    y, x = np.mgrid[top : bottom + 1, left : right + 1]
    is_inside = np.ones(x.shape, bool)
    corners = np.trunc(box)
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        (dx, dy), outline = end - start, np.abs(end - start).max() / 2
        is_inside &= dx * (y - start[1]) - dy * (x - start[0]) >= -outline
    return float(probabilities[top : bottom + 1, left : right + 1][is_inside].mean()) if is_inside.any() else 0.0


def _moved_outwards(box: np.ndarray, unclip: float) -> np.ndarray:
    """Points around a box at a distance from it, in whole pixels: its sides moved, its corners rounded.

    Source: Clipper 6, ``ClipperOffset::DoRound``, whose steps keep within a quarter of a pixel of the arc.
    """
    width, height = _extents(box)
    distance = width * height * unclip / (2 * (width + height))
    if not distance:
        return box
    sides = np.roll(box, -1, axis=0) - box
    after = sides[:, ::-1] * (1, -1) / np.linalg.norm(sides, axis=1)[:, None]
    before = np.roll(after, 1, axis=0)
    step = max(2 * np.arccos(1 - min(0.25, distance / 4) / distance), 2 / distance)
    angles = [*(step * np.arange(max(1, round(np.pi / 2 / step)))), np.pi / 2]
    arcs = [before * np.cos(angle) + after * np.sin(angle) for angle in angles]
    points: np.ndarray = np.floor(np.trunc(box) + distance * np.stack(arcs) + 0.5).reshape(-1, 2)
    return points
