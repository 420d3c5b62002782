"""Structs to JSON and back, every field checked against its annotation."""

from __future__ import annotations

import json
import re
from abc import ABCMeta
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from blocklayout.dnnl import Spec, validate
from blocklayout.errors import BlockLayoutError
from blocklayout.ir import Fused, HostSpec, ValueLayout
from blocklayout.layout import FormatTag, MemoryDesc

_Record = TypeVar("_Record")


def _either(*kinds: type) -> Any:
    """A type of which values of several are: msgspec leaves fields of one type to its hook, and no unions."""
    either = ABCMeta("Either", (), {})
    for kind in kinds:
        either.register(kind)
    return either


if TYPE_CHECKING:
    SpecField = Spec | HostSpec
    LayoutField = ValueLayout
    TagField = FormatTag
else:
    SpecField, LayoutField, TagField = _either(Spec, HostSpec), _either(MemoryDesc, Fused), _either(FormatTag)

_LOCATED = re.compile(r"(.*) - at `(?:key in )?\$(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


class MisfitError(ValueError):
    """A text is no JSON, or a value in it not of its field's type; the message begins with the way to the field."""


def to_json(value: Any, indent: int | None = None) -> str:
    """A Struct as JSON text."""
    separators = (",", ":") if indent is None else None
    return json.dumps(_data(value), indent=indent, separators=separators, ensure_ascii=False)


def _data(value: Any) -> Any:
    """As what JSON has."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return [_data(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _data(item) for key, item in value.items()}
    if isinstance(value, FormatTag):
        return value.text
    if isinstance(value, MemoryDesc):
        value = value.canonical
    if hasattr(value, "to_dict"):
        return value.to_dict()
    config = value.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag else {}
    return tag | {name: _data(getattr(value, name)) for name in value.__struct_fields__}


def from_json(kind: type[_Record], text: str | bytes) -> _Record:
    """The Struct that :func:`to_json` was given; fields that it does not have are passed over.

    Raises:
        MisfitError: It is no JSON, or a field is missing or not of its type.
    """
    own = partial(_own, {})
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=own)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MisfitError(_with_path_first(str(error))) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = f"no JSON: {error}"
        with suppress(RecursionError, ValueError):  # unless it is NaN, which Python writes: its field is named
            reason = _with_path_first(_reason_against(kind, json.loads(text, parse_constant=str), own) or reason)
        raise MisfitError(reason) from error


def _reason_against(kind: type, data: Any, own: Callable[[type, Any], Any]) -> str | None:
    try:
        msgspec.convert(data, kind, dec_hook=own)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _own(known: dict[str, Any], kind: type, data: Any) -> Any:
    """A value that a function of its own reads; values of equal texts are one."""
    text = repr(data)
    if text not in known:
        if not isinstance(data, str if kind is TagField else Mapping):
            raise TypeError(f"{'a text' if kind is TagField else 'an object'} is wanted, not {data!r:.60}")
        try:
            known[text] = _READERS[kind](data)
        except (BlockLayoutError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from error
    return known[text]


_READERS: dict[object, Callable[[Any], Any]] = {
    SpecField: lambda data: HostSpec.from_dict(data) if "host" in data else validate(Spec.from_dict(data)),
    LayoutField: lambda data: Fused.from_dict(data) if "fused" in data else MemoryDesc.from_dict(data),
    MemoryDesc: MemoryDesc.from_dict,
    TagField: FormatTag.parse,
}


def _with_path_first(message: str) -> str:
    """``steps.0.kernel: Expected `str`, got `int``` of msgspec's message, which has the path behind it."""
    found = _LOCATED.fullmatch(message)
    reason, path = found.groups() if found else (message, "")
    missing = _MISSING.fullmatch(reason)
    if missing:
        reason, path = "it is missing", f"{path}.{missing[1]}"
    where = path.replace("[", ".").replace("]", "").strip(".")
    return f"{where or 'the text'}: {reason}"
