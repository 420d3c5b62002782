"""The choices that ``auto`` is the best of: the solve's, and each simple policy's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.plan.assemble import Assembly, assemble
from blocklayout.plan.policies import BOLD_SOLVE, SIMPLE_POLICIES, SOLVE, Policy, choose_by
from blocklayout.plan.solving.solve import wary_choice

if TYPE_CHECKING:
    from blocklayout.plan.network import Choice, Network
    from blocklayout.plan.plan import Plan
    from blocklayout.plan.solving.solve import Solution

UNIFORM_POLICIES = ("any", "blocked", "nhwc", "plain")
"""The simple policies that leave layouts as they are from kernel to kernel."""

CLEARLY = 0.99
"""A plan that takes a larger share of another's time may be faster by chance."""

TimePlans = Callable[["Sequence[Plan]"], "list[list[float]] | None"]
"""Runs plans in turn: for each a time for each round that it took part in, and none for what takes too long to run.

``None`` where there is time for no two of them.

Raises ``DisturbedError`` where other work keeps the CPUs busy, and ``RefusedError`` for what cannot run here.
"""


class Contender(Struct, frozen=True):
    """A choice, and whose it is.

    Attributes:
        name: ``solve``, ``bold solve``, or the policy's.
        policy: ``None`` for a solve.
        choice: A candidate for each group.
        assembled: Makes the steps that a choice implies.
    """

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
    def cost_ns(self) -> float:
        """Estimated cost of its steps and reorders."""
        return self.assembly.cost_ns

    @property
    def doubt(self) -> float:
        """How far off the prices of its steps may be, on average over its time."""
        steps = [step for step in self.assembly.steps if not step.is_reorder]
        doubted_ns = sum(step.cost_ns * self.network.costs.doubt(step.spec) for step in steps)
        return doubted_ns / max(sum(step.cost_ns for step in steps), 1.0)

    def least_ns(self, other: Contender) -> float:
        """Estimated cost where steps that another has not take as much less as can be: by twice the doubt of each."""
        own = Counter(step.spec for step in self.assembly.steps) - Counter(step.spec for step in other.assembly.steps)
        doubted_ns = {step.spec: step.cost_ns * self.network.costs.doubt(step.spec) for step in self.assembly.steps}
        return self.cost_ns - 2 * sum(n * doubted_ns[spec] for spec, n in own.items())


def contenders_of(network: Network, wanted: Policy | None) -> list[Contender]:
    """The choice of each simple policy and of the one that is wanted, and the solve's, which is the last.

    The solve's is the wary one: it departs from the cheapest simple policy where prices are sure enough of a gain.
    """
    policies = [Policy.parse(name, network.costs.machine) for name in SIMPLE_POLICIES]
    if wanted and wanted not in policies:
        policies.append(wanted)
    assembled = cache(partial(assemble, network))  # in small networks most policies choose the same
    found = [Contender(policy.name, policy, choose_by(policy, network), network, assembled) for policy in policies]
    simple = min((each.choice for each in found if each.name in UNIFORM_POLICIES), key=network.total_ns)
    return [*found, Contender(SOLVE, None, wary_choice(network, simple), network, assembled)]


def contender_like(plan: Plan, solution: Solution) -> Contender:
    """The choice of who made a plan for other extents, from what was proposed after its choices."""
    network = solution.network
    policy = None if plan.chosen in (SOLVE, BOLD_SOLVE) else Policy.parse(plan.chosen, network.costs.machine)
    choice = choose_by(policy, network) if policy else solution.choice
    return Contender(plan.chosen, policy, choice, network, cache(partial(assemble, network)))


def cheapest(contenders: Sequence[Contender]) -> Contender:
    """The one that is taken where none are run."""
    return min(contenders, key=lambda each: each.cost_ns)


def racers(contenders: Sequence[Contender], bold: Choice) -> list[Contender]:
    """Those to be run whole: the cheapest, what a solve chooses that trusts prices, others, the cheaper ones first.

    Where prices are doubted, the cheapest may forgo a gain, or the bold one follow an error, or a uniform one be
    faster. What prices say is the likeliest is seen first, as there may be no time for all; and last what takes time
    and decides nothing: those that would not be clearly faster than the cheapest if their own steps took as much
    less as can be. Of those that imply the same steps there is only one.
    """
    kept = [each for each in contenders if each.name == SOLVE or each.name in UNIFORM_POLICIES]
    first, *others = sorted(kept, key=lambda each: each.cost_ns)
    others = [replace(contenders[-1], name=BOLD_SOLVE, choice=bold), *others]
    others.sort(key=lambda each: (each.least_ns(first) >= CLEARLY * first.cost_ns, each.cost_ns))
    found: list[Contender] = []
    for contender in (first, *others):
        if not any(contender.assembly.steps == other.assembly.steps for other in found):
            found.append(contender)
    return found


def race(plans: Sequence[Plan], time_plans: TimePlans) -> tuple[int, tuple[tuple[str, float], ...]]:
    """Which of some plans to take, and how long each takes next to the first: medians of the rounds' ratios.

    The fastest; or the first, which is the cheapest, where no other is clearly faster, or no time to see.

    Raises:
        DisturbedError: Other work keeps the CPUs busy.
        RefusedError: One of them cannot run here; planned anew, each policy has another.
    """
    import statistics  # only where plans race

    times = time_plans(plans)
    if times is None:
        return 0, ()
    ratios = {
        index: statistics.median(own / first for own, first in zip(rounds, times[0], strict=False))
        for index, rounds in enumerate(times)
        if rounds
    }
    fastest = min(ratios, key=ratios.__getitem__)
    fastest = fastest if ratios[fastest] < CLEARLY else 0
    return fastest, tuple((plans[index].chosen, ratio) for index, ratio in ratios.items())
