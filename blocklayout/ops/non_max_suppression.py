"""NonMaxSuppression: the best boxes of each class, without those that overlap a better one."""

from __future__ import annotations

import numpy as np

from blocklayout import ir
from blocklayout.resource_limits import check_time


class NonMaxSuppression(ir.Facts, frozen=True):
    """Batch, class and box of each that is left, by decreasing score in each class."""

    op_types = ("NonMaxSuppression",)
    counts_elements = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        is_centered = node.flag_attr("center_point_box")

        def select(
            boxes: np.ndarray,
            scores: np.ndarray,
            most: np.ndarray | None = None,
            overlap: np.ndarray | None = None,
            least: np.ndarray | None = None,
        ) -> np.ndarray:
            n_most = 0 if most is None else int(most.item())
            within = ~np.isnan(scores) if least is None else scores > least.astype(scores.dtype).reshape(())
            if n_most <= 0 or not scores.size:
                return np.zeros((0, 3), np.int64)
            places = np.flatnonzero(within)  # many times faster than the nonzero ones of several dimensions
            score = scores.reshape(-1)[places]
            group, box = np.divmod(places, scores.shape[2])
            batch, kind = np.divmod(group, scores.shape[1])
            order = np.lexsort((box, -score, group))
            found = _left(
                group[order],
                *_corners(boxes[batch[order], box[order]], is_centered=is_centered),
                np.zeros((), boxes.dtype) if overlap is None else overlap.astype(boxes.dtype).reshape(()),
                n_most,
            )
            kept = order[found]
            return np.stack([batch[kept], kind[kept], box[kept]], 1)

        return select


def _corners(boxes: np.ndarray, *, is_centered: bool) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest coordinates, of shape (4, boxes), and areas."""
    one, two = (boxes[:, :2], boxes[:, 2:])
    if is_centered:
        half = two / 2
        one, two = one - half, one + half
    least, most = np.minimum(one, two), np.maximum(one, two)
    return np.concatenate([least, most], 1).T, (most - least).prod(1)


def _left(group: np.ndarray, corners: np.ndarray, areas: np.ndarray, overlap: np.ndarray, n_most: int) -> np.ndarray:
    """Indices of the boxes that stay, ascending: in each round the best box of every group, which drops others.

    Groups are ascending, and boxes of a group by decreasing score; corners have the shape (4, boxes). A box is dropped
    where it shares more than ``overlap`` of the union.
    """
    left, boxes = np.arange(len(group)), np.concatenate([corners, areas[None]])
    stay = [left[:0]]
    for _ in range(n_most):
        if not left.size:
            break
        check_time(f"NonMaxSuppression, {left.size} boxes are left")
        first = np.flatnonzero(np.diff(group, prepend=-1))
        stay.append(left[first])
        best = np.repeat(boxes[:, first], np.diff(first, append=left.size), axis=1)
        sides = np.minimum(boxes[2:4], best[2:4]) - np.maximum(boxes[:2], best[:2])
        np.maximum(sides, 0, out=sides)
        inner = sides[0] * sides[1]
        drops = inner / (boxes[4] + best[4] - inner) > overlap  # of two without area, neither does
        drops[first] = True
        rest = np.flatnonzero(~drops)
        left, group, boxes = left[rest], group[rest], boxes.take(rest, axis=1)
    return np.sort(np.concatenate(stay))
