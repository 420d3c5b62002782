"""Convolution, and its gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.errors import LayoutError
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
from blocklayout.ops.gradients import Call, Given, TensorLike, fresh, in_format, public
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.operators import Extents

_PARTS = ("data", "weights", "bias")


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


@public
class ConvGradients(NamedTuple):
    """Gradients of a convolution's arguments; ``None`` for those that were not asked for.

    Attributes:
        data: Of ``x``, in its format.
        weights: Of ``weights``, in its layout.
        bias: Of the bias: a vector of f32.
    """

    data: Tensor | None
    weights: Tensor | None
    bias: Tensor | None


@public
def conv_backward(
    grad: TensorLike,
    x: TensorLike,
    weights: TensorLike,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
    needs: Collection[str] = _PARTS,
) -> ConvGradients:
    """Gradients of a convolution's source, weights and bias.

    The forward's result has the format of ``x``, or that of ``weights`` where ``x`` is plain and they are not.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of rank 3 to 5.
        weights: The weights, of shape (oc, ic / group, kernel...); also (group, oc / group, ic / group, kernel...).
        strides: One number, or one for each spatial dimension.
        pads: One number, one for each spatial dimension, or all in front and then all behind.
        dilations: Distance between two taps; 1 is dense.
        group: Groups of channels that are convolved apart.
        needs: Which are computed, among ``data``, ``weights`` and ``bias``.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> from blocklayout import reorder
        >>> x = reorder(np.ones((1, 16, 5, 5), np.float32), "nhwc")
        >>> w = np.ones((8, 16, 3, 3), np.float32)
        >>> data, weights, bias = conv_backward(np.ones((1, 8, 5, 5), np.float32), x, w, pads=1)
        >>> data.desc.tag, float(data.numpy()[0, 0, 0, 0]), weights.shape, float(bias.numpy()[0])
        ('nhwc', 32.0, (8, 16, 3, 3), 25.0)
    """
    call = _Call("conv_backward", grad, x, weights, strides, pads, dilations, group)
    given: Any = needs
    parts = list(given) if isinstance(given, Collection) else [given]
    unknown = [part for part in parts if not isinstance(part, str) or part not in _PARTS]
    if unknown:
        raise call.error("needs", f"has {unknown[0]!r:.80}; give names among {', '.join(_PARTS)}")
    data = call.data() if "data" in parts else None
    of_weights, of_bias = call.weights(has_bias="bias" in parts) if {"weights", "bias"} & {*parts} else (None, None)
    return ConvGradients(data, of_weights if "weights" in parts else None, of_bias)


@public
def conv_backward_data(
    grad: TensorLike,
    x: TensorLike | MemoryDesc,
    weights: TensorLike,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> Tensor:
    """The gradient of a convolution's source, in its format; see :func:`conv_backward`.

    Args:
        grad: Gradient of the result.
        x: The source; its values are not needed, so its descriptor will do.
        weights: The weights.
        strides: As there.
        pads: As there.
        dilations: As there.
        group: As there.

    Raises:
        InputError: An argument is wrong.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    return _Call("conv_backward_data", grad, x, weights, strides, pads, dilations, group).data()


