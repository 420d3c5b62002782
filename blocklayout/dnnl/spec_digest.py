"""A short name for a Spec that is the same in every process: the key under which its cost is kept."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.attr import Attr
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

DIGEST_NBYTES = 16
"""Enough that no two of a billion Specs share a digest."""

_MAX_CACHED = 8192


@lru_cache(maxsize=_MAX_CACHED)
def spec_digest(spec: Spec) -> bytes:
    """``DIGEST_NBYTES`` bytes that equal Specs share, and no others.

    Not of :meth:`Spec.to_dict`, which takes longer, and in which 1 and 1.0 differ.

    Example:
        >>> from blocklayout import dnnl
        >>> def relu(tag):
        ...     return dnnl.eltwise(dnnl.MemoryDesc((2, 17, 4, 4), "f32", tag), algorithm="relu", n_threads=1)
        >>> spec_digest(relu("nhwc")) == spec_digest(relu("acdb")) != spec_digest(relu("nchw"))
        True
    """
    names = (spec.kind, spec.algorithm, spec.prop_kind, spec.impl, spec.n_threads)
    descs = [(name, _desc_text(desc)) for name, desc in spec.descs]
    text = repr((names, descs, _canonical(spec.params), _attr_text(spec.attr)))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_NBYTES).digest()


# A network's Specs share most of their descriptors and attributes.


@lru_cache(maxsize=_MAX_CACHED)
def _desc_text(desc: Desc) -> str:
    if isinstance(desc, AnyDesc):
        return repr(("any", desc.dtype, desc.dims))
    layout = desc.layout
    blocks = (layout.inner_blks, layout.inner_idxs)
    return repr((desc.dtype, desc.dims, desc.padded_dims, layout.strides, blocks, desc.offset0))


@lru_cache(maxsize=_MAX_CACHED)
def _attr_text(attr: Attr) -> str:
    return repr(_canonical(attr))


def _canonical(value: Any) -> Any:
    """The value as nested tuples that print alike where values are equal."""
    if isinstance(value, MemoryDesc | AnyDesc):
        return _desc_text(value)
    if isinstance(value, Struct):
        return (type(value).__name__, *map(_canonical, astuple(value)))
    if isinstance(value, tuple):
        return tuple(map(_canonical, value))
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 equals 1, and -0.0 equals 0
    return value
