"""A race of plans whose prices are doubted: the likeliest first, and after each run those that it makes likely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec.structs import replace

from blocklayout.dnnl import Spec
from blocklayout.plan.costs.known import KnownCosts
from blocklayout.plan.doubted import most_doubted
from blocklayout.plan.policies import BOLD_SOLVE, SOLVE, choose_by
from blocklayout.plan.portfolio import CLEARLY, UNIFORM_POLICIES, Contender, Portfolio
from blocklayout.plan.solving.solve import solve_layouts

if TYPE_CHECKING:
    from blocklayout.ir import HostSpec
    from blocklayout.plan.plan import Plan

NEAR_BEST = 1.3
"""A uniform policy is chosen by anew where what it chose before costs no more, next to the best plan so far."""

_Made = TypeVar("_Made")

HasTime = Callable[[float, "Sequence[Spec | HostSpec]"], bool]
"""Whether there is time for a plan of so many estimated nanoseconds, of these steps."""


class Racers(Protocol):
    """Plans to be run whole, given one by one.

    Attributes:
        plans: Those that were given; the first is always there.
    """

    plans: list[Plan]

    def next(self, has_time: HasTime = ...) -> Plan | None:
        """Another one, the likeliest that there is time for.

        Args:
            has_time: Whether there is time for one.

        Returns:
            ``None`` where there is none.
        """

    def learn(self, step_ns: Sequence[float], seconds: float) -> None:
        """Take note of what the steps of the last plan took in a run.

        Args:
            step_ns: Of each step.
            seconds: How long there is for that.
        """


Raced = tuple[tuple[str, float], ...]
"""For each plan that was run whole, a label and its time over that of the first."""

TimePlans = Callable[[Racers], "list[list[float]] | None"]
"""Runs plans in turn: for each that was given a time for each round that it took part in.

``None`` where there was time for no two of them.

