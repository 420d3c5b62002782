"""Other extents: views where the bytes may stay as they are, else what keeps its rank has the source's format."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import Known, as_tensor, hashable, integers
from blocklayout.errors import InputError, LayoutError
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.model import BuildValue


def _shuffled(x: BuildValue, groups: int) -> BuildValue:
    n, c, *spatial = x.shape
    split = x.reshape((n, groups, c // groups, *spatial))
    return split.transpose((0, 2, 1, *range(3, 3 + len(spatial)))).reshape(x.shape)


def _resized(x: BuildValue, scales: Any = None, sizes: Any = None, **attrs: Any) -> Any:
    return x.builder.op("Resize", x, None, scales, sizes, **attrs)


_RESHAPE = Op("reshape", build=lambda x, shape: x.reshape(shape), op_type="Reshape")
_EXPAND = Op("expand", ("x", "shape"), op_type="Expand")
_CONCAT = Op("concat", build=lambda *tensors, axis: tensors[0].builder.concat(tensors, axis), op_type="Concat")
_SPLIT = Op("split", build=lambda x, sizes, axis: x.split(sizes, axis))
_SLICE = Op("slice", ("x", "starts", "ends", "axes", "steps"), op_type="Slice")
_PAD = Op("pad", ("x", "pads", "value"), op_type="Pad")
_RESIZE = Op("resize", ("x", "scales", "sizes"), _resized, op_type="Resize")
_UPSAMPLE = Op("upsample", ("x", "scales"), op_type="Upsample")
_CHANNEL_SHUFFLE = Op("channel_shuffle", build=_shuffled)


def reshape(x: Operand, shape: Sequence[int]) -> Tensor:
    """Other extents for the same elements in row-major order; -1 is worked out, 0 is the extent before.

    A view where the bytes may stay as they are; else a row-major Tensor.

    Raises:
        InputError: Another number of elements.
    """
    source = as_tensor(x, "x")
    dims = _worked_out(source.shape, tuple(shape))
    view = _view(source, dims)
    return call(_RESHAPE, (source,), (("shape", dims),))[0] if view is None else view


def flatten(x: Operand, axis: int = 1) -> Tensor:
    """A matrix: the dimensions before ``axis`` are its rows. As :func:`reshape`."""
    source = as_tensor(x, "x")
    if not -source.desc.ndims <= axis <= source.desc.ndims:
        raise InputError(f"flatten: axis {axis} of {source.desc.ndims} dimensions")
    return reshape(source, (prod(source.shape[:axis]), prod(source.shape[axis:])))


def squeeze(x: Operand, axes: int | Sequence[int] | None = None) -> Tensor:
    """Without the dimensions ``axes``, or all, of extent 1. As :func:`reshape`."""
    source = as_tensor(x, "x")
    gone = _axes(axes, source.desc.ndims) if axes is not None else {d for d, n in enumerate(source.shape) if n == 1}
    if any(source.shape[axis] != 1 for axis in gone):
        raise InputError(f"squeeze: axes {sorted(gone)} of {source.shape} must have an extent of 1")
    return reshape(source, tuple(n for axis, n in enumerate(source.shape) if axis not in gone) or (1,))


def unsqueeze(x: Operand, axes: int | Sequence[int]) -> Tensor:
    """With a dimension of extent 1 at each of ``axes``, as they are numbered in the result. As :func:`reshape`."""
    source = as_tensor(x, "x")
    ndims = source.desc.ndims + (1 if isinstance(axes, int) else len(axes))
    new, old = _axes(axes, ndims), iter(source.shape)
    return reshape(source, tuple(1 if axis in new else next(old) for axis in range(ndims)))


def transpose(x: Operand, perm: Sequence[int] | None = None) -> Tensor:
    """Dimensions in the order ``perm``, reversed by default: a view, see :meth:`Tensor.permute`."""
    source = as_tensor(x, "x")
    return source.permute(*(reversed(range(source.desc.ndims)) if perm is None else perm))


def expand(x: Operand, shape: Sequence[int]) -> Tensor:
    """Repeated along dimensions of extent 1, as numpy broadcasts."""
    return call(_EXPAND, (as_tensor(x, "x"), integers(shape)))[0]


def concat(tensors: Sequence[Operand], axis: int = 1) -> Tensor:
    """Tensors side by side along ``axis``, in the format of the first; where another differs, the caller is warned."""
    operands = tuple(as_tensor(each, f"tensors[{number}]") for number, each in enumerate(tensors))
    if not operands:
        raise InputError("concat: give at least one tensor")
    return call(_CONCAT, operands, (("axis", axis),))[0]


def split(x: Operand, sizes: Sequence[int], axis: int = 1) -> tuple[Tensor, ...]:
    """Parts of so many elements each along ``axis``, each in the source's format."""
    source = as_tensor(x, "x")
    return tuple(call(_SPLIT, (source,), (("sizes", tuple(sizes)), ("axis", axis))))


