"""Operators on Tensors: functions that keep the layout of what they are given, each a plan that is made once.

Most are made of the definitions of :class:`blocklayout.operators.Operators`, and are Tensor's methods too; the others
are those of ``free_functions.py`` and ``convolution.py``. See docs/eager.md for the rules. The names stand where each
function is defined, and in the stub beside this file, which ``blocklayout/eager/stubs.py`` writes.
"""

from blocklayout.eager import convolution, free_functions, shaping
from blocklayout.eager.functions import install, public_functions

__all__ = []

del shaping  # loaded for what it registers
_functions = {**install(), **public_functions(convolution), **public_functions(free_functions)}
globals().update(_functions)
__all__ += sorted(_functions)
