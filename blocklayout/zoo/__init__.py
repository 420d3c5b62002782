"""Models to try and to measure with.

:func:`build` makes networks of the literature, with random weights, :func:`detector` those that keep the
best of their boxes; every module of this package may have some. ``zoo.digits`` is small, trained and embedded.
Where a model is taken, in Python and on the command line, ``zoo:resnet50`` names one.

Nothing is read or computed before a function of this package or that module is called.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from blocklayout.errors import ModelError, closest

if TYPE_CHECKING:
    from onnx import ModelProto

    from blocklayout.model import Builder, BuildValue
    from blocklayout.model.graph import Graph, Node
    from blocklayout.zoo._layers import Layers
    from blocklayout.zoo.detectors import Suppression

__all__ = ["NetworkInfo", "build", "detector", "info", "names"]


def __dir__() -> list[str]:
    return [*__all__, "digits"]


ZOO = "zoo:"
"""Prefix of the names of its networks, where a command takes files as well."""

IMAGE = (3, 224, 224)
"""Input extents of networks for ImageNet."""


class CatalogueEntry(Struct, frozen=True):
    """A network of the catalogue: a member of a family.

    Attributes:
        write: Adds the family's layers to a network: takes a ``Layers``, the input and, by keyword, differences
            between members; returns the output, or several by name.
        shape: Extents of one sample, channels first, as the network is usually used.
        variant: Keywords for ``write`` that make this member.
    """

    write: Callable[..., BuildValue | Mapping[str, BuildValue]]
    shape: tuple[int, ...] = IMAGE
    variant: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "f32"
    kept: Suppression | None = None


class NetworkInfo(Struct, frozen=True):
    """Facts about a network at its usual size, one sample at a time.

    Attributes:
        shape: Extents of its input ``x``, batch included.
        parameters: Numbers that training would learn.
        multiply_adds: Of its convolutions and matrix products.

    Example:
        >>> from blocklayout import zoo
        >>> facts = zoo.info("squeezenet1_1")
        >>> facts.shape, facts.parameters
        ((1, 3, 224, 224), 1235496)
    """

    name: str
    shape: tuple[int, ...]
    parameters: int
    multiply_adds: int


def names() -> tuple[str, ...]:
    """Names that :func:`build` takes, in alphabetical order.

    Example:
        >>> "resnet50" in names()
        True
    """
    return tuple(sorted(_networks()))


def build(
    name: str, *, batch: int = 1, size: int | Sequence[int] | None = None, seed: int | None = 0, **variant: Any
) -> Builder:
    """A network with random weights; its input is ``x``, its output ``y``; detectors name theirs.

    Args:
        name: One of :func:`names`.
        batch: How many samples at a time.
        size: Spatial extents of the input: all of them, or one number for height and width (of sound:
            its length). By default those of the paper.
        seed: Of the weights. ``None`` makes weights of ones, which take neither time nor memory.
        variant: Differences from the network of this name, such as ``classes=10``.

    Raises:
        ModelError: No such network or variant, or it cannot take this size.

    Example:
        >>> import blocklayout as bl
        >>> network = build("squeezenet1_1", size=64, classes=10)
        >>> bl.load(network).get_outputs()[0].shape
        (1, 10)
    """
    return _written(name, batch, size, seed, **variant).builder


def detector(
    name: str, *, batch: int = 1, size: int | Sequence[int] | None = None, seed: int | None = 0, **variant: Any
) -> ModelProto:
    """A detector with NonMaxSuppression: its results are the ``boxes`` that are kept, their ``scores`` and ``classes``.

    Arguments are those of :func:`build`; ``name`` is of a network of boxes and scores.

    Raises:
        ModelError: As of :func:`build`; or the network is no such detector.

    Example:
        >>> [result.name for result in detector("yolo_v8n", size=64).graph.output]
        ['boxes', 'scores', 'classes']
    """
    kept = _find(name).kept
    if kept is None:
        known = ", ".join(name for name in names() if _find(name).kept is not None)
        raise ModelError(f"{name} makes no boxes to choose among; detectors are {known}")
    return kept.behind(build(name, batch=batch, size=size, seed=seed, **variant).to_onnx())


def info(name: str) -> NetworkInfo:
    """A network's size and work.

    Raises:
        ModelError: No such network.

    Example:
        >>> info("resnet18")
        NetworkInfo(name='resnet18', shape=(1, 3, 224, 224), parameters=11689512, multiply_adds=1814073344)
    """
    net = _written(name)
    graph = net.builder.to_graph()
    multiply_adds = sum(_multiply_adds(graph, node) for node in graph.nodes)
    return NetworkInfo(name, graph.shape("x"), net.n_parameters, multiply_adds)


def _written(
    name: str, batch: int = 1, size: int | Sequence[int] | None = None, seed: int | None = None, **variant: Any
) -> Layers:
    from blocklayout.model import Builder
    from blocklayout.zoo._layers import Layers

    network = _find(name)
    _check_variant(name, network, variant)
    builder = Builder(name)
    x = builder.input("x", (batch, *_extents(name, network, size)), network.dtype)
    net = Layers(builder, seed)
    try:
        results = network.write(net, x, **{**network.variant, **variant})
    except ModelError as error:
        raise ModelError(f"{name} cannot take {x.shape}: {error}") from error
    for output, value in (results if isinstance(results, Mapping) else {"y": results}).items():
        builder.output(output, value)
    _check_extents(builder, x.shape)
    return net


@cache
def _networks() -> dict[str, CatalogueEntry]:
    found: dict[str, CatalogueEntry] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            found |= getattr(importlib.import_module(f"{__name__}.{module.name}"), "NETWORKS", {})
    return found


def _find(name: str) -> CatalogueEntry:
    if name in _networks():
        return _networks()[name]
    raise ModelError(f"the zoo has no network {name!r}; {closest(name, names())}")


def _check_variant(name: str, network: CatalogueEntry, variant: dict[str, Any]) -> None:
    parameters = inspect.signature(network.write).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for keyword in variant:
        if keyword not in known:
            raise ModelError(f"{name} has no variant {keyword!r}; what can be varied: {', '.join(known)}")


def _check_extents(builder: Builder, shape: tuple[int, ...]) -> None:
    """Refuse images of which poolings and strides leave nothing."""
    for value in builder.to_graph().values.values():
        if 0 in value.shape[1:]:
            what = f"of {value.name!r}, {value.shape}, nothing would be left"
            raise ModelError(f"{builder.name} cannot take {shape}: {what}")


def _extents(name: str, network: CatalogueEntry, size: int | Sequence[int] | None) -> tuple[int, ...]:
    """Of one sample: its channels, and ``size``; words have no channels."""
    channels, usual = network.shape[: len(network.shape) > 1], network.shape[len(network.shape) > 1 :]
    if size is None:
        return network.shape
    if isinstance(size, int):
        return (*channels, *usual[:-2], *(size for _ in usual[-2:]))
    if len(size) != len(usual):
        wanted = "one number" if len(usual) == 1 else f"one number, or {len(usual)} of them"
        raise ModelError(f"{name}: size is {tuple(size)}; give {wanted}, such as {usual}")
    return (*channels, *size)


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Multiplications of a convolution or matrix product; all other operators are left out, as usual."""
    shapes = [graph.shape(name) if name else () for name in (*node.inputs[:2], node.outputs[0])]
    match node.op_type:
        case "Conv":
            return math.prod(shapes[2]) * math.prod(shapes[1][1:])
        case "ConvTranspose":
            return math.prod(shapes[0]) * math.prod(shapes[1][1:])
        case "Gemm":
            return math.prod(shapes[2]) * shapes[0][0 if node.attrs.get("transA") else 1]
        case "LSTM":
            steps = math.prod(shapes[0][:2])
            return sum(steps * math.prod(graph.shape(name)) for name in node.inputs[1:3])
        case "MatMul":
            return math.prod(shapes[2]) * shapes[0][-1]
    return 0