def slice(
    x: Operand, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] | None = None
) -> Tensor:
    """Every ``steps``-th element from ``starts`` to before ``ends`` along ``axes``, copied."""
    numbers = (starts, ends, axes, *(() if steps is None else (steps,)))
    return call(_SLICE, (as_tensor(x, "x"), *map(integers, numbers)))[0]


def pad(x: Operand, pads: Sequence[int], value: float = 0.0, *, mode: str = "constant") -> Tensor:
    """More elements around: ``pads`` has all begins, then all ends; ``mode`` is ONNX's.

    Where elements are taken from ``x`` (``reflect``, ``edge``, ``wrap``), ``value`` has no say.
    """
    source = as_tensor(x, "x")
    filled = Known(float(value), "float32") if mode == "constant" else None
    return call(_PAD, (source, integers(pads), filled), (("mode", mode),))[0]


def resize(
    x: Operand,
    *,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    mode: str = "nearest",
    **attrs: Any,
) -> Tensor:
    """Interpolation to other spatial extents.

    Args:
        x: Shape (n, c, spatial...).
        scales: Factors of all dimensions; or
        sizes: extents of all dimensions.
        mode: ``nearest``, ``linear`` or ``cubic``.
        attrs: ONNX's others, such as ``coordinate_transformation_mode``.

    Raises:
        InputError: Neither or both of ``scales`` and ``sizes`` are given.
    """
    if (scales is None) == (sizes is None):
        raise InputError("resize: give either scales or sizes")
    factors = None if scales is None else Known(tuple(map(float, scales)), "float32")
    extents = None if sizes is None else integers(sizes)
    given = tuple((name, hashable(each)) for name, each in sorted(attrs.items()))
    return call(_RESIZE, (as_tensor(x, "x"), factors, extents), (("mode", mode), *given))[0]


def upsample(x: Operand, scales: Sequence[float], mode: str = "nearest") -> Tensor:
    """More pixels by factors of all dimensions; :func:`resize` does more."""
    return call(_UPSAMPLE, (as_tensor(x, "x"), Known(tuple(map(float, scales)), "float32")), (("mode", mode),))[0]


def channel_shuffle(x: Operand, groups: int) -> Tensor:
    """Channels that lay side by side in ``groups`` groups in turn: one of each, and again."""
    source = as_tensor(x, "x")
    if source.desc.ndims < 3 or groups < 1 or source.shape[1] % groups:
        raise InputError(f"channel_shuffle: {groups} groups must divide the channels of {source.shape}")
    return call(_CHANNEL_SHUFFLE, (source,), (("groups", groups),))[0]


def _view(x: Tensor, dims: tuple[int, ...]) -> Tensor | None:
    """Other extents over the same bytes; ``None`` where these would have to move."""
    with suppress(LayoutError):
        desc = x.desc.reshaped(dims)
        if desc.nbytes == x.desc.nbytes:
            return Tensor(desc, x.buffer)
    return None


def _worked_out(dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    known = tuple(dims[axis] if n == 0 and axis < len(dims) else n for axis, n in enumerate(shape))
    rest = prod(n for n in known if n != -1)
    if known.count(-1) == 1 and rest and prod(dims) % rest == 0:
        known = tuple(prod(dims) // rest if n == -1 else n for n in known)
    if any(n < 0 for n in known) or prod(known) != prod(dims):
        raise InputError(f"reshape: {dims} has {prod(dims)} elements, which is not what {shape} has")
    return known


def _axes(axes: int | Sequence[int], ndims: int) -> set[int]:
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    if any(not -ndims <= axis < ndims for axis in given):
        raise InputError(f"axes {given} of {ndims} dimensions; they are {-ndims} to {ndims - 1}")
    return {axis % ndims for axis in given}
