"""From a program to a plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.errors import InputError
from blocklayout.plan.candidates.following import FollowingProposer, are_near
from blocklayout.plan.candidates.pins import check_expectations, pins_by_tile
from blocklayout.plan.candidates.tiles import fuse
from blocklayout.plan.choices import kernel_choices
from blocklayout.plan.network import propose_all
from blocklayout.plan.place import place_all
from blocklayout.plan.plan import Plan, PlanConfig, Rationale
from blocklayout.plan.policies import SOLVE, SOLVES, Policy, exceptions_of, with_reasons
from blocklayout.plan.portfolio import NEAR, Contender, Portfolio
from blocklayout.plan.refused import in_floats, refused_in
from blocklayout.plan.request import Request, computed_dtype
from blocklayout.plan.runs import check_losses
from blocklayout.plan.solving.solve import ROUNDING, Solution
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blocklayout.ir import Program
    from blocklayout.plan.assemble import Assembly
    from blocklayout.plan.costs.model import CostModel
    from blocklayout.plan.network import Network

N_LEAST_RUN = 2
"""How many plans run at least: the best uniform one, and the likeliest that takes other steps."""

CHEAPER = 0.95
"""A second solve whose cost is at most this share of that of each plan before runs, however long that takes."""

LONG_S = 0.5
"""Of a run: one tells as much as many short ones, and many would take long."""

CLEARLY, BY_FAR = 0.99, 0.95
"""Shares of the first plan's time: one that takes less in three of four rounds is faster, or less by far in half."""


class RunOff(Protocol):
    """Runs plans whole, in turn; see :class:`blocklayout.loading.run_off.RunOff`."""

    def enter(self, plan: Plan) -> float: ...
    def has_time(self) -> bool: ...
    def times(self) -> Sequence[Sequence[float]]: ...


def make_plan(
    program: Program,
    request: Request,
    costs: CostModel,
    *,
    price: Callable[[Network], Network] | None = None,
    run_off: Callable[[], RunOff | None] = lambda: None,
    like: Plan | None = None,
    prices_unpinned: bool = True,
) -> Plan:
    """Choose a layout for every value of a program and lay out the steps that compute it.

    Args:
        program: The kernels, every extent known.
        request: Policy, data type, borders and demands.
        costs: Prices of steps and reorders on the machine it will run on.
        price: Puts better prices on candidates, perhaps measured ones.
        run_off: Makes the run-off of whole plans: for ``auto`` the fastest is then taken, else the cheapest.
        like: A plan for other extents, whose layouts are taken wherever they are on offer.
        prices_unpinned: Whether the rationale tells what a plan without pins would cost, which takes as long again.

    Raises:
        PlanError: No such policy, data type, kernel or value; a pin that nothing offers, an expectation that is not
            met, or a run of layouts that is not to be lost.
        UnsupportedError: Nothing computes a kernel on this CPU, or it has no arithmetic in the data type.
    """
    computed_dtype(request.dtype)
    precision = {each.name: computed_dtype(each.wanted, str(each)) for each in request.demanded.precision}
    wanted = None if request.policy == "auto" else Policy.parse(request.policy, costs.machine)
    tiles = fuse(program, request.dtype, costs.machine.n_threads, precision)
    pins = pins_by_tile(tiles, request.demanded.pins)
    tags = wanted.tags if wanted else ()
    choices = {choice.kernel: choice for choice in like.rationale.choices} if like else {}
    asked = (costs, request.dtype, tags, request.is_frugal, pins, request.without)
    is_near = like is not None and are_near(program.inputs, dict(like.inputs))
    proposer = FollowingProposer(*asked, choices=choices, takes_impls=is_near)
    network = propose_all(program, tiles, proposer, request.io_layout, request.carried)
    if price is not None and not is_near:  # else there is hardly anything left to decide
        network = price(network)
    portfolio = Portfolio.of(network, wanted, like, is_near=is_near)
    finish = partial(_finish, program, request, portfolio)
    runs = None if wanted or like else run_off()
    raced = None if runs is None else _fastest(portfolio.likeliest, finish, runs)
    if raced is not None:
        winner, plan = raced
    else:
        winner = portfolio.named(request.policy) if wanted else portfolio.cheapest
        plan = finish(winner)
    why: dict[str, Any] = {"in_floats": like.rationale.in_floats if like else in_floats(winner.network)}
    if pins and prices_unpinned:
        free_proposer = replace(proposer, pins={}, choices={})
        free = propose_all(program, tiles, free_proposer, request.io_layout, request.carried)
        why["unpinned_ns"] = Portfolio.of(free.priced(network.costs)).cheapest.cost_ns
    if like:
        lent = ", ".join(f"{name} {'x'.join(map(str, desc.dims))}" for name, desc in like.inputs)
        source = f"{plan.rationale.priced_by}; layouts are those that were chosen for {lent}"
        why |= {"priced_by": source, "bound_ns": 0.0, "is_optimal": False, "is_exact": False}
    plan = _explained(plan, winner, portfolio.solution, why)
    check_expectations(plan, request.demanded.expected)
    check_losses(plan, request.on_layout_loss)
    return plan


