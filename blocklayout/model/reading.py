"""Models from wherever they come, as graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.model.cutting import has_much_to_do, is_cut_at
from blocklayout.model.graph import DependsOnDataError
from blocklayout.model.model_file import ModelFile
from blocklayout.model.onnx_read import Declaration, DeclaredValue, OnnxModel, open_onnx
from blocklayout.model.shapes import Shapes, concrete_extents, set_shapes

if TYPE_CHECKING:
    from blocklayout.model.graph import Graph, Node
    from blocklayout.tensor import Tensor

MAX_DECIDING_ELEMENTS = 512
"""Elements of an input whose contents may decide extents; larger ones are data."""

Contents = Callable[[str], np.ndarray]
"""The value of an input for a run; its arrays are copied."""


def keep_model(source: Any) -> OnnxModel | Graph | ModelFile:
    """Read and check a model as :func:`open_model` does, such that those contents that lie in a file can be let go."""
    return ModelFile(source) if isinstance(source, str | os.PathLike) else open_model(source)


def open_model(source: Any) -> OnnxModel | Graph:
    """Read and check a model once; :func:`read` then makes a graph for each set of input extents.

    Args:
        source: A path, the bytes of a file, a ``ModelProto``, a Builder, a Graph, or the result of this function or
            :func:`keep_model`.

    Raises:
        ModelError: No such file, damaged, not ONNX, or against ONNX's specification.
        UnsupportedError: Valid ONNX that cannot run here.
    """
    from blocklayout.model.graph import Graph

    if isinstance(source, (OnnxModel, Graph)):
        return source
    if isinstance(source, ModelFile):
        return source.model
    from blocklayout.model.builder import Builder

    return source.to_graph() if isinstance(source, Builder) else open_onnx(source)


def free_extents(source: Any) -> dict[str, tuple[int | None, ...] | None]:
    """Declared shapes of inputs whose extents must be chosen; ``None`` for each free extent, or for a whole shape."""
    declared = {info.name: info.extents for info in signature(source).inputs}
    return {
        name: None if extents is None else tuple(extent if isinstance(extent, int) else None for extent in extents)
        for name, extents in declared.items()
        if extents is None or any(not isinstance(extent, int) for extent in extents)
    }


def signature(source: Any) -> Declaration:
    """Inputs and outputs as a model declares them."""
    if isinstance(source, ModelFile):
        return source.signature
    model = open_model(source)
    if isinstance(model, OnnxModel):
        return model.signature
    return Declaration(_infos(model, model.inputs), _infos(model, model.outputs))


def weights_nbytes(model: OnnxModel | Graph | ModelFile) -> int:
    """Bytes of the constants that a model holds at the moment."""
    if isinstance(model, ModelFile):
        return model.nbytes
    if isinstance(model, OnnxModel):
        return sum(array.nbytes for array in model.constants.values())
    return sum(value.data.nbytes for value in model.values.values() if value.data is not None)


def tensors_of(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The constants of an ONNX file, each in the format that it was given in; row-major where none is stated.

    Raises:
        ModelError: As :func:`open_model`, or a format is damaged.
        UnsupportedError: As :func:`open_model`.
    """
    from blocklayout.tensor.files import formatted

    model = open_onnx(path)
    return {name: formatted(name, array, model.formats.get(name)) for name, array in model.constants.items()}


def _infos(graph: Graph, names: tuple[str, ...]) -> tuple[DeclaredValue, ...]:
    return tuple(DeclaredValue(name, graph.values[name].dtype, graph.values[name].shape) for name in names)


def read(source: Any, shapes: Shapes | None = None, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph of a model for concrete input extents, shape arithmetic and constants folded.

    Args:
        source: As of :func:`open_model`.
        shapes: Extents of inputs, by name; needed for those in :func:`free_extents`. A batch of 0 is legal.
        constants: Contents of inputs that are known now, such as the target of a Reshape that the model
            takes as an input, or of initializers in :func:`defaults`; of a model only. The graph then has no
            such inputs.

    Raises:
        InputError: An unknown input, a wrong rank, a contradiction, or an extent left free.
        ModelError: The model is damaged or against ONNX's specification.
        UnsupportedError: Valid ONNX that cannot run here.
    """
    model = open_model(source)
    if isinstance(model, OnnxModel):
        return set_shapes(model, shapes, constants)
    concrete_extents(_infos(model, model.inputs), shapes or {})
    return model


def read_fed(
    source: Any,
    shapes: Shapes,
    contents: Contents,
    given: Mapping[str, np.ndarray] | None = None,
    *,
    is_piece: bool = False,
) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of a model for a feed: for extents, and for contents where other extents follow from those.

    Args:
        source: As of :func:`open_model`.
        shapes: Extents of inputs, by name.
        contents: Returns the value of an input; asked for none whose contents decide nothing.
        given: Contents that are known in any case, as the ``constants`` of :func:`read`.
        is_piece: Whether contents decide nothing that can be computed between pieces of a model that is cut: they may
            be others in every run.

    Returns:
        The graph, and the contents it was made for, ``given`` included; those are no inputs of it.

    Raises:
        InputError: As :func:`read`.
        ModelError: As :func:`read`, also where contents contradict a node.
        UnsupportedError: As :func:`read`, also where extents follow from anything but small inputs.
    """
    model = open_model(source)
    if not isinstance(model, OnnxModel):
        return read(model, shapes), {}
    known, undecided = dict(given or {}), set[str]()
    while True:
        try:
            return set_shapes(model, shapes, known, undecided), known
        except DependsOnDataError as error:
            if is_cut_at(error.node, model.opset, is_piece=is_piece):
                raise
            is_if = error.node.op_type == "If"
            asked = (model, shapes, contents, known, undecided, error)
            found, graph = _deciding(*asked) if not (is_piece and is_if) else ({}, None)
            if not found and (not is_if or error.node.outputs[0] in undecided or has_much_to_do(error.node)):
                raise
            known |= found
            if graph is not None:
                return graph, known
            undecided |= set() if found else {error.node.outputs[0]}


def _deciding(
    model: OnnxModel,
    shapes: Shapes,
    contents: Contents,
    known: Mapping[str, np.ndarray],
    undecided: Container[str],
    error: DependsOnDataError,
) -> tuple[dict[str, np.ndarray], Graph | None]:
    """Contents of as few operands as settle the node's extents, as inference tells; none where none do.

    With them the graph, where they settle all extents.
    """
    candidates = _candidates(model, shapes, known, error.node)
    chosen = (each for n_operands in range(1, len(candidates) + 1) for each in combinations(candidates, n_operands))
    for names in (frozenset().union(*each) for each in chosen):
        found = {name: np.array(contents(name)) for name in names}
        try:
            return found, set_shapes(model, shapes, {**known, **found}, undecided)
        except DependsOnDataError as later:
            if later.node.outputs != error.node.outputs:  # the walk came to a later one
                return found, None
    return {}, None


def _candidates(model: OnnxModel, shapes: Shapes, known: Collection[str], node: Node) -> list[frozenset[str]]:
    """For each operand of ``node`` that is computed from small inputs alone: those inputs."""
    extents = concrete_extents(model.signature.inputs, shapes)
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
