"""The simple policies: choices of a runtime without a global view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.errors import LayoutError, PlanError, did_you_mean
from blocklayout.ir import LAYOUT_NAMES, Fused, Role, TensorInfo, readable_as, wished_desc
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.tag import LETTERS
from blocklayout.plan.candidates.tiles import value_info
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.reasons import FOLLOWS, computed_in, no_kernel

if TYPE_CHECKING:
    from blocklayout.ir import BaseOperator, Candidate, ValueLayout
    from blocklayout.plan.network import Choice, Network
    from blocklayout.plan.plan import Plan, Step

PolicyName: TypeAlias = Literal["auto", "any", "blocked", "nhwc", "plain", "per-op"]
POLICIES: tuple[str, ...] = get_args(PolicyName)
SIMPLE_POLICIES = POLICIES[1:]
SOLVES = SOLVE, BOLD_SOLVE = "solve", "bold solve"
"""Names of plans that no policy chose, but a solve: one that departs from a policy for clear gains, and for any."""

_MAX_CACHED = 8192
_MAX_SHOWN = 4


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
        layouts = {"blocked": machine.block_names[0], "nhwc": "channels_last", "per-op": "any"}
        return cls(name, layouts.get(name) or checked_policy(name), name == "per-op")

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


ALIASES = {"channels_last": "nhwc", "channels_first": "plain", "contiguous_format": "plain"}
"""Policies by the names of their formats."""


def checked_policy(name: str) -> str:
    """The policy of this name or of the format of this name, or a tag, if it is one.

    Raises:
        PlanError: It is neither.
    """
    if not isinstance(name, str):
        raise PlanError(f"layout={name!r}: give the name of a policy, one of {', '.join(POLICIES)}, or a oneDNN tag")
    name = ALIASES.get(name, name)
    if name in POLICIES or name in LAYOUT_NAMES:
        return name
    try:
        FormatTag.parse(name)
    except LayoutError as error:
        known = ", ".join(POLICIES)
        hint = did_you_mean(name, POLICIES)
        raise PlanError(f"no layout policy {name!r}: give one of {known}, or a oneDNN tag ({error}){hint}") from None
    return name


def choose_by(policy: Policy, network: Network) -> Choice:
    """Walk the network once, choosing each candidate by the policy; ties go to the cheaper.

    In the layouts that it prefers a policy takes the library's own favourite implementation, in the data type that
    was asked for.
    """
    choice: list[int] = []
    for index, tile in enumerate(network.tiles):
        incoming = {operand: _arrives(policy, network, value.name, choice) for operand, value in tile.sources.items()}
        choice.append(_preferred(policy, network, index, incoming))
    return tuple(choice)


def _arrives(policy: Policy, network: Network, value: str, choice: list[int]) -> ValueLayout:
    if value in network.producers:
        desc = network.desc_of(value, choice)
    else:
        offers = network.offers(value)
        desc = next(filter(policy.prefers, offers), offers[0]) if value in network.carried else offers[0]
    return MemoryDesc(desc.dims, desc.dtype) if policy.returns_to_plain and isinstance(desc, MemoryDesc) else desc


def _preferred(policy: Policy, network: Network, index: int, incoming: dict[str, ValueLayout]) -> int:
    """The cheapest, reorders of its sources included, of the candidates that the policy dislikes least."""
    tile, offered = network.tiles[index], network.candidates[index]
    operator, dtype = tile.main.operator, value_info(tile.dst, tile.dtypes(network.dtype)[0]).dtype

    def dislike(candidate: Candidate) -> float:
        if candidate.is_fused:
            return inf  # half of a pair of kernels
        own = 0.5 * (candidate.rank > 0) + 8.0 * (candidate.dst.dtype != dtype)
        return own + _dislike(policy, operator, candidate, incoming)

    def cost_ns(number: int) -> float:
        pairs = ((incoming[operand], desc) for operand, desc in offered[number].sources)
        moved = sum(0.0 if readable_as(given, desc) else network.reorder_ns(given, desc) for given, desc in pairs)
        return network.work_ns[index][number] + moved

    dislikes = [dislike(candidate) for candidate in offered]
    least = min(dislikes)
    liked = [number for number, each in enumerate(dislikes) if each == least]
    return min(liked, key=cost_ns)


def _dislike(policy: Policy, operator: BaseOperator, candidate: Candidate, incoming: dict[str, ValueLayout]) -> float:
    """How far a candidate is from the policy; 0 is exactly it."""
    role = operator.role
    if role is Role.CHOOSER and policy.layout == "any":
        return 0.0 if candidate.origin == "any" else 1.0
    if role is Role.CHOOSER:
        of_source = sum(not policy.prefers(desc) for _, desc in candidate.sources[:1])
        return 4.0 * (not (operator.writes_weights or policy.prefers(candidate.dst))) + of_source
    follows = [readable_as(incoming[operand], desc) for operand, desc in candidate.sources]
    return 2.0 * (not (all(follows) or policy.prefers(candidate.dst))) + (not any(follows))


def exceptions_of(policy: Policy, network: Network, choice: Choice) -> tuple[tuple[str, str], ...]:
    """Choosers whose layout is not the policy's, and why."""
    if policy.layout == "any":
        return ()
    found = []
    for tile, offered, taken in zip(network.tiles, network.candidates, choice, strict=True):
        candidate = offered[taken]
        if tile.main.operator.role is not Role.CHOOSER:
            continue
        wrong = [desc for desc in (*candidate.source_descs.values(), candidate.dst) if not policy.prefers(desc)]
        if wrong:
            found.append((tile.name, f"{no_kernel(policy.layout)}; it runs {wrong[0]}"))
    return tuple(found)


