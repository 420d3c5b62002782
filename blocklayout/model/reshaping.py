"""What shape inference leaves open about Reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from blocklayout.errors import ModelError
from blocklayout.ir.value import Value
from blocklayout.model.graph import Node


def target_of_empty(node: Node, inputs: Sequence[Value | None]) -> dict[str, np.ndarray]:
    """The target of a Reshape of a batch of 0, with -1 worked out as for any other batch.

    ONNX leaves (0, 4, 4) to (0, -1) open, because every number would do.
    """
    source, target = inputs
    if source is None or target is None or target.data is None or 0 not in source.shape:
        return {}
    copied = not node.attr("allowzero", 0)
    extents = [
        source.shape[axis] if extent == 0 and copied and axis < len(source.shape) else int(extent)
        for axis, extent in enumerate(target.data)
    ]
    if 0 not in extents or extents.count(-1) != 1:
        return {}
    n_elements, n_known = (math.prod(filter(None, shape)) for shape in (source.shape, extents))
    free = n_elements // -n_known  # n_known has the -1 in it
    return {target.name: np.array([free if extent == -1 else extent for extent in extents], np.int64)}


def check_n_elements(node: Node, source: Value | None, result: Value | None) -> None:
    """Complain where a Reshape would make or lose elements.

    Raises:
        ModelError: It would.
    """
    if source is None or result is None or math.prod(source.shape) == math.prod(result.shape):
        return
    raise ModelError(
        f"node {node.name!r}: Reshape of {source.name!r} {source.shape} to {result.shape}: the first has "
        f"{math.prod(source.shape)} elements and the second {math.prod(result.shape)}; they must be equally many"
    )
