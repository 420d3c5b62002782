"""Formats in which inputs and outputs cross the border between a model and its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from blocklayout.errors import InputError, LayoutError, did_you_mean
from blocklayout.layout import FormatTag
from blocklayout.layout.ordering import named_format
from blocklayout.plan.plan import FREE

if TYPE_CHECKING:
    from blocklayout.runtime.inputs import InputInfo

    Info = TypeVar("Info", bound=InputInfo)


def check_names(io_layout: Mapping[str, str], infos: Iterable[InputInfo]) -> None:
    """Refuse formats for what is neither an input nor an output.

    Raises:
        InputError: The message names what there is.
    """
    names = list(dict.fromkeys(info.name for info in infos))
    for name in io_layout:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise InputError(f"io_layout: no input or output {name!r}; there are {', '.join(names)}{hint}")


def with_layouts(infos: Iterable[Info], io_layout: Mapping[str, str]) -> list[Info]:
    """Inputs or outputs, declared in the order in which the caller holds them.

    Args:
        infos: With extents in the model's own order.
        io_layout: Format tags, ``channels_last``, ``channels_first``, or ``any`` for what the plan chooses, by name.

    Raises:
        LayoutError: No such format, or one of another rank.
    """
    return [_with_layout(info, io_layout[info.name]) if info.name in io_layout else info for info in infos]


def check_rank(info: InputInfo, shape: Sequence[object]) -> None:
    """Refuse a value whose rank its format does not have.

    Raises:
        LayoutError: The message names both.
    """
    if info.layout is not None and len(shape) != info.layout.ndims:
        raise LayoutError(
            f"io_layout: {info.name!r} has rank {len(shape)}, and {info.layout} is a format of rank {info.layout.ndims}"
        )


def _with_layout(info: Info, layout: str) -> Info:
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
