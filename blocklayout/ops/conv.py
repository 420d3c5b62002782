"""Convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Lowered,
    NodeInfo,
    Padding,
    Problem,
    Recipe,
    Role,
    Value,
    Window,
    Wish,
    in_blocks,
)
from blocklayout.ir.result_format import dominating
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, plain, plain_if_any
from blocklayout.ops._reading import (
    bound,
    int_attr,
    ints_attr,
    is_source,
    optional,
    required,
    wrong,
)
from blocklayout.ops._window import check_extents, padded_window, read_window


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
        src = required(node, 0, "X")
        weights, bias = required(node, 1, "W"), optional(node, 2)
        n_groups = int_attr(node, "group", 1)
        check_weights(node, src, weights, n_groups, channels_axis=1)
        check_bias(node, bias, weights.shape[0])
        if weights.shape[0] % n_groups:
            raise wrong(node, f"attribute group is {n_groups}", f"it must divide {weights.shape[0]} output channels")
        window = read_window(node, weights.shape[2:], src.shape[2:])
        check_extents(node, window.extents(src.shape[2:]))
        operator, arguments = cls(window, n_groups), {"src": src, "weights": weights, "bias": bias}
        if n_groups == 1 or weights.data is None:
            return bound(operator, arguments)
        return bound(operator, arguments, {"weights": weights.data.reshape(_grouped(weights.shape, n_groups))})

    @classmethod
    def padded(cls, node: NodeInfo, padding: Padding, *, is_lowest: bool) -> Mapping[str, Any] | None:
        del is_lowest
        return padded_window(node, padding) if padding.value == 0 else None

    @classmethod
    def aligned_scale(cls, node: NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        return scale.reshape(-1, *(1,) * (len(node.shape(1)) - 1))

    result_format = staticmethod(dominating)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        weights = argument(problem, "weights")
        seen: dnnl.Desc = dnnl.AnyDesc(weights.dims, weights.dtype)
        whole: tuple[tuple[str, MemoryDesc], ...] = ()
        if self.n_groups > 1 and len(weights.dims) == len(problem.dst.dims):
            # Computed at run time in ONNX's dimensions, and seen in groups over the same bytes.
            whole = (("weights", plain(weights)),)
            seen = MemoryDesc(_grouped(weights.dims, self.n_groups), weights.dtype)
        spec = dnnl.convolution(
            wish.src_desc(argument(problem, "src")),
            seen,
            wish.dst_desc(problem.dst),
            plain_if_any(problem, "bias"),
            strides=self.window.strides,
            pads=self.window.pads,
            dilations=self.window.dnnl_dilations,
            prop_kind=wish.prop_kind,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return Recipe.single(spec, whole=whole)

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
        raise wrong(node, f"attribute group is {n_groups}", "it must be at least 1")
    if len(weights.shape) != len(src.shape):
        raise wrong(node, f"the weights have rank {len(weights.shape)}", f"the source's rank is {len(src.shape)}")
    n_channels = weights.shape[channels_axis] * (n_groups if channels_axis == 1 else 1)
    if n_channels != src.shape[1]:
        rule = f"{weights.name} {list(weights.shape)} with group {n_groups} needs {n_channels}"
        raise wrong(node, f"{src.name} has {src.shape[1]} channels", rule)
    if min(weights.shape, default=0) < 1:
        raise wrong(node, f"the weights have extents {list(weights.shape)}", "every extent must be at least 1")
    kernel = weights.shape[2:]
    said = ints_attr(node, "kernel_shape", len(kernel), 1, at_least=1)
    if node.attrs.get("kernel_shape") and said != kernel:
        raise wrong(node, f"attribute kernel_shape is {list(said)}", f"the weights have {list(kernel)}")


def check_bias(node: NodeInfo, bias: Value | None, n_channels: int) -> None:
    """Compare a bias with the destination's channels.

    Raises:
        ModelError: They differ.
    """
    if bias is not None and bias.shape != (n_channels,):
        raise wrong(node, f"the bias has extents {list(bias.shape)}", f"there are {n_channels} output channels")
