"""A model's inputs and outputs as its caller holds them: formats at the border, and extents in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from blocklayout import model
from blocklayout.errors import InputError, LayoutError, did_you_mean
from blocklayout.layout import FormatTag
from blocklayout.layout.ordering import named_format
from blocklayout.loading import options
from blocklayout.model.shapes import concrete_extents
from blocklayout.plan.plan import FREE
from blocklayout.runtime import InputInfo, OutputInfo
from blocklayout.runtime.inputs import shape_text

if TYPE_CHECKING:
    from blocklayout.model import Graph, ModelFile, OnnxModel

    Opened = OnnxModel | Graph | ModelFile
    Asked = Mapping[str, Sequence[int | tuple[int, int]]]

_Info = TypeVar("_Info", bound=InputInfo)


def signature_of(opened: Opened, io_layout: Mapping[str, str]) -> tuple[list[InputInfo], list[OutputInfo]]:
    """Inputs and outputs as the caller sees them, extents in the order of ``io_layout``."""
    declared = model.signature(opened)
    inputs = [InputInfo(info.name, info.extents, info.dtype, container=info.container) for info in declared.inputs]
    outputs = [OutputInfo(info.name, info.extents, info.dtype, container=info.container) for info in declared.outputs]
    names = list(dict.fromkeys(info.name for info in (*inputs, *outputs)))
    for name in io_layout:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise InputError(f"io_layout: no input or output {name!r}; there are {', '.join(names)}{hint}")
    return [_with_layout(info, io_layout) for info in inputs], [_with_layout(info, io_layout) for info in outputs]


def extents_of(inputs: Sequence[InputInfo], shapes: Mapping[str, Sequence[Any]]) -> dict[str, tuple[int, ...]]:
    """The extents of every input as the caller's array has them, given or declared; of ranges the largest."""
    if any(info.ranges for info in inputs):
        return {info.name: tuple(most for _, most in info.ranges) for info in inputs}
    return concrete_extents([model.DeclaredValue(info.name, info.dtype, info.shape) for info in inputs], shapes)


def with_ranges(inputs: Sequence[InputInfo], shapes: Asked) -> list[InputInfo]:
    """Inputs with their ranges, where an extent is asked for as the least and the most: then all have some.

    A number is the range of itself. An extent that the model fixes within a range is that.
    """
    if not options.has_ranges(shapes):
        return list(inputs)
    declared = {info.name: info.shape for info in inputs}
    pairs = {name: _fixed(name, options.ranges_of(name, shape), declared.get(name)) for name, shape in shapes.items()}
    least, most = (
        extents_of(inputs, {name: tuple(pair[end] for pair in of) for name, of in pairs.items()}) for end in (0, 1)
    )
    return [replace(info, ranges=tuple(zip(least[info.name], most[info.name], strict=True))) for info in inputs]


def _fixed(name: str, ranges: Sequence[tuple[int, int]], declared: Sequence[object] | None) -> list[tuple[int, int]]:
    """With the extents that the model fixes in place of ranges around them."""
    found = list(ranges)
    for axis, ((least, most), extent) in enumerate(zip(ranges, declared or (), strict=False)):
        if isinstance(extent, int) and least < most:
            if not least <= extent <= most:
                raise InputError(
                    f"input {name!r} is declared {shape_text(declared or ())}: extent {axis} is fixed to {extent}, "
                    f"which the range {least} to {most} does not contain"
                )
            found[axis] = extent, extent
    return found


def check_rank(info: InputInfo, shape: Sequence[object]) -> None:
    """Refuse a value whose rank its format does not have."""
    if info.layout is not None and len(shape) != info.layout.ndims:
        raise LayoutError(
            f"io_layout: {info.name!r} has rank {len(shape)}, and {info.layout} is a format of rank {info.layout.ndims}"
        )


def _with_layout(info: _Info, io_layout: Mapping[str, str]) -> _Info:
    """Declared in the order in which the caller holds it."""
    if info.name not in io_layout:
        return info
    layout = io_layout[info.name]
    if layout == FREE:
        return replace(info, is_free=True)
    parsed = replace(info, layout=_parse(info, layout))
    if info.shape is None:
        return parsed
    check_rank(parsed, info.shape)
    return parsed if parsed.order is None else replace(parsed, shape=tuple(info.shape[axis] for axis in parsed.order))


def _parse(info: InputInfo, layout: str) -> FormatTag:
    if not isinstance(layout, str):
        raise LayoutError(f"io_layout: {info.name!r} wants the name of a format such as 'nhwc', not {layout!r}")
    if layout.startswith("channels_") and info.shape is None:
        raise LayoutError(
            f"io_layout: the rank of {info.name!r} is not declared; give a tag such as nhwc, not {layout}"
        )
    try:
        named = named_format(layout, len(info.shape)) if info.shape is not None else None
        return named or FormatTag.parse(layout)
    except LayoutError as error:
        raise LayoutError(f"io_layout: {info.name!r}: {error}") from None
