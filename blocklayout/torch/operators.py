"""Convolutions and linear layers by our kernels, as operators of PyTorch: in models that it runs, compiles and trains.

Each function is that of its name in ``torch.nn.functional``; behind them stands ``torch.ops.blocklayout.convolution``,
with a fake implementation and gradients. Tensors are read in their own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch._prims_common import suggest_memory_format
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakTensorKeyDictionary

from blocklayout import dnnl
from blocklayout.eager.backward_layers import conv_backward
from blocklayout.eager.call import Attrs, Op, call
from blocklayout.eager.functions import op_of, preparation_of
from blocklayout.eager.planning import weights_desc
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor, reorder

ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "relu": (Operators.relu, functional.relu),
    "gelu": (Operators.gelu, functional.gelu),
    "silu": (Operators.swish, functional.silu),
    "sigmoid": (Operators.sigmoid, torch.sigmoid),
    "tanh": (Operators.tanh, torch.tanh),
    "hardswish": (Operators.hard_swish, functional.hardswish),
}
"""Functions that may follow a layer: as a part of its kernel, and as PyTorch computes them."""

TURNED_PIXELS = 128
"""Least number of pixels in a batch for which it pays to turn weights, so that a gradient is a convolution of 3x3."""

_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
_TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}
_PLAIN = torch.contiguous_format
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class Packed(NamedTuple):
    """Weights in the layout that a kernel reads, as :func:`pack` makes them.

    Attributes:
        data: The elements, padding included. Shape (n,).
        shape: The weights' extents as PyTorch has them.
        layout: oneDNN's name of the format.

    Example:
        >>> pack(torch.rand(32, 16, 3, 3), torch.rand(1, 16, 8, 8)).shape
        (32, 16, 3, 3)
    """

    data: torch.Tensor
    shape: tuple[int, ...]
    layout: str


# --- tensors of PyTorch, in and out

_desc = lru_cache(maxsize=4096)(MemoryDesc)


def _order(tensor: torch.Tensor) -> torch.memory_format:
    """The memory format of a tensor, as PyTorch's own operators take it."""
    last = _LAST.get(tensor.dim())
    if last is None:
        return _PLAIN
    is_plain, is_last = tensor.is_contiguous(), tensor.is_contiguous(memory_format=last)
    return suggest_memory_format(tensor) if is_plain == is_last else last if is_last else _PLAIN


def _over(tensor: torch.Tensor, dims: Sequence[int], layout: str) -> Tensor:
    """A Tensor over the memory of a tensor that has no holes."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
    return Tensor.over(_desc(tuple(dims), _DTYPES[tensor.dtype], layout), flat)


def _entering(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A Tensor over a tensor's memory, in its memory format; a copy where there are holes, or the type is another."""
    order = _order(tensor)
    dense = tensor.to(dtype or tensor.dtype).contiguous(memory_format=order)
    return _over(dense, tensor.shape, "contiguous_format" if order == _PLAIN else "channels_last")


def _flat(result: Tensor) -> torch.Tensor:
    """All of a Tensor's memory."""
    return torch.from_numpy(result.buffer[: result.desc.nbytes]).view(_TORCH_DTYPES[result.dtype])


def _leaving(result: Tensor, order: torch.memory_format) -> torch.Tensor:
    """A tensor over a result's memory, in this memory format."""
    placed = result.to(memory_format="contiguous_format" if order == _PLAIN else "channels_last")
    return _flat(placed).as_strided(placed.desc.dims, placed.desc.strides)


# --- convolutions; a linear layer is one of 1x1, and its weights have two extents


