"""Operators on Tensors: functions that keep the layout of their operands, each a plan that is made once.

Most are made of the definitions of :class:`blocklayout.operators.Operators`, and are Tensor's methods too. See
docs/explanation/eager.md for the rules.

The names stand where each function is defined, and in the stub beside this file, which is generated.
"""

# Before the others are made: some are computed so.
from blocklayout.eager import convolution, free_functions, unplanned
from blocklayout.eager.functions import install, public_names

_public = install() | public_names(convolution, free_functions, unplanned)
globals().update(_public)

__all__ = sorted(_public)  # noqa: PLE0605 - names, all of them strings
