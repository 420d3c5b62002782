"""Operators on Tensors: functions that keep the layout of their operands, each a plan that is made once.

Most are made of the definitions of :class:`blocklayout.operators.Operators`, and are Tensor's methods too. See
docs/explanation/eager.md for the rules.

The names stand where each function is defined, and in the stub beside this file, which is generated.
"""

from importlib import import_module
from typing import Any

# Before the others are made: some are computed so.
from blocklayout.eager import convolution, free_functions, unplanned
from blocklayout.eager.functions import install, public_names

_public = install() | public_names(convolution, free_functions, unplanned)
globals().update(_public)

__all__ = sorted(_public)  # noqa: PLE0605 - names, all of them strings


def __getattr__(name: str) -> Any:
    if name == "backward":  # the gradients, which take longer to make than all else here
        return import_module("blocklayout.eager.backward")
    raise AttributeError(f"module 'blocklayout.eager' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "backward"]
