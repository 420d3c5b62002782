"""Instance normalisation: each channel of each image on its own."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Problem, Recipe, RecipeStep, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._mixed_radix import digits, is_padded, runs
from blocklayout.ops._needs import are_floats, is_source
from blocklayout.ops._rows import of_source
from blocklayout.ops._standardizing import Standardization, by_groups
from blocklayout.ops._transposing import per_channel


class InstanceNormalization(BaseOperator, frozen=True):
    """Brings the pixels of each channel of each image to mean 0 and variance 1, and scales and shifts them.

    Attributes:
        epsilon: Added to the variance.
    """

    op_types = ("InstanceNormalization",)
    needs = (is_source(2, 12), are_floats)

    epsilon: float

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = node.required(0, "input")
        n_images, n_channels = src.shape[:2]
        sources, constants = {"src": src}, {}
        for index, (name, onnx_name) in enumerate((("scale", "scale"), ("shift", "B")), start=1):
            vector = node.required(index, onnx_name)
            if vector.shape != (n_channels,):
                rule = f"{src.name} has {n_channels} channels"
                raise node.wrong(f"{onnx_name} has extents {list(vector.shape)}", rule)
            if vector.data is None:
                sources[name] = vector
                continue
            row = vector.data.reshape(1, n_channels, *(1,) * (len(src.shape) - 2))
            constants[name] = np.repeat(row, n_images, axis=0)
        return cls(node.float_attr("epsilon", 1e-5)).bind(sources, constants)

    keeps_rows = staticmethod(of_source)

    transposed = staticmethod(per_channel)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        parts = digits(descs[0]) if descs else None
        if descs is None or parts is None:
            return None
        src, dst = descs
        pixels = range(2, src.ndims)
        if is_padded(src, pixels):  # statistics would count it
            return None
        channels_follow = any(part.dim in pixels for part in takewhile(lambda part: part.dim != 1, parts))
        what = Standardization(runs(parts, pixels), src.dtype, self.epsilon, has_images=channels_follow)
        steps = what.steps(attr, problem.n_threads)
        if steps is None:
            return None
        rows = src.resized((*src.dims[:2], *(1,) * (src.ndims - 2)), "f32")
        plain = Recipe(steps, (), (("src", src), ("dst", dst), ("scale", rows), ("shift", rows)))
        return _with_computed_vectors(plain, rows, problem)

    def alternatives(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> tuple[Recipe, ...]:
        return by_groups(problem.dst.dims[1], self.epsilon, problem, wish, attr)


def _with_computed_vectors(recipe: Recipe, rows: MemoryDesc, problem: Problem) -> Recipe:
    """The recipe behind copies of computed scales and shifts, one for each image."""
    computed = {name: f"{name}_rows" for name in ("scale", "shift") if name in problem.sources}
    whole, copies = dict(recipe.whole), []
    for name, copied in computed.items():
        vector = MemoryDesc(problem.sources[name].dims, problem.sources[name].dtype)
        repeated = MemoryDesc(rows.dims, vector.dtype, strides=(0, 1, *(0 for _ in rows.dims[2:])))
        spec = dnnl.reorder(repeated, rows, n_threads=problem.n_threads)
        copies.append(RecipeStep(spec, (("dst", copied), ("src", name))))
        whole[name] = vector
    steps = [
        replace(step, operands=tuple((arg, computed.get(name, name)) for arg, name in step.operands))
        for step in recipe.steps
    ]
    return Recipe((*copies, *steps), tuple((copied, rows) for copied in computed.values()), tuple(whole.items()))
