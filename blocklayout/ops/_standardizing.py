"""Mean 0 and variance 1 along some digits of a dense tensor: batch normalisation that computes its own statistics.

Statistics of batch normalisation are those of a channel over the batch and the pixels. So a tensor seen as one image,
with a channel for whatever is normalised on its own, is normalised in one primitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blocklayout import dnnl
from blocklayout.kernels import RecipeStep
from blocklayout.layout import MemoryDesc
from blocklayout.ops._digits import Run

_MOST_IMAGES = 16
"""Each is a step of its own where channels are the innermost."""


@dataclass(frozen=True)
class Standardization:
    """What to normalise.

    Attributes:
        found: Runs of digits; those along which statistics are computed are marked.
        dtype: Data type of source and destination.
        epsilon: Added to the variance.
        vectors: ``scale`` and ``shift``, which of them there are: one element for each of the unmarked digits,
            in the order in which those lie.
        has_images: Whether the vectors are the same for everything that lies before the marked run.
    """

    found: Sequence[Run]
    dtype: str
    epsilon: float
    vectors: Sequence[str] = ()
    has_images: bool = True


def standardizing_steps(what: Standardization, attr: dnnl.Attr, n_threads: int) -> tuple[RecipeStep, ...] | None:
    """Primitives that normalise the marked runs; ``None`` where they would be too many.

    Args:
        what: The digits and the vectors.
        attr: Post-ops.
        n_threads: Threads they will run on.
    """
    images = _images(what)
    if images is None:
        return None
    flags = [f"use_{name}" for name in what.vectors]
    names = ("dst", "src", *what.vectors)
    specs = (
        dnnl.batch_normalization(image, image, what.epsilon, flags, attr=attr, n_threads=n_threads) for image in images
    )
    return tuple(RecipeStep(spec, tuple((name, name) for name in names)) for spec in specs)


def _images(what: Standardization) -> list[MemoryDesc] | None:
    """The tensor as one image of three dimensions, or parts of it where one is not enough."""
    flags, dtype = tuple(run.is_marked for run in what.found), what.dtype
    extents = [run.extent for run in what.found]
    if flags in ((), (False,), (False, True)):
        lead, window = (*extents, 1, 1)[:2]
        return [MemoryDesc((1, lead, window), dtype)]
    if flags == (True,):
        return [MemoryDesc((1, 1, extents[0]), dtype)]
    if flags == (True, False):
        flags, extents = (False, True, False), [1, *extents]
    if flags != (False, True, False):
        return None
    lead, window, inner = extents
    if inner in _blocks():
        return [MemoryDesc((1, lead * inner, window), dtype, f"aBc{inner}b")]
    if lead > (_MOST_IMAGES if what.has_images else 1):
        return None
    return list(_slices(lead, window, inner, dtype))


def _blocks() -> tuple[int, ...]:
    """Blocks of channels that batch normalisation is fast on."""
    return (8, 16) if dnnl.isa().startswith("avx512") else (8,)


def _slices(lead: int, window: int, inner: int, dtype: str) -> Iterator[MemoryDesc]:
    for index in range(lead):
        yield MemoryDesc((1, inner, window), dtype, "acb", offset=index * window * inner)


def takes_post_ops(attr: dnnl.Attr) -> bool:
    """Whether batch normalisation computes these post-ops, and they keep zero: ReLU only."""
    return all(post_op == dnnl.Eltwise("relu") for post_op in attr.post_ops)
