"""Average pooling to given extents, whatever the source's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue

    Windows = list[tuple[int, int]]


def adaptive_average_pool(x: BuildValue, extents: Sequence[int]) -> BuildValue:
    """Means of windows that cover the image evenly, as PyTorch's AdaptiveAvgPool2d has them.

    Nothing where the extents are these already, AveragePool where the windows are all alike, and otherwise
    one dimension at a time, each window a mean of its own.

    Args:
        x: Images, (N, C, ...).
        extents: Of the result's spatial dimensions.
    """
    if x.shape[2:] == tuple(extents):
        return x
    windows = [_windows(source, wanted) for source, wanted in zip(x.shape[2:], extents, strict=True)]
    if all(extent == 1 for extent in x.shape[2:]):
        result: BuildValue = x.builder.op("Expand", x, (*x.shape[:2], *extents))
        return result
    steps = [_step(each) for each in windows]
    if all(steps):
        kernel = [end - begin for (begin, end), *_ in windows]
        return x.average_pool(kernel, [step or 1 for step in steps])
    for axis, each in enumerate(windows, start=2):
        x = x.builder.concat([_mean(x, axis, *window) for window in each], axis)
    return x


def _windows(source: int, wanted: int) -> Windows:
    """Begin and end of each window along one dimension."""
    return [(index * source // wanted, -(-(index + 1) * source // wanted)) for index in range(wanted)]


def _step(windows: Windows) -> int | None:
    """From one window to the next, if all are of one size and equally far apart."""
    begins = [begin for begin, _ in windows]
    steps = {after - before for before, after in pairwise(begins)} or {1}
    sizes = {end - begin for begin, end in windows}
    return max(steps) if len(steps) == len(sizes) == 1 else None


def _mean(x: BuildValue, axis: int, begin: int, end: int) -> BuildValue:
    window = x.builder.op("Slice", x, [begin], [end], [axis])
    result: BuildValue = x.builder.op("ReduceMean", window, [axis], keepdims=1)
    return result
