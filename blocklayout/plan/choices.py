"""The choice made for each kernel, and its alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.ir import Fused, KernelInfo, layout_name
from blocklayout.plan.struct_json import LayoutField

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, ValueLayout
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
    sources: tuple[LayoutField, ...]
    dst: LayoutField
    in_place: bool
    cost_ns: float

    @property
    def layouts(self) -> tuple[ValueLayout, ...]:
        """Descriptors it reads and writes."""
        return (*self.sources, self.dst)

    @classmethod
    def of(cls, candidate: Candidate) -> Way:
        """A candidate without its steps."""
        return cls(
            origin=candidate.origin,
            impls=tuple(step.spec.impl for step in candidate.steps),
            sources=tuple(desc for _, desc in candidate.sources),
            dst=candidate.dst,
            in_place=candidate.alias is not None,
            cost_ns=candidate.cost_ns,
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
        operator: What it is, for people.
        kernels: Itself and its followers, as users select them.
        reads: The values it reads, as ``chosen.sources`` are ordered.
        chosen: The way it is computed.
        runner_up: The alternative that makes the whole network cheapest; ``None`` where there was none.
        other_layout: The best one that reads or writes other layouts.
        layouts: The layouts of the result that were on offer.
    """

    kernel: str
    operator: str
    kernels: tuple[KernelInfo, ...]
    reads: tuple[str, ...]
    chosen: Way
    runner_up: Alternative | None
    other_layout: Alternative | None
    layouts: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the model's nodes it stands for."""
        return tuple(node for kernel in self.kernels for node in kernel.nodes)

    @property
    def is_of_a_pair(self) -> bool:
        """Whether it is one primitive with its neighbour."""
        return any(isinstance(layout, Fused) for layout in self.chosen.layouts)

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
    """The choices for all groups of a network.

    Args:
        network: The groups and their candidates.
        choice: What was chosen.
        costs: For each group, what the whole network costs at least with each of its candidates.
        cost_ns: What it costs as chosen.
    """
    for group, offered, taken, totals in zip(network.groups, network.candidates, choice, costs, strict=True):
        chosen = Way.of(offered[taken])
        ways = (Alternative(Way.of(each), total - cost_ns) for each, total in zip(offered, totals, strict=True))
        others = [each for index, each in enumerate(ways) if index != taken]
        yield KernelChoice(
            kernel=group.name,
            operator=" + ".join(type(kernel.operator).__name__ for kernel in group.kernels),
            kernels=tuple(kernel.info for kernel in group.kernels),
            reads=tuple(value.name for value in group.sources.values()),
            chosen=chosen,
            runner_up=_cheapest(others),
            other_layout=_cheapest([each for each in others if each.way.layouts != chosen.layouts]),
            layouts=tuple(dict.fromkeys(layout_name(candidate.dst) for candidate in offered)),
        )


def _cheapest(alternatives: Sequence[Alternative]) -> Alternative | None:
    return min(alternatives, key=lambda each: each.extra_ns, default=None)
