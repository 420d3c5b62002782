"""Runs of the model in f32 over calibration data: schemes of values, and mean errors of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.errors import InputError
from blocklayout.ir.value import Value
from blocklayout.model.graph import Graph, Node, constant_value
from blocklayout.model.shapes import walk
from blocklayout.quantizing.layers import Chosen, LayerInBytes
from blocklayout.quantizing.observers import NEED_HISTOGRAM, Channels, Scheme, Seen, observed

if TYPE_CHECKING:
    from blocklayout.quantizing.recipe import QuantizationRecipe
    from blocklayout.session import Session

    Tell = Callable[[str], None]

Feed = dict[str, np.ndarray]


class Feeds(Struct, frozen=True, eq=False):
    """Calibration data, which can be gone through several times: each a feed of all inputs, by name.

    Attributes:
        source: The data as they were given, such as a list.
        inputs: Names of the model's inputs.
        tell: Called before each feed with words about it.
    """

    source: Iterable[Any]
    inputs: tuple[str, ...]
    tell: Tell

    @classmethod
    def of(cls, data: Any, inputs: tuple[str, ...], tell: Tell) -> Feeds:
        """Feeds of data that are one feed, or an iterable of feeds; those of an iterator are kept in memory.

        An InputError where there are none, or they are nothing that one can go through.
        """
        if isinstance(data, Mapping | np.ndarray):
            data = [data]
        if not isinstance(data, Iterable) or isinstance(data, str | bytes):
            raise InputError(f"calibration_data: {type(data).__name__}; give an iterable of feeds, such as a list")
        source = [*data] if isinstance(data, Iterator) else data
        if not any(True for _ in source):
            raise InputError("calibration_data: there are no feeds; give some hundred that are like those of use")
        return cls(source, inputs, tell)

    def __iter__(self) -> Iterator[tuple[str, Feed]]:
        """The beginning of an error's text, and the feed; an InputError where that is no feed."""
        of_all = f" of {len(self.source)}" if isinstance(self.source, Sized) else ""
        for number, each in enumerate(self.source, start=1):
            self.tell(f"feed {number}{of_all}")
            origin = f"calibration feed {number}: "
            yield origin, self._feed(each, origin)

    def _feed(self, each: Any, origin: str) -> Feed:
        if not isinstance(each, Mapping):
            if len(self.inputs) != 1:
                names = ", ".join(self.inputs)
                raise InputError(f"{origin}give a dict by input name: the model has {len(self.inputs)}: {names}")
            each = {self.inputs[0]: each}
        if {*each} != {*self.inputs}:
            given, known = (", ".join(map(str, names)) or "none" for names in (each, self.inputs))
            raise InputError(f"{origin}it has {given}, and the model's inputs are {known}")
        return {name: np.asarray(array) for name, array in each.items()}


def _run(session: Session, feed: Feed, names: Iterable[str], origin: str) -> dict[str, np.ndarray]:
    """Values of a model that has them as outputs; inputs are as they were fed."""
    asked = [name for name in names if name not in feed] or [session.get_outputs()[0].name]  # a run checks the feed
    try:
        found = session.run(asked, feed)
    except InputError as error:
        raise InputError(f"{origin}{error}") from error
    return {name: np.asarray(array) for name, array in zip(asked, found, strict=True)} | feed


def schemes_of(
    graph: Graph, chosen: Chosen, recipe: QuantizationRecipe, session: Session, feeds: Feeds
) -> dict[str, Scheme]:
    """The scheme of each quantised value, by its name, from one pass over the data.

    An InputError of a feed that does not fit, or a value that is infinite, NaN or nothing but 0.
    """
    writers = graph.producers()

    def observer_of(name: str) -> tuple[str, float]:
        node = writers.get(name)
        names, op_type = ((node.name, *node.absorbed), node.op_type) if node is not None else ((), "")
        found = recipe.otherwise((name, *names), op_type)
        given = (None, None) if found == "f32" else (found.activations, found.percentile)
        return given[0] or recipe.activations, given[1] or recipe.percentile

    members: dict[str, list[str]] = {}
    for name, first in chosen.groups.items():
        if name not in chosen.moved | chosen.by_channel:
            members.setdefault(first, []).append(name)
    observers = {first: observer_of(names[0]) for first, names in members.items()}
    seen = {
        first: Seen(*names, has_histogram=observers[first][0] in NEED_HISTOGRAM) for first, names in members.items()
    }
    channels = {name: Channels(name, graph.shape(name)[1]) for name in chosen.by_channel}
    watched = (*(name for names in members.values() for name in names), *channels)
    for origin, feed in feeds:
        values = _run(session, feed, watched, origin)
        for group in seen.values():
            group.add(values, origin)
        for channel in channels.values():
            channel.add(values, origin)
    around_zero = recipe.zero_point == "zero"
    schemes = {name: each.scheme for name, each in channels.items()}
    schemes |= {first: observed(each, *observers[first], around_zero=around_zero) for first, each in seen.items()}
    return {name: schemes[first] for name, first in chosen.groups.items()}


