"""Windows summed into the image that they were taken from."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from blocklayout import ir
from blocklayout.resource_limits import check_affordable


class Col2Im(ir.Facts, frozen=True):
    """Each column is a window; where windows overlap, their elements are added."""

    op_types = ("Col2Im",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        n = len(node.result.shape) - 2
        strides, dilations = (node.ints_attr(name, n, 1, at_least=1) for name in ("strides", "dilations"))
        pads = node.ints_attr("pads", 2 * n, 0, at_least=0)
        padded = [extent + pads[i] + pads[i + n] for i, extent in enumerate(node.result.shape[2:])]

        def add(columns: np.ndarray, extents: np.ndarray, block: np.ndarray, out: np.ndarray) -> None:
            del extents  # are the result's
            kernel = block.tolist()
            counts = [(padded[i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(n)]
            windows = columns.reshape(*out.shape[:2], *kernel, *counts)
            shape = (*out.shape[:2], *padded)
            check_affordable(shape, out.itemsize, f"node {node.name!r}: its image with pads")
            image = np.zeros(shape, out.dtype)
            for place in product(*map(range, kernel)):
                window: Any = (slice(None), slice(None), *place)
                begins = [at * dilation for at, dilation in zip(place, dilations, strict=True)]
                lines = zip(begins, strides, counts, strict=True)
                index: Any = (slice(begin, begin + step * count, step) for begin, step, count in lines)
                image[(..., *index)] += windows[window]
            inside: Any = (slice(pads[i], pads[i] + extent) for i, extent in enumerate(out.shape[2:]))
            out[...] = image[(..., *inside)]

        return add
