"""Propose what another plan of the same network chose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod

from msgspec import field
from msgspec.structs import replace

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.ir import BYTES, Candidate, Fused, Role, Value, ValueLayout, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.joined import Joined
from blocklayout.plan.candidates.propose import Proposer, lasts
from blocklayout.plan.candidates.recipes import TileRecipes
from blocklayout.plan.candidates.tiles import Tile, problem_key
from blocklayout.plan.choices import KernelChoice, Way

MAX_NEAR_RATIO = 2.0
"""How many times more elements an input may have than in a plan, or fewer, for its implementations to be taken.

Source: ``bench/extents.py``, AVX-512, 2 threads: up to twice as many, choosing anew among implementations gains less
than 1 % of a run; four times as many, 10 %.
"""


def are_near(inputs: Iterable[Value], others: Mapping[str, MemoryDesc]) -> bool:
    """Whether implementations may be taken over from a plan with these other inputs."""
    sizes = (sorted((prod(each.dims), prod(others[each.name].dims))) for each in inputs if each.name in others)
    return all(more <= MAX_NEAR_RATIO * less for less, more in sizes)


class FollowingProposer(Proposer, frozen=True):
    """Proposes for each tile the layouts that a plan for other extents chose, in the plan's or every implementation.

    Where these are not on offer, or the plan has nothing for a tile, it proposes all there is.

    Attributes:
        choices: Of the plan, by kernel.
        takes_impls: Whether the plan's implementations are taken as well: the library is asked for no others. Where one
            is not on offer, the cheapest is proposed.
    """

    choices: Mapping[str, KernelChoice] = field(default_factory=dict)
    takes_impls: bool = False

    def propose(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]]) -> tuple[Candidate, ...]:
        """The candidates in the plan's layouts; see :meth:`Proposer.propose`."""
        choice = self.choices.get(tile.name)
        is_pinned = tile.name in self.pins
        if choice is None or choice.nodes != tile.nodes or is_pinned:
            return super().propose(tile, incoming)
        way = _apart(choice.chosen)
        if tile.is_view:
            return self._followed(tile, incoming, way) or super().propose(tile, incoming)
        arriving = tuple((operand, tuple(descs)) for operand, descs in incoming.items())
        key = (problem_key(tile, self.dtype), arriving, way.layouts, way.impls)
        if key not in self._known:
            self._known[key] = self._followed(tile, incoming, way)
        return self._known[key] or super().propose(tile, incoming)

    def _followed(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]], way: Way) -> tuple[Candidate, ...]:
        """The candidates in a way's layouts, if any are on offer."""
        for impls in dict.fromkeys((way.impls if self.takes_impls else (), ())):
            likely = self.likely(tile, incoming, way, impls)
            alike = (each for each in likely if _is_like(Way.of(each), way) and not each.is_reference)
            found = list(islice((each for each in alike if Way.of(each).impls == impls), 1) if impls else alike)
            if found and not (self.is_frugal and any(map(lasts, found))):
                offered = self._distinct(found)
                return (min(offered, key=self._work_ns),) if self.takes_impls else offered
        return ()

    def propose_joined(self, two: Joined) -> Iterator[tuple[Candidate, Candidate]]:
        """The candidates of two as one; none where the plan's implementations are taken, and it computes them apart."""
        known = [self.choices[each.name] for each in (two.first, two.second) if each.name in self.choices]
        if not self.takes_impls or len(known) < 2 or any(choice.chosen.is_joined for choice in known):
            yield from super().propose_joined(two)

    def likely(
        self,
        tile: Tile,
        incoming: Mapping[str, Sequence[MemoryDesc]],
        way: Way,
        impls: tuple[str, ...] = (),
    ) -> Iterator[Candidate]:
        """Candidates that read sources as this way does, as far as they arrive so, and write as it does.

        With ``impls`` in no other implementations.
        """
        *sources, dst = (layout for layout in way.layouts if isinstance(layout, MemoryDesc))
        if tile.is_view:
            yield from self._views(tile, [*_resized(tile, sources), *incoming["src"]])
        elif tile.main.operator.role is Role.PLAIN:
            yield from self._plain(tile)
        elif sources and (dtype := _computing(tile, sources, dst)) in tile.dtypes(self.dtype):
            recipes = TileRecipes(tile, dtype, self.costs.machine.n_threads, impls=impls)
            for source in dict.fromkeys((sources[0], dst)):
                yield from self._wished(recipes, Wish(source, dst))
            wanted = dict(zip(tile.sources, sources, strict=False))
            (_, first), *others = (
                (arg, _arriving(incoming.get(arg, ()), wanted[arg])) for arg, _ in tile.main.sources if arg in wanted
            )
            if others:
                yield from self._wished(recipes, Wish(first, dst, others=tuple(others)))


def _computing(tile: Tile, sources: Sequence[MemoryDesc], dst: MemoryDesc) -> str:
    """The data type that a tile computes in where it reads and writes these; a result of bytes does not say it."""
    if tile.takes_bytes and sources[0].dtype not in PRIMITIVE_FLOATS:
        return BYTES
    return dst.dtype if dst.dtype in PRIMITIVE_FLOATS else sources[0].dtype


def _apart(way: Way) -> Way:
    """Of a kernel that is one primitive with its neighbour, how it would be computed by itself in these layouts."""
    if not way.is_joined:
        return way
    *sources, dst = (each.held if isinstance(each, Fused) else each for each in way.layouts)
    return replace(way, impls=(), sources=tuple(sources), dst=dst)


def _arriving(incoming: Sequence[MemoryDesc], like: MemoryDesc) -> MemoryDesc:
    """The layout that arrives like another, else that one."""
    return next((desc for desc in incoming if _are_like(desc, like)), like)


def _resized(tile: Tile, sources: Sequence[MemoryDesc]) -> list[MemoryDesc]:
    """Layouts of a view's source at its own extents."""
    dims = tile.sources["src"].dims
    return [desc if desc.dims == dims else desc.resized(dims, desc.dtype) for desc in sources]


def _is_like(way: Way, other: Way) -> bool:
    """Whether two ways read and write layouts that differ in extents alone."""
    if way.in_place != other.in_place or len(way.layouts) != len(other.layouts):
        return False
    return all(map(_are_like, way.layouts, other.layouts))


def _are_like(layout: ValueLayout, other: ValueLayout) -> bool:
    if not (isinstance(layout, MemoryDesc) and isinstance(other, MemoryDesc)):
        return False
    return layout.is_dense == other.is_dense and layout.format_tag == other.format_tag
