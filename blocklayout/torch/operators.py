"""Convolutions and linear layers by our kernels, as operators of PyTorch: in models that it runs, compiles and trains.

Each function is that of its name in ``torch.nn.functional``; behind them stands ``torch.ops.blocklayout.convolution``,
with a fake implementation and gradients. Tensors are read in their own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

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
from blocklayout.errors import InputError, LayoutError, ModelError, UnsupportedError
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
_FORMATS = {_PLAIN: "contiguous_format", torch.channels_last: "channels_last", torch.channels_last_3d: "channels_last"}
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
    return _over(tensor.to(dtype or tensor.dtype).contiguous(memory_format=order), tensor.shape, _FORMATS[order])


def _flat(result: Tensor) -> torch.Tensor:
    """All of a Tensor's memory."""
    return torch.from_numpy(result.buffer[: result.desc.nbytes]).view(_TORCH_DTYPES[result.dtype])


def _leaving(result: Tensor, order: torch.memory_format) -> torch.Tensor:
    """A tensor over a result's memory, in this memory format."""
    placed = result.to(memory_format=_FORMATS[order])
    return _flat(placed).as_strided(placed.desc.dims, placed.desc.strides)


# --- convolutions; a linear layer is one of 1x1


class _Convolution(NamedTuple):
    """Arguments of a convolution: as functions take them, and by :meth:`spread` as operators do, in this order."""

    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: Any = 1
    activation: Any = None
    output_padding: Any = None  # of a transposed one, and only there
    shape: Sequence[int] = ()
    layout: str = ""

    def spread(self, n: int) -> _Convolution:
        """With numbers for each of ``n`` dimensions, of padding in front and again behind; no activation is empty."""

        def each(name: str, least: int, length: int = n) -> list[int]:
            value = getattr(self, name)
            numbers = [*value] if isinstance(value, tuple | list) else [value] * length
            if len(numbers) != length or not all(isinstance(number, int) and number >= least for number in numbers):
                right = f"give one integer, or {length} of them, each at least {least}"
                raise InputError(f"{name} is {value!r:.80}; {right}")
            return numbers

        shape, stride, dilation = (*self.shape, 1, 1)[: n + 2], each("stride", 1), each("dilation", 1)
        output_padding = [] if self.output_padding is None else each("output_padding", 0)
        if any(added >= step for added, step in zip(output_padding, stride, strict=False)):
            raise InputError(f"output_padding is {self.output_padding!r}; give less than stride, {self.stride!r}")
        if self.padding == "valid":
            padding = [0] * 2 * n
        elif self.padding == "same" and not output_padding:
            if {*stride} != {1}:
                raise InputError(f"stride is {self.stride!r}; padding 'same' takes 1")
            added = [step * (extent - 1) for step, extent in zip(dilation, shape[2:], strict=True)]
            padding = [*(more // 2 for more in added), *(more - more // 2 for more in added)]
        else:
            padding = each("padding", 0) * 2
        [groups], fused = each("groups", 1, 1), checked_activation(self.activation)
        return _Convolution(stride, padding, dilation, groups, fused, output_padding, shape, self.layout)

    @property
    def definition(self) -> Any:
        """The operator of ours."""
        return Operators.conv_transpose if self.output_padding else Operators.conv

    @property
    def attrs(self) -> Attrs:
        """Its attributes."""
        numbers = self.stride, self.padding, self.dilation, self.output_padding
        named = zip(("strides", "pads", "dilations", "output_padding"), numbers, strict=True)
        return (*((name, tuple(each)) for name, each in named if each), ("group", self.groups))

    @property
    def kernel_dims(self) -> tuple[int, ...]:
        """Extents of weights as a kernel takes them."""
        groups, (first, second, *spatial) = self.groups, self.shape
        if self.output_padding:
            return (groups, second, first // groups, *spatial)
        return (first, second, *spatial) if groups == 1 else (groups, first // groups, second, *spatial)

    def of_source(self, weight: torch.Tensor, n_pixels: int) -> tuple[_Convolution, torch.Tensor] | None:
        """The convolution that gives the source's gradient, and its weights, where that is faster than the gradient's.

        For there is Winograd's method for it.
        """
        conv = self._replace(output_padding=(), layout="", activation="")
        if self.output_padding:
            return conv, weight
        is_small = (*self.shape[2:], self.groups, *self.stride, *self.dilation) == (3, 3, 1, 1, 1, 1, 1)
        if not is_small or max(self.padding) > 2 or n_pixels < TURNED_PIXELS:
            return None
        return conv._replace(padding=[2 - pad for pad in self.padding]), weight.flip(2, 3).transpose(0, 1)


_read_in = lru_cache(maxsize=4096)(weights_desc)
_copies: Any = WeakTensorKeyDictionary()
"""For each tensor of weights its version, and its packed copies by the convolutions that read them."""


def _count_writes(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Count the writes to parameters that PyTorch leaves out: those of fused optimizers."""
    for group in () if torch.compiler.is_compiling() else optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version(group["params"])


register_optimizer_step_post_hook(_count_writes)


def _kernel(conv: _Convolution, source: Tensor, weight: torch.Tensor, *, has_bias: bool) -> Tensor:
    """Weights as a convolution of this source reads them; packed where they have changed since the last time."""
    if conv.layout:
        desc = _desc(conv.kernel_dims, _DTYPES[weight.dtype], conv.layout)
        if weight.nbytes != desc.nbytes:
            raise InputError(f"packed weights {desc} take {desc.nbytes} bytes; data has {weight.nbytes}")
        return _over(weight, desc.dims, conv.layout).astype(source.dtype)
    version = -1 if weight.is_inference() else weight._version  # noqa: SLF001 - PyTorch's own
    state = version, weight.data_ptr(), weight.dtype, weight.stride()
    held = _copies.get(weight)
    if held is None or held[0] != state:
        held = _copies[weight] = (state, {})
    copies: dict[Any, Tensor] = held[1]
    key = source.desc, conv.attrs, has_bias
    if key not in copies:
        prepare: Any = preparation_of(conv.definition)[0]
        given = _entering(weight[:, :, None, None] if weight.dim() == 2 else weight)
        _, kernel = prepare((source.desc, given), conv.groups, conv.definition.__name__)
        plain, op = _desc(kernel.desc.dims, source.dtype, "contiguous_format"), op_of(conv.definition)
        desc = _read_in(op, source.desc, plain, conv.attrs, "channels_last", has_bias=has_bias)
        found = next((each for each in copies.values() if each.desc == desc), None)
        copies[key] = reorder(kernel, desc) if found is None else found
    return copies[key]


@cache
def _followed_by(definition: Any, activation: str) -> Op:
    """An operator of ours, and the function that its kernel applies to each element of the result."""
    op: Op = op_of(definition)
    if not activation:
        return op
    follow = ACTIVATIONS[activation][0]
    return replace(op, build=lambda *operands, **attrs: follow(op.build(*operands, **attrs)))


def _convolved(conv: _Convolution, source: Tensor, weight: torch.Tensor, bias: Tensor | None = None) -> Tensor:
    """The result in channels-last, whatever the source is: kernels that write row-major are slower."""
    kernel = _kernel(conv, source, weight, has_bias=bias is not None)
    return call(_followed_by(conv.definition, conv.activation), (source, kernel, bias), conv.attrs, "channels_last")[0]


# --- operators of the library

_LIBRARY = torch.library.Library("blocklayout", "DEF")
_CONV = (
    "int[] stride, int[] padding, int[] dilation, int groups, str activation, "
    "int[] output_padding, SymInt[] shape, str layout"
)
for _schema in (
    f"convolution(Tensor x, Tensor weight, Tensor? bias, {_CONV}) -> Tensor",
    f"convolution_backward(Tensor grad, Tensor x, Tensor weight, {_CONV}, bool[] needs) -> (Tensor, Tensor)",
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
    conv, vector = _Convolution(*args), None if bias is None else _entering(bias, x.dtype)
    return _leaving(_convolved(conv, _entering(x), weight, vector), _result_order(x, weight, conv.layout))


@torch.library.register_fake(_forward, lib=_LIBRARY)
def _fake(x: Any, weight: Any, _: Any, *args: Any) -> torch.Tensor:
    conv, n = _Convolution(*args), x.dim() - 2
    before, behind, spatial = conv.padding[:n], conv.padding[n:], x.shape[2:]
    longer = [extent + back - front for extent, front, back in zip(spatial, before, behind, strict=True)]
    source, kernel = x.new_empty((*x.shape[:2], *longer)), x.new_empty(conv.shape)  # PyTorch pads both ends alike
    window = conv.stride, before, conv.dilation, bool(conv.output_padding), conv.output_padding or [0] * n, conv.groups
    made = x.new_empty(torch.ops.aten.convolution(source, kernel, None, *window).shape)
    return made.contiguous(memory_format=_result_order(x, weight, conv.layout))


@torch.library.impl(_LIBRARY, "convolution", "AutocastCPU")
def _autocast(x: torch.Tensor, *others: Any) -> Any:
    """In bf16, where the CPU computes in it; weights are converted when they are packed."""
    is_narrow = torch.get_autocast_dtype("cpu") == torch.bfloat16 and not dnnl.missing_isa("bf16")
    key = torch._C.DispatchKey.AutocastCPU  # noqa: SLF001 - as torch.library.register_autocast does
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):  # noqa: SLF001 - likewise
        return _forward(x.to(torch.bfloat16) if is_narrow else x, *others)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, *ctx.conv = inputs
    conv = _Convolution(*ctx.conv)
    if conv.activation not in ("", "relu"):
        raise UnsupportedError(f"{_forward} has no gradient with the activation {conv.activation}, only relu")
    if conv.layout and weight.requires_grad:
        raise UnsupportedError("packed weights have no gradient: give the parameter, which is packed when it changes")
    ctx.save_for_backward(x, weight, bias, output if conv.activation else None)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight, bias, rectified = ctx.saved_tensors
    if rectified is not None:
        grad = torch.ops.aten.threshold_backward(grad, rectified, 0)
    *needs, of_bias = ctx.needs_input_grad[:3]
    found = zip(_backward(grad, x, weight, *ctx.conv, needs), needs, strict=True)
    sums = grad.sum((0, *range(2, grad.dim())), dtype=torch.float32).to(bias.dtype) if of_bias else None
    return (*(each if needed else None for each, needed in found), sums, *[None] * 8)


def _no_gradients(*_: Any) -> Any:
    raise UnsupportedError("blocklayout::convolution has no gradient of second order")


torch.library.register_autograd(_forward, _gradients, setup_context=_remember, lib=_LIBRARY)
torch.library.register_autograd(_backward, _no_gradients, lib=_LIBRARY)


@torch.library.register_fake(_backward, lib=_LIBRARY)
def _fake_gradients(_: Any, x: Any, weight: Any, *args: Any) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.empty_like(each, memory_format=_order(each)) if needed else each.new_empty(0)
        for each, needed in zip((x, weight), args[-1], strict=True)
    )


@torch.library.impl(_LIBRARY, "convolution_backward", "CPU")
def _compute_gradients(grad: Any, x: Any, weight: Any, *args: Any) -> tuple[torch.Tensor, ...]:
    *given, (of_x, of_weight) = args
    conv = _Convolution(*given)
    diff, source = (_entering(each).to(memory_format="channels_last") for each in (grad, x))
    if conv.layout:
        plain = _leaving(_kernel(conv, source, weight, has_bias=False), _PLAIN)
        weight = (plain.transpose(1, 2) if conv.output_padding else plain).reshape(conv.shape)
    direct = conv.of_source(weight, grad[:, 0].numel()) if of_x else None
    data = _convolved(direct[0], diff, direct[1]) if direct else None
    needs = [name for name, needed in (("data", of_x and direct is None), ("weights", of_weight)) if needed]
    first, second = (source, diff) if conv.output_padding else (diff, source)  # a transposed one swaps them
    window = dict(conv._replace(output_padding=()).attrs)
    found = conv_backward(first, second, _entering(weight).astype(source.dtype), **window, needs=needs)
    return tuple(
        like.new_empty(0) if each is None else _leaving(each, _order(like)).to(like.dtype)
        for each, like in ((found.data if data is None else data, x), (found.weights, weight))
    )


# --- the functions

P = ParamSpec("P")
R = TypeVar("R")


def _named(function: Callable[P, R]) -> Callable[P, R]:
    """The function; its errors about arguments begin with its name."""

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (InputError, LayoutError, ModelError) as error:
            raise InputError(f"{function.__name__}: {error}") from error

    return named


@_named
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
    """Convolution of images, as ``torch.nn.functional.conv2d``; the result is channels-last where weights are packed.

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
    return _convolve(4, 4, x, weight, bias, stride, padding, dilation, groups, activation)


@_named
def conv1d(x: torch.Tensor, weight: torch.Tensor | Packed, *args: Any, **kwargs: Any) -> torch.Tensor:
    """As :func:`conv2d`, with all of its arguments, of signals: ``x`` has shape (n, channels, length).

    Example:
        >>> x, layer = torch.rand(1, 4, 8), torch.nn.Conv1d(4, 8, 3)
        >>> torch.allclose(conv1d(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    return _convolve(3, 3, x, weight, *args, **kwargs)


@_named
def conv3d(x: torch.Tensor, weight: torch.Tensor | Packed, *args: Any, **kwargs: Any) -> torch.Tensor:
    """As :func:`conv2d`, with all of its arguments, of volumes: ``x`` has shape (n, channels, depth, height, width).

    Example:
        >>> x, layer = torch.rand(1, 4, 5, 5, 5), torch.nn.Conv3d(4, 8, 3)
        >>> torch.allclose(conv3d(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    return _convolve(5, 5, x, weight, *args, **kwargs)


@_named
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
    return _convolve(4, 4, x, weight, bias, stride, padding, dilation, groups, activation, output_padding)


@_named
def linear(
    x: torch.Tensor, weight: torch.Tensor | Packed, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Linear layer, as ``torch.nn.functional.linear``, which computes it where gradients are recorded.

    Arguments are those of :func:`conv2d`, but ``x`` has shape (..., channels), and ``weight`` (outputs, channels).

    Example:
        >>> x, layer = torch.rand(2, 3, 4), torch.nn.Linear(4, 8)
        >>> torch.allclose(linear(x, layer.weight, layer.bias), layer(x), atol=1e-5)
        True
    """
    _check("x", x, *range(1, 13))
    if not isinstance(weight, Packed):
        _check("weight", weight, 2)
    if weight.shape[1:] != x.shape[-1:]:
        rule = f"weight {(*weight.shape,)} takes {weight.shape[1]} channels, the last"
        raise InputError(f"x has shape {(*x.shape,)}; {rule}")
    if isinstance(weight, torch.Tensor) and _is_recorded(x, weight, bias):  # packing at each step would cost more
        fused, made = checked_activation(activation), functional.linear(x, weight, bias)
        return ACTIVATIONS[fused][1](made) if fused else made
    made = _convolve(4, 2, _as_image(x), weight, bias, activation=activation)
    return made.permute(0, 2, 3, 1).reshape(*x.shape[:-1], made.shape[1])


@_named
def pack(weight: torch.Tensor, x: torch.Tensor, *, bias: bool = True, **window: Any) -> Packed:
    """Weights in the layout in which a kernel reads them, for inference without the parameter.

    Args:
        weight: Of a convolution, or of a linear layer.
        x: An example of a source. For others the weights may be reordered at each call.
        bias: Whether there will be one.
        window: Those of ``stride``, ``padding``, ``dilation``, ``groups`` and ``output_padding`` that the layer states.
            A transposed one states ``output_padding``, maybe 0.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.

    Example:
        >>> x, layer = torch.rand(1, 16, 8, 8), torch.nn.Conv2d(16, 32, 3)
        >>> packed = pack(layer.weight, x)
        >>> packed.shape, torch.allclose(conv2d(x, packed, layer.bias), layer(x), atol=1e-5)
        ((32, 16, 3, 3), True)
    """
    _check("weight", weight, 2, 3, 4, 5)
    is_linear = weight.dim() == 2
    _check("x", x, *(range(1, 13) if is_linear else [weight.dim()]))
    source = _entering(_as_image(x) if is_linear else x)
    conv = _Convolution(shape=weight.shape, **window).spread(source.ndim - 2)
    kernel = _kernel(conv, source, weight.detach(), has_bias=bias)  # by another name: it is not kept
    return Packed(_flat(kernel), tuple(weight.shape), kernel.desc.tag)


# --- arguments


def _convolve(
    rank: int, rank_of_weight: int, x: torch.Tensor, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> torch.Tensor:
    _check("x", x, rank)
    data, shape, layout = weight if isinstance(weight, Packed) else (weight, None, "")
    _check("weight", data, 1 if layout else rank_of_weight)
    if bias is not None:
        _check("bias", bias, 1)
    conv = _Convolution(*args, **kwargs | {"shape": shape or data.shape, "layout": layout}).spread(rank - 2)
    if conv.activation not in ("", "relu") and _is_recorded(x, data, bias):  # their gradients need what came before
        return ACTIVATIONS[conv.activation][1](_forward(x, data, bias, *conv._replace(activation="")))
    return _forward(x, data, bias, *conv)


def _check(name: str, tensor: Any, *ranks: int) -> None:
    """Refuse what is no tensor of a floating-point type of ours, or has another rank."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _DTYPES:
        given = str(tensor.dtype) if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
        raise InputError(f"{name} is {given}; give a tensor in torch.float32 or torch.bfloat16")
    if tensor.dim() not in ranks:
        raise InputError(f"{name} has shape {(*tensor.shape,)}; give one of rank {', '.join(map(str, ranks))}")


def checked_activation(name: str | None, function: str = "") -> str:
    """The name of an activation, empty where there is none; an InputError of others, which begins with the function."""
    if name is not None and name not in ACTIVATIONS:
        raise InputError(f"{function}activation is {name!r}; give one of {', '.join(ACTIVATIONS)}, or None")
    return name or ""


def _is_recorded(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)


def _as_image(x: torch.Tensor) -> torch.Tensor:
    """Rows of channels as the pixels of an image; where there are none, as no images of one pixel."""
    rows = torch.atleast_2d(x).flatten(0, -2)
    return (rows[None, :, None] if rows.shape[0] else rows[:, None, None]).permute(0, 3, 1, 2)