Raises ``DisturbedError`` where other work keeps the CPUs busy, and ``RefusedError`` for what cannot run here.
"""


class Race(Generic[_Made]):
    """Contenders to be run whole, and what is made of them to run.

    The first is the cheapest. A run tells what steps take in place. By that, and by how far it is from what was
    expected of their implementations, all that is offered is priced anew and solved anew; so a plan that an error of
    prices has made is followed by one without it. Where that leads nowhere else, prices that tell most are measured.

    Attributes:
        first: The one that is given first.
        plans: What was made of those that were given.
    """

    def __init__(
        self,
        portfolio: Portfolio,
        finish: Callable[[Portfolio, Contender], _Made],
        measure: Callable[[Sequence[Spec], float], Mapping[Spec, float]],
        clock: Callable[[], float] = lambda: monotonic(),  # noqa: PLW0108 - looked up when it is called
    ) -> None:
        """Begin with the cheapest.

        Args:
            portfolio: At the prices so far.
            finish: Makes of a contender what is run.
            measure: Times of the first of some Specs, of as many as so many seconds are enough for.
            clock: In seconds.
        """
        self._portfolio, self._finish, self._measure, self._clock = portfolio, finish, measure, clock
        self._network = portfolio.network
        self._learning_s = portfolio.solving_s
        self._worth = 1.0  # a run takes so many times what prices say
        self._best: Contender | None = None
        first, *self._waiting = racers(portfolio)
        self.first = first
        self._given = [first]
        self.plans = [finish(portfolio, first)]

    @property
    def is_over(self) -> bool:
        """Whether none is left."""
        return not self._waiting

    def next(self, has_time: HasTime = lambda *_: True) -> _Made | None:
        """As :meth:`Racers.next`."""
        found = self._likeliest(has_time)
        if found is None and self._best is not None:
            self._waiting, self._best = self._uniform(self._best), None
            found = self._likeliest(has_time)
        if found is None:
            return None
        self._given.append(found)
        self.plans.append(self._finish(self._portfolio, found))
        return self.plans[-1]

    def _likeliest(self, has_time: HasTime) -> Contender | None:
        for index, each in enumerate(self._waiting):
            if has_time(self._worth * each.cost_ns, each.specs):
                return self._waiting.pop(index)
        return None

    def learn(self, step_ns: Sequence[float], seconds: float) -> None:
        """As :meth:`Racers.learn`. What new prices are wrong by, the next run tells, so they are trusted."""
        steps = self._given[-1].assembly.steps
        if self._learning_s > seconds:
            self._worth = sum(step_ns) / max(sum(step.cost_ns for step in steps), 1.0)
            return
        began_s = self._clock()
        taken: dict[Spec, list[float]] = defaultdict(list)
        for step, ns in zip(steps, step_ns, strict=True):
            if isinstance(step.spec, Spec):
                taken[step.spec.replace(impl="") if step.is_reorder else step.spec].append(ns)
        self._solve({spec: sum(ns) / len(ns) for spec, ns in taken.items()})
        self._learning_s = self._clock() - began_s
        left_s = seconds - 2 * self._learning_s  # it is to solve anew after that
        measuring_s = min(left_s / 2, left_s - 2 * sum(step_ns) / 1e9)  # for the plan that follows has to run
        if not self._waiting and measuring_s > 0:
            times = self._measure(most_doubted(self._network, measuring_s), measuring_s)
            if times:
                self._solve(times)

    def _solve(self, times: Mapping[Spec, float]) -> None:
        """Price all with these times as well and solve anew; the solve's choice waits if it is clearly cheaper."""
        self._network = self._network.priced(KnownCosts.over(self._network.costs, times))
        self._worth = 1.0
        self._best = min((each.at(self._network) for each in self._given), key=lambda each: each.cost_ns)
        bold = Contender.of(BOLD_SOLVE, None, solve_layouts(self._network).choice, self._network)
        is_faster = bold.cost_ns < CLEARLY * self._best.cost_ns
        self._waiting = self._worth_running([bold], self._best) if is_faster else []

    def _uniform(self, best: Contender) -> list[Contender]:
        """Those of the uniform policies, the cheaper ones first."""
        network, most_ns = self._network, NEAR_BEST * best.cost_ns
        near = (
            Contender.of(each.name, each.policy, choose_by(each.policy, network), network)
            for each in self._portfolio.contenders
            if each.policy and each.name in UNIFORM_POLICIES and network.total_ns(each.choice) < most_ns
        )
        return sorted(self._worth_running(near, best), key=lambda each: each.cost_ns)

    def _worth_running(self, contenders: Iterable[Contender], best: Contender) -> list[Contender]:
        """Those that were not given yet and could be clearly faster than the best of these."""
        given = {each.specs for each in self._given}
        found = {each.specs: each for each in contenders if each.specs not in given and each.may_beat(best)}
        return [*found.values()]

    def result(self, times: Sequence[Sequence[float]] | None) -> tuple[Portfolio, Contender, Raced]:
        """Which is taken, at the prices that are known by now.

        The fastest, or the first where none is clearly faster. Where there was time for the first alone, what its steps
        took decides: the cheapest by that, if it is clearly cheaper.

        Args:
            times: As ``TimePlans`` returns them.

        Returns:
            All contenders, the one that is taken, and what each took next to the first: medians of the rounds' ratios.
        """
        import statistics  # only where plans race

        if times is None:
            times = [[1.0]]
        ratios = {
            index: statistics.median(own / first for own, first in zip(rounds, times[0], strict=False))
            for index, rounds in enumerate(times)
            if rounds
        }
        fastest = min(ratios, key=ratios.__getitem__)
        winner = self._given[fastest if ratios[fastest] < CLEARLY else 0]
        raced = tuple((self._label(index), ratio) for index, ratio in ratios.items()) if len(ratios) > 1 else ()
        if self._network is self._portfolio.network:
            return self._portfolio, winner, raced
        portfolio, winner = Portfolio.of(self._network), winner.at(self._network)
        is_told = raced or winner.cost_ns * CLEARLY <= portfolio.cheapest.cost_ns
        return portfolio, winner if is_told else portfolio.cheapest, raced

    def _label(self, index: int) -> str:
        """The contender's name, with a number from the second contender of that name on."""
        names = [each.name for each in self._given[: index + 1]]
        n = names.count(names[-1])
        return names[-1] if n == 1 else f"{names[-1]} {n}"


def racers(portfolio: Portfolio) -> list[Contender]:
    """Those to be run whole: the cheapest, what a solve chooses that trusts prices, others, the cheaper ones first.

    Where prices are doubted, the cheapest may forgo a gain, or the bold one follow an error, or a uniform one be
    faster. What prices say is the likeliest is seen first, as there may be no time for all; and last what takes time
    and decides nothing: those that would not be clearly faster than the cheapest if their own steps took as much
    less as can be. Of those that imply the same steps there is only one.
    """
    kept = [each for each in portfolio.contenders if each.name == SOLVE or each.name in UNIFORM_POLICIES]
    first, *others = sorted(kept, key=lambda each: each.cost_ns)
    others = [replace(portfolio.contenders[-1], name=BOLD_SOLVE, choice=portfolio.solution.choice), *others]
    others.sort(key=lambda each: (not each.may_beat(first), each.cost_ns))
    found = {first.specs: first}
    for contender in others:
        found.setdefault(contender.specs, contender)
    return [*found.values()]
