"""Recipes and candidates: the ways to compute a kernel, and a tile of kernels with every layout decided, as data.

Weights that are made of others when they are packed are part of a recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from blocklayout.dnnl import Spec, is_reference
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.encoding import Either
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.ir.host_spec import HostSpec


class TapSums(Struct, frozen=True, tag=True):
    """Weights with which a deconvolution of a tensor is another's convolution of it with each element repeated.

    The convolution multiplies an element by several taps for one result, since it meets it several times in a row.
    Here these taps are one, their sum.

    Attributes:
        repeats: How often each element stands in a row, along each spatial dimension.
        dilations: Distance between two taps of the convolution; 1 is dense.
    """

    repeats: tuple[int, ...]
    dilations: tuple[int, ...]

    def dims(self, weights: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of the sums, of those of the weights, whose last are spatial."""
        n_channels = len(weights) - len(self.repeats)
        spatial = zip(weights[n_channels:], self.repeats, self.dilations, strict=True)
        return *weights[:n_channels], *((k - 1) * d + n for k, n, d in spatial)

    def of(self, weights: np.ndarray) -> np.ndarray:
        """The sums, in f32 at least, of weights in any strides.

        Example:
            >>> TapSums((2,), (1,)).of(np.array([[[1, 10, 100]]], np.float32))
            array([[[100., 110.,  11.,   1.]]], dtype=float32)
        """
        first = weights.ndim - len(self.repeats)
        sums = np.flip(weights, tuple(range(first, weights.ndim)))
        for axis, n_repeats, distance in zip(range(first, weights.ndim), self.repeats, self.dilations, strict=True):
            taps = np.moveaxis(sums, axis, 0)
            reach = (len(taps) - 1) * distance + 1
            made = np.zeros((reach + n_repeats - 1, *taps.shape[1:]), np.result_type(taps.dtype, np.float32))
            for place in range(n_repeats):
                made[place : place + reach : distance] += taps
            sums = np.moveaxis(made, 0, axis)
        return sums


