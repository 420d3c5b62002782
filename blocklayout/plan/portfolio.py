"""The choices that ``auto`` is the best of: the solve's, and each simple policy's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.dnnl import Spec
from blocklayout.plan.assemble import Assembly, assemble
from blocklayout.plan.policies import BOLD_SOLVE, SIMPLE_POLICIES, SOLVE, Policy, choose_by
from blocklayout.plan.solving.solve import Solution, charge_departures, solve_layouts, wary_choice

if TYPE_CHECKING:
    from blocklayout.ir import HostSpec
    from blocklayout.plan.network import Choice, Network
    from blocklayout.plan.plan import Plan, Step

UNIFORM_POLICIES = ("any", "blocked", "nhwc", "plain")
"""The simple policies that leave layouts as they are from kernel to kernel."""

CLEARLY = 0.99
"""A plan that takes a larger share of another's time may be faster by chance."""


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

    @classmethod
    def of(cls, name: str, policy: Policy | None, choice: Choice, network: Network) -> Contender:
        """Of a network at its prices."""
        return cls(name, policy, choice, network, cache(partial(assemble, network)))

    @property
    def assembly(self) -> Assembly:
        """The steps it implies."""
        returns_to_plain = self.policy is not None and self.policy.returns_to_plain
        return self.assembled(self.choice, returns_to_plain=returns_to_plain)

    def at(self, network: Network) -> Contender:
        """The same choice at other prices."""
        return self if network is self.network else Contender.of(self.name, self.policy, self.choice, network)

    @property
    def specs(self) -> tuple[Spec | HostSpec, ...]:
        """The Specs of its steps, in order; two contenders with the same Specs are the same plan."""
        return tuple(step.spec for step in self.assembly.steps)

    @property
    def cost_ns(self) -> float:
        """Estimated cost of its steps and reorders."""
        return self.assembly.cost_ns

    @property
    def doubt(self) -> float:
        """How far off the prices of its steps may be, on average over its time."""
        steps = [step for step in self.assembly.steps if not step.is_reorder]
        doubted_ns = sum(map(self._doubted_ns, steps))
        return doubted_ns / max(sum(step.cost_ns for step in steps), 1.0)

    def may_beat(self, other: Contender) -> bool:
        """Whether it could be clearly faster, if steps that the other has not took less by twice their doubt."""
        own = Counter(step.spec for step in self.assembly.steps) - Counter(step.spec for step in other.assembly.steps)
        doubted_ns = {step.spec: self._doubted_ns(step) for step in self.assembly.steps}
        least_ns = self.cost_ns - 2 * sum(n * doubted_ns[spec] for spec, n in own.items())
        return least_ns < CLEARLY * other.cost_ns

    def _doubted_ns(self, step: Step) -> float:
        """How far off the price of a step may be; a reorder's is that of any implementation."""
        costs = self.network.costs
        if step.is_reorder and isinstance(step.spec, Spec):
            return step.cost_ns * costs.reorder_doubt(step.spec.memory_desc("src"), step.spec.memory_desc("dst"))
        return step.cost_ns * costs.doubt(step.spec)


class Portfolio(Struct, frozen=True):
    """All contenders, at some prices.

    Attributes:
        contenders: As :func:`contenders_of` gives them.
        solution: What is chosen where prices are trusted.
        solving_s: How long it took to find that.
    """

    contenders: Sequence[Contender]
    solution: Solution
    solving_s: float = 0.0

    @classmethod
    def of(cls, network: Network, wanted: Policy | None = None) -> Portfolio:
        """Of a network at its prices; with the policy that is wanted, if it is one of its own."""
        began_s = monotonic()
        solution = solve_layouts(network)
        solving_s = monotonic() - began_s
        return cls(contenders_of(network, wanted), solution, solving_s)

    @property
    def network(self) -> Network:
        """The candidates that all of them choose from, at these prices."""
        return self.solution.network

    @property
    def cheapest(self) -> Contender:
        """The one that is taken where none are run."""
        return min(self.contenders, key=lambda each: each.cost_ns)


def contenders_of(network: Network, wanted: Policy | None) -> list[Contender]:
    """The choice of each simple policy and of the one that is wanted, and the solve's, which is the last.

    The solve's is the wary one: it departs from the cheapest uniform policy where prices are sure enough of a gain, or
    from that policy in f32 where they are sure enough that it is faster.
    """
    policies = [Policy.parse(name, network.costs.machine) for name in SIMPLE_POLICIES]
    if wanted and wanted not in policies:
        policies.append(wanted)
    assembled = cache(partial(assemble, network))  # in small networks most policies choose the same
    choices = {policy: choose_by(policy, network) for policy in policies}
    found = [Contender(policy.name, policy, choice, network, assembled) for policy, choice in choices.items()]
    uniform = (policy for policy in policies if policy.name in UNIFORM_POLICIES)
    cheapest = min(uniform, key=lambda policy: network.total_ns(choices[policy]))
    simple = choices[cheapest]
    if network.dtype != "f32":
        charged = charge_departures(network, simple)
        simple = min(simple, choose_by(cheapest, network, "f32"), key=charged.total_ns)
    return [*found, Contender(SOLVE, None, wary_choice(network, simple), network, assembled)]


def contender_like(plan: Plan, solution: Solution) -> Contender:
    """The choice of who made a plan for other extents, from what was proposed after its choices."""
    network = solution.network
    policy = None if plan.chosen in (SOLVE, BOLD_SOLVE) else Policy.parse(plan.chosen, network.costs.machine)
    choice = choose_by(policy, network) if policy else solution.choice
    return Contender.of(plan.chosen, policy, choice, network)
