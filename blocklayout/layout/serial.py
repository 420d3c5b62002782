"""Descriptors as JSON values, as source text, and as a notebook shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocklayout.errors import LayoutError
from blocklayout.layout.fields import integers
from blocklayout.layout.geometry import Layout, Placement
from blocklayout.layout.tag import FormatTag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.layout.desc import MemoryDesc

_KEYS = {"dims", "dtype", "tag", "role", "strides", "inner_blks", "inner_idxs", "padded_dims", "offset", "format"}


def to_dict(desc: MemoryDesc) -> dict[str, Any]:
    """``desc`` as plain values: by tag where the tag says it all, else by strides and blocks."""
    data: dict[str, Any] = {"dims": list(desc.dims), "dtype": desc.dtype}
    if is_all_in_tag(desc):
        data["tag"] = desc.tag
    else:
        data |= {"strides": list(desc.strides)}
        if desc.inner_blks:
            data |= {"inner_blks": list(desc.inner_blks), "inner_idxs": list(desc.inner_idxs)}
        if any(extent % block for extent, block in zip(desc.padded_dims, desc.layout.blocks, strict=True)):
            data["padded_dims"] = list(desc.padded_dims)
    if desc.offset0:
        data["offset"] = desc.offset0
    if "strides" in data and from_dict(data).format_tag != desc.format_tag:
        data["format"] = desc.format_tag.text  # what it is called, which its strides do not tell
    return data


def is_all_in_tag(desc: MemoryDesc) -> bool:
    """Whether the tag and the extents give exactly these strides and this padding."""
    from blocklayout.layout.desc import MemoryDesc

    if desc.canonical_tag is None:
        return False
    return MemoryDesc(desc.dims, desc.dtype, desc.canonical_tag, offset=desc.offset0) == desc


def from_dict(data: Mapping[str, Any]) -> MemoryDesc:
    """The descriptor that :func:`to_dict` wrote.

    Raises:
        LayoutError: A key is missing or unknown, or no such descriptor can exist.
    """
    from blocklayout.layout.desc import MemoryDesc, as_part, build

    unknown = sorted(set(data) - _KEYS)
    if unknown or not {"dims", "dtype"} <= set(data) or ("tag" in data) == ("strides" in data):
        raise LayoutError(f"a descriptor has dims, dtype, and either tag or strides; got {sorted(data)}")
    if "tag" in data:
        return MemoryDesc(data["dims"], data["dtype"], data["tag"], offset=data.get("offset", 0))
    blks = integers("inner_blks", data.get("inner_blks", ()))
    idxs = integers("inner_idxs", data.get("inner_idxs", ()))
    layout = Layout(integers("strides", data["strides"]), blks, idxs)
    desc = MemoryDesc(data["dims"], data["dtype"], layout, offset=data.get("offset", 0))
    placement = desc.placement
    if "padded_dims" in data:
        padded_dims = integers("padded_dims", data["padded_dims"])
        _check_padding(desc, padded_dims)
        placement = Placement(desc.dims, padded_dims, layout, desc.offset0)
    if "format" not in data:
        return desc if placement is desc.placement else build(placement, desc.dtype)
    return as_part(placement, desc.dtype, _format_of(desc, data["format"]))


def _format_of(desc: MemoryDesc, name: object) -> FormatTag:
    tag = FormatTag.parse(name) if isinstance(name, str) else None
    if tag is None or (tag.ndims, tag.inner_blks, tag.inner_idxs) != (desc.ndims, desc.inner_blks, desc.inner_idxs):
        raise LayoutError(f"format {name!r} must name the dimensions and blocks of {desc}")
    return tag


def _check_padding(desc: MemoryDesc, padded_dims: tuple[int, ...]) -> None:
    whole = desc.padded_dims
    fits = len(padded_dims) == desc.ndims and all(
        low <= extent <= high for low, extent, high in zip(desc.dims, padded_dims, whole, strict=True)
    )
    if not fits:
        raise LayoutError(f"padded_dims {padded_dims} must lie between dims {desc.dims} and whole blocks {whole}")


def as_source(desc: MemoryDesc) -> str:
    """The expression that makes ``desc``, as nearly as a tag or strides can say it."""
    shift = f", offset={desc.offset0}" if desc.offset0 else ""
    if desc.canonical_tag is not None:
        return f"MemoryDesc({desc.dims}, {desc.dtype!r}, {desc.tag!r}{shift})"
    if not desc.inner_blks:
        return f"MemoryDesc({desc.dims}, {desc.dtype!r}, strides={desc.strides}{shift})"
    return f"MemoryDesc({desc.dims}, {desc.dtype!r}, {desc.layout}{shift})"


def as_html(desc: MemoryDesc) -> str:
    """A small table for notebooks."""
    from html import escape

    rows = {
        "dims": desc.dims,
        "data type": desc.dtype,
        "layout": f"{desc.tag} ({desc.canonical_tag or 'no tag'})",
        "padded dims": desc.padded_dims,
        "strides": desc.strides,
        "inner blocks": desc.inner_blks or "none",
        "bytes": f"{desc.nbytes}, {desc.n_padding * desc.itemsize} of them padding",
    }
    cells = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table><caption>MemoryDesc</caption>{cells}</table>"
