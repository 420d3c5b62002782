"""The simple policies: what a runtime without a global view would choose."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.errors import LayoutError, PlanError
from blocklayout.ir import LAYOUT_NAMES, Fused, Role, TensorInfo, readable_as, wished_desc
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.plan.candidates.fuse import value_info

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, ValueLayout
    from blocklayout.plan.costs.machine import Machine
    from blocklayout.plan.network import Choice, Network

SIMPLE_POLICIES = ("any", "blocked", "nhwc", "plain", "per-op")
POLICIES = ("auto", *SIMPLE_POLICIES)
SOLVE, BOLD_SOLVE = "solve", "bold solve"
"""Names of plans that no policy chose, but a solve: one that is wary of prices, and one that trusts them."""

_MAX_CACHED = 8192


class Policy(Struct, frozen=True):
    """A preference for layouts.

    Attributes:
        name: As the user gives it.
        layout: The layout that kernels should have, or ``any`` for each primitive's own favourite.
        returns_to_plain: Whether every result is brought back to plain before anybody reads it.
    """

    name: str
    layout: str
    returns_to_plain: bool = False

    @classmethod
    def parse(cls, name: str, machine: Machine) -> Policy:
        """The policy called ``name``; a oneDNN tag means that layout wherever its rank fits.

        Raises:
            PlanError: Neither a policy nor a tag.
        """
        layouts = {
            "any": "any",
            "blocked": machine.block_names[0],
            "nhwc": "channels_last",
            "plain": "plain",
            "per-op": "any",
        }
        if name in layouts:
            return cls(name, layouts[name], name == "per-op")
        try:
            FormatTag.parse(name)
        except LayoutError as error:
            known = ", ".join(POLICIES)
            raise PlanError(f"no layout policy {name!r}: give one of {known}, or a oneDNN tag ({error})") from None
        return cls(name, name)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags to ask oneDNN for beyond the usual ones."""
        return () if self.layout in LAYOUT_NAMES else (self.layout,)

    def prefers(self, desc: ValueLayout) -> bool:
        """Whether a descriptor is in the policy's layout; anything is where it has no opinion."""
        if self.layout == "any":
            return True
        if isinstance(desc, Fused):
            return False
        if self.tags and FormatTag.parse(self.layout).ndims != desc.ndims:
            return True
        return _is_in(desc, self.layout)


@lru_cache(maxsize=_MAX_CACHED)  # candidates share their descriptors, and every policy looks at all of them
def _is_in(desc: MemoryDesc, layout: str) -> bool:
    wished = wished_desc(layout, TensorInfo(desc.dims, desc.dtype))
    return isinstance(wished, MemoryDesc) and desc.physically_equal(wished)


def choose_by(policy: Policy, network: Network) -> Choice:
    """Walk the network once, giving each group what the policy prefers; ties go to the cheaper.

    In the layouts that it prefers a policy takes the library's own favourite implementation, in the data type that
    was asked for.
    """
    choice: list[int] = []
    for index, group in enumerate(network.groups):
        incoming = {operand: _arrives(policy, network, value.name, choice) for operand, value in group.sources.items()}
        choice.append(_preferred(policy, network, index, incoming))
    return tuple(choice)


def _arrives(policy: Policy, network: Network, value: str, choice: list[int]) -> ValueLayout:
    desc = network.desc_of(value, choice) if value in network.producers else network.offers(value)[0]
    return MemoryDesc(desc.dims, desc.dtype) if policy.returns_to_plain and isinstance(desc, MemoryDesc) else desc


def _preferred(policy: Policy, network: Network, index: int, incoming: dict[str, ValueLayout]) -> int:
    """The cheapest, reorders of its sources included, of the candidates that the policy dislikes least."""
    group, offered = network.groups[index], network.candidates[index]
    role, dtype = group.main.operator.role, value_info(group.dst, group.dtypes(network.dtype)[0]).dtype

    def dislike(candidate: Candidate) -> float:
        own = 0.5 * (candidate.rank > 0) + 8.0 * (candidate.dst.dtype != dtype)
        return own + _dislike(policy, role, candidate, incoming)

    def cost_ns(candidate: Candidate) -> float:
        pairs = ((incoming[operand], desc) for operand, desc in candidate.sources)
        moved = sum(0.0 if readable_as(given, desc) else network.reorder_ns(given, desc) for given, desc in pairs)
        return candidate.cost_ns + moved

    dislikes = [dislike(candidate) for candidate in offered]
    least = min(dislikes)
    liked = [number for number, each in enumerate(dislikes) if each == least]
    return min(liked, key=lambda number: cost_ns(offered[number]))


def _dislike(policy: Policy, role: Role, candidate: Candidate, incoming: dict[str, ValueLayout]) -> float:
    """How far a candidate is from what the policy wants; 0 is exactly it."""
    if role is Role.CHOOSER and policy.layout == "any":
        return 0.0 if candidate.origin == "any" else 1.0
    if role is Role.CHOOSER:
        sources = [desc for _, desc in candidate.sources]
        return 4.0 * (not policy.prefers(candidate.dst)) + sum(not policy.prefers(desc) for desc in sources[:1])
    follows = [readable_as(incoming[operand], desc) for operand, desc in candidate.sources]
    return 2.0 * (not (all(follows) or policy.prefers(candidate.dst))) + (not any(follows))


def exceptions_of(policy: Policy, network: Network, choice: Choice) -> tuple[tuple[str, str], ...]:
    """Choosers whose layout is not the policy's, and why."""
    if policy.layout == "any":
        return ()
    found = []
    for group, offered, taken in zip(network.groups, network.candidates, choice, strict=True):
        candidate = offered[taken]
        if group.main.operator.role is not Role.CHOOSER:
            continue
        wrong = [desc for desc in (*candidate.source_descs.values(), candidate.dst) if not policy.prefers(desc)]
        if wrong:
            reason = f"{policy.layout} has only a reference implementation or none; it runs {wrong[0]}"
            found.append((group.name, reason))
    return tuple(found)
