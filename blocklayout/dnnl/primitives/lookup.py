"""Lookup: bytes in the place of others, by a table; the library has no such primitive."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, Kind, draft, validate
from blocklayout.dnnl.primitives._checks import check_dims, check_dtype, check_no_attributes
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES

N_BYTES = 256
"""Elements of a table: one for each byte, those of negative numbers behind the others."""


def lookup(src: Desc, table: Desc, dst: Desc, *, n_threads: int | None = None) -> Spec:
    """The byte of the table for each of the source's.

    Args:
        src: u8 or s8, in any dense layout without padding.
        table: 256 bytes: for 0 to 127, then for 128 to 255, or -128 to -1.
        dst: Of the table's data type, in the source's layout.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> src, table = MemoryDesc((1, 16, 4, 4), "s8", "nhwc"), MemoryDesc((256,), "u8")
        >>> lookup(src, table, src.with_dtype("u8"), n_threads=1).desc("dst").dtype
        'u8'
    """
    return validate(draft("lookup", {"src": src, "table": table, "dst": dst}, n_threads=n_threads))


def _validate(spec: Spec) -> None:
    check_no_attributes(spec)
    check_dims(spec, "table", (N_BYTES,), "all bytes")
    check_dtype(spec, "src", BYTE_DTYPES, "lookup")
    check_dtype(spec, "table", BYTE_DTYPES, "lookup")
    check_dtype(spec, "dst", (spec.desc("table").dtype,), "lookup")


_ARGUMENTS = ("src", "table", "dst")
KIND = Kind(directions={"": Direction("", _ARGUMENTS, laid_out=_ARGUMENTS, keeps_extents=True)}, validate=_validate)
