"""Which kernels of a quantised network should compute with bytes, where errors have a price: by the same solve.

In the network that is solved every value that has bytes may also stay numbers. So the cheapest choice says where
changes between bytes and numbers pay, next to layouts and reorders, and what each kernel would cost otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.atomic_write import save_text
from blocklayout.dtypes import FLOATS
from blocklayout.encoding import MisfitError, from_json
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Candidate, Program
from blocklayout.layout import MemoryDesc
from blocklayout.model import OnnxModel, open_model
from blocklayout.model.onnx_read import REPORT_KEY
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.candidates.tiles import Tile, fuse, kernel_problem
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import Network, propose_all
from blocklayout.plan.solving.solve import solve_layouts


class LayerPrecision(Struct, frozen=True):
    """A node that could compute with bytes.

    Attributes:
        error: Relative root mean square error of the model's outputs where this node alone is quantised, before a last
            Softmax or Sigmoid; ``None`` where it was not measured.
        otherwise_ns: Estimated nanoseconds that a run would take longer the other way; ``None`` without a choice.
    """

    node: str
    op_type: str
    in_bytes: bool
    error: float | None
    otherwise_ns: float | None


class FrontPoint(Struct, frozen=True):
    """A choice of nodes than which no other is both faster and more exact, by estimates.

    Attributes:
        n_in_bytes: Nodes that compute with bytes.
        ns: Estimated time of a run.
        estimated_error: The root of the sum of squares of the nodes' own errors; ``None`` without these.
        error: By the metric, on data; ``None`` where it was not measured.
    """

    n_in_bytes: int
    ns: float
    estimated_error: float | None
    error: float | None = None


class PrecisionReport(Struct, frozen=True):
    """Which nodes of a model were quantised under a budget of error, and why.

    Attributes:
        metric: Name of the measure of error.
        max_error: The budget.
        error: By the metric, of the model on the calibration data.
        dtype: Data type of what is not quantised.
        layers: All nodes that could be, in the model's order.
        left: Names of all nodes that were left as they are: such layers, and what moves elements for none but these.
        front: From the most exact to the fastest; empty where errors of nodes were not measured.
        chosen: The model as it is, as a point like those.
        times_ms: Milliseconds of a run by data type, ``int8`` being the model, in turn.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout.zoo import digits
        >>> bl.PrecisionReport.of(digits.model_bytes()) is None  # nothing is quantised
        True
    """

    metric: str
    max_error: float
    error: float
    dtype: str
    layers: tuple[LayerPrecision, ...]
    left: tuple[str, ...]
    front: tuple[FrontPoint, ...]
    chosen: FrontPoint
    times_ms: Mapping[str, float]

    @classmethod
    def of(cls, model: Any) -> PrecisionReport | None:
        """That of a model that :func:`quantize` made with ``max_error``, or of its file; ``None`` of any other.

        Raises:
            ModelError: No model, or a report that is damaged.
        """
        opened = open_model(model)
        text = opened.metadata.get(REPORT_KEY) if isinstance(opened, OnnxModel) else None
        return None if text is None else cls.parsed(text, opened.name)

    @classmethod
    def parsed(cls, text: str, model: str) -> PrecisionReport:
        """That of a model of this name, from JSON; a ModelError where it is damaged."""
        try:
            return from_json(cls, text)
        except MisfitError as error:
            raise ModelError(f"the entry {REPORT_KEY!r} in the metadata of {model} is damaged: {error}") from None

    def __str__(self) -> str:
        """The layers as a table, and what the choice gives."""
        from blocklayout.show.precision import precision_text

        return precision_text(self)

    def to_svg(self) -> str:
        """A picture of the front, time against error, with the choice."""
        from blocklayout.show.precision import front_svg

        return front_svg(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture; a reader never sees half of it.

        Raises:
            InputError: The file cannot be written.
        """
        save_text(path, self.to_svg(), "picture")


class Precisions(Struct, frozen=True):
    """Which kernels compute with bytes where errors have some price.

    Attributes:
        in_bytes: Names of the model's nodes in tiles that do.
        ns: Estimated nanoseconds of a run, errors left out.
        otherwise_ns: How much longer a run would take with a node in the other precision, all else chosen anew; of
            nodes that have a choice.
    """

    in_bytes: frozenset[str]
    ns: float
    otherwise_ns: Mapping[str, float]


class _FreeProposer(Proposer, frozen=True):
    """Proposes for tiles that make bytes of numbers also to leave them as they are."""

    def propose(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]]) -> tuple[Candidate, ...]:
        """The candidates of the tile, and those that leave numbers."""
        offered = super().propose(tile, incoming)
        if tile.byte_writer is not None:
            with suppress(UnsupportedError):
                return (*offered, *super().propose(replace(tile, followers=tile.followers[:-1]), incoming))
        if not self._makes_bytes(tile):
            return offered
        numbers = [desc for desc in incoming["src"] if desc.dtype in FLOATS]
        return (*offered, *(Candidate(sources=(("src", desc),), dst=desc, origin="numbers") for desc in numbers))

    def _makes_bytes(self, tile: Tile) -> bool:
        if tile.followers or [arg for arg, _ in tile.main.sources] != ["src"]:
            return False
        problem = kernel_problem(tile.main, self.dtype, self.costs.machine.n_threads)
        use = tile.main.operator.as_post_op("src", problem)
        return use is not None and use.writes_bytes


def free_network(program: Program, costs: CostModel, dtype: str) -> Network:
    """The network of a quantised model in which each value may have the model's bytes, or be numbers of ``dtype``."""
    return propose_all(program, fuse(program, dtype, costs.machine.n_threads), _FreeProposer(costs, dtype))


def cheapest_precisions(network: Network, errors: Mapping[str, float], ns_per_error: float) -> Precisions:
    """The cheapest choice where computing with bytes costs as much more as it adds to the error.

    Args:
        network: As :func:`free_network` makes it.
        errors: By name of a node what it adds where it computes with bytes, in any unit.
        ns_per_error: Price of that unit.
    """
    charges = {name: error * ns_per_error for name, error in errors.items()}
    solution = solve_layouts(replace(network, charges=charges))
    in_bytes: set[str] = set()
    otherwise_ns: dict[str, float] = {}
    for tile, offered, costs, taken in zip(
        network.tiles, network.candidates, solution.costs_of_candidates, solution.choice, strict=True
    ):
        is_in_bytes = offered[taken].reads_bytes
        in_bytes |= {*tile.nodes} if is_in_bytes else set()
        others = [cost for cost, each in zip(costs, offered, strict=True) if each.reads_bytes != is_in_bytes]
        if others:
            charge = sum(charges.get(name, 0.0) for name in tile.nodes)
            extra_ns = min(others) - solution.cost_ns + (charge if is_in_bytes else -charge)
            otherwise_ns |= dict.fromkeys(tile.nodes, extra_ns)
    return Precisions(frozenset(in_bytes), network.total_ns(solution.choice), otherwise_ns)