class _Means:
    """Sums over feeds of a layer's source as it is, and as bytes stand for it."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.n_rows = 0
        self.real, self.quantized = np.zeros((2, *shape))

    def add(self, array: np.ndarray, scheme: Scheme) -> None:
        self.n_rows += array.shape[0]
        self.real += array.sum(0, dtype=np.float64)
        self.quantized += scheme.numbers(scheme.nearest(array)).sum(0, dtype=np.float64)


def mean_errors(
    graph: Graph, layers: Mapping[str, LayerInBytes], schemes: Mapping[str, Scheme], session: Session, feeds: Feeds
) -> dict[str, np.ndarray]:
    """For each layer, by name, how much larger its result is in the mean for being quantised, by output channel.

    That is of the layer alone, its source as the model in f32 computes it: the errors of those before it are made up
    for by their own biases. A layer is linear, so its result of a mean is the mean of its results.
    """
    means: dict[tuple[tuple[int, ...], ...], dict[str, _Means]] = {}
    sources = [*dict.fromkeys(each.layer.source for each in layers.values())]
    for origin, feed in feeds:
        values = _run(session, feed, sources, origin)
        of_extents = means.setdefault(tuple(values[name].shape[1:] for name in sources), {})
        for name in sources:
            array = values[name]
            of_extents.setdefault(name, _Means(array.shape[1:])).add(array, schemes[name])
    sums: dict[str, np.ndarray] = {}
    n_all: dict[str, int] = {}
    for of_extents in means.values():
        for name, (error, n_places) in _errors(graph, layers, of_extents).items():
            sums[name] = sums.get(name, np.zeros(1)) + error * n_places
            n_all[name] = n_all.get(name, 0) + n_places
    return {name: total / n_all[name] for name, total in sums.items()}


def _errors(
    graph: Graph, layers: Mapping[str, LayerInBytes], means: Mapping[str, _Means]
) -> dict[str, tuple[np.ndarray, int]]:
    """Mean errors for sources of the same extents, and of how many places they are, by one graph of all layers."""
    from blocklayout.api import load

    arrays: dict[str, np.ndarray] = {}
    nodes: list[Node] = []
    for number, each in enumerate(layers.values()):
        layer, of_source = each.layer, means[each.layer.source]
        for kind, total, weights in (("f", of_source.real, layer.weights), ("q", of_source.quantized, each.numbers)):
            names = f"{kind}{number}.source", f"{kind}{number}.weights"
            arrays[names[0]], arrays[names[1]] = (total / of_source.n_rows)[None].astype(np.float32), weights
            nodes.append(layer.node.replace(name=f"{kind}{number}", inputs=names, outputs=(f"{kind}{number}.y",)))
    values = {name: constant_value(name, array) for name, array in arrays.items() if name.endswith("weights")}
    fed = {name: array for name, array in arrays.items() if name.endswith("source")}
    values |= {name: Value(name, array.shape, "f32") for name, array in fed.items()}
    outputs = tuple(node.outputs[0] for node in nodes)
    walked = walk(nodes, values, graph.opset)
    session = load(
        Graph("errors", graph.opset, walked, values, tuple(fed), outputs), tune="model", recipes={"winograd": False}
    )
    found = dict(zip(outputs, map(np.asarray, session.run(None, fed)), strict=True))
    errors = {}
    for number, (name, each) in enumerate(layers.items()):
        difference = found[f"q{number}.y"].astype(np.float64) - found[f"f{number}.y"]
        flat = np.moveaxis(difference, each.layer.channels, 0).reshape(difference.shape[each.layer.channels], -1)
        errors[name] = flat.mean(1), flat.shape[1] * means[each.layer.source].n_rows
    return errors
