"""Subgraphs, and an ``If`` in a straight list: the branch that it takes, or both where that is known at run time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.errors import ModelError
from blocklayout.model.graph import DependsOnDataError, Node, constant_value, fresh_name, live_nodes

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.ir.value import Value


class Branch(Struct, frozen=True, eq=False):
    """A subgraph of a node, which also reads values of the graph around it.

    Attributes:
        nodes: In topological order, without ``Constant`` nodes.
        constants: By name.
        outputs: Names of its results.
        inputs: Names of its arguments; an ``If`` has none.
        results: No rows of each result: what is returned by a node that runs it once a row, and never did.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    results: tuple[np.ndarray, ...] = ()

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of what it reads of the graph around it."""
        own = {"", *self.constants, *self.inputs, *(name for node in self.nodes for name in node.outputs)}
        read = (*(name for node in self.nodes for name in node.inputs), *self.outputs)
        return tuple(dict.fromkeys(name for name in read if name not in own))

    def renamed(self, names: Mapping[str, str]) -> Branch:
        """The same with other names for some values."""
        nodes = tuple(_renamed(node, names) for node in self.nodes)
        constants = {names.get(name, name): array for name, array in self.constants.items()}
        outputs, inputs = (tuple(names.get(name, name) for name in side) for side in (self.outputs, self.inputs))
        return Branch(nodes, constants, outputs, inputs, self.results)


def branches_of(node: Node) -> dict[str, Branch]:
    """The subgraphs of a node, by attribute; what they read of the graph around it are its last inputs."""
    return {name: value for name, value in node.attrs.items() if isinstance(value, Branch)}


def captured_by(node: Node) -> tuple[str, ...]:
    """Names of what a node's subgraphs read of the graph around it: its last inputs."""
    return tuple(dict.fromkeys(name for branch in branches_of(node).values() for name in branch.captured))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    attrs = {key: value.renamed(names) if isinstance(value, Branch) else value for key, value in node.attrs.items()}
    return node.renamed(names).replace(attrs=attrs)


def branch_taken(node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
    """The nodes that do what an ``If`` does; ``values`` of the graph around it grow by the constants of the branch.

    Raises:
        ModelError: The condition is not one element, or the branch has another number of outputs than the node.
        DependsOnDataError: The condition is computed at run time.
    """
    condition = values[node.inputs[0]]
    if condition.data is None:
        what = f"node {node.name!r}: which branch this If takes depends on {condition.name!r}, computed at run time"
        raise DependsOnDataError(f"{what}; export the model without control flow", node)
    _check_condition(node, condition)
    return _nodes_of("then_branch" if condition.data.item() else "else_branch", node, values)


def _check_condition(node: Node, condition: Value) -> None:
    if prod(condition.shape) != 1:
        raise ModelError(
            f"node {node.name!r}: the condition {condition.name!r} must be one bool, not {condition.shape}"
        )


def both_branches(node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
    """The nodes that compute both branches of an ``If`` and choose from their outputs, likewise.

    Raises:
        ModelError: As :func:`branch_taken`.
    """
    condition = values[node.inputs[0]]
    _check_condition(node, condition)
    nodes: list[Node] = []
    sides: list[list[str]] = []
    one_bool = condition.name
    if condition.shape:
        one_bool = fresh_name(f"{node.name}.condition", values)
        nodes.append(Node("", "Squeeze", (condition.name,), (one_bool,)))
    for key in ("then_branch", "else_branch"):
        sides.append([fresh_name(f"{name}.{key}", values) if name else "" for name in node.outputs])
        nodes += _nodes_of(key, node.replace(outputs=tuple(sides[-1])), values, f"{node.outputs[0]}.{key}.")
    chosen = (names for names in zip(*sides, node.outputs, strict=True) if all(names))
    choices = (Node("", "Where", (one_bool, one, other), (name,)) for one, other, name in chosen)
    return (*nodes, *choices)


def _nodes_of(key: str, node: Node, values: dict[str, Value], prefix: str = "") -> tuple[Node, ...]:
    branch: Branch = node.attrs[key]
    if len(branch.outputs) != len(node.outputs):
        raise ModelError(f"node {node.name!r} has {len(node.outputs)} outputs, its branch has {len(branch.outputs)}")
    # two Ifs side by side may use the same names inside
    inside = [*branch.constants, *(name for each in branch.nodes for name in each.outputs if name)]
    own = branch.renamed({name: fresh_name(prefix + name, values) for name in inside})
    values.update({name: constant_value(name, array) for name, array in own.constants.items()})
    given = zip(own.outputs, node.outputs, strict=True)
    copies = tuple(Node("", "Identity", (inner,), (outer,)) for inner, outer in given if outer)
    return live_nodes((*own.nodes, *copies), node.outputs)
