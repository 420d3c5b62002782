"""Propose what another plan of the same network chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import field

from blocklayout.ir import Candidate, Role, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.propose import Proposer, lasts
from blocklayout.plan.candidates.recipes import GroupRecipes
from blocklayout.plan.choices import KernelChoice, Way

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.plan.candidates.fuse import Group


class Follower(Proposer, frozen=True):
    """Proposes for each group the layouts that a plan for other extents chose, in every implementation.

    Where these are not on offer, or the plan has nothing for a group, it proposes all there is.

    Attributes:
        choices: Of the plan, by kernel.
    """

    choices: Mapping[str, KernelChoice] = field(default_factory=dict)

    def propose(
        self, group: Group, incoming: Mapping[str, Sequence[MemoryDesc]], in_place: str | None
    ) -> tuple[Candidate, ...]:
        """The candidates in the plan's layouts.

        Raises:
            UnsupportedError: As :meth:`Proposer.propose`.
        """
        choice = self.choices.get(group.name)
        is_pinned = group.name in self.pins
        if choice is not None and choice.nodes == group.nodes and not choice.is_of_a_pair and not is_pinned:
            likely = self.likely(group, incoming, in_place, choice.chosen)
            alike = [each for each in likely if _is_like(Way.of(each), choice.chosen) and not each.is_reference]
            if alike and not (self.is_frugal and any(map(lasts, alike))):
                return self._distinct(alike)
        return super().propose(group, incoming, in_place)

    def likely(
        self, group: Group, incoming: Mapping[str, Sequence[MemoryDesc]], in_place: str | None, way: Way
    ) -> Iterator[Candidate]:
        """Candidates that read sources as this way does, as far as they arrive so, and write as it does."""
        *sources, dst = (layout for layout in way.layouts if isinstance(layout, MemoryDesc))
        if group.is_view:
            yield from self._views(group, [*_resized(group, sources), *incoming["src"]])
        elif group.main.operator.role is Role.PLAIN:
            yield from self._plain(group)
        elif sources and dst.dtype in group.dtypes(self.dtype):
            recipes = GroupRecipes(group, dst.dtype, self.costs.machine.n_threads, in_place)
            for source in dict.fromkeys((sources[0], dst)):
                yield from self._wished(recipes, Wish(source, dst))
            wanted = dict(zip(group.sources, sources, strict=False))
            (_, first), *others = (
                (arg, _arriving(incoming.get(arg, ()), wanted[arg])) for arg, _ in group.main.sources if arg in wanted
            )
            if others:
                yield from self._wished(recipes, Wish(first, dst, others=tuple(others)))


def _arriving(incoming: Sequence[MemoryDesc], like: MemoryDesc) -> MemoryDesc:
    """The layout that arrives like another, else that one."""
    return next((desc for desc in incoming if _are_like(desc, like)), like)


def _resized(group: Group, sources: Sequence[MemoryDesc]) -> list[MemoryDesc]:
    """Layouts of a view's source at its own extents."""
    dims = group.sources["src"].dims
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
