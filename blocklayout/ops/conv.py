"""Convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Lowered,
    NodeInfo,
    Padding,
    Problem,
    Recipe,
    Role,
    TapsAsChannels,
    TensorInfo,
    Value,
    Window,
    Wish,
    in_blocks,
    wished_desc,
)
from blocklayout.ir.result_format import dominating
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, as_one_image, plain, plain_if_any
from blocklayout.ops._needs import is_source
from blocklayout.ops._padded import are_eltwise
from blocklayout.ops._rows import of_source
from blocklayout.ops._window import check_extents, padded_window, read_window

if TYPE_CHECKING:
    from collections.abc import Sequence


class Conv(BaseOperator, frozen=True):
    """Convolution of one to three spatial dimensions, in groups.

    Attributes:
        window: The kernel's extents and how it slides.
        n_groups: How many parts the channels are in, each computed on its own.
    """

    op_types: ClassVar[tuple[str, ...]] = ("Conv",)
    role: ClassVar[Role] = Role.CHOOSER
    needs = (is_source(3, 5),)

    window: Window
    n_groups: int = 1

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = node.required(0, "X")
        weights, bias = node.required(1, "W"), node.input(2)
        n_groups = node.int_attr("group", 1)
        check_weights(node, src, weights, n_groups, channels_axis=1)
        check_bias(node, bias, weights.shape[0])
        if weights.shape[0] % n_groups:
            raise node.wrong(f"attribute group is {n_groups}", f"it must divide {weights.shape[0]} output channels")
        window = read_window(node, weights.shape[2:], src.shape[2:])
        check_extents(node, window.extents(src.shape[2:]))
        operator, arguments = cls(window, n_groups), {"src": src, "weights": weights, "bias": bias}
        if n_groups == 1 or weights.data is None:
            return operator.bind(arguments)
        return operator.bind(arguments, {"weights": weights.data.reshape(_grouped(weights.shape, n_groups))})

    @classmethod
    def padded(cls, node: NodeInfo, padding: Padding, *, is_lowest: bool) -> Mapping[str, Any] | None:
        del is_lowest
        return padded_window(node, padding) if padding.value == 0 else None

    @classmethod
    def aligned_scale(cls, node: NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        return scale.reshape(-1, *(1,) * (len(node.shape(1)) - 1))

    result_format = staticmethod(dominating)

    keeps_rows = staticmethod(of_source)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        weights = argument(problem, "weights")
        seen: dnnl.Desc = dnnl.AnyDesc(weights.dims, weights.dtype)
        whole: tuple[tuple[str, MemoryDesc], ...] = ()
        if self.n_groups > 1 and len(weights.dims) == len(problem.dst.dims):
            # Computed at run time in ONNX's dimensions, and seen in groups over the same bytes.
            whole = (("weights", plain(weights)),)
            seen = MemoryDesc(_grouped(weights.dims, self.n_groups), weights.dtype)
        src, dst = wish.src_desc(argument(problem, "src")), wish.dst_desc(problem.dst)
        if self._is_pointwise and isinstance(src, MemoryDesc) and isinstance(dst, MemoryDesc):
            image = as_one_image(src, dst)
            if image is not None:
                return self._of_pixels((src, dst), image, problem, attr)
        if isinstance(src, MemoryDesc) and isinstance(dst, MemoryDesc) and self._is_depthwise_line(problem, attr):
            recipe = self._of_line(src, dst, problem, wish, attr)
            if recipe is not None:
                return recipe
        spec = dnnl.convolution(
            src,
            seen,
            dst,
            self._bias(problem),
            strides=self.window.strides,
            pads=self.window.pads,
            dilations=self.window.dnnl_dilations,
            prop_kind=wish.prop_kind,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return Recipe.single(spec, whole=whole)

    @property
    def _is_pointwise(self) -> bool:
        """Whether a result depends on the channels of one pixel, whichever image that is of."""
        ones = (1,) * len(self.window.kernel)
        return self.n_groups == 1 and self.window.kernel == self.window.strides == ones and not any(self.window.pads)

    def _of_pixels(
        self, descs: Sequence[MemoryDesc], image: Sequence[MemoryDesc], problem: Problem, attr: dnnl.Attr
    ) -> Recipe | None:
        """A pointwise convolution whose source and result lie as one image each of all pixels."""
        if not are_eltwise(attr.post_ops):
            return None
        weights = argument(problem, "weights")
        row_major = MemoryDesc((*weights.dims[:2], 1), weights.dtype)
        spec = dnnl.convolution(
            image[0], row_major, image[1], plain_if_any(problem, "bias"), attr=attr, n_threads=problem.n_threads
        )
        return Recipe.single(spec, whole=zip(("src", "dst", "weights"), (*descs, plain(weights)), strict=True))

    def _is_depthwise_line(self, problem: Problem, attr: dnnl.Attr) -> bool:
        """Whether each channel of a line is convolved on its own: the library's fast kernels are for images only."""
        weights = argument(problem, "weights").dims
        return (
            len(weights) == 4 and weights[1:3] == (1, 1) and len(problem.dst.dims) == 3 and are_eltwise(attr.post_ops)
        )

    def _of_line(
        self, src: MemoryDesc, dst: MemoryDesc, problem: Problem, wish: Wish, attr: dnnl.Attr
    ) -> Recipe | None:
        """A line as an image one pixel high, or one wide: among rows any dilation is fast."""
        is_dense = self.window.dilations == (1,)

        def lifted(extents: Sequence[int], other: int) -> tuple[int, ...]:
            return (*extents[:-1], other, extents[-1]) if is_dense else (*extents, other)

        weights, window = argument(problem, "weights"), self.window
        block = src.inner_blks[0] if src.inner_blks else 16 if dnnl.isa().startswith("avx512") else 8
        packed = MemoryDesc(weights.dims, weights.dtype, f"Abcd{block}a")
        spec = dnnl.convolution(
            src.viewed_as(lifted(src.dims, 1)),
            packed.viewed_as(lifted(weights.dims, 1)),
            dst.viewed_as(lifted(dst.dims, 1)),
            self._bias(problem),
            strides=lifted(window.strides, 1),
            pads=lifted(window.pads_begin, 0) + lifted(window.pads_end, 0),
            dilations=lifted(window.dnnl_dilations, 0),
            prop_kind=wish.prop_kind,
            attr=attr,
            n_threads=problem.n_threads,
        )
        whole = {"src": src, "dst": dst, "weights": packed}
        return Recipe.single(spec, whole=tuple(whole.items())) if dnnl.has_optimised(spec) else None

    def alternatives(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> tuple[Recipe, ...]:
        recipe = self._of_steps(problem, wish, attr)
        return () if recipe is None else (recipe,)

    def _of_steps(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        """A convolution of one channel: each step along a row taken as one pixel, whose channels its pixels are.

        The same bytes, in channels-last: a stride of 4 is 4 channels and a stride of 1. ``None`` where rows are no
        whole number of steps.
        """
        info, weights = argument(problem, "src"), problem.constants.get("weights")
        src, (*_, stride) = wish.src_desc(info), self.window.strides
        is_a_row = info.dims[1] == 1 < stride and self.window.dilations[-1] == 1 and info.dims[-1] % stride == 0
        if weights is None or not is_a_row or not isinstance(src, MemoryDesc):
            return None
        channels_last = wished_desc("channels_last", info)
        if not isinstance(channels_last, MemoryDesc) or not src.physically_equal(channels_last):
            return None
        begins, ends, n_steps = list(self.window.pads_begin), list(self.window.pads_end), info.dims[-1] // stride
        before = -begins[-1] % stride
        begins[-1] = (begins[-1] + before) // stride
        n_taps = -(-(before + self.window.kernel[-1]) // stride)
        behind = problem.dst.dims[-1] - 1 + n_taps - begins[-1] - n_steps
        ends[-1], n_taps = max(behind, 0), n_taps + max(-behind, 0)  # zeros see what is behind the last window
        made = TapsAsChannels(stride, before, n_taps)
        pixels = TensorInfo((info.dims[0], stride, *info.dims[2:-1], n_steps), info.dtype)
        spec = dnnl.convolution(
            wished_desc("channels_last", pixels),
            dnnl.AnyDesc(made.dims(weights.dims), weights.dtype),
            wish.dst_desc(problem.dst),
            self._bias(problem),
            strides=(*self.window.strides[:-1], 1),
            pads=(*begins, *ends),
            dilations=self.window.dnnl_dilations,
            prop_kind=wish.prop_kind,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return replace(Recipe.single(spec, whole=(("src", src),)), made=(("weights", made),))

    def _bias(self, problem: Problem) -> MemoryDesc | None:
        """In f32; in f16 where the fast kernel, of depthwise convolutions in f16, takes no other."""
        bias, src = plain_if_any(problem, "bias"), argument(problem, "src")
        is_narrow = bias is not None and src.dtype == "f16" and self.n_groups == src.dims[1]
        return bias.with_dtype("f16") if bias is not None and is_narrow else bias

    def likeness(self, problem: Problem) -> object:
        """Of an image's pixels nothing has a say but whether there is one."""

        def alike(arg: str, dims: tuple[int, ...]) -> tuple[int, ...]:
            n_blocked = 2 if arg in ("src", "dst") else len(dims)
            return *in_blocks(dims[:n_blocked]), *(min(extent, 2) for extent in dims[n_blocked:])

        arguments = tuple((arg, info.dtype, alike(arg, info.dims)) for arg, info in problem.arguments)
        return self.window, in_blocks((self.n_groups,)), arguments

    def as_depthwise(self, problem: Problem) -> dnnl.DepthwiseConv | None:
        window, weights = self.window, problem.constants.get("weights")
        stride, kernel = window.strides[0], window.kernel[0]
        wanted = Window((kernel, kernel), (stride, stride), (1, 1), (1, 1), (1, 1))
        if weights is None or weights.dims[1:3] != (1, 1) or window != wanted or kernel != 3 or stride > 2:
            return None
        bias_dtype = "f32" if "bias" in problem.constants else ""
        return dnnl.DepthwiseConv(kernel, stride, 1, weights.dtype, bias_dtype, problem.dst.dtype)


def _grouped(dims: tuple[int, ...], n_groups: int) -> tuple[int, ...]:
    """Extents of weights with the groups in front."""
    return (n_groups, dims[0] // n_groups, *dims[1:])


def check_weights(node: NodeInfo, src: Value, weights: Value, n_groups: int, channels_axis: int) -> None:
    """Compare the extents of weights with the source and the attributes ``group`` and ``kernel_shape``.

    Args:
        node: For its attributes and name.
        src: The source.
        weights: In ONNX order.
        n_groups: The attribute ``group``.
        channels_axis: Where the weights hold the source's channels: 1 holds those of one group, 0 all.

    Raises:
        ModelError: They disagree.
    """
    if n_groups < 1:
        raise node.wrong(f"attribute group is {n_groups}", "it must be at least 1")
    if len(weights.shape) != len(src.shape):
        raise node.wrong(f"the weights have rank {len(weights.shape)}", f"the source's rank is {len(src.shape)}")
    n_channels = weights.shape[channels_axis] * (n_groups if channels_axis == 1 else 1)
    if n_channels != src.shape[1]:
        rule = f"{weights.name} {list(weights.shape)} with group {n_groups} needs {n_channels}"
        raise node.wrong(f"{src.name} has {src.shape[1]} channels", rule)
    if min(weights.shape, default=0) < 1:
        raise node.wrong(f"the weights have extents {list(weights.shape)}", "every extent must be at least 1")
    kernel = weights.shape[2:]
    said = node.ints_attr("kernel_shape", len(kernel), 1, at_least=1)
    if node.attrs.get("kernel_shape") and said != kernel:
        raise node.wrong(f"attribute kernel_shape is {list(said)}", f"the weights have {list(kernel)}")


def check_bias(node: NodeInfo, bias: Value | None, n_channels: int) -> None:
    """Compare a bias with the destination's channels.

    Raises:
        ModelError: They differ.
    """
    if bias is not None and bias.shape != (n_channels,):
        raise node.wrong(f"the bias has extents {list(bias.shape)}", f"there are {n_channels} output channels")
