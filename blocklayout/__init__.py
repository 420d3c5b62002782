"""blocklayout runs convolutional networks on CPUs and chooses every tensor's memory layout.

Importing it loads nothing but this file: each name below is fetched from its home at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout import dnnl as dnnl
    from blocklayout.api import load as load
    from blocklayout.api import save as save
    from blocklayout.errors import BlockLayoutError as BlockLayoutError
    from blocklayout.errors import BlockLayoutWarning as BlockLayoutWarning
    from blocklayout.errors import CostStoreWarning as CostStoreWarning
    from blocklayout.errors import DnnlError as DnnlError
    from blocklayout.errors import ExportError as ExportError
    from blocklayout.errors import InputError as InputError
    from blocklayout.errors import InvalidArgumentsError as InvalidArgumentsError
    from blocklayout.errors import LayoutError as LayoutError
    from blocklayout.errors import LayoutLossWarning as LayoutLossWarning
    from blocklayout.errors import ModelError as ModelError
    from blocklayout.errors import OutOfMemoryError as OutOfMemoryError
    from blocklayout.errors import PlainKernelWarning as PlainKernelWarning
    from blocklayout.errors import PlanError as PlanError
    from blocklayout.errors import PlanMisfitWarning as PlanMisfitWarning
    from blocklayout.errors import PositionError as PositionError
    from blocklayout.errors import UnimplementedError as UnimplementedError
    from blocklayout.errors import UnsupportedError as UnsupportedError
    from blocklayout.errors import WatchError as WatchError
    from blocklayout.errors import WatchWarning as WatchWarning
    from blocklayout.layout import FormatTag as FormatTag
    from blocklayout.layout import Layout as Layout
    from blocklayout.layout import MemoryDesc as MemoryDesc
    from blocklayout.model import Builder as Builder
    from blocklayout.plan import Plan as Plan
    from blocklayout.runtime import Session as Session
    from blocklayout.tensor import Tensor as Tensor
    from blocklayout.tensor import as_tensor as as_tensor
    from blocklayout.tensor import channels_first as channels_first
    from blocklayout.tensor import channels_last as channels_last
    from blocklayout.tensor import contiguous_format as contiguous_format
    from blocklayout.tensor import empty as empty
    from blocklayout.tensor import empty_like as empty_like
    from blocklayout.tensor import full as full
    from blocklayout.tensor import full_like as full_like
    from blocklayout.tensor import ones as ones
    from blocklayout.tensor import ones_like as ones_like
    from blocklayout.tensor import preserve_format as preserve_format
    from blocklayout.tensor import reorder as reorder
    from blocklayout.tensor import tensor as tensor
    from blocklayout.tensor import zeros as zeros
    from blocklayout.tensor import zeros_like as zeros_like
    from blocklayout.watching import Watch as Watch
    from blocklayout.watching import watch as watch

    __version__: str

_NAMES_BY_HOME = {
    "api": ("load", "save"),
    "errors": (
        "BlockLayoutError",
        "BlockLayoutWarning",
        "CostStoreWarning",
        "DnnlError",
        "ExportError",
        "InputError",
        "InvalidArgumentsError",
        "LayoutError",
        "LayoutLossWarning",
        "ModelError",
        "OutOfMemoryError",
        "PlainKernelWarning",
        "PlanError",
        "PlanMisfitWarning",
        "PositionError",
        "UnimplementedError",
        "UnsupportedError",
        "WatchError",
        "WatchWarning",
    ),
    "layout": ("FormatTag", "Layout", "MemoryDesc"),
    "model": ("Builder",),
    "plan": ("Plan",),
    "runtime": ("Session",),
    "tensor": (
        "Tensor",
        "as_tensor",
        "channels_first",
        "channels_last",
        "contiguous_format",
        "empty",
        "empty_like",
        "full",
        "full_like",
        "ones",
        "ones_like",
        "preserve_format",
        "reorder",
        "zeros",
        "zeros_like",
    ),
    "watching": ("Watch", "watch"),
}
_PACKAGES = ("dnnl", "tensor")  # as they are: the second can be called
_HOMES = {name: f"blocklayout.{home}" for home, names in _NAMES_BY_HOME.items() for name in names}

__all__ = [  # noqa: PLE0604 - strings all, and a test compares them with the imports above
    "__version__",
    *_PACKAGES,
    *_HOMES,
]


def _fetch(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name in _PACKAGES:
        return importlib.import_module(f"blocklayout.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'blocklayout' has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker that saw it would believe in any name

    def __getattr__(name: str) -> Any:
        """Fetch a public name from its home, once."""
        globals()[name] = value = _fetch(name)
        return value


def __dir__() -> list[str]:
    """The public names, fetched or not."""
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms

    try:
        return version("blocklayout")
    except PackageNotFoundError:  # a checkout on sys.path
        return "0+unknown"
