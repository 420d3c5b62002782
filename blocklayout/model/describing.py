"""The nodes of a model as records for people and JSON: operators, attributes, operands with their extents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.model.graph import Branch

if TYPE_CHECKING:
    from blocklayout.model.graph import Graph

MAX_TEXT = 120
"""Characters of an attribute that are shown."""


def described_nodes(graph: Graph) -> list[dict[str, Any]]:
    """The nodes of a graph that no pass has seen, in order.

    Each has its name, its operator, its attributes as pairs of a name and a text, and its operands; one that is
    absent is ``null``.

    Example:
        >>> from blocklayout.model import Builder
        >>> b = Builder()
        >>> b.output("y", b.input("x", (1, 3, 8, 8)).max_pool(2, strides=2))
        >>> [record] = described_nodes(b.to_graph())
        >>> record["op_type"], record["attributes"][0], record["outputs"][0]["dims"]
        ('MaxPool', ('kernel_shape', '2, 2'), (1, 3, 4, 4))
    """
    return [
        {
            "name": node.name,
            "op_type": node.op_type,
            "attributes": [(name, attribute_text(value)) for name, value in node.attrs.items()],
            "inputs": _operands(graph, node.inputs),
            "outputs": _operands(graph, node.outputs),
        }
        for node in graph.nodes
    ]


def attribute_text(value: Any) -> str:
    """An attribute in a few words: numbers as they are, of an array its type and extents.

    Example:
        >>> [attribute_text(value) for value in ((1, 2), 0.1, "SAME_UPPER", np.zeros((2, 3), np.float32))]
        ['1, 2', '0.1', 'SAME_UPPER', 'float32 2x3']
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape)) or 'scalar'}"
    if isinstance(value, Branch):
        return f"a graph of {len(value.nodes)} nodes"
    if isinstance(value, tuple):
        text = ", ".join(map(attribute_text, value))
    else:
        text = f"{value:.7g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _operands(graph: Graph, names: tuple[str, ...]) -> list[dict[str, Any] | None]:
    return [
        {"name": name, "dtype": value.dtype, "dims": value.shape, "is_constant": value.is_constant} if value else None
        for name, value in ((name, graph.values.get(name)) for name in names)
    ]
