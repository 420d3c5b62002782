"""For packages that load nothing when they are imported: each public name is fetched from its home at first use.

Type checkers read the stub beside such a package, which ``pytest tests/structure --update-golden`` writes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def homes_of(package: str, names: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, from the words that a package lists for each of its modules.

    Example:
        >>> homes_of("blocklayout.model", {"graph": "Graph Node"})
        {'Graph': 'blocklayout.model.graph', 'Node': 'blocklayout.model.graph'}
    """
    return {name: f"{package}.{home}" for home, words in names.items() for name in words.split()}


def fetching(package: dict[str, Any], homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__``: its ``globals()`` keep the names once they are fetched."""

    def fetch(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        package[name] = value = getattr(importlib.import_module(homes[name]), name)
        return value

    return fetch, lambda: sorted(homes)