class TapsAsChannels(Struct, frozen=True, tag=True):
    """Weights with which a convolution goes on by one pixel where another goes on by several.

    Pixels in a row are one with as many channels, those of the first one first; so are the weights' taps, and zeros
    fill the first and the last of them.

    Attributes:
        stride: How many pixels are one, of the last spatial dimension.
        before: Zeros in front.
        n_taps: How many there are then.
    """

    stride: int
    before: int
    n_taps: int

    def dims(self, weights: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of these weights, of those of the others, (OC, IC, kernel...)."""
        return weights[0], weights[1] * self.stride, *weights[2:-1], self.n_taps

    def of(self, weights: np.ndarray) -> np.ndarray:
        """These weights, of the others.

        Example:
            >>> TapsAsChannels(2, 1, 2).of(np.array([[[1, 2, 3]]], np.float32))
            array([[[0., 2.],
                    [1., 3.]]], dtype=float32)
        """
        behind = self.stride * self.n_taps - self.before - weights.shape[-1]
        around = [(0, 0)] * (weights.ndim - 1) + [(self.before, behind)]
        taps = np.pad(weights, around).reshape(*weights.shape[:-1], self.n_taps, self.stride)
        return np.moveaxis(taps, -1, 1).reshape(self.dims(weights.shape))


_TO_WINOGRAD_DOMAIN = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)


class WinogradWeights(Struct, frozen=True, tag=True):
    """Weights of 3x3 windows in Winograd's domain: 4x4 numbers, each multiplied once for a tile of 2x2 results.

    Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016: G of F(2x2, 3x3).
    """

    def dims(self, weights: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of these, (OC, IC, 4, 4), of those of the others."""
        return *weights[:-2], *(extent + 1 for extent in weights[-2:])

    def of(self, weights: np.ndarray) -> np.ndarray:
        """These weights, in f32, of the others.

        Example:
            >>> WinogradWeights().of(np.array([[1, 2, 4], [0, 0, 0], [0, 0, 0]], np.float32)).tolist()
            [[1.0, 3.5, 1.5, 4.0], [0.5, 1.75, 0.75, 2.0], [0.5, 1.75, 0.75, 2.0], [0.0, 0.0, 0.0, 0.0]]
        """
        of_both = np.kron(_TO_WINOGRAD_DOMAIN, _TO_WINOGRAD_DOMAIN)  # one product: of small matrices numpy is slow
        taps = weights.reshape(-1, of_both.shape[1]).astype(np.float32, copy=False)
        return (taps @ of_both.T).reshape(self.dims(weights.shape))


MadeWeights = TapSums | TapsAsChannels | WinogradWeights
"""How weights are made of others."""


class Fused(Struct, frozen=True):
    """In place of the layout of a value that is never stored: its reader computes on without it.

    No copy leads to it or from it. Equal ones belong to one way of fusing the value's producer with its reader.

    Attributes:
        held: The layout in which the primitive holds the value, or would if it needed it.
        impl: The primitive's implementation.
    """

    held: MemoryDesc
    impl: str

    @property
    def dtype(self) -> str:
        """Data type of the value."""
        return self.held.dtype


if TYPE_CHECKING:
    ValueLayout = MemoryDesc | Fused
else:
    ValueLayout = Either.of(MemoryDesc, Fused)


def readable_as(written: ValueLayout, wanted: ValueLayout) -> bool:
    """Whether a value that was left so may be read so without a copy; a fused one by its other half alone."""
    if isinstance(written, MemoryDesc) and isinstance(wanted, MemoryDesc):
        return written.readable_as(wanted)
    return written == wanted


def layout_name(layout: ValueLayout) -> str:
    """Name of a value's layout, such as ``nChw16c``; ``fused`` where it has none."""
    return "fused" if isinstance(layout, Fused) else layout.named("src")


class RecipeStep(Struct, frozen=True):
    """One primitive of a recipe, or what numpy does in its place.

    Attributes:
        spec: A primitive's may still leave layouts to the primitive.
        operands: ``(argument of the primitive, operand of the recipe)`` pairs. Operands are the
            kernel's source and constant arguments, ``dst``, and names of temporaries.
        scratchpad_nbytes: Scratchpad the primitive needs, once the Spec is resolved.
    """

    spec: Spec | HostSpec
    operands: tuple[tuple[str, str], ...]
    scratchpad_nbytes: int = 0

    @property
    def is_reference(self) -> bool:
        """Whether it runs an unoptimised reference implementation."""
        return is_reference(self.spec.impl, has_post_ops=bool(self.spec.attr.post_ops))


class Recipe(Struct, frozen=True):
    """One or more primitives in a row that compute a kernel, and buffers between them.

    Attributes:
        whole: The layout of an operand that the steps see in another way: parts of it, or the same bytes
            under other extents. The layout of any other operand is that of the argument it is bound to.
        made: Of constants that are made of the kernel's, how, by operand.
    """

    steps: tuple[RecipeStep, ...]
    temporaries: tuple[tuple[str, MemoryDesc], ...] = ()
    whole: tuple[tuple[str, MemoryDesc], ...] = ()
    made: tuple[tuple[str, MadeWeights], ...] = ()

    @classmethod
    def single(
        cls, spec: Spec, operands: Mapping[str, str] | None = None, whole: Iterable[tuple[str, MemoryDesc]] = ()
    ) -> Recipe:
        """A recipe of one primitive whose arguments are the kernel's own, unless renamed."""
        names = {name: name for name, _ in spec.descs} | dict(operands or {})
        return cls((RecipeStep(spec, tuple(sorted(names.items()))),), whole=tuple(whole))


class Candidate(Struct, frozen=True, dict=True, kw_only=True):
    """One way to compute a tile; layouts by operand, sources' being demanded.

    Attributes:
        origin: The wish it comes from, such as ``any`` or ``blocked8``.
        constants: The layout each constant is packed in.
        made: Of constants that are made of the tile's, how.
        steps: Primitives in order, with resolved Specs; none for a view.
        temporaries: Buffers between the steps, by name.
        alias: The source operand whose buffer the result overwrites, if any.
        rank: Which choice of the library's this is for the layouts that were asked for; 0 is its own favourite.
        others: The layouts of further results, by argument.
        slices: Operands, sources or temporaries, whose buffers are parts of the result's, and the bytes before
            each: the producer of such a source writes it there.
        offset: Of a view, elements of the source before the first one of the result, which ``dst`` leaves out.
    """

    sources: tuple[tuple[str, ValueLayout], ...]
    dst: ValueLayout
    origin: str
    constants: tuple[tuple[str, MemoryDesc], ...] = ()
    made: tuple[tuple[str, MadeWeights], ...] = ()
    steps: tuple[RecipeStep, ...] = ()
    temporaries: tuple[tuple[str, MemoryDesc], ...] = ()
    alias: str | None = None
    rank: int = 0
    others: tuple[tuple[str, MemoryDesc], ...] = ()
    slices: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @cached_property
    def is_reference(self) -> bool:
        """Whether a step runs an unoptimised reference implementation."""
        return any(step.is_reference for step in self.steps)

    @cached_property
    def reads_bytes(self) -> bool:
        """Whether some source lies as bytes."""
        return any(isinstance(layout, MemoryDesc) and layout.dtype in BYTE_DTYPES for _, layout in self.sources)

    @cached_property
    def is_fused(self) -> bool:
        """Whether it is half of what another candidate runs, or runs half of another's."""
        return any(isinstance(layout, Fused) for layout in (self.dst, *self.source_descs.values()))

    @cached_property
    def source_descs(self) -> dict[str, ValueLayout]:
        """The layout demanded of each source, by operand."""
        return dict(self.sources)
