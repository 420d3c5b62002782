"""The onnx package, imported part by part: all of it takes as long as a small network takes to plan.

Half of that is for what reading a model does not take: composing models, writing them as text, the package's metadata.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _InParts(ModuleType):
    """The package before its own code has run: that runs when it is asked for a name that is none of its parts."""

    def __getattr__(self, name: str) -> Any:
        classes = import_module("onnx.onnx_pb")
        if not name.startswith("__"):
            if hasattr(classes, name):
                setattr(self, name, getattr(classes, name))  # not asked again
                return getattr(classes, name)
            if find_spec(f"onnx.{name}") is not None:
                return import_module(f"onnx.{name}")
        if self.__spec__ is not None and self.__spec__.loader is not None:
            self.__spec__.loader.exec_module(self)
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(self, name)


def import_in_parts() -> None:
    """Have the package imported part by part, unless somebody has imported it."""
    spec = find_spec("onnx") if "onnx" not in sys.modules else None
    if spec is not None:
        sys.modules["onnx"] = package = module_from_spec(spec)
        package.__class__ = _InParts
