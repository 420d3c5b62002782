"""One primitive's problem, in every combination of layouts worth asking oneDNN about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.errors import InputError
from blocklayout.ir import TensorInfo, wished_desc

if TYPE_CHECKING:
    from blocklayout.dnnl import AnyDesc, Desc, Spec

ANY = "any"

Ask = tuple[str, "Spec"]
"""The problem in words, and as a Spec."""


class Window(Struct, frozen=True):
    """How a window moves, in ONNX's words: a dilation of 1 is dense; one number serves all dimensions."""

    strides: tuple[int, ...] = (1,)
    pads: tuple[int, ...] = (0,)
    dilations: tuple[int, ...] = (1,)

    @property
    def skipped(self) -> int | tuple[int, ...]:
        """The dilations in oneDNN's words: elements between taps.

        Raises:
            InputError: A dilation of 0.
        """
        if min(self.dilations) < 1:
            raise InputError("--dilations: 1 is a dense kernel; give numbers of at least 1")
        return one_or_all(tuple(dilation - 1 for dilation in self.dilations))


def one_or_all(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """A single number stands for all dimensions."""
    return numbers[0] if len(numbers) == 1 else numbers


class Asker(Struct, frozen=True):
    """Puts layouts to extents.

    Attributes:
        dtype: Data type of all tensors.
        n_threads: Threads it will run on.
        blocks: Names of the blocked layouts this CPU has kernels for.
    """

    dtype: str
    n_threads: int
    blocks: tuple[str, ...]

    @property
    def layouts(self) -> tuple[str, ...]:
        """Names of the layouts to ask for."""
        return ("plain", "channels_last", *self.blocks)

    def convolution(
        self, src: tuple[int, ...], weights: tuple[int, ...], window: Window, groups: int = 1
    ) -> Iterator[Ask]:
        """A convolution, its favourite first; the weights' layout is always the implementation's to choose.

        Args:
            src: Extents (N, IC, spatial...).
            weights: Extents (OC, IC/groups, kernel...).
            window: How the kernel moves.
            groups: Groups of channels.

        Raises:
            InputError: The output channels do not make so many groups.
            InvalidArgumentsError: Extents that do not fit each other.
        """
        dims = grouped(weights, groups)

        def make(source: Desc, dst: Desc | None, prop_kind: str) -> Spec:
            return dnnl.convolution(
                source,
                self._any(dims),
                dst,
                strides=one_or_all(window.strides),
                pads=one_or_all(window.pads),
                dilations=window.skipped,
                prop_kind=prop_kind,
                n_threads=self.n_threads,
            )

        favourite = make(self._any(src), None, "forward_inference")
        yield ANY, favourite
        yield "any, for training", make(self._any(src), None, "forward_training")
        dst_dims = favourite.desc("dst").dims
        for source in (ANY, *self.layouts):
            for dst in (ANY, *self.layouts):
                descs = self._desc(source, src), self._desc(dst, dst_dims)
                yield f"{source} to {dst}", make(*descs, "forward_inference")

    def matmul(self, src: tuple[int, ...], weights: tuple[int, ...]) -> Iterator[Ask]:
        """A product of matrices: favourite layouts, and each operand as it is or transposed."""
        yield ANY, dnnl.matmul(self._any(src), self._any(weights), n_threads=self.n_threads)
        for left in _matrix_tags(len(src)):
            for right in (ANY, *_matrix_tags(len(weights))):
                descs = self._desc(left, src), self._desc(right, weights)
                yield f"{left} by {right}", dnnl.matmul(*descs, n_threads=self.n_threads)

    def pooling(self, src: tuple[int, ...], algorithm: str, kernel: tuple[int, ...], window: Window) -> Iterator[Ask]:
        """A pooling in each layout; it keeps the one that comes."""
        for layout in self.layouts:
            yield (
                layout,
                dnnl.pooling(
                    self._desc(layout, src),
                    None,
                    algorithm,
                    one_or_all(kernel),
                    one_or_all(window.strides),
                    one_or_all(window.pads),
                    window.skipped,
                    n_threads=self.n_threads,
                ),
            )

    def eltwise(self, src: tuple[int, ...], algorithm: str) -> Iterator[Ask]:
        """A function of each element in each layout; it keeps the one that comes."""
        for layout in self.layouts:
            yield layout, dnnl.eltwise(self._desc(layout, src), algorithm=algorithm, n_threads=self.n_threads)

    def _any(self, dims: tuple[int, ...]) -> AnyDesc:
        return dnnl.AnyDesc(dims, self.dtype)

    def _desc(self, layout: str, dims: Sequence[int]) -> Desc:
        return wished_desc(layout, TensorInfo(tuple(dims), self.dtype))


def grouped(weights: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """ONNX's extents of a convolution's weights as oneDNN writes them.

    Raises:
        InputError: The output channels do not make so many groups.

    Example:
        >>> grouped((64, 1, 3, 3), 64)
        (64, 1, 1, 3, 3)
    """
    if groups == 1:
        return weights
    if not weights or weights[0] % groups:
        raise InputError(f"--groups {groups}: the {weights[0] if weights else 0} output channels are no multiple of it")
    return (groups, weights[0] // groups, *weights[1:])


def _matrix_tags(ndims: int) -> tuple[str, str]:
    """Row-major, and with the last two dimensions exchanged."""
    letters = "abcdefghijkl"[:ndims]
    return letters, letters[:-2] + letters[:-3:-1]
