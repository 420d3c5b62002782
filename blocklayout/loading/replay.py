"""Make a saved plan's steps again from its choices: a plan with other steps is refused.

Of a plan from a file only its choices are believed: for each kernel the layouts and implementations. The steps that
follow from these are made anew, as for every plan, and have to be those of the file, to the last buffer. So a file can
neither compute something else nor reach memory of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from blocklayout.errors import BlockLayoutError, PlanError, UnsupportedError
from blocklayout.ir import Candidate
from blocklayout.layout import MemoryDesc
from blocklayout.plan.assemble import assemble
from blocklayout.plan.candidates.following import FollowingProposer
from blocklayout.plan.candidates.tiles import fuse
from blocklayout.plan.choices import KernelChoice, Way
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import propose_all
from blocklayout.plan.place import place_all
from blocklayout.plan.policies import SOLVES, Policy

if TYPE_CHECKING:
    from blocklayout.ir import Program
    from blocklayout.plan.candidates.joined import Joined
    from blocklayout.plan.candidates.tiles import Tile
    from blocklayout.plan.network import Network
    from blocklayout.plan.plan import Plan

_WORDS = ("reason", "cost_ns", "readers", "without_ns", "priced")
"""Fields of entries and steps that are meant for people."""


def replay(plan: Plan, program: Program) -> None:
    """Refuse a plan whose steps do not follow from its choices for a program, by a PlanError that names the field."""
    try:
        again = _made_again(plan, program)
    except BlockLayoutError as error:
        raise PlanError(f"the plan cannot be followed: {error}") from error
    for name, made in again.items():
        difference = _difference(name, getattr(plan, name), made)
        if difference is not None:
            raise PlanError(f"{difference[0]} is {difference[1]}; the plan's choices make it {difference[2]}")


def _made_again(plan: Plan, program: Program) -> dict[str, object]:
    """The fields of a plan that its runs depend on, made from its choices."""
    made, why = plan.config, plan.rationale
    machine = Machine(made.isa, made.n_threads)
    policy = Policy.parse(why.chosen, machine) if why.chosen not in SOLVES else None
    choices = {choice.kernel: choice for choice in why.choices}
    replayer = Replayer(CostModel(machine), made.dtype, policy.tags if policy else (), choices=choices)
    precision = {each.name: each.wanted for each in made.precision}
    tiles = fuse(program, made.dtype, made.n_threads, precision)
    network = propose_all(program, tiles, replayer, dict(made.io_layout))
    network = replace(network, given=dict(_settled(plan, program, network)))
    names = tuple(tile.name for tile in network.tiles)
    unmade = [name for name, offered in zip(names, network.candidates, strict=True) if not offered]
    if unmade:
        raise PlanError(f"choices: nothing on offer here computes {', '.join(unmade)} as the plan says")
    returns_to_plain = policy is not None and policy.returns_to_plain
    assembly = assemble(network, (0,) * len(names), returns_to_plain=returns_to_plain)
    buffers, placement = place_all(assembly)
    return {
        "inputs": tuple(assembly.given.items()),
        "entries": tuple(assembly.entries),
        "steps": tuple(assembly.steps),
        "results": tuple(assembly.results),
        "buffers": tuple(buffers),
        "constants": tuple(assembly.constants),
        "values": tuple(assembly.values),
        "arena_nbytes": placement.nbytes,
        "scratchpad_nbytes": assembly.scratchpad_nbytes,
    }


def _settled(plan: Plan, program: Program, network: Network) -> Iterator[tuple[str, MemoryDesc]]:
    """The formats that a plan chose for inputs that were left to it, as far as they are formats of these."""
    chosen = dict(plan.inputs)
    for value in program.inputs:
        desc = chosen.get(value.name)
        if desc is None or value.name in network.fixed or not desc.is_dense or desc.offset0:
            continue
        if desc.dims == value.dims and desc.dtype == value.dtype:
            yield value.name, desc


def _difference(field: str, saved: Any, made: Any) -> tuple[str, object, object] | None:
    """The first field in which a part of a plan is not as it should be, and both its contents."""
    if isinstance(made, tuple) and isinstance(saved, tuple):
        pairs = enumerate(zip_longest(saved, made))
        return next(filter(None, (_difference(*_named(field, index, *pair)) for index, pair in pairs)), None)
    names = getattr(made, "__struct_fields__", None) if type(made) is type(saved) else None
    if names and not hasattr(made, "to_dict"):
        inner = (
            _difference(f"{field}.{name}", getattr(saved, name), getattr(made, name))
            for name in names
            if name not in _WORDS
        )
        return next(filter(None, inner), None)
    return None if saved == made else (field, saved, made)


def _named(field: str, index: int, saved: Any, made: Any) -> tuple[str, Any, Any]:
    """An item by its number, or by its name where both have the same."""
    if all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in (saved, made)):
        (saved_name, saved_item), (made_name, made_item) = saved, made
        if saved_name == made_name:
            return f"{field}.{made_name}", saved_item, made_item
    return f"{field}.{index}", saved, made


def _is(candidate: Candidate, choice: KernelChoice) -> bool:
    """Whether a candidate is the chosen one; costs and the way it was found by have no say."""
    saved, found = (replace(way, origin="", cost_ns=0.0) for way in (choice.chosen, Way.of(candidate)))
    return saved == found


class Replayer(FollowingProposer, frozen=True):
    """Proposes for each tile only the candidate that a plan chose."""

    def propose(self, tile: Tile, incoming: Mapping[str, Sequence[MemoryDesc]]) -> tuple[Candidate, ...]:
        """The candidate that the plan chose; an UnsupportedError where that is none, or nothing on offer here."""
        choice = self.choices.get(tile.name)
        if choice is None or choice.kernels != tuple(kernel.info for kernel in tile.kernels):
            raise UnsupportedError(f"choices: the plan has none for {tile.name} ({', '.join(tile.nodes)})")
        if choice.chosen.is_joined:
            return ()
        for offer in (self.likely(tile, incoming, choice.chosen), self._offered(tile, incoming)):
            for candidate in offer:
                if _is(candidate, choice):
                    return (candidate,)
        raise UnsupportedError(f"choices: nothing on offer here computes {tile.name} as the plan says")

    def propose_joined(self, two: Joined) -> Iterator[tuple[Candidate, Candidate]]:
        """The candidates of two as one, if the plan chose them."""
        choices = [self.choices[part.name] for part in (two.first, two.second) if part.name in self.choices]
        for candidates in super().propose_joined(two):
            if len(choices) == 2 and all(map(_is, candidates, choices)):
                yield candidates
                return
