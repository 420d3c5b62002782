"""A plan's reasons as text: alternatives of each kernel, costs of doing without each reorder, ends of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from blocklayout.plan.precision import PrecisionReport
from blocklayout.plan.reasons import only_reference
from blocklayout.plan.runs import find_runs
from blocklayout.show.names import layout, moved, policy_name
from blocklayout.show.words import counted, kib, percent, scaled_time, table, us

if TYPE_CHECKING:
    from blocklayout.plan.choices import Way
    from blocklayout.plan.plan import Entry, Plan, Step
    from blocklayout.plan.runs import RunEnd

_HEADER = ("kernel", "operator", "chosen", "us", "runner-up, and best in other layouts", "the network takes")


def explanation(plan: Plan) -> str:
    """Why a plan is as it is."""
    runs = find_runs(plan)
    lines = [
        f"why {plan.model} is planned so: layout {plan.policy}, {plan.dtype}; by price {optimality(plan)}",
        f"costs are from {plan.priced_by}",
        *_totals(plan),
        "",
        *table(_HEADER, [*_choice_rows(plan)], numbers=(3,), spare=(1,)),
        *_by_reason("in floats, since nothing on offer computes with bytes:", plan.in_floats),
        *_by_reason("why each is computed so, reorders apart:", _why_so(plan)),
        "",
        counted(len(plan.reorders), "reorder") + (":" if plan.reorders else ""),
        *(f"  {_reorder_text(plan, reorder)}" for reorder in plan.reorders),
        "",
        f"{counted(len(runs), 'run')} in blocked or channels-last layout" + (":" if runs else ""),
    ]
    for run in runs:
        span = run.kernels[0] if len(run.kernels) == 1 else f"{run.kernels[0]} ... {run.kernels[-1]}"
        lines.append(f"  {run.family}, {counted(len(run.kernels), 'kernel')}, {span}, until")
        lines += (f"    {_end_text(end)}" for end in run.ends)
    if plan.rationale.precision_report:
        report = PrecisionReport.parsed(plan.rationale.precision_report, plan.model)
        lines += ["", "which layers were quantised, when the file was made:", str(report)]
    return "\n".join(lines)


def optimality(plan: Plan) -> str:
    """How good the choice is, by the plan's own costs."""
    if plan.is_optimal:
        return "proven to be the cheapest"
    if not plan.bound_ns:
        return "with no bound to compare it with"
    gap = max(0.0, min(cost for _, cost in plan.policy_costs) / plan.bound_ns - 1)
    return f"at most {percent(gap)} above the cheapest"


def way_text(way: Way) -> str:
    """A way in one line, such as ``jit:avx2 nchw -> nChw8c``."""
    if not way.impls:
        return way.origin
    read = ", ".join(dict.fromkeys(map(layout, way.sources)))
    return f"{' + '.join(way.impls)} {read} -> {layout(way.dst)}" + (", sum in place" if way.in_place else "")


def _totals(plan: Plan) -> Iterator[str]:
    for name, cost in plan.policy_costs:
        share = f" ({percent(cost / plan.cost_ns - 1, '+')})" if plan.cost_ns else ""
        yield f"  {policy_name(name):20} {scaled_time(cost):>8}{share}"
    declined_ns = min(cost for _, cost in plan.policy_costs) - plan.bound_ns
    if plan.is_exact and not plan.is_optimal and declined_ns > 0:
        why = "and was left: it gains less than prices may be wrong by"
        yield f"  the cheapest by price would take {scaled_time(declined_ns)} less, {why}"
    if plan.unpinned_ns is not None:
        pins = ", ".join(dict.fromkeys(f"{pin.key}={pin.wanted}" for pin in plan.pins))
        yield f"  without {pins}: {scaled_time(plan.unpinned_ns)} ({_extra(plan, plan.unpinned_ns - plan.cost_ns)})"
    if plan.raced:
        yield "run whole, in turn: " + ", ".join(f"{policy_name(name)} {ratio:.3f}" for name, ratio in plan.raced)


def _choice_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Rows for every kernel that moves bytes; costs of alternatives are of the network, all else chosen anew."""
    for choice in plan.choices:
        if choice.chosen.impls or choice.runner_up:
            first = (choice.kernel, choice.operator, way_text(choice.chosen), us(choice.chosen.cost_ns))
            others = dict.fromkeys((choice.runner_up, choice.other_layout))
            for other in filter(None, others):
                yield (*first, way_text(other.way), _extra(plan, other.extra_ns))
                first = ("", "", "", "")
            if choice.runner_up is None:
                yield (*first, "-", "")


def _by_reason(title: str, reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Each reason, and its kernels below it."""
    kernels: dict[str, list[str]] = {}
    for kernel, reason in reasons:
        kernels.setdefault(reason, []).append(kernel)
    if kernels:
        yield from ("", title)
    for reason, names in kernels.items():
        yield from (f"  {reason}", f"    {', '.join(dict.fromkeys(names))}")


def _why_so(plan: Plan) -> Iterator[tuple[str, str]]:
    """Kernels with the reasons of their steps, of being part of another's, and of not being as the policy has it."""
    for step in plan.steps:
        if not step.is_reorder:
            slow = f", by reference code: {only_reference(step)}" if step.is_reference else ""
            yield step.kernel, step.reason + slow
    joined = (each for each in plan.choices if each.chosen.is_joined and not each.chosen.impls)
    yield from ((each.kernel, each.chosen.origin) for each in joined)
    yield from plan.exceptions


def _reorder_text(plan: Plan, reorder: Entry | Step) -> str:
    value, src, dst = moved(plan, reorder)
    without = "nothing on offer does without" if plan.is_exact else "what the network would cost without is not known"
    if reorder.without_ns is not None:
        without = f"without it the network would cost {_extra(plan, reorder.without_ns)}"
    text = f"{value}: {layout(src)} -> {layout(dst)}, {kib(reorder.nbytes_moved)} KiB, {scaled_time(reorder.cost_ns)}, "
    return f"{text}read by {', '.join(reorder.readers)}; {without}"


def _end_text(end: RunEnd) -> str:
    """The reader with which a run ends, and the layouts that it reads and writes."""
    takes = f"{end.value} ({layout(end.desc)})" + (f" as {layout(end.reads)}" if end.reads != end.desc else "")
    if end.writes is None:
        return f"{end.reader}, who takes {takes}"
    offers = f"; it offers {', '.join(end.offers)}" if end.offers else ""
    return f"{end.reader}, which reads {takes} and writes {layout(end.writes)}{offers}"


def _extra(plan: Plan, extra_ns: float) -> str:
    share = f" ({percent(extra_ns / plan.cost_ns, '+')})" if plan.cost_ns else ""
    more = f"{'+' if extra_ns >= 0 else '-'}{scaled_time(abs(extra_ns))}"
    return f"{'' if plan.is_exact else 'at most '}{more}{share}"