def _fastest(
    contenders: Sequence[Contender], finish: Callable[[Contender], Plan], run_off: RunOff
) -> tuple[Contender, Plan] | None:
    """The contender whose plan is the fastest, run whole and in turn with the others; a tie goes to the first.

    None where the model does not take the values that plans are run with, such as an index of 1 into one row.

    Of several that are faster than the first it is that of the least product of median and least time: in a few rounds,
    each of which may be disturbed, neither alone tells it from others.

    The first two run, and those that prices have near the fastest (:func:`_is_near`), or for which there is time.
    """
    entered: list[Contender] = []
    plans: list[Plan] = []
    took_s: list[float] = []
    for contender in contenders if len(contenders) > 1 else ():
        if len(plans) < N_LEAST_RUN or _is_near(contender, entered, took_s) or run_off.has_time():
            entered.append(contender)
            plans.append(finish(contender))
            try:
                took_s.append(run_off.enter(plans[-1]))
            except InputError:
                return None
    if not plans:
        return contenders[0], finish(contenders[0])
    times = run_off.times()
    shares = [Spread.of_ratios(own, times[0]) for own in times]
    raced = tuple((contender.name, share.median) for contender, share in zip(entered, shares, strict=True))
    faster = [i for i, share in enumerate(shares) if share.third_quartile < CLEARLY or share.median < BY_FAR]
    taken = min(faster, key=lambda index: shares[index].median * min(times[index]), default=0)
    why = replace(plans[taken].rationale, raced=raced, raced_ns=Spread.of(times[taken]).median)
    return entered[taken], replace(plans[taken], rationale=why)


def _is_near(contender: Contender, entered: Sequence[Contender], took_s: Sequence[float]) -> bool:
    """Whether a plan may be the fastest, by its price, and by how long others' took where one run tells that."""
    if contender.name in SOLVES:
        return contender.cost_ns <= CHEAPER * min(each.cost_ns for each in entered)
    share = min(took_s) / took_s[0] if took_s[0] > LONG_S else 1.0
    return contender.cost_ns < NEAR * share * entered[0].cost_ns


def _finish(program: Program, request: Request, portfolio: Portfolio, winner: Contender) -> Plan:
    assembly, network, solution = winner.assembly, winner.network, portfolio.solution
    buffers, placement = place_all(assembly)
    costs = {contender.name: contender.cost_ns for contender in portfolio.shown}
    costs["auto"] = min(*costs.values(), assembly.cost_ns)
    solved_ns = min(costs.get(SOLVE, inf), assembly.cost_ns)
    steps = assembly.steps
    if winner.policy and request.policy != "auto":
        steps = list(with_reasons(steps, winner.policy, network, winner.choice))
    return Plan(
        model=program.name,
        program=program.digest,
        config=PlanConfig(
            policy=request.policy,
            dtype=request.dtype,
            n_threads=network.costs.machine.n_threads,
            isa=network.costs.machine.isa,
            library=".".join(map(str, dnnl.version())),
            pins=request.demanded.pins,
            precision=request.demanded.precision,
            io_layout=tuple(assembly.network.io_layout.items()),
        ),
        inputs=tuple(assembly.given.items()),
        entries=tuple(assembly.entries),
        steps=tuple(steps),
        results=tuple(assembly.results),
        buffers=tuple(buffers),
        constants=assembly.constants,
        values=tuple(assembly.values),
        arena_nbytes=placement.nbytes,
        scratchpad_nbytes=assembly.scratchpad_nbytes,
        rationale=Rationale(
            choices=(),
            chosen=winner.name,
            policy_costs=tuple(costs.items()),
            bound_ns=solution.bound_ns,
            is_optimal=solution.is_optimal and solved_ns <= solution.bound_ns * (1 + ROUNDING),
            is_exact=solution.is_exact,
            unpinned_ns=None,
            priced_by=network.costs.source,
            raced=(),
            exceptions=(
                *(exceptions_of(winner.policy, network, winner.choice) if winner.policy else ()),
                *refused_in(network),
            ),
            arena_lower_bound=placement.lower_bound,
            precision_report=network.program.precision_report,
        ),
    )


def _explained(plan: Plan, winner: Contender, solution: Solution, why: Mapping[str, Any]) -> Plan:
    """With the alternatives to the choice, which take longer to price than to choose, and more of its rationale."""
    without = _costs_without(winner.assembly, solution)
    costs, cost_ns = solution.costs_of_candidates, winner.cost_ns
    choices = tuple(kernel_choices(winner.network, winner.choice, costs, cost_ns))
    return replace(
        plan,
        entries=tuple(replace(entry, without_ns=without.get(entry.buffer)) for entry in plan.entries),
        steps=tuple(
            replace(step, without_ns=without.get(step.dst.buffer)) if step.is_reorder else step for step in plan.steps
        ),
        rationale=replace(plan.rationale, choices=choices, **why),
    )


def _costs_without(assembly: Assembly, solution: Solution) -> dict[int, float]:
    """How much more the whole network would cost without each copy that was made, by its buffer."""
    made = {entry.buffer: entry.desc for entry in assembly.entries if entry.is_reorder}
    written = (step.dst for step in assembly.steps if step.is_reorder)
    made |= {operand.buffer: operand.desc for operand in written}
    costs = solution.costs_without([(assembly.buffers[buffer].name, desc) for buffer, desc in made.items()])
    return {buffer: cost - assembly.cost_ns for buffer, cost in zip(made, costs, strict=True) if isfinite(cost)}
