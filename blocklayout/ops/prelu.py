"""PRelu: a leaky ReLU whose slopes are a tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, PostOpUse, Problem, Recipe, Refusal, TensorInfo, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._broadcast import broadcast_dims
from blocklayout.ops._descs import argument, followed, like
from blocklayout.ops._mixed_radix import broadcast_views, seen_as
from blocklayout.ops._needs import are_floats, is_source
from blocklayout.ops.eltwise import Eltwise

_FIRST_OPSET_OF_NUMPY_RULES = 7
"""Before it, slopes of extents (C,) were one for each channel."""

_LARGEST_NDIMS = 5
_PER_CHANNEL = 1 << 1


class PRelu(BaseOperator, frozen=True):
    """The source where it is positive, elsewhere the source times a slope that is broadcast to it.

    Attributes:
        slope_dims: Extents of the slopes, with the source's rank; each the source's, or 1.
    """

    op_types = ("PRelu",)
    needs = (is_source(1, 12), are_floats)
    broadcasts_from = 1

    slope_dims: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src = node.required(0, "X")
        slope = node.required(1, "slope")
        dims = _slope_dims(node, src.shape, slope.shape)
        if slope.data is None:
            return cls(dims).bind({"src": src, "weights": slope})
        if slope.data.size == 1:
            number = float(slope.data.reshape(()))
            if not np.isfinite(number):
                return node.refused(f"the slope is {number}", "its primitive takes finite ones")
            return Eltwise("eltwise_relu", number).bind({"src": src})
        return cls(dims).bind({"src": src}, {"weights": slope.data.reshape(dims)})

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or attr.post_ops:
            return None
        given = argument(problem, "weights")
        weights = like(descs[0], TensorInfo(self.slope_dims, given.dtype))
        views, seen = self._views(descs[0], weights), seen_as(weights, given.dims)
        if views is None or seen is None:
            return None
        whole = {"src": descs[0], "weights": seen, "dst": descs[1]}
        spec = dnnl.prelu(*views, views[0], n_threads=problem.n_threads)
        return Recipe.single(spec, whole=whole.items())

    def as_post_op(self, arg: str, problem: Problem) -> PostOpUse | None:
        # Slopes of other broadcasts, and computed ones in another data type than f32, are slow or refused.
        dims = problem.dst.dims
        is_per_channel = self.slope_dims == (1, *dims[1:2], *(1 for _ in dims[2:]))
        if arg != "src" or "weights" not in problem.constants or not is_per_channel:
            return None
        return PostOpUse(dnnl.Prelu(_PER_CHANNEL), "weights")

    def _views(self, src: MemoryDesc, weights: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc] | None:
        """Both under extents the library is fast on, where there are some."""
        views = broadcast_views(src, self.slope_dims, _PATTERNS)
        if views is None:
            return (src, weights) if src.ndims <= _LARGEST_NDIMS else None
        return MemoryDesc(views[0], src.dtype), MemoryDesc(views[1], weights.dtype)


_PATTERNS: Mapping[tuple[bool, ...], tuple[int, ...]] = {
    (): (-1,),
    (True,): (0,),
    (False,): (-1, -1, 0),
    (False, True): (0, 1),
    (True, False): (-1, 0, 1),
    (False, True, False): (0, 1, 2),
}
"""The extents to see, by whether slopes vary along each run of digits: the run (-1: an extent of 1).

The library is fast with slopes for all elements, and with slopes for each index along dimension 1.
"""


def _slope_dims(node: NodeInfo, dims: tuple[int, ...], slope: tuple[int, ...]) -> tuple[int, ...]:
    is_per_channel = node.opset < _FIRST_OPSET_OF_NUMPY_RULES and len(slope) == 1 and len(dims) > 1
    if is_per_channel and slope == dims[1:2]:
        return (1, slope[0], *(1,) * (len(dims) - 2))
    full = broadcast_dims(slope, dims)
    if full is None:
        raise node.wrong(f"the slopes have extents {list(slope)}", f"they must broadcast to the source's {list(dims)}")
    return full
