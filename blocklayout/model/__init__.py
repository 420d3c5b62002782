"""Models: the graph form, ONNX in and out, simplification, legalization, lowering to kernels, and the builder.

The only package that sees protobuf; ``onnx`` is loaded when a model is.

Example:
    >>> import numpy as np
    >>> from blocklayout.model import Builder, read, simplify
    >>> b = Builder()
    >>> x = b.input("x", (1, 3, 8, 8))
    >>> b.output("y", x.conv(np.ones((4, 3, 1, 1), np.float32)).relu())
    >>> [node.op_type for node in simplify(read(b.to_onnx())).nodes]
    ['Conv', 'Relu']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.model.builder import Builder
    from blocklayout.model.graph import Graph, Node
    from blocklayout.model.lowering import lower
    from blocklayout.model.model_file import ModelFile
    from blocklayout.model.onnx_read import InputInfo, OnnxModel
    from blocklayout.model.onnx_write import to_model, write
    from blocklayout.model.passes import legalize, simplify
    from blocklayout.model.reading import (
        expected,
        free_extents,
        keep_model,
        open_model,
        read,
        read_fed,
        signature,
        weights_nbytes,
    )
    from blocklayout.model.reference import compute_of

__all__ = [
    "BuildValue",
    "Builder",
    "Graph",
    "InputInfo",
    "ModelFile",
    "Node",
    "OnnxModel",
    "compute_of",
    "expected",
    "free_extents",
    "keep_model",
    "legalize",
    "lower",
    "open_model",
    "read",
    "read_fed",
    "signature",
    "simplify",
    "to_model",
    "weights_nbytes",
    "write",
]

_HOMES = {
    "BuildValue": "build_value",
    "Builder": "builder",
    "Graph": "graph",
    "InputInfo": "onnx_read",
    "ModelFile": "model_file",
    "Node": "graph",
    "OnnxModel": "onnx_read",
    "compute_of": "reference",
    "legalize": "passes",
    "lower": "lowering",
    "simplify": "passes",
    "to_model": "onnx_write",
    "write": "onnx_write",
}
"""The modules of these names; those of the others are in ``reading``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'reading')}"), name)
    globals()[name] = value
    return value
