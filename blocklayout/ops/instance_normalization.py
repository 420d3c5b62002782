"""Instance normalisation: each channel of each image on its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.kernels import BaseOperator, Lowered, NodeInfo, Problem, Recipe, Role, Wish
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._digits import digits, runs
from blocklayout.ops._reading import constant, float_attr, require_float, require_ndims, required, wrong
from blocklayout.ops._standardizing import Standardization


@dataclass(frozen=True)
class InstanceNormalization(BaseOperator):
    """Brings the pixels of each channel of each image to mean 0 and variance 1, and scales and shifts them.

    Attributes:
        epsilon: Added to the variance.
    """

    op_types: ClassVar[tuple[str, ...]] = ("InstanceNormalization",)
    role: ClassVar[Role] = Role.FOLLOWER

    epsilon: float

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = require_ndims(node, require_float(node, required(node, 0, "input")), 2, 12)
        n_images, n_channels = src.shape[:2]
        vectors = {}
        for index, (name, onnx_name) in enumerate((("scale", "scale"), ("shift", "B")), start=1):
            vector = constant(node, required(node, index, onnx_name), onnx_name)
            if vector.shape != (n_channels,):
                rule = f"{src.name} has {n_channels} channels"
                raise wrong(node, f"{onnx_name} has extents {list(vector.shape)}", rule)
            row = vector.reshape(1, n_channels, *(1,) * (len(src.shape) - 2))
            vectors[name] = np.repeat(row, n_images, axis=0)
        return cls(float_attr(node, "epsilon", 1e-5)).bind({"src": src}, vectors)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        parts = digits(descs[0]) if descs else None
        if descs is None or parts is None:
            return None
        src, dst = descs
        pixels = range(2, src.ndims)
        channels_follow = any(part.dim in pixels for part in takewhile(lambda part: part.dim != 1, parts))
        found = runs(parts, pixels)
        what = Standardization(found, src.dtype, self.epsilon, has_images=channels_follow)
        steps = what.steps(attr, problem.n_threads)
        if steps is None:
            return None
        vector = src.resized(argument(problem, "scale").dims, "f32")
        return Recipe(steps, (), (("src", src), ("dst", dst), ("scale", vector), ("shift", vector)))
