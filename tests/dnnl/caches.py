"""Caches of handles, to be emptied before these are counted or made anew."""

from __future__ import annotations

from blocklayout.dnnl import c_desc, primitive


def clear_descs() -> None:
    """Let go of every cached C descriptor; those still in use live on."""
    c_desc._any_to_c.cache_clear()
    c_desc._layout_to_c.cache_clear()


def clear_primitives() -> None:
    """Let go of the reorders that calls have needed, and of primitives that are shared or leave code behind."""
    primitive._held.clear()
    for cached in (primitive._reorder, primitive._lasting, primitive._smallest):
        cached.cache_clear()
