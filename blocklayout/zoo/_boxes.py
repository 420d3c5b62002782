"""Boxes of detectors: made of offsets from others, and the best of those that overlap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from onnx import ModelProto

    from blocklayout.model.build_value import BuildValue

_SHIFT, _GROWTH = 10, 5
"""Divisors: offsets of a box's centre, and of the logarithm of its extents, are so many times as large."""

_ALL = {"boxes": "all_boxes", "scores": "all_scores"}
"""Names of the results of which the best are kept."""

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


class Suppression(Struct, frozen=True):
    """Of boxes of a class that overlap, the one with the highest score is kept.

    Attributes:
        n: How many are kept of a class at most.
        overlap: Intersection over union above which only the better one is kept.
        score: What one must have at least.
        is_centred: Whether boxes are centres and extents; otherwise they are corners.
    """

    n: int
    overlap: float
    score: float
    is_centred: bool = False

    def behind(self, model: ModelProto) -> ModelProto:
        """The model with three results: ``boxes`` that are kept, their ``scores`` and ``classes``.

        Args:
            model: Its results are ``boxes``, (batch, boxes, 4), and ``scores``, (batch, classes, boxes).
        """
        from onnx import TensorProto, helper, numpy_helper

        graph = model.graph
        for node in graph.node:
            node.output[:] = [_ALL.get(name, name) for name in node.output]
        constants: dict[str, np.ndarray] = {
            "n": np.array([self.n], np.int64),
            "overlap": np.array([self.overlap], np.float32),
            "least": np.array([self.score], np.float32),
            "of_box": np.array([0, 2], np.int64),
            "of_class": np.array(1, np.int64),
        }
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
        limits = ("n", "overlap", "least")
        graph.node.extend(
            (
                helper.make_node(
                    "NonMaxSuppression", [*_ALL.values(), *limits], ["kept"], center_point_box=int(self.is_centred)
                ),
                helper.make_node("Gather", ["kept", "of_box"], ["places"], axis=1),
                helper.make_node("GatherND", ["all_boxes", "places"], ["boxes"]),
                helper.make_node("GatherND", ["all_scores", "kept"], ["scores"]),
                helper.make_node("Gather", ["kept", "of_class"], ["classes"], axis=1),
            )
        )
        del graph.output[:]
        results = (("boxes", TensorProto.FLOAT, 4), ("scores", TensorProto.FLOAT), ("classes", TensorProto.INT64))
        graph.output.extend(
            helper.make_tensor_value_info(name, dtype, ("found", *inner)) for name, dtype, *inner in results
        )
        return model
