"""Networks of the zoo by name, where a model is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocklayout import zoo
from blocklayout.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blocklayout.model import Builder


def source_named(
    source: Any,
    shapes: Mapping[str, Sequence[int | tuple[int, int]]] | None = None,
    io_layout: Mapping[str, str] | None = None,
) -> Any:
    """The network that a name such as ``zoo:resnet50`` stands for; any other source as it is.

    Args:
        source: As of :func:`blocklayout.load`.
        shapes: Extents of its inputs, as the caller's arrays have them; by default the network's usual ones.
        io_layout: Formats of its inputs and outputs.

    Raises:
        ModelError: The zoo has no such network, or it cannot take these extents.
        InputError: Another input, rank or number of channels, or ranges of extents.
    """
    if not (isinstance(source, str) and source.startswith(zoo.ZOO)):
        return source
    name = source.removeprefix(zoo.ZOO)
    return _built(name, shapes, io_layout or {}) if shapes else zoo.build(name)


def _built(name: str, shapes: Mapping[str, Sequence[int | tuple[int, int]]], io_layout: Mapping[str, str]) -> Builder:
    from blocklayout.loading.options import has_ranges, ranges_of
    from blocklayout.loading.signature import signature_of

    if has_ranges(shapes):
        raise InputError(f"{zoo.ZOO}{name} is built for one set of extents; ranges are for ONNX files")
    given = {other: tuple(most for _, most in ranges_of(other, shape)) for other, shape in shapes.items()}
    [info] = signature_of(zoo.build(name, seed=None).to_graph(), io_layout)[0]
    usual = info.logical(info.shape or ())
    shape = info.logical(given.get(info.name, ()))
    n_fixed = min(2, len(usual) - 1)  # words have no channels
    if len(shape) != len(usual) or shape[1:n_fixed] != usual[1:n_fixed]:
        fixed = f"and its {usual[1]} channels are" if n_fixed == 2 else "is"
        given_text = ", ".join(f"{other} {'x'.join(map(str, extents))}" for other, extents in given.items())
        raise InputError(
            f"{zoo.ZOO}{name} has one input, {info.name}, usually {'x'.join(map(str, info.shape or ()))}; its number "
            f"of dimensions {fixed} fixed, and what was given is {given_text}"
        )
    return zoo.build(name, batch=shape[0], size=shape[n_fixed:])