def with_reasons(steps: Sequence[Step], policy: Policy, network: Network, choice: Choice) -> Iterator[Step]:
    """The steps, where another layout than the policy's was asked for with the reason for that."""
    reasons = {}
    for tile, offered, taken in zip(network.tiles, network.candidates, choice, strict=True):
        candidate = offered[taken]
        if policy.layout != "any" and not policy.prefers(candidate.dst):
            is_chooser = tile.main.operator.role is Role.CHOOSER
            why = no_kernel(policy.layout) if is_chooser else FOLLOWS
            reasons[tile.name, computed_in(candidate)] = computed_in(candidate, why)
    for step in steps:
        reason = reasons.get((step.kernel, step.reason))
        yield replace(step, reason=reason) if reason else step


def unavailable(plan: Plan) -> str | None:
    """Why nothing in a plan has the layout that its policy asks for; ``None`` where something has.

    Example:
        >>> import blocklayout as bl
        >>> b = bl.Builder("rows")
        >>> b.output("y", b.input("x", (2, 3)).relu())
        >>> unavailable(bl.load(b, layout="nhwc").plan)
        "layout='nhwc' is nowhere in rows: it has no tensor of rank 3, 4 or 5"
    """
    if plan.policy in ("auto", "any", "plain", "per-op"):
        return None
    policy = Policy.parse(plan.policy, Machine(plan.isa, 1))
    tag = FormatTag.parse(policy.layout) if policy.tags else None
    ranks = (3, 4, 5) if tag is None else (tag.ndims,)
    computed = {desc for choice in plan.choices for desc in choice.chosen.layouts if isinstance(desc, MemoryDesc)}
    fitting = [desc for desc in computed if desc.ndims in ranks]
    differing = [desc for desc in fitting if not _is_in(MemoryDesc(desc.dims, desc.dtype), policy.layout)]
    if not computed or any(_is_in(desc, policy.layout) for desc in differing):
        return None
    said = f"layout={plan.policy!r} is nowhere in {plan.model}"
    if not fitting:
        return f"{said}: it has no tensor of rank {' or '.join(', '.join(map(str, ranks)).rsplit(', ', 1))}"
    if not differing:
        if tag is None or tag.canonical == LETTERS[: tag.ndims]:
            return None  # images of one pixel are in every layout; row-major was asked for
        return f"layout={plan.policy!r} makes no difference to {plan.model}: with its extents that is row-major"
    whys = [f"{kernel}: {why}" for kernel, why in plan.exceptions]
    if whys:
        return f"{said}: {'; '.join(whys[:_MAX_SHOWN])}{_more(whys)}"
    followers = [choice.kernel for choice in plan.choices]
    shown = f"{', '.join(followers[:_MAX_SHOWN])}{_more(followers)}"
    return f"{said}: {shown} only follow what they read, which may come so by io_layout"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
