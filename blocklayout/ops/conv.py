"""Convolution, and transposed convolution, which oneDNN calls deconvolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.dtypes import FLOATS
from blocklayout.errors import DnnlError, LayoutError
from blocklayout.ir.result_format import Followed, dominating, is_plain
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm
from blocklayout.ops._answers import always, is_source, of_source
from blocklayout.ops._gradients import of_channels
from blocklayout.ops._layouts import are_eltwise, argument, as_one_image, plain, plain_if_any
from blocklayout.ops._window import AUTO_PADS, check_extents, padded_window, pads_before, read_window, sliding


def _given(node: ir.NodeInfo, spatial: tuple[int, ...]) -> dict[str, Any]:
    """A node's window as functions on Tensors take it, over these extents."""
    window = read_window(node, node.shape(1)[2:], spatial)
    slides = {"strides": window.strides, "pads": window.pads, "dilations": window.dilations}
    return {**slides, "group": node.int_attr("group", 1)}


class Conv(ir.BaseOperator, frozen=True):
    """Convolution of one to three spatial dimensions, of ``n_groups`` groups of channels."""

    op_types: ClassVar[tuple[str, ...]] = ("Conv",)
    role: ClassVar[ir.Role] = ir.Role.CHOOSER
    needs = (is_source(3, 5),)

    byte_operands = ("src", "weights")

    window: ir.Window
    n_groups: int = 1

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src, weights, bias, n_groups = _operands(node, channels_axis=1)
        window = read_window(node, weights.shape[2:], src.shape[2:])
        check_extents(node, window.extents(src.shape[2:]))
        operator, arguments = cls(window, n_groups), {"src": src, "weights": weights, "bias": bias}
        if n_groups == 1 or weights.data is None:
            return operator.bind(arguments)
        return operator.bind(arguments, {"weights": weights.data.reshape(_grouped(weights.shape, n_groups))})

    @classmethod
    def padded(cls, node: ir.NodeInfo, padding: ir.Padding, *, is_lowest: bool) -> Mapping[str, Any] | None:
        del is_lowest
        return padded_window(node, padding) if padding.value == 0 else None

    aligned_scale = staticmethod(lambda node, scale: scale.reshape(-1, *(1,) * (len(node.shape(1)) - 1)))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, weights, *_), bl, given = call.sources, call.bl, _given(call.node, call.node.shape(0)[2:])
        given["memory_format"] = call.results[0].desc.format_tag

        def gradients(needs: Sequence[bool], grad: Any) -> Any:
            needed = [part for part, is_needed in zip(("data", "weights", "bias"), needs, strict=False) if is_needed]
            return bl.conv_backward(grad, x, weights, **given, needs=needed)

        return gradients

    result_format = staticmethod(dominating)
    keeps_rows = staticmethod(of_source)
    channel_axis = staticmethod(always(0))

    @classmethod
    def sums_channels_apart(cls, node: ir.NodeInfo) -> bool:
        return node.shape(0)[1] == node.shape(1)[0] == node.int_attr("group", 1)

    def scale_mask(self, info: ir.TensorInfo) -> int:
        del info
        return 0b11 if self.n_groups > 1 else 0b1

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        weights = argument(problem, "weights")
        src, dst = wish.src_desc(argument(problem, "src")), wish.dst_desc(problem.dst)

        def spec(seen: dnnl.Desc) -> dnnl.Spec:
            return self._spec((src, seen, dst), problem, wish, attr)

        if self.n_groups > 1 and len(weights.dims) == len(problem.dst.dims):  # computed at run time
            made, whole = in_groups(spec, "weights", weights, self.n_groups)
            return ir.Recipe.single(made, whole=(("weights", whole),))
        # Of bytes only as the library likes it, with sums behind it, is it fast and right.
        if weights.dtype != "s8" and isinstance(src, MemoryDesc) and isinstance(dst, MemoryDesc):
            image = as_one_image(src, dst) if self._is_pointwise else None
            if image is not None:
                return self._of_pixels((src, dst), image, problem, attr)
            if recipe := self._of_line(src, dst, problem, wish, attr):
                return recipe
        return ir.Recipe.single(spec(dnnl.AnyDesc(weights.dims, weights.dtype)))

    def _spec(
        self, descs: Sequence[dnnl.Desc], problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr, **others: Any
    ) -> dnnl.Spec:
        src, weights, dst = descs
        given = {**sliding(self.window), **others, "attr": attr, "n_threads": problem.n_threads}
        return dnnl.convolution(src, weights, dst, self._bias(problem), prop_kind=wish.prop_kind, **given)

    @property
    def _is_pointwise(self) -> bool:
        """Whether a result depends on the channels of one pixel, of any image."""
        ones = (1,) * len(self.window.kernel)
        return self.n_groups == 1 and self.window.kernel == self.window.strides == ones and not any(self.window.pads)

    def _of_pixels(
        self, descs: Sequence[MemoryDesc], image: Sequence[MemoryDesc], problem: ir.Problem, attr: dnnl.Attr
    ) -> ir.Recipe | None:
        """A pointwise convolution whose source and result lie as one image each of all pixels."""
        if not are_eltwise(attr.post_ops):
            return None
        weights = argument(problem, "weights")
        row_major = MemoryDesc((*weights.dims[:2], 1), weights.dtype)
        bias = plain_if_any(problem, "bias")
        spec = dnnl.convolution(image[0], row_major, image[1], bias, attr=attr, n_threads=problem.n_threads)
        return ir.Recipe.single(spec, whole=zip(("src", "dst", "weights"), (*descs, plain(weights)), strict=True))

    def _of_line(
        self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr
    ) -> ir.Recipe | None:
        """Channels convolved apart along a line, as an image one pixel high, or wide if dilated: that is fast."""
        weights, window, is_dense = argument(problem, "weights"), self.window, self.window.dilations == (1,)
        is_line = len(weights.dims) == 4 and weights.dims[1:3] == (1, 1) and len(problem.dst.dims) == 3
        if not is_line or not are_eltwise(attr.post_ops):
            return None

        def lifted(extents: Sequence[int], other: int) -> tuple[int, ...]:
            return (*extents[:-1], other, extents[-1]) if is_dense else (*extents, other)

        block = src.inner_blks[0] if src.inner_blks else 16 if dnnl.isa().startswith("avx512") else 8
        packed = MemoryDesc(weights.dims, weights.dtype, f"Abcd{block}a")
        spec = self._spec(
            [each.viewed_as(lifted(each.dims, 1)) for each in (src, packed, dst)],
            problem,
            wish,
            attr,
            strides=lifted(window.strides, 1),
            pads=lifted(window.pads_begin, 0) + lifted(window.pads_end, 0),
            dilations=lifted(window.dnnl_dilations, 0),
        )
        whole = {"src": src, "dst": dst, "weights": packed}
        return ir.Recipe.single(spec, whole=tuple(whole.items())) if dnnl.has_optimised(spec) else None

    def alternatives(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> tuple[ir.Recipe, ...]:
        """With weights that are made when they are packed."""
        return (*self._in_winograd_domain(problem, wish, attr), *self._of_steps(problem, wish, attr))

    def _in_winograd_domain(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> Iterator[ir.Recipe]:
        """Of bf16 and 3x3 windows: weights that no run has to transform."""
        src, weights = argument(problem, "src"), problem.constants.get("weights")
        window = self.window.kernel, self.window.strides, self.window.dilations
        is_known = self.n_groups == 1 and window == ((3, 3), (1, 1), (1, 1))
        if weights is None or not is_known or src.dtype != "bf16":
            return
        made = ir.WinogradWeights()
        packed = dnnl.AnyDesc(made.dims(weights.dims), weights.dtype)
        descs = wish.src_desc(src), packed, wish.dst_desc(problem.dst)
        spec = self._spec(descs, problem, wish, attr, algorithm="winograd_domain")
        yield replace(ir.Recipe.single(spec), made=(("weights", made),))

    def _of_steps(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> tuple[ir.Recipe, ...]:
        """Of one channel: each step along a row taken as one pixel, whose channels its pixels are, in the same bytes.

        A stride of 4 is 4 channels and a stride of 1, in channels-last. None where rows are no whole number of steps.
        """
        info, weights = argument(problem, "src"), problem.constants.get("weights")
        src, (*_, stride) = wish.src_desc(info), self.window.strides
        if info.dtype not in FLOATS:
            return ()
        is_a_row = info.dims[1] == 1 < stride and self.window.dilations[-1] == 1 and info.dims[-1] % stride == 0
        if weights is None or not is_a_row or not isinstance(src, MemoryDesc):
            return ()
        channels_last = ir.wished_desc("channels_last", info)
        if not isinstance(channels_last, MemoryDesc) or not src.physically_equal(channels_last):
            return ()
        begins, ends, n_steps = list(self.window.pads_begin), list(self.window.pads_end), info.dims[-1] // stride
        before = -begins[-1] % stride
        begins[-1] = (begins[-1] + before) // stride
        n_taps = -(-(before + self.window.kernel[-1]) // stride)
        behind = problem.dst.dims[-1] - 1 + n_taps - begins[-1] - n_steps
        ends[-1], n_taps = max(behind, 0), n_taps + max(-behind, 0)  # zeros see pixels behind the last window
        made = ir.TapsAsChannels(stride, before, n_taps)
        pixels = ir.TensorInfo((info.dims[0], stride, *info.dims[2:-1], n_steps), info.dtype)
        packed = dnnl.AnyDesc(made.dims(weights.dims), weights.dtype)
        descs = ir.wished_desc("channels_last", pixels), packed, wish.dst_desc(problem.dst)
        strides = (*self.window.strides[:-1], 1)
        spec = self._spec(descs, problem, wish, attr, strides=strides, pads=(*begins, *ends))
        return (replace(ir.Recipe.single(spec, whole=(("src", src),)), made=(("weights", made),)),)

    def _bias(self, problem: ir.Problem) -> MemoryDesc | None:
        """In f32; in f16 where the fast kernel, of depthwise convolutions in f16, takes no other."""
        bias, src = plain_if_any(problem, "bias"), argument(problem, "src")
        is_narrow = bias is not None and src.dtype == "f16" and self.n_groups == src.dims[1]
        return bias.with_dtype("f16") if bias is not None and is_narrow else bias

    def likeness(self, problem: ir.Problem) -> object:
        """Of an image's pixels nothing has a say but whether there is one."""

        def alike(arg: str, dims: tuple[int, ...]) -> tuple[int, ...]:
            n_blocked = 2 if arg in ("src", "dst") else len(dims)
            return *ir.in_blocks(dims[:n_blocked]), *(min(extent, 2) for extent in dims[n_blocked:])

        arguments = tuple((arg, info.dtype, alike(arg, info.dims)) for arg, info in problem.arguments)
        return self.window, ir.in_blocks((self.n_groups,)), arguments

    def as_depthwise(self, problem: ir.Problem) -> dnnl.DepthwiseConv | None:
        window, weights = self.window, problem.constants.get("weights")
        stride, kernel = window.strides[0], window.kernel[0]
        wanted = ir.Window((kernel, kernel), (stride, stride), (1, 1), (1, 1), (1, 1))
        if weights is None or weights.dims[1:3] != (1, 1) or window != wanted or kernel != 3 or stride > 2:
            return None
        bias_dtype = "f32" if "bias" in problem.constants else ""
        return dnnl.DepthwiseConv(kernel, stride, 1, weights.dtype, bias_dtype, problem.dst.dtype)


def _grouped(dims: tuple[int, ...], n_groups: int) -> tuple[int, ...]:
    """Extents of weights with the groups in front."""
    return (n_groups, dims[0] // n_groups, *dims[1:])


def in_groups(
    spec: Callable[[dnnl.Desc], dnnl.Spec], arg: str, weights: ir.TensorInfo, n_groups: int
) -> tuple[dnnl.Spec, MemoryDesc]:
    """A primitive that sees weights in ONNX's dimensions with the groups in front, and how they lie as a whole.

    That is as the primitive likes it, where such a layout can be seen without groups, else row-major.
    """
    dims = _grouped(weights.dims, n_groups)
    with suppress(LayoutError, DnnlError):
        liked = dnnl.resolve(spec(dnnl.AnyDesc(dims, weights.dtype))).spec.memory_desc(arg)
        whole = liked.reshaped(weights.dims)
        if dnnl.is_expressible(whole):
            return spec(liked), whole
    return spec(MemoryDesc(dims, weights.dtype)), plain(weights)


def _operands(node: ir.NodeInfo, channels_axis: int) -> tuple[ir.Value, ir.Value, ir.Value | None, int]:
    """Source, weights, bias and groups, checked; at ``channels_axis`` weights have a group's channels (1), or all."""
    src, weights, bias = node.required(0, "X"), node.required(1, "W"), node.input(2)
    n_groups = node.int_attr("group", 1)
    if n_groups < 1:
        raise node.wrong(f"attribute group is {n_groups}", "it must be at least 1")
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
    n_outputs = weights.shape[1] * n_groups if channels_axis == 0 else weights.shape[0]
    if bias is not None and bias.shape != (n_outputs,):
        raise node.wrong(f"the bias has extents {list(bias.shape)}", f"there are {n_outputs} output channels")
    if weights.shape[0] % n_groups:
        kind = "input" if channels_axis == 0 else "output"
        raise node.wrong(f"attribute group is {n_groups}", f"it must divide {weights.shape[0]} {kind} channels")
    return src, weights, bias, n_groups


class ConvTranspose(ir.BaseOperator, frozen=True):
    """Transpose of a convolution with this window, whose end pads give the destination its extents; in groups."""

    op_types = ("ConvTranspose",)
    role = ir.Role.CHOOSER
    needs = (is_source(3, 5),)

    byte_operands = ("src", "weights")

    window: ir.Window
    n_groups: int = 1

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        """Those of a convolution of the result's gradient, whose own result is the source's."""
        (x, weights, *_), bl, given = call.sources, call.bl, _given(call.node, call.node.result.shape[2:])
        if "output_shape" in call.node.attrs:
            return "attribute output_shape has no gradient here; give pads"
        order = (0, 2, 1, *range(3, weights.ndim)) if weights.ndim > x.ndim else tuple(range(weights.ndim))

        def gradients(needs: Sequence[bool], grad: Any) -> Iterator[Any]:
            taps = weights.permute(order)
            yield bl.conv(grad, taps, **given) if needs[0] else None
            of_taps = bl.conv_backward(x, grad, taps, **given, needs=["weights"][: needs[1]]).weights
            yield None if of_taps is None else of_taps.permute(order)
            yield of_channels(grad)

        return gradients

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, weights, bias, n_groups = _operands(node, channels_axis=0)
        window = _read_transposed(node, weights.shape[2:], src.shape[2:])
        if isinstance(window, ir.Refusal):
            return window
        dims, order = _by_output_channel(weights.shape, n_groups)
        arrays = {} if weights.data is None else {"weights": weights.data.reshape(dims).transpose(order)}
        return cls(window, n_groups).bind({"src": src, "weights": weights, "bias": bias}, arrays)

    @classmethod
    def aligned_scale(cls, node: ir.NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        # Input channels come first, group by group; each group computes its own slice of the output channels.
        n_inputs, n_outputs, *spatial = node.shape(1)
        group = node.attrs.get("group", 1)
        of_input = np.repeat(scale.reshape(group, n_outputs), n_inputs // group if group > 1 else 1, axis=0)
        return of_input.reshape(-1, n_outputs, *(1,) * len(spatial))

    channel_axis = staticmethod(lambda node: 1 if node.int_attr("group", 1) == 1 else None)

    scale_mask = staticmethod(always(0b1))

    @classmethod
    def result_format(cls, operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
        """As of a convolution; of channels-last weights the outermost channels may be the source's or the result's."""
        source, weights = operands[:2]
        group = weights.ndims - source.ndims
        swapped = (*range(group), group + 1, group, *range(group + 2, weights.ndims))
        found = dominating(operands, dims, dtype)
        return dominating((source, weights.permuted(swapped)), dims, dtype) if is_plain(found.desc) else found

    keeps_rows = staticmethod(of_source)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        weights = argument(problem, "weights")
        seen: dnnl.Desc = dnnl.AnyDesc(weights.dims, weights.dtype)
        whole: tuple[tuple[str, MemoryDesc], ...] = ()
        if "weights" in problem.sources and len(weights.dims) == len(problem.dst.dims):
            # Computed at run time in ONNX's dimensions, and seen in oneDNN's over the same bytes.
            whole = (("weights", plain(weights)),)
            dims, order = _by_output_channel(weights.dims, self.n_groups)
            seen = plain(weights).reshaped(dims).permuted(order)
        dst, bias = wish.dst_desc(problem.dst), plain_if_any(problem, "bias")
        given = {**sliding(self.window), "prop_kind": wish.prop_kind, "n_threads": problem.n_threads}
        deconvolution = partial(dnnl.deconvolution, wish.src_desc(argument(problem, "src")), seen, dst, **given)
        takes_bytes = weights.dtype == "s8"  # with scales in front of the bias
        if takes_bytes or bias is None or not isinstance(dst, MemoryDesc) or not self._is_fast_without_bias(dst):
            return ir.Recipe.single(deconvolution(bias=bias, attr=attr), whole=whole)
        product = deconvolution(attr=dnnl.Attr())
        channels = bias.reshaped((1, *bias.dims, *(1,) * (dst.ndims - 2)))
        total = dnnl.binary(dst, channels, dst, "add", attr=attr, n_threads=problem.n_threads)
        names = {"src_0": "product", "src_1": "bias"}
        steps = (
            ir.RecipeStep(product, (("dst", "product"), ("src", "src"), ("weights", "weights"))),
            ir.RecipeStep(total, tuple((arg, names.get(arg, arg)) for arg, _ in sorted(total.descs))),
        )
        return ir.Recipe(steps, (("product", dst),), (*whole, ("bias", bias)))

    def _is_fast_without_bias(self, dst: MemoryDesc) -> bool:
        """Whether only a bias keeps the library from its fast kernel: ``dnnl/primitives/deconvolution.py``."""
        is_strided = any(k > s > 1 for k, s in zip(self.window.kernel, self.window.strides, strict=True))
        return is_strided and not dst.inner_blks and not dst.is_contiguous()


def _by_output_channel(dims: tuple[int, ...], n_groups: int) -> tuple[tuple[int, ...], Perm]:
    """Extents of ONNX's (channels in, channels out of a group, ...) in groups, and oneDNN's order of them.

    Example:
        >>> _by_output_channel((6, 4, 3, 3), n_groups=2)
        ((2, 3, 4, 3, 3), (0, 2, 1, 3, 4))
    """
    if n_groups == 1:
        return dims, (1, 0, *range(2, len(dims)))
    return _grouped(dims, n_groups), (0, 2, 1, *range(3, len(dims) + 1))


def over_repeated(conv: Conv, repeats: tuple[int, ...], problem: ir.Problem) -> tuple[ConvTranspose, ir.TapSums] | None:
    """The deconvolution, and its weights, that convolves a tensor of repeated elements; ``None`` if there is none."""
    window, ndims = conv.window, len(repeats)
    pads = tuple(reach - 1 - pad for reach, pad in zip(window.reach * 2, window.pads, strict=True))
    if max(window.strides) > 1 or min(pads) < 0 or "weights" not in problem.constants:
        return None
    sums = ir.TapSums(repeats, window.dilations)
    transposed = ir.Window(sums.dims(window.kernel), repeats, pads[:ndims], pads[ndims:], (1,) * ndims)
    return ConvTranspose(transposed, conv.n_groups), sums


def _read_transposed(node: ir.NodeInfo, kernel: tuple[int, ...], spatial: tuple[int, ...]) -> ir.Window | ir.Refusal:
    ndims = len(kernel)
    strides = node.ints_attr("strides", ndims, 1, at_least=1)
    dilations = node.ints_attr("dilations", ndims, 1, at_least=1)
    extra = node.ints_attr("output_padding", ndims, 0, at_least=0)
    window = ir.Window(kernel, strides, (0,) * ndims, (0,) * ndims, dilations)
    full = tuple((n - 1) * s + r + e for n, s, r, e in zip(spatial, strides, window.reach, extra, strict=True))
    begin, dst = _begin_and_extents(node, full, spatial, strides)
    node.check_result((*node.result.shape[:2], *dst), f"the window gives {list(dst)}")
    # The library derives the destination from the pads, so output_padding becomes a smaller end pad.
    end = tuple(f - e - b - n for f, e, b, n in zip(full, extra, begin, dst, strict=True))
    if min(dst) < 1 or min(begin) < 0 or any(e + s < 0 for e, s in zip(end, strides, strict=True)):
        return node.refused(f"pads {list(begin + end)} are negative", "the output must not exceed the windows")
    return ir.Window(kernel, strides, begin, end, dilations)


def _begin_and_extents(
    node: ir.NodeInfo, full: tuple[int, ...], spatial: tuple[int, ...], strides: tuple[int, ...]
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
    return pads_before([max(f - n, 0) for f, n in zip(full, dst, strict=True)], auto_pad), dst
