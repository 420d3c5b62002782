"""Which layers are quantised under a budget of error: as many as make the model faster, the cheapest errors first.

Each layer's own error is measured with it alone in bytes. At some price of error the planner's solve then says which
layers should compute with bytes (:mod:`blocklayout.plan.precision`); a higher price gives a slower and more exact
model. Errors of layers add up as their squares only if they are independent, so choices are measured on the data, and
layers are taken out, or put back, until the budget is met and no more fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from blocklayout.model import Graph, Node, legalize, lower, simplify
from blocklayout.model.passes import LEGALIZATION, TabulateBytes
from blocklayout.plan import Pricing
from blocklayout.plan.precision import (
    FrontPoint,
    LayerPrecision,
    PrecisionReport,
    Precisions,
    cheapest_precisions,
    free_network,
)
from blocklayout.quantizing.layers import Chosen
from blocklayout.timing import time_in_turn

if TYPE_CHECKING:
    from blocklayout.plan.network import Network
    from blocklayout.quantizing.calibration import Feed, Tell

Outputs = list[list[np.ndarray]]
Metric = Callable[[Outputs, Outputs], float]
"""How far outputs are from others, feed by feed: 0 for the same, and more for worse."""

N_FEEDS = 8
"""As many feeds, evenly chosen, tell a layer's own error."""

_N_PRICES = 24
_N_ROUNDS = 7
_TINY = 1e-30
_SATURATING = ("Softmax", "LogSoftmax", "Sigmoid")

_FORCING = 1e10
"""Nanoseconds: more than any choice of precisions saves."""

_WORTH = 0.98
"""Share of the time without bytes that a model in bytes may take at most to be worth its error."""


def rms(found: Outputs, expected: Outputs) -> float:
    """Root mean square of the differences over that of the outputs; the largest of several outputs."""
    shares = []
    for position in range(len(expected[0])):
        pairs = [(ours[position], true[position]) for ours, true in zip(found, expected, strict=True)]
        wrong = sum(float(np.square(ours.astype(np.float64) - true).sum()) for ours, true in pairs)
        whole = sum(float(np.square(true.astype(np.float64)).sum()) for _, true in pairs)
        shares.append(sqrt(wrong / whole) if whole else float(wrong > 0))
    return max(shares)


def disagreement(found: Outputs, expected: Outputs) -> float:
    """Share of the first output's rows, along its last dimension, whose largest element is another."""
    differ = [(ours[0].argmax(-1) != true[0].argmax(-1)).ravel() for ours, true in zip(found, expected, strict=True)]
    return float(np.concatenate(differ).mean())


METRICS: Mapping[str, Metric] = {"rms": rms, "disagreement": disagreement}


