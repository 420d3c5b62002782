"""NonMaxSuppression against ``onnx.reference``, whose boxes it has, in its order."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from tests.ops.in_pieces import NODE, RNG, S64, model_of, reference


@pytest.mark.parametrize("is_centered", [False, True])
@pytest.mark.parametrize(("n_most", "least"), [(0, 0.3), (1, 0.3), (5, 0.3), (100, 0.0)])
def test_boxes_that_overlap_better_ones_go(n_most: int, least: float, *, is_centered: bool) -> None:
    feed = {"boxes": RNG.random((2, 40, 4)).astype(np.float32), "scores": RNG.random((2, 3, 40)).astype(np.float32)}
    node = NODE("NonMaxSuppression", [*feed, "k", "i", "s"], ["y"], center_point_box=int(is_centered))
    limits = {"k": np.array([n_most]), "i": np.array([0.5], np.float32), "s": np.array([least], np.float32)}
    model = model_of([node], feed, {"y": S64}, **limits)
    np.testing.assert_array_equal(bl.load(model).run(None, feed)[0], reference(model, **feed)[0])
