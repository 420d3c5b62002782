"""The choices that ``auto`` is the best of: each simple policy's, and those of solves that depart from the best one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.plan.assemble import Assembly, assemble
from blocklayout.plan.policies import BOLD_SOLVE, SIMPLE_POLICIES, SOLVE, SOLVES, Policy, choose_by
from blocklayout.plan.solving.solve import ROUNDING, Solution, departing_choice, solve_layouts

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.ir import HostSpec
    from blocklayout.plan.network import Choice, Network
    from blocklayout.plan.plan import Plan

UNIFORM_POLICIES = ("any", "blocked", "nhwc", "plain")
"""The simple policies that leave layouts as they are from kernel to kernel."""

PROMISE = 0.2
"""How much cheaper, as a share, each departure of the solve from the best uniform policy has to promise to be."""

NEAR = 1.2
"""A uniform policy that costs more, next to the cheapest one, is not worth running: prices are not that far off."""

APART = 0.1
"""Of the cost of a uniform policy, in steps that the cheapest one lacks: with less it cannot be much faster."""

BOLDLY = 0.5
"""How much of what the bold solve is to save counts, next to what the other is: many of its gains are small ones."""

_cost_ns = attrgetter("cost_ns")


class Contender(Struct, frozen=True):
    """A choice, and the policy that makes it; ``None`` for a solve."""

    name: str
    policy: Policy | None
    choice: Choice
    network: Network
    assembled: Callable[..., Assembly]

    @property
    def assembly(self) -> Assembly:
        """The steps it implies."""
        returns_to_plain = self.policy is not None and self.policy.returns_to_plain
        return self.assembled(self.choice, returns_to_plain=returns_to_plain)

    @property
    def specs(self) -> tuple[Spec | HostSpec, ...]:
        """The Specs of its steps, in order; two contenders with the same Specs are the same plan."""
        return tuple(step.spec for step in self.assembly.steps)

    @property
    def cost_ns(self) -> float:
        """Estimated cost of its steps and reorders."""
        return self.assembly.cost_ns

    def own_share(self, other: Contender) -> float:
        """Share of its cost in steps that another does not have."""
        own = Counter(self.specs) - Counter(other.specs)
        return sum(n * self.network.costs.step_ns(spec) for spec, n in own.items()) / self.cost_ns


class Portfolio(Struct, frozen=True):
    """All contenders, at some prices.

    Attributes:
        policies: The choice of each simple policy, and of the one that is wanted.
        solves: The choices where departures have to promise a clear gain, and where any will do.
        solution: The choice where prices are trusted.
    """

    policies: Sequence[Contender]
    solves: Sequence[Contender]
    solution: Solution

    @classmethod
    def of(
        cls, network: Network, wanted: Policy | None = None, like: Plan | None = None, *, is_near: bool = False
    ) -> Portfolio:
        """Of a network at its prices; with the policy that is wanted, if it is one of its own.

        Where it was proposed like a plan for other extents, perhaps near ones, only who made that.
        """
        assembled = cache(partial(assemble, network))  # in small networks most policies choose the same
        if like is not None:
            solution = (Solution.only(network) if is_near else None) or solve_layouts(network)
            policy = None if like.chosen in SOLVES else Policy.parse(like.chosen, network.costs.machine)
            choice = choose_by(policy, network) if policy else solution.choice
            return cls([Contender(like.chosen, policy, choice, network, assembled)], (), solution)
        solution = solve_layouts(network)
        policies = [Policy.parse(name, network.costs.machine) for name in SIMPLE_POLICIES]
        if wanted and wanted not in policies:
            policies.append(wanted)
        chosen = [Contender(each.name, each, choose_by(each, network), network, assembled) for each in policies]
        usual = min((each for each in chosen if each.name in UNIFORM_POLICIES), key=_cost_ns)
        is_best = usual.cost_ns <= solution.bound_ns * (1 + ROUNDING)  # to depart from it costs more, at any promise
        departed = usual.choice if is_best else departing_choice(network, usual.choice, PROMISE)
        choices = {SOLVE: departed, BOLD_SOLVE: solution.choice}
        solves = [Contender(name, None, choice, network, assembled) for name, choice in choices.items()]
        return cls(chosen, solves, solution)

    @property
    def shown(self) -> Sequence[Contender]:
        """Those whose prices a plan shows."""
        return (*self.policies, *self.solves[:1])

    def named(self, name: str) -> Contender:
        """That of a policy."""
        return next(each for each in self.policies if each.name == name)

    @property
    def cheapest(self) -> Contender:
        """The one that is taken where none are run; it trusts no price for a small gain."""
        return min(self.shown, key=_cost_ns)

    @property
    def likeliest(self) -> Sequence[Contender]:
        """Those worth running: the cheapest uniform one, a solve's, uniform ones near the cheapest, the other solve's.

        Of those that imply the same steps there is only one.
        """
        first, *others = sorted((each for each in self.policies if each.name in UNIFORM_POLICIES), key=_cost_ns)
        near = [each for each in others if each.cost_ns < NEAR * first.cost_ns and each.own_share(first) > APART]
        solve, bold = self.solves
        is_bold = BOLDLY * (first.cost_ns - bold.cost_ns) > first.cost_ns - solve.cost_ns
        found: dict[object, Contender] = {}
        for each in (first, bold, *near, solve) if is_bold else (first, solve, *near, bold):
            found.setdefault(each.specs, each)
        return [*found.values()]
