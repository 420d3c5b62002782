"""Primitives run on Tensors' bytes, each compiled once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

_MAX_SPECS = 512


def execute(spec: dnnl.Spec, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The results of a primitive, each a fresh Tensor in the layout that the Spec says.

    Args:
        spec: Resolved.
        inputs: By argument, bytes in the Spec's layout: an array that reaches as far as that does.

    Raises:
        DnnlError: The library refused.
    """
    made = _primitive(spec).run(inputs)
    return {name: Tensor.over(spec.memory_desc(name), buffer) for name, buffer in made.items()}


@lru_cache(maxsize=_MAX_SPECS)
def _primitive(spec: dnnl.Spec) -> dnnl.Primitive:
    return dnnl.Primitive(spec)
