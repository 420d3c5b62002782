"""Mean 0 and variance 1 along some digits of a dense tensor, and a scale and a shift for each of the others.

Rows are normalised by layer normalisation. Where elements of several rows alternate it is batch normalisation that
computes its own statistics, those of a channel over the batch and the pixels: the tensor is seen as one image, with
a channel for whatever is normalised on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.ir import Problem, Recipe, RecipeStep, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed, plain
from blocklayout.ops._mixed_radix import Run, as_rows
from blocklayout.ops._padded import are_eltwise

_MOST_IMAGES = 16
"""Each is a step of its own where channels are the innermost."""


class Standardization(Struct, frozen=True):
    """A normalisation.

    Attributes:
        found: Runs of digits; those along which statistics are computed are marked.
        dtype: Data type of source and destination.
        epsilon: Added to the variance.
        has_vectors: Whether the operands ``scale`` and ``shift`` have one element for each of the unmarked digits,
            in the order in which those lie; without, mean 0 and variance 1 are all.
        has_images: Whether these are the same for everything that lies before the marked run.
    """

    found: Sequence[Run]
    dtype: str
    epsilon: float
    has_vectors: bool = True
    has_images: bool = True

    def steps(self, attr: dnnl.Attr, n_threads: int) -> tuple[RecipeStep, ...] | None:
        """Primitives that normalise ``src`` to ``dst``; ``None`` where there are none, or too many.

        Args:
            attr: Post-ops.
            n_threads: Threads they will run on.
        """
        rows = as_rows(self.found)
        if rows is not None:
            return self._rows(*rows, attr, n_threads)
        flags = tuple(run.is_marked for run in self.found)
        extents = [run.extent for run in self.found]
        if flags == (True, False):
            return self._images(1, extents[0], extents[1], attr, n_threads)
        if flags == (False, True, False):
            return self._images(extents[0], extents[1], extents[2], attr, n_threads)
        return None

    def _rows(self, n: int, length: int, attr: dnnl.Attr, n_threads: int) -> tuple[RecipeStep, ...] | None:
        if attr.post_ops and not self.has_vectors:
            return None
        rows = MemoryDesc((n, length), self.dtype)
        spec = dnnl.layer_normalization(rows, rows, self.epsilon, n_threads=n_threads)
        first = RecipeStep(spec, (("dst", "dst"), ("src", "src")))
        if not self.has_vectors:
            return (first,)
        step = affine_step(MemoryDesc((1, n, length), self.dtype), MemoryDesc((1, n, 1)), attr, n_threads)
        return None if step is None else (first, step)

    def _images(
        self, lead: int, window: int, inner: int, attr: dnnl.Attr, n_threads: int
    ) -> tuple[RecipeStep, ...] | None:
        # Another post-op than a ReLU has no kernel.
        if any(post_op != dnnl.Eltwise("relu") for post_op in attr.post_ops):
            return None
        if inner in _blocks():
            images = [MemoryDesc((1, lead * inner, window), self.dtype, f"aBc{inner}b")]
        elif lead <= (_MOST_IMAGES if self.has_images else 1):
            images = list(_slices(lead, window, inner, self.dtype))
        else:
            return None
        names = ("scale", "shift") if self.has_vectors else ()
        flags = [f"use_{name}" for name in names]
        operands = tuple((name, name) for name in ("dst", "src", *names))
        specs = (dnnl.batch_normalization(i, i, self.epsilon, flags, attr=attr, n_threads=n_threads) for i in images)
        return tuple(RecipeStep(spec, operands) for spec in specs)


def affine_step(dst: MemoryDesc, vector: MemoryDesc, attr: dnnl.Attr, n_threads: int) -> RecipeStep | None:
    """``dst * scale + shift`` in place, and post-ops that need no operand.

    ``None`` with other post-ops, and in blocks that are not as wide as a register: there is a reference only.
    """
    if not are_eltwise(attr.post_ops):
        return None
    functions = dnnl.Attr((dnnl.Binary("add", vector), *attr.post_ops))
    spec = dnnl.binary(dst, vector, dst, "mul", attr=functions, n_threads=n_threads)
    if dst.inner_blks and not dnnl.has_optimised(spec):
        return None
    operands = (("dst", "dst"), ("post_op_0_src_1", "shift"), ("src_0", "dst"), ("src_1", "scale"))
    return RecipeStep(spec, operands)


def by_groups(n_groups: int, epsilon: float, problem: Problem, wish: Wish, attr: dnnl.Attr) -> tuple[Recipe, ...]:
    """Group normalisation as one primitive, in layouts whose groups do not lie together, too.

    Its scale and shift have extents (C,), (N or 1, C or groups), or these and ones behind them.
    """
    descs = followed(problem, wish, argument(problem, "src"))
    if descs is None:
        return ()
    whole = {name: plain(argument(problem, name)) for name in ("scale", "shift")}
    scale, shift = (
        MemoryDesc((1, *desc.dims) if desc.ndims == 1 else desc.dims[:2], desc.dtype) for desc in whole.values()
    )
    spec = dnnl.group_normalization(*descs, scale, shift, n_groups, epsilon, attr=attr, n_threads=problem.n_threads)
    return (Recipe.single(spec, whole=whole.items()),)


def _blocks() -> tuple[int, ...]:
    """Blocks of channels that batch normalisation is fast on."""
    return (8, 16) if dnnl.isa().startswith("avx512") else (8,)


def _slices(lead: int, window: int, inner: int, dtype: str) -> Iterator[MemoryDesc]:
    for index in range(lead):
        yield MemoryDesc((1, inner, window), dtype, "acb", offset=index * window * inner)
