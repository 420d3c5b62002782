"""The choice to be made: tiles with their candidates, joined by the values between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.errors import LayoutError, UnsupportedError
from blocklayout.ir import Fused
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.joined import joined
from blocklayout.plan.candidates.sharing import shareable
from blocklayout.plan.candidates.tiles import Tile, apart, value_info
from blocklayout.plan.costs.model import steps_ns
from blocklayout.plan.plan import FREE
from blocklayout.plan.solving.copies import Layouts, copies_wanted

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, Kernel, Program, Value, ValueLayout
    from blocklayout.plan.candidates.propose import Proposer
    from blocklayout.plan.costs.model import CostModel

Choice = tuple[int, ...]
"""Which candidate each tile takes, by the tiles' order."""

MOST_ROUGHER_IN_A_ROW = 2
"""Tiles whose primitives round more than others. With more, and no sum between them, results are further from exact
ones than where each of the model's operators rounds its own: of VGG-11 with normalisations by 3 %.
"""

OTHER_DTYPE_NS = 1e9
"""Charged for each departure from a choice that computes in another data type."""


class Departed(Struct, frozen=True):
    """A usual choice, its reorders (from where to where), and how much more, as a share, all others cost."""

    usual: Choice
    moved: frozenset[tuple[ValueLayout, ValueLayout]]
    promise: float


