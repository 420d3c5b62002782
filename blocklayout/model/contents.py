"""Inputs whose contents decide extents: the target of a Reshape, the bounds of a Slice, what NonZero looks at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.model.shapes import Shapes, concrete_extents, set_shapes
from blocklayout.model.undecided import DependsOnDataError

if TYPE_CHECKING:
    from blocklayout.model.graph import Graph, Node
    from blocklayout.model.onnx_read import OnnxModel

MAX_DECIDING_ELEMENTS = 512
"""Elements of an input whose contents may decide extents; larger ones are data."""

Contents = Callable[[str], np.ndarray]
"""Gives what an input is fed."""


def set_contents(
    model: OnnxModel, shapes: Shapes, contents: Contents, given: Mapping[str, np.ndarray] | None = None
) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph for these extents, and for the contents of exactly those inputs that decide other extents.

    Args:
        model: Its inputs may have free extents.
        shapes: Extents of inputs, by name.
        contents: Asked for the inputs that may decide; its arrays are copied.
        given: Contents that are known in any case.

    Returns:
        The graph, and the contents it was made for, ``given`` included; no input of the graph is among them.

    Raises:
        ModelError: A node contradicts the operator's specification, with these contents.
        UnsupportedError: An extent depends on something else than small inputs.
    """
    known = dict(given or {})
    while True:
        try:
            return set_shapes(model, shapes, known), known
        except DependsOnDataError as error:
            known |= _deciding(model, shapes, contents, known, error)


def _deciding(
    model: OnnxModel, shapes: Shapes, contents: Contents, known: Mapping[str, np.ndarray], error: DependsOnDataError
) -> dict[str, np.ndarray]:
    """The contents that settle the extents of the node: of as few of its operands as will do.

    No operator says which of its operands its extents depend on, so inference is asked.
    """
    for names in _sets_of_inputs(_candidates(model, shapes, known, error.node)):
        found = {name: np.array(contents(name)) for name in names}
        if _settles(model, shapes, {**known, **found}, error.node):
            return found
    raise error


def _sets_of_inputs(candidates: Sequence[frozenset[str]]) -> Iterator[frozenset[str]]:
    for n_operands in range(1, len(candidates) + 1):
        for chosen in combinations(candidates, n_operands):
            yield frozenset().union(*chosen)


def _settles(model: OnnxModel, shapes: Shapes, known: Mapping[str, np.ndarray], node: Node) -> bool:
    try:
        set_shapes(model, shapes, known)
    except DependsOnDataError as error:
        return error.node.outputs != node.outputs  # the walk came to a later one
    return True


def _candidates(model: OnnxModel, shapes: Shapes, known: Collection[str], node: Node) -> list[frozenset[str]]:
    """For each operand of ``node`` that is computed from small inputs alone: those inputs."""
    extents = concrete_extents(model.inputs, shapes)
    producers = {name: each for each in model.nodes for name in each.outputs if name}
    found = []
    for operand in filter(None, node.inputs):
        names = frozenset(_fed_to(operand, producers)) & extents.keys() - set(known)
        if names and all(prod(extents[name]) <= MAX_DECIDING_ELEMENTS for name in names):
            found.append(names)
    return list(dict.fromkeys(found))


def _fed_to(value: str, producers: Mapping[str, Node]) -> Iterator[str]:
    """Values without a producer whose data ``value`` is computed from."""
    pending, seen = [value], {value}
    while pending:
        name = pending.pop()
        node = producers.get(name)
        if node is None:
            yield name
        else:
            fresh = {*node.elements_read} - seen
            seen |= fresh
            pending += fresh
