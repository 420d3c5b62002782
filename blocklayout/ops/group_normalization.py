"""Group normalisation, of some channels of each image together, and instance normalisation, of each on its own.

Rows are normalised by layer normalisation. Where elements of several rows alternate it is batch normalisation that
computes its own statistics, those of a channel over the batch and the pixels: the tensor is seen as one image, with
a channel for each part that is normalised on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import are_floats, has_f32_statistics, is_known, is_source, of_source, per_channel
from blocklayout.ops._gradients import of_channels, of_normalized
from blocklayout.ops._layouts import (
    Digit,
    Follower,
    Run,
    are_eltwise,
    argument,
    as_rows,
    digits,
    followed,
    is_padded,
    plain,
    runs,
)

_MOST_IMAGES = 16
"""Each is a step of its own where channels are the innermost."""


class _Normal(Struct, frozen=True):
    """A normalisation of source and destination of a data type.

    With ``has_vectors`` the operands ``scale`` and ``shift`` have one element for each of the digits that are not
    marked, in the order in which those lie; without, mean 0 and variance 1 are all.
    """

    dtype: str
    epsilon: float
    attr: dnnl.Attr
    n_threads: int
    has_vectors: bool = True

    def steps(self, found: Sequence[Run], most_images: int) -> tuple[ir.RecipeStep, ...] | None:
        """Primitives from ``src`` to ``dst`` along marked runs; ``None`` if there are none, or over ``most_images``."""
        rows = as_rows(found)
        if rows is not None:
            return self._of_rows(*rows)
        # Another post-op than a ReLU has no kernel.
        is_plain = all(post_op == dnnl.Eltwise("relu") for post_op in self.attr.post_ops)
        if [run.is_marked for run in found] not in ([True, False], [False, True, False]) or not is_plain:
            return None
        lead, window, inner = (1, *(run.extent for run in found))[-3:]
        blocks = (8, 16) if dnnl.isa().startswith("avx512") else (8,)  # that batch normalisation is fast on
        if inner not in blocks and lead > most_images:
            return None
        if inner in blocks:
            images = [MemoryDesc((1, lead * inner, window), self.dtype, f"aBc{inner}b")]
        else:
            offsets = range(0, lead * inner * window, inner * window)
            images = [MemoryDesc((1, inner, window), self.dtype, "acb", offset=offset) for offset in offsets]
        names = ("scale", "shift") if self.has_vectors else ()
        flags = [f"use_{name}" for name in names]
        operands = tuple((name, name) for name in ("dst", "src", *names))
        given: Any = {"attr": self.attr, "n_threads": self.n_threads}
        specs = (dnnl.batch_normalization(image, image, self.epsilon, flags, **given) for image in images)
        return tuple(ir.RecipeStep(spec, operands) for spec in specs)

    def _of_rows(self, n: int, length: int) -> tuple[ir.RecipeStep, ...] | None:
        if self.attr.post_ops and not self.has_vectors:
            return None
        rows = MemoryDesc((n, length), self.dtype)
        spec = dnnl.layer_normalization(rows, rows, self.epsilon, n_threads=self.n_threads)
        first = ir.RecipeStep(spec, (("dst", "dst"), ("src", "src")))
        if not self.has_vectors:
            return (first,)
        step = affine_step(MemoryDesc((1, n, length), self.dtype), MemoryDesc((1, n, 1)), self.attr, self.n_threads)
        return None if step is None else (first, step)


def affine_step(dst: MemoryDesc, vector: MemoryDesc, attr: dnnl.Attr, n_threads: int) -> ir.RecipeStep | None:
    """``dst * scale + shift`` in place, then functions; ``None`` with other post-ops, and in slow blocks."""
    if not are_eltwise(attr.post_ops):
        return None
    functions = dnnl.Attr((dnnl.Binary("add", vector), *attr.post_ops))
    spec = dnnl.binary(dst, vector, dst, "mul", attr=functions, n_threads=n_threads)
    if dst.inner_blks and not dnnl.has_optimised(spec):
        return None
    operands = (("dst", "dst"), ("post_op_0_src_1", "shift"), ("src_0", "dst"), ("src_1", "scale"))
    return ir.RecipeStep(spec, operands)


def by_groups(
    n_groups: int, epsilon: float, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr
) -> tuple[ir.Recipe, ...]:
    """Group normalisation as one primitive; scale and shift are (C,), or (N or 1, C or groups), and ones behind."""
    descs = followed(problem, wish, argument(problem, "src"))
    if descs is None:
        return ()
    whole = {name: plain(argument(problem, name)) for name in ("scale", "shift")}
    rows = (desc.reshaped((1, *desc.dims)) if desc.ndims == 1 else desc for desc in whole.values())
    scale, shift = (MemoryDesc(desc.dims[:2], desc.dtype) for desc in rows)
    spec = dnnl.group_normalization(*descs, scale, shift, n_groups, epsilon, attr=attr, n_threads=problem.n_threads)
    return (ir.Recipe.single(spec, whole=whole.items()),)


class InstanceNormalization(Follower, frozen=True):
    """Brings the pixels of each channel of each image to mean 0 and variance 1, and scales and shifts them."""

    op_types = ("InstanceNormalization",)
    needs = (is_source(2, 12), are_floats)

    epsilon: float

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
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

    backward = staticmethod(lambda call: _backward(call, call.sources[0].shape[1]))

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        parts, pixels = digits(src), range(2, src.ndims)
        if parts is None or is_padded(src, pixels):  # statistics would count it
            return None
        channels_follow = any(part.dim in pixels for part in takewhile(lambda part: part.dim != 1, parts))
        normal = _Normal(src.dtype, self.epsilon, attr, problem.n_threads)
        steps = normal.steps(runs(parts, pixels), _MOST_IMAGES if channels_follow else 1)
        if steps is None:
            return None
        rows = src.resized((*src.dims[:2], *(1,) * (src.ndims - 2)), "f32")
        plain = ir.Recipe(steps, (), (("src", src), ("dst", dst), ("scale", rows), ("shift", rows)))
        return _with_computed_vectors(plain, rows, problem)

    def alternatives(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> tuple[ir.Recipe, ...]:
        return by_groups(problem.dst.dims[1], self.epsilon, problem, wish, attr)


def _backward(call: ir.Called, n_groups: int) -> Any:
    (x, scale, _), epsilon = call.sources, call.node.float_attr("epsilon", 1e-5)
    (n, n_channels, *spatial), rows = x.shape, (x.shape[0], n_groups, x.shape[1] // n_groups)
    column = (n_channels, *(1 for _ in spatial))
    if scale.shape != (n_channels,):
        return "vectors of groups have no gradient here; give one number for each channel"

    def mean(t: Any) -> Any:
        """Over each channel's pixels, and then over the channels of a group, which are few numbers."""
        means = t.reduce_mean(range(2, t.ndim)) if spatial else t
        if n_groups == n_channels:
            return means
        return means.reshape(rows).reduce_mean((2,)).expand(rows).reshape((n, *column)).to(memory_format=means.desc)

    def gradients(_: Any, grad: Any) -> Iterator[Any]:
        of_x, of_scale = of_normalized(grad, x, scale.reshape(column), epsilon, mean)
        yield from (of_x, of_channels(of_scale), of_channels(grad))

    return gradients


