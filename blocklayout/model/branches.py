"""Control flow that is settled before the run: an ``If`` whose condition is known is the branch that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.errors import ModelError
from blocklayout.model.graph import DependsOnDataError, Node, constant_value, fresh_name, live_nodes

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.ir.value import Value


class Branch(Struct, frozen=True, eq=False):
    """One of the two subgraphs of an ``If``, which also reads values of the graph around it.

    Attributes:
        nodes: In topological order, without ``Constant`` nodes.
        constants: By name.
        outputs: Names of what becomes the outputs of the ``If``.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of what it reads of the graph around it."""
        own = {"", *self.constants, *(name for node in self.nodes for name in node.outputs)}
        read = (*(name for node in self.nodes for name in node.inputs), *self.outputs)
        return tuple(dict.fromkeys(name for name in read if name not in own))

    def renamed(self, names: Mapping[str, str]) -> Branch:
        """The same with other names for some values."""
        nodes = tuple(_renamed(node, names) for node in self.nodes)
        constants = {names.get(name, name): array for name, array in self.constants.items()}
        return Branch(nodes, constants, tuple(names.get(name, name) for name in self.outputs))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    attrs = {key: value.renamed(names) if isinstance(value, Branch) else value for key, value in node.attrs.items()}
    return node.renamed(names).replace(attrs=attrs)


def branch_taken(node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
    """The nodes that do what an ``If`` does.

    Args:
        node: The ``If``; its first input is the condition.
        values: Of the graph around it, as far as they are known; the constants of the branch are added.

    Raises:
        ModelError: The condition is not one element, or the branch has another number of outputs than the node.
        DependsOnDataError: The condition is computed at run time.
    """
    condition = values[node.inputs[0]]
    if condition.data is None:
        what = f"node {node.name!r}: which branch this If takes depends on {condition.name!r}, computed at run time"
        raise DependsOnDataError(f"{what}; export the model without control flow", node)
    if condition.data.size != 1:
        raise ModelError(
            f"node {node.name!r}: the condition {condition.name!r} must be one bool, not {condition.shape}"
        )
    branch = node.attrs["then_branch" if condition.data.item() else "else_branch"]
    if len(branch.outputs) != len(node.outputs):
        raise ModelError(f"node {node.name!r} has {len(node.outputs)} outputs, its branch has {len(branch.outputs)}")
    return _nodes_of(branch, node, values)


def _nodes_of(branch: Branch, node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
    # two Ifs side by side may use the same names inside
    inside = [*branch.constants, *(name for each in branch.nodes for name in each.outputs if name)]
    own = branch.renamed({name: fresh_name(name, values) for name in inside})
    values.update({name: constant_value(name, array) for name, array in own.constants.items()})
    given = zip(own.outputs, node.outputs, strict=True)
    copies = tuple(Node("", "Identity", (inner,), (outer,)) for inner, outer in given if outer)
    return live_nodes((*own.nodes, *copies), node.outputs)