class _Window(NamedTuple):
    """Arguments of a convolution in the order of its operators; it is transposed if it has ``output_padding``."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    output_padding: Sequence[int]
    groups: int

    @property
    def definition(self) -> Any:
        """The operator of ours."""
        return Operators.conv_transpose if self.output_padding else Operators.conv

    @property
    def attrs(self) -> Attrs:
        """Its attributes."""
        window = {"strides": self.stride, "pads": self.padding, "dilations": self.dilation}
        more = {"output_padding": self.output_padding} if self.output_padding else {}
        return (*((name, tuple(each)) for name, each in (window | more).items()), ("group", self.groups))

    def grouped(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Extents of weights as a kernel takes them."""
        first, second, *kernel = (*shape, 1, 1) if len(shape) == 2 else shape
        if self.output_padding:
            return (self.groups, second, first // self.groups, *kernel)
        return (first, second, *kernel) if self.groups == 1 else (self.groups, first // self.groups, second, *kernel)

    def result_shape(self, x: torch.Tensor, weight: Sequence[int]) -> list[int]:
        """Extents of the result, which may be symbols; an InputError where there is none. Dynamo traces it."""
        n, (first, second, *kernel) = x.dim() - 2, (*weight, 1, 1) if len(weight) == 2 else weight
        inputs, outputs = (first, second * self.groups) if self.output_padding else (second * self.groups, first)
        if x.shape[1] != inputs:
            rule = f"weight {(*weight,)} in {self.groups} groups takes {inputs} channels"
            raise InputError(f"x has shape {(*x.shape,)}; {rule}")
        pads = [before + behind for before, behind in zip(self.padding[:n], self.padding[n:], strict=True)]
        more = [pad - step * (extent - 1) - 1 for pad, step, extent in zip(pads, self.dilation, kernel, strict=True)]
        sides = zip(x.shape[2:], self.stride, more, self.output_padding or [0] * n, strict=True)
        if self.output_padding:
            spatial = [(extent - 1) * step - added + behind for extent, step, added, behind in sides]
        else:
            spatial = [(extent + added) // step + 1 for extent, step, added, _ in sides]
        if any(extent < 1 for extent in spatial):
            rule = f"with padding {[*self.padding]} and dilation {[*self.dilation]} weight {(*weight,)} spans more"
            raise InputError(f"x has shape {(*x.shape,)}; {rule}")
        return [x.shape[0], outputs, *spatial]

    def of_source(self, weight: torch.Tensor, n_pixels: int) -> _Window | None:
        """The convolution with turned weights that gives the source's gradient, where it is faster than the gradient's.

        For there is Winograd's method for it.
        """
        is_small = (*weight.shape[2:], self.groups, *self.stride, *self.dilation) == (3, 3, 1, 1, 1, 1, 1)
        if not is_small or self.output_padding or max(self.padding) > 2 or n_pixels < TURNED_PIXELS:
            return None
        return self._replace(padding=[2 - pad for pad in self.padding])


_read_in = lru_cache(maxsize=4096)(weights_desc)
_copies: Any = WeakTensorKeyDictionary()
"""For each tensor of weights its version, and its packed copies by the convolutions that read them."""


def _count_writes(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Count the writes to parameters that PyTorch leaves out: those of fused optimizers."""
    for group in () if torch.compiler.is_compiling() else optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version(group["params"])


register_optimizer_step_post_hook(_count_writes)


def _kernel(
    window: _Window, source: Tensor, weight: torch.Tensor, packed: tuple[Any, str], *, has_bias: bool
) -> Tensor:
    """Weights as a convolution of this source reads them; packed where they have changed since the last time."""
    shape, layout = packed
    if layout:
        desc = _desc(window.grouped(shape), _DTYPES[weight.dtype], layout)
        if weight.nbytes != desc.nbytes:
            raise InputError(f"packed weights {desc} take {desc.nbytes} bytes; data has {weight.nbytes}")
        return _over(weight, desc.dims, layout).astype(source.dtype)
    version = -1 if weight.is_inference() else weight._version  # noqa: SLF001 - PyTorch's own
    state = version, weight.data_ptr(), weight.dtype, weight.stride()
    held = _copies.get(weight)
    if held is None or held[0] != state:
        held = _copies[weight] = (state, {})
    copies: dict[Any, Tensor] = held[1]
    key = source.desc, window.attrs, has_bias
    if key not in copies:
        desc, kernel = _to_read(window, source, weight, has_bias=has_bias)
        found = next((each for each in copies.values() if each.desc == desc), None)
        copies[key] = reorder(kernel, desc) if found is None else found
    return copies[key]


def _to_read(window: _Window, source: Tensor, weight: torch.Tensor, *, has_bias: bool) -> tuple[MemoryDesc, Tensor]:
    """The layout in which a convolution reads its weights, and the weights as they are."""
    prepare: Any = preparation_of(window.definition)[0]
    oihw = weight[:, :, None, None] if weight.dim() == 2 else weight
    _, kernel = prepare((source.desc, _entering(oihw)), window.groups, window.definition.__name__)
    plain = _desc(kernel.desc.dims, source.dtype, "contiguous_format")
    op = op_of(window.definition)
    return _read_in(op, source.desc, plain, window.attrs, "channels_last", has_bias=has_bias), kernel


@cache
def _followed_by(definition: Any, activation: str) -> Op:
    """An operator of ours, and the function that its kernel applies to each element of the result."""
    op: Op = op_of(definition)
    if not activation:
        return op
    follow = ACTIVATIONS[activation][0]
    return replace(op, build=lambda *operands, **attrs: follow(op.build(*operands, **attrs)))


def _convolved(
    window: _Window,
    source: Tensor,
    weight: torch.Tensor,
    bias: Tensor | None = None,
    activation: str = "",
    packed: tuple[Any, str] = ((), ""),
) -> Tensor:
    """The result in channels-last, whatever the source is: kernels that write row-major are slower."""
    kernel = _kernel(window, source, weight, packed, has_bias=bias is not None)
    op = _followed_by(window.definition, activation)
    return call(op, (source, kernel, bias), window.attrs, "channels_last")[0]


# --- operators of the library

_LIBRARY = torch.library.Library("blocklayout", "DEF")
_WINDOW = "int[] stride, int[] padding, int[] dilation, int[] output_padding, int groups, int[] shape, str layout"
for _schema in (
    f"convolution(Tensor x, Tensor weight, Tensor? bias, {_WINDOW}, str activation) -> Tensor",
    f"convolution_backward(Tensor grad, Tensor x, Tensor weight, {_WINDOW}, bool[] needs) -> (Tensor, Tensor, Tensor)",
):
    _LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
_forward: Any = torch.ops.blocklayout.convolution.default
_backward: Any = torch.ops.blocklayout.convolution_backward.default


def _result_order(x: torch.Tensor, weight: torch.Tensor, layout: str) -> torch.memory_format:
    """Channels-last where the source or the weights are, as eager PyTorch has it, and where weights are packed."""
    last = _LAST.get(x.dim(), _PLAIN)
    return last if layout or last in (_order(x), _order(weight)) else _PLAIN


@torch.library.impl(_LIBRARY, "convolution", "CPU")
def _compute(x: Any, weight: Any, bias: Any, *args: Any) -> torch.Tensor:
    *window, shape, layout, activation = args
    vector = None if bias is None else _entering(bias, x.dtype)
    result = _convolved(_Window(*window), _entering(x), weight, vector, activation, (shape, layout))
    return _leaving(result, _result_order(x, weight, layout))


@torch.library.register_fake(_forward, lib=_LIBRARY)
def _fake(x: Any, weight: Any, _: Any, *args: Any) -> torch.Tensor:
    *window, shape, layout, _activation = args
    extents = _Window(*window).result_shape(x, shape or weight.shape)
    return x.new_empty(extents).contiguous(memory_format=_result_order(x, weight, layout))


@torch.library.impl(_LIBRARY, "convolution", "AutocastCPU")
def _autocast(x: torch.Tensor, *others: Any) -> Any:
    """In bf16, where the CPU computes in it; weights are converted when they are packed."""
    is_narrow = torch.get_autocast_dtype("cpu") == torch.bfloat16 and not dnnl.missing_isa("bf16")
    key = torch._C.DispatchKey.AutocastCPU  # noqa: SLF001 - as torch.library.register_autocast does
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):  # noqa: SLF001 - likewise
        return _forward(x.to(torch.bfloat16) if is_narrow else x, *others)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, *ctx.window, layout, activation = inputs
    if activation not in ("", "relu"):
        raise UnsupportedError(f"blocklayout::convolution has no gradient with the activation {activation}, only relu")
    if layout and weight.requires_grad:
        raise UnsupportedError("packed weights have no gradient: give the parameter, which is packed when it changes")
    ctx.layout = layout
    ctx.save_for_backward(x, weight, bias, output if activation else None)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight, bias, rectified = ctx.saved_tensors
    if rectified is not None:
        grad = torch.ops.aten.threshold_backward(grad, rectified, 0)
    needs = [*ctx.needs_input_grad[:3]]
    found = zip(_backward(grad, x, weight, *ctx.window, ctx.layout, needs), (x, weight, bias), needs, strict=True)
    return (*(each.to(like.dtype) if needed else None for each, like, needed in found), *[None] * 8)


def _no_gradients(*_: Any) -> Any:
    raise UnsupportedError("blocklayout::convolution has no gradient of second order")


torch.library.register_autograd(_forward, _gradients, setup_context=_remember, lib=_LIBRARY)
torch.library.register_autograd(_backward, _no_gradients, lib=_LIBRARY)


@torch.library.register_fake(_backward, lib=_LIBRARY)
def _fake_gradients(grad: Any, x: Any, weight: Any, *args: Any) -> tuple[torch.Tensor, ...]:
    *of_tensors, of_bias = args[-1]
    made = (
        each.new_empty(each.shape).contiguous(memory_format=_order(each)) if needed else each.new_empty(0)
        for each, needed in zip((x, weight), of_tensors, strict=True)
    )
    return (*made, grad.new_empty(grad.shape[1] if of_bias else 0, dtype=torch.float32))


@torch.library.impl(_LIBRARY, "convolution_backward", "CPU")
def _compute_gradients(grad: Any, x: Any, weight: Any, *args: Any) -> tuple[torch.Tensor, ...]:
    *given, shape, layout, needs = args
    window = _Window(*given)
    diff, source = (_entering(each).to(memory_format="channels_last") for each in (grad, x))
    packed = _kernel(window, source, weight, (shape, layout), has_bias=False) if layout else None
    kernel = _entering(weight).astype(source.dtype) if packed is None else packed.to(memory_format="contiguous_format")
    data, plain_window = None, window._replace(output_padding=())
    of_source = None if layout else window.of_source(weight, grad[:, 0].numel())
    if needs[0] and window.output_padding:
        plain = weight if packed is None else _leaving(kernel, _PLAIN).transpose(1, 2).flatten(0, 1)
        data = _convolved(plain_window, diff, plain)
    elif needs[0] and of_source is not None:
        data = _convolved(of_source, diff, weight.flip(2, 3).transpose(0, 1))
    wanted = needs[0] and data is None, needs[1], needs[2] and not window.output_padding
    parts = [part for part, needed in zip(("data", "weights", "bias"), wanted, strict=True) if needed]
    first, second = (source, diff) if window.output_padding else (diff, source)  # a transposed one swaps them
    found = conv_backward(first, second, kernel, **dict(plain_window.attrs), needs=parts)
    data, of_weight, of_bias = found.data if data is None else data, found.weights, found.bias
    if of_bias is None:
        sums = grad.float().sum((0, *range(2, grad.dim()))) if needs[2] else grad.new_empty(0, dtype=torch.float32)
    else:
        sums = _flat(of_bias)
    made = (
        like.new_empty(0) if each is None else _leaving(each, _order(like)).to(like.dtype)
        for each, like in ((data, x), (of_weight, weight))
    )
    return (*made, sums)


# --- the functions


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor | Packed,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: str | None = None,
) -> torch.Tensor:
    """Convolution of images, as ``torch.nn.functional.conv2d``.

    Weights are brought into the layout that a kernel reads when they are first seen, and again where they have changed
    since: by a step of an optimizer, or ``load_state_dict``. Writes through ``weight.data`` are not seen.

    Args:
        x: Shape (n, channels, height, width), f32 or bf16, in any memory format.
        weight: Shape (outputs, channels / groups, kernel...), or the result of :func:`pack`.
        bias: Shape (outputs,).
        stride: One number, or one for each spatial dimension.
        padding: Likewise, or ``"same"`` or ``"valid"``.
        dilation: Distance between two taps; 1 is dense.
        groups: Groups of channels that are convolved apart.
        activation: A function of each element of the result: one of :data:`ACTIVATIONS`.

    Returns:
        The result, in the memory format that PyTorch's has; channels-last where weights are packed.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> layer = torch.nn.Conv2d(16, 32, 3, padding=1)
        >>> x = torch.rand(1, 16, 8, 8).to(memory_format=torch.channels_last)
        >>> y = conv2d(x, layer.weight, layer.bias, padding=1, activation="relu")
        >>> torch.allclose(y, layer(x).relu(), atol=1e-5), y.is_contiguous(memory_format=torch.channels_last)
        (True, True)
    """
    return _convolve("conv2d", 4, x, weight, bias, stride, padding, dilation, groups, activation)


def conv1d(x: torch.Tensor, weight: torch.Tensor | Packed, *args: Any, **kwargs: Any) -> torch.Tensor:
    """As :func:`conv2d`, with all of its arguments, of signals: ``x`` has shape (n, channels, length).

    Example:
        >>> x, layer = torch.rand(1, 4, 8), torch.nn.Conv1d(4, 8, 3)
        >>> torch.allclose(conv1d(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    return _convolve("conv1d", 3, x, weight, *args, **kwargs)


def conv3d(x: torch.Tensor, weight: torch.Tensor | Packed, *args: Any, **kwargs: Any) -> torch.Tensor:
    """As :func:`conv2d`, with all of its arguments, of volumes: ``x`` has shape (n, channels, depth, height, width).

    Example:
        >>> x, layer = torch.rand(1, 4, 5, 5, 5), torch.nn.Conv3d(4, 8, 3)
        >>> torch.allclose(conv3d(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    return _convolve("conv3d", 5, x, weight, *args, **kwargs)


def conv_transpose2d(
    x: torch.Tensor,
    weight: torch.Tensor | Packed,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    activation: str | None = None,
) -> torch.Tensor:
    """Transposed convolution, as ``torch.nn.functional.conv_transpose2d``; arguments are those of :func:`conv2d`.

    But ``weight`` has the shape (channels, outputs / groups, kernel...); ``output_padding``, less than ``stride``, is
    added to the extents of the result, at their end.

    Example:
        >>> x, layer = torch.rand(1, 4, 5, 5), torch.nn.ConvTranspose2d(4, 8, 3)
        >>> torch.allclose(conv_transpose2d(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    window = stride, padding, dilation, groups, activation, output_padding
    return _convolve("conv_transpose2d", 4, x, weight, bias, *window)


def linear(
    x: torch.Tensor, weight: torch.Tensor | Packed, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Linear layer, as ``torch.nn.functional.linear``, which computes it where gradients are recorded.

    Args:
        x: Shape (..., channels), f32 or bf16.
        weight: Shape (outputs, channels), or the result of :func:`pack`.
        bias: Shape (outputs,).
        activation: As for :func:`conv2d`.

    Example:
        >>> x, layer = torch.rand(2, 3, 4), torch.nn.Linear(4, 8)
        >>> torch.allclose(linear(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    _check("linear", "x", x, range(1, 13))
    shape = weight.shape if isinstance(weight, torch.Tensor | Packed) else ()
    if len(shape) == 2 and x.shape[-1] != shape[1]:
        raise InputError(f"linear: x has shape {(*x.shape,)}; weight {(*shape,)} takes {shape[1]} channels, the last")
    if isinstance(weight, torch.Tensor) and _is_recorded(x, weight, bias):  # packing at each step would cost more
        fused, made = checked_activation("linear", activation), functional.linear(x, weight, bias)
        return ACTIVATIONS[fused][1](made) if fused else made
    made = _convolve("linear", 4, _as_image(x), weight, bias, activation=activation)
    return made.permute(0, 2, 3, 1).reshape(*x.shape[:-1], made.shape[1])


def pack(
    weight: torch.Tensor, x: torch.Tensor, *, bias: bool = True, output_padding: Any = None, **window: Any
) -> Packed:
    """Weights in the layout in which a kernel reads them, for inference without the parameter.

    Args:
        weight: Of a convolution, or of a linear layer.
        x: An example of a source. For others the weights may be reordered at each call.
        bias: Whether there will be one.
        output_padding: Of a transposed convolution; ``None`` for all other layers.
        window: ``stride``, ``padding``, ``dilation`` and ``groups``, as for the layer.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.

    Example:
        >>> x, layer = torch.rand(1, 16, 8, 8), torch.nn.Conv2d(16, 32, 3)
        >>> packed = pack(layer.weight, x)
        >>> packed.shape, torch.allclose(conv2d(x, packed, layer.bias), layer(x), atol=1e-5)
        ((32, 16, 3, 3), True)
    """
    _check("pack", "weight", weight, range(2, 6))
    is_linear = weight.dim() == 2
    _check("pack", "x", x, range(1, 13) if is_linear else [weight.dim()])
    image = _as_image(x) if is_linear else x
    read = _window("pack", image, weight.shape, output_padding, **window)
    desc, kernel = _to_read(read, _entering(image), weight, has_bias=bias)
    return Packed(_flat(reorder(kernel, desc)), tuple(weight.shape), desc.tag)


# --- arguments


def _convolve(
    function: str,
    rank: int,
    x: torch.Tensor,
    weight: torch.Tensor | Packed,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: str | None = None,
    output_padding: Any = None,
) -> torch.Tensor:
    _check(function, "x", x, [rank])
    data, shape, layout = weight if isinstance(weight, Packed) else Packed(weight, (), "")
    _check(function, "weight", data, [1] if layout else [2 if function == "linear" else rank])
    given = shape or tuple(data.shape)
    window = _window(function, x, given, output_padding, stride, padding, dilation, groups)
    if bias is not None:
        _check(function, "bias", bias, [1], [given[1] * groups if window.output_padding else given[0]])
    fused = checked_activation(function, activation)
    if fused not in ("", "relu") and _is_recorded(x, data, bias):  # their gradients need what came before
        return ACTIVATIONS[fused][1](_forward(x, data, bias, *window, [*shape], layout, ""))
    result: torch.Tensor = _forward(x, data, bias, *window, [*shape], layout, fused)
    return result


def _window(
    function: str,
    x: torch.Tensor,
    weight: Sequence[int],
    output_padding: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> _Window:
    n = x.dim() - 2
    steps, distances = _each(function, "stride", stride, n, 1), _each(function, "dilation", dilation, n, 1)
    if padding == "same" and output_padding is None:
        if {*steps} != {1}:
            raise InputError(f"{function}: stride is {stride!r}; padding 'same' takes 1")
        spans = [distance * (extent - 1) for distance, extent in zip(distances, (*weight[2:], 1, 1)[:n], strict=True)]
        pads = [*(span // 2 for span in spans), *(span - span // 2 for span in spans)]
    else:
        pads = _each(function, "padding", 0 if padding == "valid" else padding, n, 0) * 2
    if not isinstance(groups, int) or groups < 1 or weight[0] % groups:
        raise InputError(f"{function}: groups is {groups!r}; give a divisor of weight's first extent, {weight[0]}")
    more = [] if output_padding is None else _each(function, "output_padding", output_padding, n, 0)
    if any(extra >= step for extra, step in zip(more, steps, strict=False)):
        raise InputError(f"{function}: output_padding is {output_padding!r}; give less than stride, {stride!r}")
    window = _Window(steps, pads, distances, more, groups)
    try:
        window.result_shape(x, weight)
    except InputError as error:
        raise InputError(f"{function}: {error}") from None
    return window


def _check(function: str, name: str, tensor: Any, ranks: Sequence[int], shape: Sequence[int] | None = None) -> None:
    """Refuse what is no tensor of a floating-point type of ours, or has another rank or shape."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _DTYPES:
        given = str(tensor.dtype) if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
        raise InputError(f"{function}: {name} is {given}; give a tensor in torch.float32 or torch.bfloat16")
    if tensor.dim() not in ranks or (shape is not None and tuple(tensor.shape) != tuple(shape)):
        right = f"of rank {ranks[0]}" + f" to {ranks[-1]}" * (len(ranks) > 1) if shape is None else f"{(*shape,)}"
        raise InputError(f"{function}: {name} has shape {(*tensor.shape,)}; give one {right}")


def _each(function: str, name: str, value: Any, n: int, least: int) -> list[int]:
    """One integer for each of ``n`` dimensions."""
    numbers = [*value] if isinstance(value, tuple | list) else [value] * n
    if len(numbers) != n or not all(isinstance(each, int) and each >= least for each in numbers):
        raise InputError(
            f"{function}: {name} is {value!r:.80}; give one integer, or {n} of them, each at least {least}"
        )
    return numbers


def checked_activation(function: str, name: str | None) -> str:
    """The name of an activation, empty where there is none; an InputError of others."""
    if name is not None and name not in ACTIVATIONS:
        raise InputError(f"{function}: activation is {name!r}; give one of {', '.join(ACTIVATIONS)}, or None")
    return name or ""


def _is_recorded(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)


def _as_image(x: torch.Tensor) -> torch.Tensor:
    """Rows of channels as the pixels of an image; where there are none, as no images of one pixel."""
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    return (rows[None, :, None] if rows.shape[0] else rows[:, None, None]).permute(0, 3, 1, 2)
