"""Gradients, operator by operator: in any layout they are given, they come back in the forward's.

Nothing is recorded and nothing is chained: each function takes the forward's own tensors and the gradient of its
result, and returns the gradients of its arguments. ``grad`` is brought to the format of the forward's result by one
reorder, where it is not in it.

The names stand where each function is defined, and in the stub beside this file, which is generated.
"""

from blocklayout.eager.backward import convolution, elementwise, inner_product, normalization, pooling
from blocklayout.eager.functions import public_names

_public = public_names(convolution, elementwise, inner_product, normalization, pooling)
globals().update(_public)

__all__ = sorted(_public)  # noqa: PLE0605 - names, all of them strings