class Search(Struct, frozen=True, eq=False, dict=True):
    """The search for the layers of a model that are quantised.

    Attributes:
        graph: In f32.
        chosen: All that could be quantised.
        written: The graph, with nodes of these names left as they are.
        feeds: All calibration data.
        metric: How errors are measured, and its name.
        dtype: Data type of what is not quantised.
        n_threads: Of a run.
        tell: Progress callback.
    """

    graph: Graph
    chosen: Chosen
    written: Callable[[Collection[str]], Graph]
    feeds: Sequence[Feed]
    metric: tuple[str, Metric]
    dtype: str
    n_threads: int
    tell: Tell
    _measured: dict[frozenset[str], float] = field(default_factory=dict)

    def within(self, max_error: float, *, measures_all: bool = False) -> PrecisionReport:
        """The fastest choice whose error is at most this; it may leave all as it is.

        Errors of single layers are measured where the fastest choice of all does not fit, or ``measures_all``.
        """
        in_bytes = self._fastest.in_bytes & {*self._units}
        variances: dict[str, float] = {}
        front: list[tuple[frozenset[str], float]] = []
        if (measures_all and self._units) or (in_bytes and self._error(in_bytes) > max_error):
            variances = {name: self._variance(number, name) for number, name in enumerate(self._units, start=1)}
            front = self._front(variances)
            in_bytes = self._fitting([names for names, _ in front], variances, max_error)
        times_ms = self._times_ms(in_bytes) if in_bytes else {}
        if times_ms and times_ms["int8"] > _WORTH * min(ms for name, ms in times_ms.items() if name != "int8"):
            in_bytes = frozenset()
        fixed = cheapest_precisions(self._network, {name: 1 - 2 * (name in in_bytes) for name in self._units}, _FORCING)

        def point(names: frozenset[str], ns: float) -> FrontPoint:
            estimated = sqrt(sum(variances[name] for name in names)) if variances else None
            return FrontPoint(len(names), ns, estimated, self._measured.get(names))

        op_types = {node.name: node.op_type for node in self.graph.nodes}
        layers = (
            LayerPrecision(
                name,
                op_types[name],
                name in in_bytes,
                sqrt(variances[name]) if variances else None,
                fixed.otherwise_ns.get(name),
            )
            for name in self._units
        )
        return PrecisionReport(
            metric=self.metric[0],
            max_error=max_error,
            error=self._error(in_bytes) if in_bytes else 0.0,
            dtype=self.dtype,
            layers=tuple(layers),
            left=tuple(sorted(self._left(in_bytes))),
            front=tuple(point(*each) for each in front),
            chosen=point(in_bytes, fixed.ns),
            times_ms=times_ms,
        )

    @cached_property
    def _units(self) -> tuple[str, ...]:
        """Nodes that are quantised or not by themselves: those that compute."""
        nodes = {node.name: node for node in self.graph.nodes}
        return tuple(name for name in self.chosen.readers if not self._only_moves(nodes[name]))

    def _only_moves(self, node: Node) -> bool:
        return node.facts.selects(self.graph.info(node)) is not None

    def _left(self, in_bytes: Collection[str]) -> frozenset[str]:
        """Nodes that read numbers where these units are in bytes: other units, and moves for none of these."""
        staying, readers = {*in_bytes}, self.graph.readers()
        for node in reversed(self.graph.nodes):
            if self._only_moves(node) and any(each.name in staying for out in node.outputs for each in readers[out]):
                staying.add(node.name)
        return frozenset(self.chosen.readers) - staying

    @cached_property
    def _network(self) -> Network:
        pricing = Pricing(self.n_threads, "cached", 0.0, self.tell)
        # By tables there would be no choice of numbers between bytes.
        passes = tuple(each for each in LEGALIZATION if not isinstance(each, TabulateBytes))
        program = lower(legalize(simplify(self.written(())), passes))
        return pricing.priced(free_network(program, pricing.modelled(), self.dtype))

    @cached_property
    def _fastest(self) -> Precisions:
        return cheapest_precisions(self._network, {}, 0.0)

    @cached_property
    def _expected(self) -> Outputs:
        return self._outputs(self.graph, self.feeds, "f32")

    def _outputs(self, graph: Graph, feeds: Iterable[Feed], dtype: str) -> Outputs:
        from blocklayout.api import load

        with load(graph, dtype=dtype, threads=self.n_threads, tune="model", recipes={"winograd": False}) as session:
            return [[np.array(each) for each in session.run(None, feed)] for feed in feeds]

    @cached_property
    def _unsaturated(self) -> tuple[str, ...]:
        """The outputs; of one that saturates, the source of that: small errors show there in a few feeds."""
        writers, found = self.graph.producers(), []
        for name in self.graph.outputs:
            node = writers.get(name)
            while node is not None and self._only_moves(node):
                node = writers.get(node.inputs[0])
            found.append(node.inputs[0] if node is not None and node.op_type in _SATURATING else name)
        return tuple(found)

    @cached_property
    def _few(self) -> Sequence[Feed]:
        return self.feeds[:: max(len(self.feeds) // N_FEEDS, 1)][:N_FEEDS]

    @cached_property
    def _few_expected(self) -> Outputs:
        return self._outputs(self.graph.replace(outputs=self._unsaturated), self._few, "f32")

    def _variance(self, number: int, name: str) -> float:
        """The square of the error with one unit in bytes."""
        self.tell(f"the error of layer {number} of {len(self._units)}, {name}")
        graph = self.written(self._left({name})).replace(outputs=self._unsaturated)
        return rms(self._outputs(graph, self._few, "f32"), self._few_expected) ** 2

    def _error(self, in_bytes: frozenset[str]) -> float:
        """By the metric, on all data."""
        if in_bytes not in self._measured:
            self.tell(f"the error with {len(in_bytes)} of {len(self._units)} layers in bytes")
            found = self._outputs(self.written(self._left(in_bytes)), self.feeds, self.dtype)
            self._measured[in_bytes] = self.metric[1](found, self._expected)
        return self._measured[in_bytes]

    def _front(self, variances: Mapping[str, float]) -> list[tuple[frozenset[str], float]]:
        """Choices at rising prices of error, with their estimated times, the most exact first."""
        self.tell("solving for layouts and precisions")
        network, total = self._network, sum(variances.values())
        most = self._fastest.ns / max(min(variances.values()), _TINY)
        least = self._fastest.ns / max(total, _TINY) / 100
        found: dict[frozenset[str], float] = {}
        for price in (*np.geomspace(max(most, 2 * least), least, _N_PRICES), 0.0):
            cheapest = cheapest_precisions(network, variances, float(price))
            found.setdefault(cheapest.in_bytes & {*self._units}, cheapest.ns)
        return sorted(found.items(), key=lambda item: (sum(variances[name] for name in item[0]), -item[1]))

    def _fitting(
        self, choices: Sequence[frozenset[str]], variances: Mapping[str, float], max_error: float
    ) -> frozenset[str]:
        """The last choice whose error fits, and of what the next one adds as much as still does."""
        n_fit = bisect_right(choices, max_error, key=self._error)
        fits = choices[n_fit - 1] if n_fit else frozenset()
        if n_fit == len(choices):
            return fits
        added = sorted(choices[n_fit] - fits, key=variances.__getitem__)
        wider = [fits.union(added[:n]) for n in range(1, len(added))]
        n_wider = bisect_right(wider, max_error, key=self._error)
        return wider[n_wider - 1] if n_wider else fits

    def _times_ms(self, in_bytes: frozenset[str]) -> dict[str, float]:
        """Of a run in bytes and of one without, in turn."""
        from blocklayout.api import load

        self.tell("timing the model in bytes and without, in turn")
        given = {"int8": (self.written(self._left(in_bytes)), self.dtype)}
        given |= {dtype: (self.graph, dtype) for dtype in ("f32", self.dtype)}
        with ExitStack() as stack:
            loaded = (load(graph, dtype=dtype, threads=self.n_threads) for graph, dtype in given.values())
            sessions = [stack.enter_context(session) for session in loaded]
            calls = [partial(session.run, None, self.feeds[0]) for session in sessions]
            times = time_in_turn(calls, _N_ROUNDS)
        return {name: median(own) / 1e6 for name, own in zip(given, times, strict=True)}
