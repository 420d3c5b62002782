"""oneDNN's objects, one to one, and nothing of C outside of this package.

Importing it loads neither the library nor the modules below: each name is fetched from its home at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import AnyDesc as AnyDesc
    from blocklayout.dnnl.any_desc import Desc as Desc
    from blocklayout.dnnl.handles import live_handles as live_handles
    from blocklayout.dnnl.library import fmt_tag_names as fmt_tag_names
    from blocklayout.dnnl.library import has_bf16 as has_bf16
    from blocklayout.dnnl.library import isa as isa
    from blocklayout.dnnl.library import version as version
    from blocklayout.dnnl.memory import Memory as Memory
    from blocklayout.dnnl.memory import aligned_empty as aligned_empty

_NAMES_BY_HOME = {
    "any_desc": ("AnyDesc", "Desc"),
    "handles": ("live_handles",),
    "library": ("fmt_tag_names", "has_bf16", "isa", "version"),
    "memory": ("Memory", "aligned_empty"),
}
_HOMES = {name: f"blocklayout.dnnl.{home}" for home, names in _NAMES_BY_HOME.items() for name in names}

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all, and a test compares them with the imports above


if not TYPE_CHECKING:  # a type checker that saw it would believe in any name

    def __getattr__(name: str) -> Any:
        """Fetch a public name from its home, once."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    """The public names, fetched or not."""
    return sorted({*globals(), *__all__})