@public
def conv_backward_weights(
    grad: TensorLike,
    x: TensorLike,
    weights: TensorLike | MemoryDesc,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> tuple[Tensor, Tensor]:
    """The gradients of a convolution's weights, in their layout, and of its bias; see :func:`conv_backward`.

    Args:
        grad: Gradient of the result.
        x: The source.
        weights: The weights; their values are not needed, so their descriptor will do.
        strides: As there.
        pads: As there.
        dilations: As there.
        group: As there.

    Raises:
        InputError: An argument is wrong.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    call = _Call("conv_backward_weights", grad, x, weights, strides, pads, dilations, group)
    of_weights, of_bias = call.weights(has_bias=True)
    assert of_bias is not None  # noqa: S101 - it was asked for
    return of_weights, of_bias


class _Problem(Struct, frozen=True):
    """A convolution's descriptors, in the forward's formats, and its window."""

    src: MemoryDesc
    dst: MemoryDesc
    weights_dims: tuple[int, ...]
    window: Window

    def sides(self) -> Iterator[tuple[dnnl.Desc, dnnl.Desc]]:
        """Formats of source and destination, the best first: the forward's own, the destination's, any, plain."""
        src, dst = self.src, self.dst
        yield src, dst
        yield in_format(dst, src.dims), dst
        yield dnnl.AnyDesc(src.dims, src.dtype), dnnl.AnyDesc(dst.dims, dst.dtype)
        yield MemoryDesc(src.dims, src.dtype), MemoryDesc(dst.dims, dst.dtype)

    def ways(self, direction: str, n_threads: int) -> Iterator[tuple[dnnl.Spec, ...]]:
        """For the gradient of the source (``data``), of the weights, or of ``weights and bias``."""
        window, weights = self.window, dnnl.AnyDesc(self.weights_dims, self.src.dtype)
        slides: Any = {"strides": window.strides, "pads": window.pads, "dilations": window.dnnl_dilations}
        bias = MemoryDesc((self.dst.dims[1],)) if direction == "weights and bias" else None
        for src, dst in self.sides():
            if direction == "data":
                yield (dnnl.convolution_backward_data(src, weights, dst, **slides, n_threads=n_threads),)
            else:
                yield (dnnl.convolution_backward_weights(src, weights, dst, bias, **slides, n_threads=n_threads),)


class _Call(Call):
    """One call: all that gradients of a convolution have in common."""

    def __init__(
        self,
        function: str,
        grad: TensorLike,
        x: TensorLike | MemoryDesc,
        weights: TensorLike | MemoryDesc,
        strides: Extents,
        pads: Extents,
        dilations: Extents,
        group: int,
    ) -> None:
        super().__init__(function)
        self.grad = self.read("grad", grad, (3, 4, 5))
        self.x = self.read("x", x, (3, 4, 5), needs_values=False)
        ndims = self.x.desc.ndims
        self.w = self.read("weights", weights, (ndims, ndims + 1), needs_values=False)
        self.check_same_dtype(self.grad, self.w, self.x)
        weights_dims = self._weights_dims(group)
        spatial = self.x.dims[2:]
        window = self.window(spatial, self.w.dims[-len(spatial) :], strides, pads, dilations)
        dims = (self.x.dims[0], prod(weights_dims[: len(weights_dims) - ndims + 1]), *window.extents(spatial))
        self.check_dims(self.grad, dims)
        dst = dominating([self.x.desc, self.w.desc], dims, self.x.desc.dtype).desc
        self.problem = _Problem(fresh(self.x.desc), dst, weights_dims, window)

    def data(self) -> Tensor:
        """The source's gradient."""
        results = self.run(self._best("data"), {"diff_dst": self.grad, "weights": self._grouped()})
        return self.returned(results["diff_src"], self.problem.src)

    def weights(self, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
        """The weights' gradient, and the bias'."""
        spec = self._best("weights and bias" if has_bias else "weights")
        results = self.run(spec, {"src": self.x, "diff_dst": self.grad})
        return self._ungrouped(results["diff_weights"]), results.get("diff_bias")

    def _best(self, direction: str) -> dnnl.Spec:
        (spec,) = self.best(_Problem.ways, self.problem, direction, kept="diff_dst", wanted=self.problem.dst)
        return spec

    def _weights_dims(self, group: int) -> tuple[int, ...]:
        """The weights' extents as the primitive takes them, groups in front."""
        dims, n_src = self.w.dims, self.x.dims[1]
        right = f"a divisor of the {n_src} channels of x"
        (group,) = self.integers("group", group, 1, right=right)
        if n_src % group:
            raise self.error("group", f"is {group!r}; give {right}")
        if len(dims) == self.x.desc.ndims + 1:
            grouped = (group, dims[1], n_src // group, *dims[3:])
            self.check_dims(self.w, grouped, f"group {group} of x's {n_src} channels")
            return dims
        self.check_dims(self.w, (dims[0], n_src // group, *dims[2:]), f"group {group} of x's {n_src} channels")
        if dims[0] % group:
            raise self.error("weights", f"has {dims[0]} destination channels; group {group} must divide them")
        return dims if group == 1 else (group, dims[0] // group, *dims[1:])

    def _grouped(self) -> Given:
        """The weights with groups in front: a view where their layout allows that."""
        if self.w.dims == self.problem.weights_dims:
            return self.w
        try:
            return replace(self.w, desc=self.w.desc.reshaped(self.problem.weights_dims))
        except LayoutError:
            plain = MemoryDesc(self.w.dims, self.w.desc.dtype)
            return Given("weights", plain.reshaped(self.problem.weights_dims), self.placed(self.w, plain))

    def _ungrouped(self, gradient: Tensor) -> Tensor:
        """The weights' gradient in their own layout."""
        wanted = fresh(self.w.desc)
        if gradient.desc.dims == wanted.dims:
            return self.returned(gradient, wanted, "weights")
        try:
            grouped = wanted.reshaped(gradient.desc.dims)
        except LayoutError:
            plain = MemoryDesc(wanted.dims, wanted.dtype)
            grouped = plain.reshaped(gradient.desc.dims)
            return self.returned(Tensor(plain, self.returned(gradient, grouped, "weights").buffer), wanted, "weights")
        return Tensor(wanted, self.returned(gradient, grouped, "weights").buffer)
