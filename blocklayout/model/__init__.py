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

from blocklayout.lazy_names import fetching, homes_of

_NAMES = {
    "builder": "BuildValue Builder",
    "cutting": (
        "NodeNames always_cut body_model by_arrays carried_in checked_call function_of info_of "
        "passed_on pieces_of reasons_of straight_model without_copies"
    ),
    "graph": "DependsOnDataError Graph Node branches_of captured_by described_nodes",
    "lowering": "lower",
    "model_file": "ModelFile",
    "onnx_read": "DeclaredValue OnnxModel whole_contents",
    "onnx_write": "stating to_model write",
    "other_extents": "simplified",
    "passes": "legalize simplify",
    "reading": "free_extents keep_model open_model read read_fed signature tensors_of weights_nbytes",
    "reference": "NodeByNode by_reference compute_of",
    "rows": "check_rows with_free_rows",
}
_HOMES = homes_of(__name__, _NAMES)

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all
__getattr__, __dir__ = fetching(globals(), _HOMES)
