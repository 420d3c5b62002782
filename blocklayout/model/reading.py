"""Models from wherever they come, as graphs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from blocklayout.model.contents import Contents, set_contents
from blocklayout.model.model_file import ModelFile
from blocklayout.model.onnx_read import InputInfo, OnnxModel, Signature, open_onnx
from blocklayout.model.shapes import Shapes, concrete_extents, extents_left_free, set_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from blocklayout.model.graph import Graph


def keep_model(source: Any) -> OnnxModel | Graph | ModelFile:
    """Read and check a model as :func:`open_model` does, such that what lies in a file can be let go.

    Args:
        source: Whatever :func:`open_model` takes.

    Raises:
        ModelError: As :func:`open_model`.
        UnsupportedError: As :func:`open_model`.
    """
    return ModelFile(source) if isinstance(source, str | os.PathLike) else open_model(source)


def open_model(source: Any) -> OnnxModel | Graph:
    """Read and check a model once; :func:`read` then gives a graph for each set of input extents.

    Args:
        source: A path, the bytes of a file, a ``ModelProto``, a Builder, a Graph, or what this function or
            :func:`keep_model` gave.

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
    """The inputs whose extents must be chosen, with ``None`` for each free extent.

    Args:
        source: Whatever :func:`open_model` takes.

    Returns:
        Declared shapes by input; one of undeclared rank has ``None`` in place of a shape.
    """
    return extents_left_free(signature(source).inputs)


def signature(source: Any) -> Signature:
    """What a model declares of its inputs and of its outputs.

    Args:
        source: Whatever :func:`open_model` takes.
    """
    if isinstance(source, ModelFile):
        return source.signature
    model = open_model(source)
    if isinstance(model, OnnxModel):
        return model.signature
    return Signature(_infos(model, model.inputs), _infos(model, model.outputs))


def weights_nbytes(model: OnnxModel | Graph | ModelFile) -> int:
    """Bytes of the constants that a model holds at the moment."""
    if isinstance(model, ModelFile):
        return model.nbytes
    if isinstance(model, OnnxModel):
        return sum(array.nbytes for array in model.constants.values())
    return sum(value.data.nbytes for value in model.values.values() if value.data is not None)


def expected(source: Any) -> dict[str, str]:
    """The formats that values must come in, by name; only a Builder states any.

    Args:
        source: Whatever :func:`open_model` takes.
    """
    if isinstance(source, str | os.PathLike | bytes):
        return {}
    from blocklayout.model.builder import Builder  # not for files: it takes a while to import

    return source.expected if isinstance(source, Builder) else {}


def _infos(graph: Graph, names: tuple[str, ...]) -> tuple[InputInfo, ...]:
    return tuple(InputInfo(name, graph.values[name].dtype, graph.values[name].shape) for name in names)


def read(source: Any, shapes: Shapes | None = None, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph of a model for concrete input extents, shape arithmetic and constants folded.

    Args:
        source: Whatever :func:`open_model` takes.
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
    source: Any, shapes: Shapes, contents: Contents, given: Mapping[str, np.ndarray] | None = None
) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of a model for what it is fed: for extents, and for contents where other extents follow from those.

    Args:
        source: Whatever :func:`open_model` takes.
        shapes: Extents of inputs, by name.
        contents: Gives what an input is fed; asked for none whose contents decide nothing.
        given: Contents that are known in any case, as the ``constants`` of :func:`read`.

    Returns:
        The graph, and the contents it was made for, ``given`` included; those are no inputs of it.

    Raises:
        InputError: As :func:`read`.
        ModelError: As :func:`read`, also where contents contradict a node.
        UnsupportedError: As :func:`read`, also where extents follow from anything but small inputs.
    """
    model = open_model(source)
    if isinstance(model, OnnxModel):
        return set_contents(model, shapes, contents, given)
    return read(model, shapes), {}
