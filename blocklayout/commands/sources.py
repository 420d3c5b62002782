"""MODEL as what can be loaded: an ONNX file, a network of the zoo, or the embedded model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout import model
from blocklayout.errors import InputError
from blocklayout.loading.from_model import signature_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.model import Builder, Graph, OnnxModel

    Shapes = Mapping[str, tuple[int, ...]]

ZOO = "zoo:"
"""Prefix of names of networks in the zoo."""


def open_source(source: str | None, given: Shapes, io_layout: Mapping[str, str]) -> OnnxModel | Graph:
    """The model that ``source`` names.

    Args:
        source: A path, ``zoo:`` and a name, or nothing for the embedded model.
        given: Extents of inputs as the caller holds them. A network of the zoo is built for them.
        io_layout: Formats in which the caller holds inputs, by name.

    Raises:
        ModelError: No such file or network, damaged, or not ONNX.
        InputError: A network of the zoo has no such input, or another number of channels or dimensions.
        UnsupportedError: Valid ONNX that cannot run here.
    """
    if source is not None and source.startswith(ZOO):
        return _from_zoo(source.removeprefix(ZOO), given, io_layout)
    if source is not None:
        return model.open_model(source)
    from blocklayout.zoo import digits

    return model.open_model(digits.model_bytes())


def save_source(source: str | None, given: Shapes, path: Path) -> None:
    """Write the model that ``source`` names as an ONNX file.

    Raises:
        BlockLayoutError: As :func:`open_source`.
    """
    if source is not None and source.startswith(ZOO):
        model.write(_built(source.removeprefix(ZOO), given, {}), path)
        return
    if source is not None:
        path.write_bytes(Path(source).read_bytes())
        return
    from blocklayout.zoo import digits

    path.write_bytes(digits.model_bytes())


def _from_zoo(name: str, given: Shapes, io_layout: Mapping[str, str]) -> Graph:
    return _built(name, given, io_layout).to_graph()


def _built(name: str, given: Shapes, io_layout: Mapping[str, str]) -> Builder:
    from blocklayout import zoo

    if not given:
        return zoo.build(name)
    [info] = signature_of(zoo.build(name, seed=None).to_graph(), io_layout)[0]
    usual = info.logical(info.shape or ())
    shape = info.logical(given.get(info.name, ()))
    if len(shape) != len(usual) or shape[1] != usual[1]:
        given_text = ", ".join(f"{other} {'x'.join(map(str, extents))}" for other, extents in given.items())
        raise InputError(
            f"{ZOO}{name} has one input, {info.name}, usually {'x'.join(map(str, info.shape or ()))}; its number of "
            f"dimensions and its {usual[1]} channels are fixed, and what was given is {given_text}"
        )
    return zoo.build(name, batch=shape[0], size=shape[2:])
