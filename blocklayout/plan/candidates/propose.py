"""Candidates for a tile: oneDNN's offers in every layout worth having."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dtypes import has_reorder
from blocklayout.errors import UnsupportedError
from blocklayout.ir import Candidate, Demand, Role, TensorInfo, Wish, wished_desc
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.plan.candidates.joined import Joined, halves
from blocklayout.plan.candidates.pins import with_format
from blocklayout.plan.candidates.recipes import TileRecipes, trained_wishes
from blocklayout.plan.candidates.sharing import sliced_candidate
from blocklayout.plan.candidates.tiles import Tile, problem_key, value_info
from blocklayout.plan.costs.model import CostModel, steps_ns
from blocklayout.resource_limits import check_time

MAX_FRUGAL_RATIO = 2.0
"""How much slower than the best a tile may become for the sake of memory."""


_LEAST_CACHE_NBYTES = 256 << 10
"""Of a core's second-level cache, on any machine: the library fuses no convolution with a depthwise one behind it where
the values between them are smaller than two such caches for each thread.

Source: ``depthwise_po_init`` of the pointwise convolutions in ``src/cpu/x64``, oneDNN v3.2.
"""

_MAX_ARRIVING = 3
"""Layouts of each source that are combined with those of others."""


class Proposer(Struct, frozen=True):
    """Proposes candidates for tiles on one machine.

    Attributes:
        costs: Prices the candidates; also knows the machine.
        dtype: Data type of activations. Where it is narrower than f32, tiles may be islands of f32 as well.
        tags: Layouts to try beyond the usual ones, as oneDNN tags.
        is_frugal: Whether to leave out what takes memory for good each time it is made, unless all else costs
            more than ``MAX_FRUGAL_RATIO`` times as much.
        pins: Formats that tiles must write, by their names.
        without: Implementations of our own that are not to be proposed, by name.
    """

    costs: CostModel
    dtype: str
    tags: tuple[str, ...] = ()
    is_frugal: bool = False
    pins: Mapping[str, Demand] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    _known: dict[object, tuple[Candidate, ...]] = field(default_factory=dict)
    _answers: dict[object, bool] = field(default_factory=dict)

    def propose(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]]) -> tuple[Candidate, ...]:
        """Every distinct way to compute a tile; reference implementations only where nothing else exists.

        Args:
            tile: The tile.
            incoming: Layouts in which each source may arrive, by operand.

        Raises:
            UnsupportedError: No primitive computes it on this CPU.
            PlanError: Nothing offered writes the format it is pinned to.
        """
        offered = self._offered(tile, incoming)
        if tile.name in self.pins:
            return with_format(offered, self.pins[tile.name])
        optimised = tuple(candidate for candidate in offered if not candidate.is_reference)
        return tuple(self._frugal(optimised or offered)) if self.is_frugal else optimised or offered

    def propose_joined(self, two: Joined) -> Iterator[tuple[Candidate, Candidate]]:
        """A candidate of each of two tiles for every way in which they are truly one."""
        if any(part.name in self.pins for part in (two.first, two.second)):
            return
        with suppress(UnsupportedError):
            offered = [each for each in self._offered(two.whole, {}) if each.steps and not each.is_reference]
            for candidate in self._frugal(offered) if self.is_frugal and offered else offered:
                yield halves(two, candidate)

    def _offered(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]]) -> tuple[Candidate, ...]:
        """All candidates, references too."""
        check_time(f"planning {tile.name}")
        dtypes = tile.dtypes(self.dtype)
        if all(0 in value.shape for value in tile.dsts.values()):
            return (_nothing_to_do(tile, dtypes[0]),)
        if tile.is_view:
            return self._views(tile, incoming["src"])
        if tile.main.operator.role is Role.PLAIN:
            return self._plain(tile)
        # Groups that are the same problem share their candidates.
        arriving = tuple((operand, tuple(descs)) for operand, descs in incoming.items())
        pin = self.pins[tile.name].wanted if tile.name in self.pins else None
        key = (problem_key(tile, dtypes[0]), arriving, dtypes, pin)
        if key not in self._known:
            self._known[key] = self._distinct(self._asked(tile, incoming))
        if not self._known[key]:
            raise UnsupportedError(_nothing_offered(tile, dtypes[0]))
        return self._known[key]

    def _asked(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]]) -> Iterator[Candidate]:
        for dtype in tile.dtypes(self.dtype):
            recipes = TileRecipes(tile, dtype, self.costs.machine.n_threads, self._answers)
            for wish in dict.fromkeys(map(tile.main.operator.meant, self._wishes(tile, incoming, dtype))):
                yield from self._wished(recipes, wish)

    def _distinct(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Candidates that differ in implementation or in where an element lies, each as the library likes it best."""
        known: dict[MemoryDesc, MemoryDesc] = {}
        found: dict[object, Candidate] = {}
        for candidate in candidates:
            check_time("planning")
            layouts = (*candidate.source_descs.values(), candidate.dst)
            descs = tuple(_first_alike(desc, known) for desc in layouts if isinstance(desc, MemoryDesc))
            impls = tuple(step.spec.impl for step in candidate.steps)
            key = (descs, candidate.alias, candidate.slices, impls)
            if key not in found or candidate.rank < found[key].rank:
                found[key] = candidate
        return tuple(found.values())

    def _wished(self, recipes: TileRecipes, wish: Wish) -> Iterator[Candidate]:
        tile = recipes.tile
        if tile.shared is not None:
            sliced = sliced_candidate(tile, wish.dst, tile.shared, recipes.dtype, recipes.n_threads)
            if sliced is not None:
                yield sliced
        for candidate in recipes.wished(wish):
            if not any(own.name_of(step.spec.impl) in self.without for step in candidate.steps):
                yield candidate

    def _wishes(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]], dtype: str) -> Iterator[Wish]:
        names = self.costs.machine.layout_names
        ndims = len(tile.main.dst.shape)
        if tile.depthwise is not None:
            held = value_info(tile.depthwise.kernel.sources[0][1], dtype)
            least = 2 * _LEAST_CACHE_NBYTES * self.costs.machine.n_threads
            yield from (Wish(name, name) for name in names if wished_desc(name, held).nbytes > least)
            return
        yield from (Wish(tag, tag) for tag in self.tags if FormatTag.parse(tag).ndims == ndims)
        if tile.name in self.pins:
            pin = self.pins[tile.name].wanted
            yield from (Wish(src, pin) for src in (pin, *names))
        if tile.main.operator.role is Role.CHOOSER:
            yield Wish("any", "any")
            yield from (Wish(src, dst) for src, dst in product(names, names))
            trained = trained_wishes(tile, dtype, self.costs.machine.n_threads)
            yield from (wish for wish in trained if not any(_is_asked(name, wish) for name in names))
            yield from _as_they_arrive(tile, incoming, dtype)
            return
        yield from (Wish(name, name) for name in names)
        first = next(iter(tile.main.sources), None)
        arriving = incoming.get(first[0], ()) if first else ()
        named = {wished_desc(name, TensorInfo(desc.dims, desc.dtype)) for name in names for desc in arriving[:1]}
        others = (desc for desc in arriving if desc not in named)
        alike = (dtype, "f32", self.dtype) if tile.precision else (dtype, "f32")
        yield from (Wish(desc, desc) for desc in others if desc.is_dense and desc.dtype in alike)

    def _work_ns(self, candidate: Candidate) -> float:
        return steps_ns(self.costs, candidate.steps)

    def _frugal(self, offered: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates whose primitives give all their memory back, where those are not much slower."""
        frugal = [candidate for candidate in offered if not lasts(candidate)]
        limit = MAX_FRUGAL_RATIO * min(map(self._work_ns, offered))
        return frugal if any(self._work_ns(candidate) <= limit for candidate in frugal) else offered

    def _plain(self, tile: Tile) -> tuple[Candidate, ...]:
        """A node that no primitive computes, on row-major arrays."""
        found = next(TileRecipes(tile, self.dtype, 1).wished(Wish("plain", "plain")), None)
        if found is None:
            raise UnsupportedError(_nothing_offered(tile, self.dtype))
        return (replace(found, origin=found.steps[0].spec.impl),)

    def _views(self, tile: Tile, incoming: Sequence[MemoryDesc]) -> tuple[Candidate, ...]:
        """The layouts that arrive seen through the view, and those a reader may want seen back through it."""
        operator, source = tile.main.operator, tile.sources["src"]
        if source.quantization is not None and tile.dst.quantization is None:  # numbers, since no scales go with bytes
            incoming = [desc.with_dtype(value_info(source, self.dtype).dtype) for desc in incoming]
        pairs: list[tuple[MemoryDesc | None, MemoryDesc | None]] = [(desc, operator.through(desc)) for desc in incoming]
        for dtype in dict.fromkeys(desc.dtype for desc in incoming):
            plain = MemoryDesc(incoming[0].dims, dtype)
            pairs.append((plain, operator.through(plain)))
            for name in self.costs.machine.layout_names[1:]:
                dst = wished_desc(name, TensorInfo(tile.dst.dims, dtype))
                if isinstance(dst, MemoryDesc):
                    pairs.append((operator.back(dst), dst))
        found = {
            (src, dst): Candidate(sources=(("src", src),), dst=dst.at_offset(0), origin="view", offset=dst.offset0)
            for src, dst in pairs
            if src is not None and dst is not None and _can_be_moved(src) and _can_be_moved(dst)
        }
        if not found:
            raise UnsupportedError(f"{tile.name}: no layout of {tile.dst.dims} can be seen through it")
        return tuple(found.values())


def _as_they_arrive(tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]], dtype: str) -> Iterator[Wish]:
    """Wishes of a chooser of several sources of its rank: each as it arrives, the result plain or in such an order."""
    ndims = len(tile.main.dst.shape)
    names = [arg for arg, value in tile.main.sources if len(value.shape) == ndims]
    if len(names) < 2:
        return
    known: dict[MemoryDesc, MemoryDesc] = {}
    usable = ([desc for desc in incoming[arg] if desc.is_dense and desc.dtype == dtype] for arg in names)
    dense = [[_first_alike(desc, known) for desc in descs] for descs in usable]
    for first, *others in product(*(tuple(dict.fromkeys(descs))[:_MAX_ARRIVING] for descs in dense)):
        orders: list[str | MemoryDesc] = [desc for desc in (first, *others) if not desc.is_contiguous()]
        for dst in dict.fromkeys(["plain", *orders]):
            yield Wish(first, dst, others=tuple(zip(names[1:], others, strict=True)))


def _first_alike(desc: MemoryDesc, known: dict[MemoryDesc, MemoryDesc]) -> MemoryDesc:
    """The first of the known layouts with the same bytes; this one, known from now on, where there is none."""
    if desc not in known:
        known[desc] = next((each for each in known.values() if each.physically_equal(desc)), desc)
    return known[desc]


def _nothing_to_do(tile: Tile, dtype: str) -> Candidate:
    descs = {arg: _row_major(value_info(value, dtype)) for arg, value in tile.dsts.items()}
    sources = tuple((arg, _row_major(value_info(value, dtype))) for arg, value in tile.sources.items())
    others = tuple((arg, descs[arg]) for arg, _ in tile.main.others)
    return Candidate(sources=sources, dst=descs["dst"], origin="no elements", others=others)


def _row_major(info: TensorInfo) -> MemoryDesc:
    return MemoryDesc(info.dims, info.dtype)


def _can_be_moved(desc: MemoryDesc) -> bool:
    """Whether something brings a tensor into this layout: the library, or numpy for the types it lacks."""
    return not has_reorder(desc.dtype) or dnnl.is_expressible(desc)


def _is_asked(name: str, wish: Wish) -> bool:
    """Whether exact descriptors are those that a name means for both."""
    descs = (desc for desc in (wish.src, wish.dst) if isinstance(desc, MemoryDesc))
    return all(desc == wished_desc(name, TensorInfo(desc.dims, desc.dtype)) for desc in descs)


def _nothing_offered(tile: Tile, dtype: str) -> str:
    shapes = ", ".join(f"{name} {'x'.join(map(str, v.shape))}" for name, v in tile.sources.items())
    return (
        f"{tile.name}: oneDNN {'.'.join(map(str, dnnl.version()))} has no {dtype} primitive for it on this CPU "
        f"({dnnl.isa()}), sources {shapes}"
    )


def lasts(candidate: Candidate) -> bool:
    """Whether its primitives do not give all their memory back."""
    return any(isinstance(step.spec, dnnl.Spec) and dnnl.leaves_code_behind(step.spec) for step in candidate.steps)
