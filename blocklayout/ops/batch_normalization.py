"""Batch normalisation with known statistics, where it was not folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import has_one_output, is_source, of_source, per_channel
from blocklayout.ops._gradients import of_channels
from blocklayout.ops._layouts import Follower, as_one_image

_FLAGS = ("use_global_stats", "use_scale", "use_shift")
_VECTORS = {"scale": "scale", "shift": "B", "mean": "input_mean", "variance": "input_var"}


def _is_inference(node: ir.NodeInfo) -> ir.Refusal | None:
    if node.int_attr("training_mode", 0) != 0:
        return node.refused("attribute training_mode is 1", "only inference is computed: 0")
    if node.int_attr("spatial", 1) != 1:
        return node.refused("attribute spatial is 0", "statistics must be per channel: 1")
    return None


class BatchNormalization(Follower, frozen=True):
    """Scales and shifts every channel by its statistics; ``epsilon`` is added to the variance."""

    op_types: ClassVar[tuple[str, ...]] = ("BatchNormalization",)
    needs = (is_source(2, 5), has_one_output("running statistics"), _is_inference)

    epsilon: float

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "X")
        arguments = {"src": src}
        for index, (argument_name, onnx_name) in enumerate(_VECTORS.items(), start=1):
            vector = node.required(index, onnx_name)
            if vector.shape != (src.shape[1],):
                rule = f"{src.name} has {src.shape[1]} channels"
                raise node.wrong(f"{onnx_name} has extents {list(vector.shape)}", rule)
            arguments[argument_name] = vector
        return cls(node.float_attr("epsilon", 1e-5)).bind(arguments)

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        return of_source(node, rows) and not node.attrs.get("training_mode", 0)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, scale, _, mean, variance), node = call.sources, call.node
        column, epsilon = (-1, *(1 for _ in x.shape[2:])), node.float_attr("epsilon", 1e-5)

        def gradients(_: Any, grad: Any) -> Iterator[Any]:
            inverse, total = (variance + epsilon) ** -0.5, of_channels(grad)
            yield grad * (scale * inverse).reshape(column)
            yield (of_normal := (of_channels(grad * x) - mean * total) * inverse)
            yield from (total, -scale * inverse * total, of_normal * scale * inverse * inverse * -0.5)

        return gradients if not node.attrs.get("training_mode", 0) else "use batch_norm_training"

    transposed = staticmethod(per_channel)

    @classmethod
    def affine(cls, node: ir.NodeInfo) -> ir.Affine | None:
        known = [node.constant(index) for index in range(1, 5)]
        if node.attrs.get("training_mode", 0) or not node.attrs.get("spatial", 1) or any(node.outputs[1:]):
            return None
        channels = node.shape(0)[1:2]
        vectors = [array.astype(np.float64) for array in known if array is not None and array.shape == channels]
        if len(vectors) != 4:
            return None
        scale, shift, mean, variance = vectors
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
            return ir.Affine(0, factor, shift - mean * factor)

    @classmethod
    def aligned_scale(cls, node: ir.NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        return None if cls.affine(node) is None else scale

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        before, behind = as_one_image(src, dst) or (src, dst)
        given: Any = {"attr": attr, "n_threads": problem.n_threads}
        spec = dnnl.batch_normalization(before, behind, self.epsilon, _FLAGS, **given)
        # The library lists the vectors among its arguments only once the primitive exists.
        return ir.Recipe.single(spec, {name: name for name in _VECTORS}, (("src", src), ("dst", dst)))