def _with_computed_vectors(recipe: ir.Recipe, rows: MemoryDesc, problem: ir.Problem) -> ir.Recipe:
    """The recipe behind copies of computed scales and shifts, one for each image."""
    computed = {name: f"{name}_rows" for name in ("scale", "shift") if name in problem.sources}
    whole, steps = dict(recipe.whole), []
    for name, copied in computed.items():
        vector = MemoryDesc(problem.sources[name].dims, problem.sources[name].dtype)
        repeated = MemoryDesc(rows.dims, vector.dtype, strides=(0, 1, *(0 for _ in rows.dims[2:])))
        spec = dnnl.reorder(repeated, rows, n_threads=problem.n_threads)
        steps.append(ir.RecipeStep(spec, (("dst", copied), ("src", name))))
        whole[name] = vector
    for step in recipe.steps:
        operands = tuple((arg, computed.get(name, name)) for arg, name in step.operands)
        steps.append(replace(step, operands=operands))
    return ir.Recipe(tuple(steps), tuple((copied, rows) for copied in computed.values()), tuple(whole.items()))


_FIRST_OPSET_OF_CHANNELS = 21
"""Before it, scale and bias were given for each group."""

_WITHIN = -1
"""Stands for the channels of a group as a dimension."""


class GroupNormalization(Follower, frozen=True):
    """Normalises groups of channels; scale and shift are of channels, or of groups if ``is_per_group``."""

    op_types = ("GroupNormalization",)
    needs = (is_source(2, 12), has_f32_statistics, is_known(1, "scale"), is_known(2, "bias"))

    n_groups: int
    epsilon: float
    is_per_group: bool

    backward = staticmethod(
        lambda call: _backward(call, int(call.node.attrs.get("n_groups") or call.node.attrs["num_groups"]))
    )

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src = node.required(0, "X")
        n_images, n_channels = src.shape[:2]
        n_groups = node.int_attr("num_groups", 0)
        if n_groups < 1 or n_channels % n_groups:
            raise node.wrong(f"attribute num_groups is {n_groups}", f"it must divide {n_channels} channels")
        vectors, n = {}, n_groups if node.opset < _FIRST_OPSET_OF_CHANNELS else n_channels
        for index, (name, onnx_name) in enumerate({"scale": "scale", "shift": "bias"}.items(), start=1):
            vector = node.known(node.required(index, onnx_name), onnx_name)
            if vector.shape != (n,):
                what = f"{onnx_name} has extents {list(vector.shape)}"
                raise node.wrong(what, f"opset {node.opset} makes them [{n}]")
            vectors[name] = np.repeat(vector, n_channels // n).reshape(n_groups, n_channels // n_groups)
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

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        parts = self._parts(src)
        if parts is None:
            return None
        own_attr = attr if self.is_per_group else dnnl.Attr()
        normal = _Normal(src.dtype, self.epsilon, own_attr, problem.n_threads, self.is_per_group)
        steps = normal.steps(runs(parts, {_WITHIN, *range(2, src.ndims)}), most_images=1)
        if steps is None:
            return None
        if self.is_per_group:  # one number for each group of each image, in the order in which they lie
            order = "ba" if [part.dim for part in parts if part.dim in (0, 1)] == [1, 0] else "ab"
            vector = MemoryDesc((src.dims[0], self.n_groups), "f32", order)
        else:
            vector = dst.resized(argument(problem, "scale").dims, "f32")
            last = affine_step(dst, vector, attr, problem.n_threads)
            if last is None:
                return None
            steps = (*steps, last)
        return ir.Recipe(steps, (), (("src", src), ("dst", dst), ("scale", vector), ("shift", vector)))

    def alternatives(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> tuple[ir.Recipe, ...]:
        return by_groups(self.n_groups, self.epsilon, problem, wish, attr)

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
