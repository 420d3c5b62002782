"""Group normalisation: some channels of each image together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Problem, Recipe, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._mixed_radix import Digit, digits, is_padded, runs
from blocklayout.ops._needs import has_f32_statistics, is_known, is_source
from blocklayout.ops._rows import of_source
from blocklayout.ops._standardizing import Standardization, affine_step, by_groups
from blocklayout.ops._transposing import per_channel
from blocklayout.ops.instance_normalization import InstanceNormalization

_FIRST_OPSET_OF_CHANNELS = 21
"""Before it, scale and bias were given for each group."""

_WITHIN = -1
"""Stands for the channels of a group as a dimension."""


class GroupNormalization(BaseOperator, frozen=True):
    """Brings each group of channels of each image to mean 0 and variance 1, and scales and shifts channels.

    Runs in layouts in which the elements of a group lie together: plain ones, and blocks that hold one group only.

    Attributes:
        n_groups: Groups of equally many channels.
        epsilon: Added to the variance.
        is_per_group: Whether the channels of a group share their scale and shift.
    """

    op_types = ("GroupNormalization",)
    needs = (is_source(2, 12), has_f32_statistics, is_known(1, "scale"), is_known(2, "bias"))

    n_groups: int
    epsilon: float
    is_per_group: bool

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = node.required(0, "X")
        n_images, n_channels = src.shape[:2]
        n_groups = _n_groups(node, n_channels)
        vectors = {
            name: _by_group(node, index, n_groups, n_channels) for index, name in enumerate(("scale", "shift"), start=1)
        }
        epsilon = node.float_attr("epsilon", 1e-5)
        is_per_group = all((vector == vector[:, :1]).all() for vector in vectors.values())
        ones = (1,) * (len(src.shape) - 2)
        if not is_per_group:
            rows = {name: v.reshape(1, n_channels, *ones) for name, v in vectors.items()}
            return cls(n_groups, epsilon, is_per_group=False).bind({"src": src}, rows)
        rows = {name: np.broadcast_to(v[:, 0], (n_images, n_groups)) for name, v in vectors.items()}
        if n_groups < n_channels:
            return cls(n_groups, epsilon, is_per_group=True).bind({"src": src}, rows)
        instances = {name: v.reshape(n_images, n_channels, *ones) for name, v in rows.items()}
        return InstanceNormalization(epsilon).bind({"src": src}, instances)

    keeps_rows = staticmethod(of_source)

    transposed = staticmethod(per_channel)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        parts = self._parts(descs[0]) if descs else None
        if descs is None or parts is None:
            return None
        src, dst = descs
        found = runs(parts, {_WITHIN, *range(2, src.ndims)})
        what = Standardization(found, src.dtype, self.epsilon, self.is_per_group, has_images=False)
        first = what.steps(attr if self.is_per_group else dnnl.Attr(), problem.n_threads)
        if first is None:
            return None
        if self.is_per_group:
            return Recipe(first, (), tuple(self._whole(src, dst, self._groups_desc(src, parts)).items()))
        vector = dst.resized(argument(problem, "scale").dims, "f32")
        last = affine_step(dst, vector, attr, problem.n_threads)
        return None if last is None else Recipe((*first, last), (), tuple(self._whole(src, dst, vector).items()))

    def alternatives(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> tuple[Recipe, ...]:
        return by_groups(self.n_groups, self.epsilon, problem, wish, attr)

    def _whole(self, src: MemoryDesc, dst: MemoryDesc, vector: MemoryDesc) -> Mapping[str, MemoryDesc]:
        return {"src": src, "dst": dst, "scale": vector, "shift": vector}

    def _parts(self, src: MemoryDesc) -> tuple[Digit, ...] | None:
        """The source's digits, those of the channels split in groups and channels of a group."""
        parts = digits(src, kept=(1,))
        block = src.layout.blocks[1]
        n_within = src.dims[1] // self.n_groups
        if parts is None or is_padded(src, range(1, src.ndims)) or n_within % block:
            return None
        split: list[Digit] = []
        for part in parts:
            if part.dim != 1:
                split.append(part)
            elif any(digit.dim == 1 for digit in split):
                split.append(Digit(_WITHIN, part.extent, part.stride))
            else:
                n_inner = n_within // block
                split += [Digit(1, self.n_groups, part.stride * n_inner), Digit(_WITHIN, n_inner, part.stride)]
        return tuple(digit for digit in split if digit.extent != 1)

    def _groups_desc(self, src: MemoryDesc, parts: tuple[Digit, ...]) -> MemoryDesc:
        """One number for each group of each image, in the order in which they lie."""
        kept = [part.dim for part in parts if part.dim in (0, 1)]
        return MemoryDesc((src.dims[0], self.n_groups), "f32", "ba" if kept == [1, 0] else "ab")


def _n_groups(node: NodeInfo, n_channels: int) -> int:
    n_groups = node.int_attr("num_groups", 0)
    if n_groups < 1 or n_channels % n_groups:
        raise node.wrong(f"attribute num_groups is {n_groups}", f"it must divide {n_channels} channels")
    return n_groups


def _by_group(node: NodeInfo, index: int, n_groups: int, n_channels: int) -> np.ndarray:
    """A scale or bias as a matrix (groups, channels of a group)."""
    name = ("X", "scale", "bias")[index]
    vector = node.known(node.required(index, name), name)
    n = n_groups if node.opset < _FIRST_OPSET_OF_CHANNELS else n_channels
    if vector.shape != (n,):
        raise node.wrong(f"{name} has extents {list(vector.shape)}", f"opset {node.opset} makes them [{n}]")
    n_within = n_channels // n_groups
    return np.repeat(vector, n_channels // n).reshape(n_groups, n_within)