class Network(Struct, frozen=True, eq=False, dict=True):
    """Groups in order, their candidates, and the costs of reorders between them.

    Attributes:
        tiles: In an order that computes every value before it is read.
        candidates: Of each tile.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
        dtype: Data type of activations; kernels in another are islands.
        given: Inputs that were left to the plan and are settled, by name.
        carried: Computed outputs by the inputs as which they come in the next run; both are left to the plan.
        departed: A choice next to which others cost more.
        charges: Nanoseconds that a node of the model costs more where it computes with bytes, by name.
    """

    program: Program
    tiles: tuple[Tile, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    costs: CostModel
    io_layout: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "f32"
    given: Mapping[str, MemoryDesc] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    departed: Departed | None = None
    charges: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """The tile that computes each value; the model's inputs have none."""
        return {value.name: index for index, tile in enumerate(self.tiles) for value in tile.dsts.values()}

    @cached_property
    def readers(self) -> Mapping[str, Sequence[tuple[int, str]]]:
        """The tiles that read each value, and as which operand."""
        readers: dict[str, list[tuple[int, str]]] = {value.name: [] for value in self.program.inputs}
        readers |= {value: [] for value in self.producers}
        for index, tile in enumerate(self.tiles):
            for operand, value in tile.sources.items():
                readers[value.name].append((index, operand))
        return readers

    @cached_property
    def quantized(self) -> Mapping[str, Kernel]:
        """The kernels of values that bytes may stand for, by value; their constants say how."""
        return {kernel.dst.name: kernel for kernel in self.program.kernels if kernel.dst.quantization is not None}

    @cached_property
    def fixed(self) -> Mapping[str, MemoryDesc]:
        """The model's inputs as the caller gives them, in their declared data types; not those left to the plan."""
        return {**self._declared(self.program.inputs), **self.given}

    @cached_property
    def results(self) -> Mapping[str, MemoryDesc]:
        """Computed outputs as the caller gets them, in their declared types; not those left to the plan."""
        return self._declared(value for value in self.program.outputs if value.name in self.producers)

    def _declared(self, values: Iterable[Value]) -> dict[str, MemoryDesc]:
        borders = ((value, self.io_layout.get(value.name)) for value in values)
        return {value.name: declared_desc(value, border) for value, border in borders if border != FREE}

    @cached_property
    def touching(self) -> Sequence[Sequence[str]]:
        """The values whose layout, or that of whose copies, each tile decides."""
        sides = ((*tile.sources.values(), *tile.dsts.values()) for tile in self.tiles)
        touched = [dict.fromkeys(value.name for value in values) for values in sides]
        for value in self.carried:
            touched[self.producers[self.carried[value]]][value] = None
        return [tuple(values) for values in touched]

    def producer_of(self, value: str) -> int | None:
        """The tile that settles the layout of a value; ``None`` for the caller's."""
        return self.producers.get(self.carried.get(value, value))

    def produced(self, value: str, candidate: Candidate) -> ValueLayout:
        """The layout in which a value is where a candidate of the tile that settles it is taken."""
        computed = self.carried.get(value, value)
        desc = produced_desc(self.tiles[self.producers[computed]], candidate, computed)
        if value not in self.carried:
            return desc
        row_major = self._row_major(value)
        if not isinstance(desc, MemoryDesc) or not desc.is_dense:
            return row_major
        return desc.with_dtype(row_major.dtype)

    def _row_major(self, value: str) -> MemoryDesc:
        return next(declared_desc(each) for each in self.program.inputs if each.name == value)

    def offers(self, value: str) -> list[ValueLayout]:
        """The layouts a value may be produced in."""
        producer = self.producer_of(value)
        if producer is None:
            return [*self._givens(value)]
        return [self.produced(value, each) for each in self.candidates[producer]]

    def _givens(self, value: str) -> list[MemoryDesc]:
        """The layouts the caller may give an input in."""
        if value in self.fixed:
            return [self.fixed[value]]
        row_major = self._row_major(value)
        wishes = (desc for desc in self.wishes(value) if isinstance(desc, MemoryDesc) and desc.is_dense)
        return [row_major, *(desc.with_dtype(row_major.dtype) for desc in wishes)]

    def wishes(self, value: str) -> list[ValueLayout]:
        """The layouts a value may be wanted in."""
        readers = ((self.candidates[reader], operand) for reader, operand in self.readers[value])
        wanted = [each.source_descs[operand] for offered, operand in readers for each in offered]
        return [*wanted, self.results[value]] if value in self.results else wanted

    def priced(self, costs: CostModel) -> Network:
        """The same candidates at other prices."""
        return self if costs is self.costs else replace(self, costs=costs)

    def departing(self, usual: Choice, promise: float) -> Network:
        """The same network where all that a usual choice does not do costs more, by a share.

        Departures to another data type than the one asked for cost infinitely more: next to each other, prices of two
        types hold for the kind of CPU only that they were taken on.
        """
        moved = {(self.desc_of(value, usual), copy) for value in self.readers for copy in self.copies(value, usual)}
        return replace(self, departed=Departed(usual, frozenset(moved), promise))

    @cached_property
    def work_ns(self) -> Sequence[Sequence[float]]:
        """Nanoseconds of the steps of each candidate of each tile."""
        known = {
            id(offered): [steps_ns(self.costs, each.steps) for each in offered]
            for offered in {id(each): each for each in self.candidates}.values()
        }
        prices = [known[id(offered)] for offered in self.candidates]
        if self.charges:
            prices = [[*self._with_charge(index, own)] for index, own in enumerate(prices)]
        if self.departed is None:
            return prices
        return [self._charged(index, own, self.departed) for index, own in enumerate(prices)]

    def _with_charge(self, index: int, prices: Sequence[float]) -> Iterator[float]:
        charge = sum(self.charges.get(name, 0.0) for name in self.tiles[index].nodes)
        for ns, candidate in zip(prices, self.candidates[index], strict=True):
            yield ns + charge if candidate.reads_bytes else ns

    def _charged(self, index: int, prices: Sequence[float], departed: Departed) -> list[float]:
        usual, offered = departed.usual[index], self.candidates[index]
        dtype = offered[usual].dst.dtype
        return [
            ns if taken == usual else ns * (1 + departed.promise) + (offered[taken].dst.dtype != dtype) * OTHER_DTYPE_NS
            for taken, ns in enumerate(prices)
        ]

    def desc_of(self, value: str, choice: Sequence[int]) -> ValueLayout:
        """The layout in which a value is produced under a choice."""
        if value not in self.producers:
            return self._given(value, choice)
        producer = self.producers[value]
        return self.produced(value, self.candidates[producer][choice[producer]])

    def inputs(self, choice: Sequence[int], *, returns_to_plain: bool = False) -> Iterator[tuple[str, MemoryDesc]]:
        """The model's inputs as the caller should give them under a choice; plain where results return to plain."""
        for value in self.program.inputs:
            is_plain = returns_to_plain and value.name in self.carried
            yield value.name, declared_desc(value) if is_plain else self._given(value.name, choice)

    def _given(self, value: str, choice: Sequence[int]) -> MemoryDesc:
        """The layout of an input; of one that is left to the plan that from which its readers are served best."""
        if value in self.fixed:
            return self.fixed[value]
        producer = self.producer_of(value)
        if producer is not None:  # it comes as that wrote it
            desc = self.produced(value, self.candidates[producer][choice[producer]])
            return desc if isinstance(desc, MemoryDesc) else self._row_major(value)
        demands = list(self.demands(value, choice))
        offers = dict.fromkeys(self._givens(value))

        def cost_ns(desc: MemoryDesc) -> tuple[float, bool]:
            """Of layouts that serve alike, one that is asked for: the same beside any others on offer."""
            return sum(self.reorder_ns(desc, copy) for copy in copies_wanted(desc, demands)), desc not in demands

        return min(offers, key=cost_ns)

    def demands(self, value: str, choice: Sequence[int]) -> Iterator[ValueLayout]:
        """The layouts a value is wanted in under a choice, readers in order, the caller last."""
        for reader, operand in self.readers[value]:
            yield self.candidates[reader][choice[reader]].source_descs[operand]
        if value in self.results:
            yield self.results[value]

    def layouts_of(self, descs: Iterable[ValueLayout]) -> Layouts:
        """The kinds among some layouts; values that have the same layouts share them, and their prices."""
        key = tuple(dict.fromkeys(descs))
        if key not in self._layouts:
            self._layouts[key] = Layouts.of(key, self.reorder_ns)
        return self._layouts[key]

    @cached_property
    def _layouts(self) -> dict[tuple[ValueLayout, ...], Layouts]:
        return {}

    def reorder_ns(self, src: ValueLayout, dst: ValueLayout) -> float:
        """The price of a reorder; infinite from and to values that are not stored."""
        if isinstance(src, Fused) or isinstance(dst, Fused):
            return inf
        ns, departed = self.costs.reorder_ns(src, dst), self.departed
        return ns if departed is None or (src, dst) in departed.moved else ns * (1 + departed.promise)

    def value_ns(self, value: str, choice: Sequence[int]) -> float:
        """Cost of one value's reorders."""
        produced = self.desc_of(value, choice)
        return sum(self.reorder_ns(produced, desc) for desc in self.copies(value, choice))

    def copies(self, value: str, choice: Sequence[int]) -> list[ValueLayout]:
        """The layouts a value is brought to under a choice: each once, however many read it."""
        return copies_wanted(self.desc_of(value, choice), self.demands(value, choice))

    def total_ns(self, choice: Sequence[int]) -> float:
        """Cost of a run under a choice: every tile and every reorder."""
        work = sum(self.work_ns[index][taken] for index, taken in enumerate(choice))
        return work + sum(self.value_ns(value, choice) for value in self.readers)


def produced_desc(tile: Tile, candidate: Candidate, value: str) -> ValueLayout:
    """The layout that a candidate of a tile gives to one of the tile's values."""
    if value == tile.dst.name:
        return candidate.dst
    by_argument = dict(candidate.others)
    return next(by_argument[arg] for arg, other in tile.main.others if other.name == value)


def declared_desc(value: Value, layout: str | None = None) -> MemoryDesc:
    """A value as the caller sees it, in its declared data type; a scalar is one element of rank 1."""
    try:
        return MemoryDesc(value.dims, value.dtype, layout)
    except LayoutError as error:
        raise UnsupportedError(f"{value.name}: {error}") from None


def propose_all(
    program: Program,
    tiles: Sequence[Tile],
    proposer: Proposer,
    io_layout: Mapping[str, str] | None = None,
    carried: Mapping[str, str] | None = None,
) -> Network:
    """Ask for the candidates of every tile, each knowing the layouts its sources may arrive in.

    A tile for which no primitive is offered falls apart into its kernels; a kernel alone becomes a plain one.
    Outputs that are ``carried`` to inputs, by these, are so as far as tiles compute them, in the same extents.
    """
    borders = io_layout or {}
    arriving: dict[str, list[MemoryDesc]] = {}
    for value in program.inputs:
        border = borders.get(value.name)
        given = declared_desc(value, None if border == FREE else border)
        arriving[value.name] = [given.with_dtype(value_info(value, proposer.dtype).dtype)]
    together = joined(program, tiles, proposer.dtype)
    shared = shareable(program, tiles, together, proposer.dtype, proposer.costs.machine.layout_names)
    kept: list[Tile] = []
    candidates: list[tuple[Candidate, ...]] = []
    waiting = deque(replace(tile, shared=shared.get(tile.name)) for tile in tiles)
    while waiting:
        tile = waiting.popleft()
        incoming = {operand: arriving[value.name] for operand, value in tile.sources.items()}
        try:
            offered = proposer.propose(tile, incoming)
        except UnsupportedError:
            waiting.extendleft(reversed(apart(tile)))
            if waiting[0] is tile:
                raise
            continue
        for value in tile.dsts.values():
            produced = dict.fromkeys(produced_desc(tile, each, value.name) for each in offered)
            arriving[value.name] = [desc for desc in produced if isinstance(desc, MemoryDesc)]
        kept.append(tile)
        candidates.append(offered)
    by_name = dict(zip((tile.name for tile in kept), _in_short_rows(kept, candidates), strict=True))
    for two in together:
        first, second = two.first.name, two.second.name
        if first in by_name and second in by_name:  # neither fell apart
            whole = replace(two.whole, shared=shared.get(second))
            for half, other in proposer.propose_joined(two._replace(whole=whole)):
                by_name[first] += (half,)
                by_name[second] += (other,)
    network = Network(program, tuple(kept), tuple(by_name.values()), proposer.costs, borders, proposer.dtype)
    return replace(network, carried=dict(_carried(network, carried or {})))


def _in_short_rows(
    tiles: Sequence[Tile], candidates: Sequence[tuple[Candidate, ...]]
) -> Iterator[tuple[Candidate, ...]]:
    """The candidates of each tile, but for those that round more where as many as may be in a row do so before it.

    A row goes on through tiles that round nothing, and ends at others, and where several values are combined.
    """
    lengths: dict[str, int] = {}  # of the row that each value is the last of
    for tile, offered in zip(tiles, candidates, strict=True):
        length = max((lengths.get(value.name, 0) for value in tile.sources.values()), default=0)
        others = tuple(candidate for candidate in offered if not _is_rougher(candidate))
        kept = others if others and length >= MOST_ROUGHER_IN_A_ROW else offered
        if tile.rounds:
            goes_on = kept != others and len(tile.sources) == 1
            length = length + 1 if goes_on else 0
        lengths |= dict.fromkeys((value.name for value in tile.dsts.values()), length)
        yield kept


def _is_rougher(candidate: Candidate) -> bool:
    return any(isinstance(step.spec, dnnl.Spec) and dnnl.is_rougher(step.spec) for step in candidate.steps)


def _carried(network: Network, carried: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    inputs = {value.name: value for value in network.program.inputs}
    outputs = {value.name: value for value in network.program.outputs if value.name in network.producers}
    for name, output in carried.items():
        if name in inputs and output in outputs:
            one, other = inputs[name], outputs[output]
            if (one.shape, one.dtype) == (other.shape, other.dtype):
                yield name, output
