"""The choice made for each kernel, and its alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.ir import Fused, KernelInfo, ValueLayout, layout_name

if TYPE_CHECKING:
    from blocklayout.ir import Candidate
    from blocklayout.plan.network import Choice, Network


class Way(Struct, frozen=True):
    """One way to compute a kernel.

    Attributes:
        origin: The layouts that were asked for when the library offered it.
        impls: The implementations, in order; none for a view.
        sources: The layout it reads each source in.
        dst: The layout it writes.
        in_place: Whether the result overwrites a source.
        cost_ns: Nanoseconds of its steps.
    """

    origin: str
    impls: tuple[str, ...]
    sources: tuple[ValueLayout, ...]
    dst: ValueLayout
    in_place: bool
    cost_ns: float

    @property
    def layouts(self) -> tuple[ValueLayout, ...]:
        """Descriptors it reads and writes."""
        return (*self.sources, self.dst)

    @property
    def is_joined(self) -> bool:
        """Whether its kernel and a neighbour's are computed as one."""
        return any(isinstance(layout, Fused) for layout in self.layouts)

    @classmethod
    def of(cls, candidate: Candidate, cost_ns: float = 0.0) -> Way:
        """A candidate without its steps, at a price."""
        return cls(
            origin=candidate.origin,
            impls=tuple(step.spec.impl for step in candidate.steps),
            sources=tuple(desc for _, desc in candidate.sources),
            dst=candidate.dst,
            in_place=candidate.alias is not None,
            cost_ns=cost_ns,
        )


class Alternative(Struct, frozen=True):
    """A way that was not chosen.

    Attributes:
        way: The way.
        extra_ns: How much more the whole network would cost with it, everything else chosen anew; less than
            nothing where the plan is not the cheapest.
    """

    way: Way
    extra_ns: float


class KernelChoice(Struct, frozen=True):
    """The choice for a kernel with its followers, out of its candidates.

    Attributes:
        kernel: Its name.
        operator: Its operator, for people.
        kernels: Itself and its followers, as users select them.
        reads: The values it reads, as ``chosen.sources`` are ordered.
        chosen: The way it is computed.
        alternatives: Other ways, by cost of the whole network: the cheapest one, the cheapest in other
            layouts, and for each layout of the result the cheapest that writes it, which a pin to it would take.
        layouts: The layouts of the result that were on offer.
    """

    kernel: str
    operator: str
    kernels: tuple[KernelInfo, ...]
    reads: tuple[str, ...]
    chosen: Way
    alternatives: tuple[Alternative, ...]
    layouts: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the model's nodes it stands for."""
        return tuple(node for kernel in self.kernels for node in kernel.nodes)

    @property
    def runner_up(self) -> Alternative | None:
        """The alternative that makes the whole network cheapest; ``None`` where there was none."""
        return next(iter(self.alternatives), None)

    @property
    def other_layout(self) -> Alternative | None:
        """The best one that reads or writes other layouts."""
        return next((each for each in self.alternatives if each.way.layouts != self.chosen.layouts), None)

    def pin_to(self, way: Way) -> str | None:
        """The format that has the kernel computed so when it is pinned to that; ``None`` where no pin does."""
        if way.is_joined or isinstance(way.dst, Fused) or way.dst.canonical_tag is None:
            return None
        is_as_chosen = not self.chosen.is_joined and _are_alike(way.dst, self.chosen.dst)
        return None if is_as_chosen else way.dst.named("src")

    @property
    def writes(self) -> str:
        """The value it computes."""
        return self.kernels[-1].value

    @property
    def holds(self) -> tuple[str, ...]:
        """Values on the way there, which nobody else sees."""
        return tuple(kernel.value for kernel in self.kernels[:-1])


def kernel_choices(
    network: Network, choice: Choice, costs: Sequence[Sequence[float]], cost_ns: float
) -> Iterator[KernelChoice]:
    """The choices for all tiles of a network.

    ``costs`` has, for each tile, the least cost of the whole network with each of its candidates, ``cost_ns`` that of
    the choice.
    """
    rows = zip(network.tiles, network.candidates, network.work_ns, choice, costs, strict=True)
    for tile, offered, work_ns, taken, totals in rows:
        others = _alternatives(offered, taken, totals)
        yield KernelChoice(
            kernel=tile.name,
            operator=" + ".join(type(kernel.operator).__name__ for kernel in tile.kernels),
            kernels=tuple(kernel.info for kernel in tile.kernels),
            reads=tuple(value.name for value in tile.sources.values()),
            chosen=Way.of(offered[taken], work_ns[taken]),
            alternatives=tuple(
                Alternative(Way.of(offered[index], work_ns[index]), totals[index] - cost_ns) for index in others
            ),
            layouts=tuple(dict.fromkeys(layout_name(candidate.dst) for candidate in offered)),
        )


def _alternatives(offered: Sequence[Candidate], taken: int, totals: Sequence[float]) -> list[int]:
    """The candidates that are kept as alternatives, the cheapest first; not those that no other tile's goes with."""
    layouts = [(*candidate.source_descs.values(), candidate.dst) for candidate in offered]
    possible = (index for index, ns in enumerate(totals) if index != taken and isfinite(ns))
    others = sorted(possible, key=totals.__getitem__)
    kept = {*others[:1], *[index for index in others if layouts[index] != layouts[taken]][:1]}
    written: list[ValueLayout] = []
    for index in others:
        candidate = offered[index]
        if not candidate.is_fused and not any(_are_alike(candidate.dst, each) for each in written):
            written.append(candidate.dst)
            kept.add(index)
    return [index for index in others if index in kept]


def _are_alike(layout: ValueLayout, other: ValueLayout) -> bool:
    """Whether a pin to one format takes both, whatever their data types."""
    if isinstance(layout, Fused) or isinstance(other, Fused):
        return layout == other
    return layout.physically_equal(other) or (layout.dtype != other.dtype and layout.placement == other.placement)
