"""Transposed convolution, which oneDNN calls deconvolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Lowered,
    NodeInfo,
    Problem,
    Recipe,
    RecipeStep,
    Refusal,
    Role,
    TapSums,
    Window,
    Wish,
)
from blocklayout.ir.result_format import Followed, dominating, is_plain
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, plain, plain_if_any
from blocklayout.ops._needs import is_source
from blocklayout.ops._rows import of_source
from blocklayout.ops._window import AUTO_PADS
from blocklayout.ops.conv import Conv, check_bias, check_weights


class ConvTranspose(BaseOperator, frozen=True):
    """Transposed convolution of one to three spatial dimensions, in groups.

    Attributes:
        window: Of the convolution that it transposes; its end pads give the destination its extents.
        n_groups: How many parts the channels are in, each computed on its own.
    """

    op_types = ("ConvTranspose",)
    role = Role.CHOOSER
    needs = (is_source(3, 5),)

    window: Window
    n_groups: int = 1

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src = node.required(0, "X")
        weights, bias = node.required(1, "W"), node.input(2)
        n_groups = node.int_attr("group", 1)
        check_weights(node, src, weights, n_groups, channels_axis=0)
        check_bias(node, bias, weights.shape[1] * n_groups)
        if weights.shape[0] % n_groups:
            raise node.wrong(f"attribute group is {n_groups}", f"it must divide {weights.shape[0]} input channels")
        window = _read_transposed(node, weights.shape[2:], src.shape[2:])
        if isinstance(window, Refusal):
            return window
        arrays = {} if weights.data is None else {"weights": by_output_channel(weights.data, n_groups)}
        return cls(window, n_groups).bind({"src": src, "weights": weights, "bias": bias}, arrays)

    @classmethod
    def aligned_scale(cls, node: NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        # Input channels come first, group by group; each group computes its own slice of the output channels.
        n_inputs, n_outputs, *spatial = node.shape(1)
        group = node.attrs.get("group", 1)
        of_input = np.repeat(scale.reshape(group, n_outputs), n_inputs // group, axis=0)
        return of_input.reshape(n_inputs, n_outputs, *(1,) * len(spatial))

    @classmethod
    def result_format(cls, operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
        """As of a convolution; of channels-last weights the outermost channels may be the source's or the result's."""
        source, weights = operands[:2]
        group = weights.ndims - source.ndims
        swapped = (*range(group), group + 1, group, *range(group + 2, weights.ndims))
        found = dominating(operands, dims, dtype)
        return dominating((source, weights.permuted(swapped)), dims, dtype) if is_plain(found.desc) else found

    keeps_rows = staticmethod(of_source)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        weights = argument(problem, "weights")
        seen: dnnl.Desc = dnnl.AnyDesc(weights.dims, weights.dtype)
        whole: tuple[tuple[str, MemoryDesc], ...] = ()
        if "weights" in problem.sources and len(weights.dims) == len(problem.dst.dims):
            # Computed at run time in ONNX's dimensions, and seen in oneDNN's over the same bytes.
            whole = (("weights", plain(weights)),)
            seen = _by_output_channel(plain(weights), self.n_groups)
        dst, bias = wish.dst_desc(problem.dst), plain_if_any(problem, "bias")

        def deconvolution(bias: MemoryDesc | None, attr: dnnl.Attr) -> dnnl.Spec:
            return dnnl.deconvolution(
                wish.src_desc(argument(problem, "src")),
                seen,
                dst,
                bias,
                strides=self.window.strides,
                pads=self.window.pads,
                dilations=self.window.dnnl_dilations,
                prop_kind=wish.prop_kind,
                attr=attr,
                n_threads=problem.n_threads,
            )

        if bias is None or not isinstance(dst, MemoryDesc) or not self._is_fast_without_bias(dst):
            return Recipe.single(deconvolution(bias, attr), whole=whole)
        product = deconvolution(None, dnnl.Attr())
        first = RecipeStep(product, (("dst", "product"), ("src", "src"), ("weights", "weights")))
        steps = first, _bias_step(bias, dst, attr, problem.n_threads)
        return Recipe(steps, (("product", dst),), (*whole, ("bias", bias)))

    def _is_fast_without_bias(self, dst: MemoryDesc) -> bool:
        """Whether the library's fast implementation in this layout is passed over where it has a bias to add.

        It adds to partial sums where a strided kernel is large: ``dnnl/primitives/deconvolution.py``.
        """
        is_strided = any(k > s > 1 for k, s in zip(self.window.kernel, self.window.strides, strict=True))
        return is_strided and not dst.inner_blks and not dst.is_contiguous()


def _bias_step(bias: MemoryDesc, dst: MemoryDesc, attr: dnnl.Attr, n_threads: int) -> RecipeStep:
    """The sum of ``product`` and a bias, and post-ops."""
    channels = bias.reshaped((1, *bias.dims, *(1,) * (dst.ndims - 2)))
    spec = dnnl.binary(dst, channels, dst, "add", attr=attr, n_threads=n_threads)
    names = {"src_0": "product", "src_1": "bias"}
    return RecipeStep(spec, tuple((arg, names.get(arg, arg)) for arg, _ in sorted(spec.descs)))


def by_output_channel(weights: np.ndarray, n_groups: int) -> np.ndarray:
    """A view of ONNX's (channels in, channels out of a group, ...) in oneDNN's order of dimensions.

    Example:
        >>> import numpy as np
        >>> by_output_channel(np.zeros((6, 4, 3, 3)), n_groups=2).shape
        (2, 4, 3, 3, 3)
    """
    if n_groups == 1:
        return weights.swapaxes(0, 1)
    return weights.reshape(n_groups, weights.shape[0] // n_groups, *weights.shape[1:]).swapaxes(1, 2)


def over_repeated(conv: Conv, repeats: tuple[int, ...], problem: Problem) -> tuple[ConvTranspose, TapSums] | None:
    """The deconvolution of a tensor that is a convolution of it with every element repeated, and its weights.

    Args:
        conv: The convolution.
        repeats: How often each element stands in a row, along each spatial dimension.
        problem: The convolution's.

    Returns:
        ``None`` where it takes steps, pads more than it reaches, or its weights are computed at run time.
    """
    window, ndims = conv.window, len(repeats)
    pads = tuple(reach - 1 - pad for reach, pad in zip(window.reach * 2, window.pads, strict=True))
    if max(window.strides) > 1 or min(pads) < 0 or "weights" not in problem.constants:
        return None
    sums = TapSums(repeats, window.dilations)
    transposed = Window(sums.dims(window.kernel), repeats, pads[:ndims], pads[ndims:], (1,) * ndims)
    return ConvTranspose(transposed, conv.n_groups), sums


def _by_output_channel(weights: MemoryDesc, n_groups: int) -> MemoryDesc:
    """The same of weights that are not known yet."""
    dims = weights.dims
    if n_groups == 1:
        return weights.permuted((1, 0, *range(2, len(dims))))
    grouped = weights.reshaped((n_groups, dims[0] // n_groups, *dims[1:]))
    return grouped.permuted((0, 2, 1, *range(3, len(dims) + 1)))


def _read_transposed(node: NodeInfo, kernel: tuple[int, ...], spatial: tuple[int, ...]) -> Window | Refusal:
    ndims = len(kernel)
    strides = node.ints_attr("strides", ndims, 1, at_least=1)
    dilations = node.ints_attr("dilations", ndims, 1, at_least=1)
    extra = node.ints_attr("output_padding", ndims, 0, at_least=0)
    window = Window(kernel, strides, (0,) * ndims, (0,) * ndims, dilations)
    full = tuple((n - 1) * s + r + e for n, s, r, e in zip(spatial, strides, window.reach, extra, strict=True))
    begin, dst = _begin_and_extents(node, full, spatial, strides)
    node.check_result((*node.result.shape[:2], *dst), f"the window gives {list(dst)}")
    # The library derives the destination from the pads, so output_padding becomes a smaller end pad.
    end = tuple(f - e - b - n for f, e, b, n in zip(full, extra, begin, dst, strict=True))
    if min(dst) < 1 or min(begin) < 0 or any(e + s < 0 for e, s in zip(end, strides, strict=True)):
        return node.refused(f"pads {list(begin + end)} are negative", "the output must not exceed the windows")
    return Window(kernel, strides, begin, end, dilations)


def _begin_and_extents(
    node: NodeInfo, full: tuple[int, ...], spatial: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads before the destination, and its extents; ``full`` are those without any pads."""
    ndims = len(full)
    auto_pad = node.string_attr("auto_pad", AUTO_PADS)
    if node.attrs.get("output_shape"):
        # ONNX files hold the spatial extents here; batch and channels may precede them.
        dst = tuple(int(extent) for extent in node.attrs["output_shape"])[-ndims:]
    elif auto_pad.startswith("SAME"):
        dst = tuple(extent * stride for extent, stride in zip(spatial, strides, strict=True))
    else:
        pads = node.ints_attr("pads", 2 * ndims, 0, at_least=0) if auto_pad == "NOTSET" else (0,) * (2 * ndims)
        dst = tuple(f - b - e for f, b, e in zip(full, pads[:ndims], pads[ndims:], strict=True))
        return pads[:ndims], dst
    totals = [max(f - n, 0) for f, n in zip(full, dst, strict=True)]
    if auto_pad == "SAME_UPPER":
        return tuple(total // 2 for total in totals), dst
    return tuple(total - total // 2 for total in totals), dst
