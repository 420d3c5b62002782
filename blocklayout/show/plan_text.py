"""Plans and sessions as text, and for notebooks: steps, their layouts, and the reason of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from operator import itemgetter
from typing import TYPE_CHECKING

from blocklayout.plan.reasons import only_reference
from blocklayout.show.names import layout, policy_name, primitive_name, reorder_reason, step_layouts
from blocklayout.show.words import counted, kib, scaled_time, table, us

if TYPE_CHECKING:
    from blocklayout.plan.plan import Plan
    from blocklayout.plan.request import Request

_HEADER = ("#", "kernel", "computed by", "layouts", "est. us")


def plan_line(plan: Plan) -> str:
    """The plan in a line."""
    return f"<{_heading(plan)}: {_shown_steps(plan)}, about {scaled_time(plan.cost_ns)}>"


def plan_text(plan: Plan, top: int | None = None) -> str:
    """The whole plan, step by step, or the steps that cost most."""
    return "\n".join([_heading(plan), *_table(plan, top), *_summary(plan)])


def plan_html(plan: Plan) -> str:
    """The plan for a notebook: its facts, and its steps where one asks for them."""
    facts = escape("\n".join([_heading(plan), *_summary(plan)]))
    steps = escape("\n".join(_table(plan)))
    more = f"<details><summary>Its {len(plan.steps)} steps</summary><pre>{steps}</pre></details>"
    return f'<pre style="white-space:pre-wrap">{facts}</pre>{more}'


def _table(plan: Plan, top: int | None = None) -> Iterator[str]:
    rows: list[tuple[float, tuple[str, ...]]] = []
    for entry in plan.entries:
        how = f"reorder\n{reorder_reason(plan, entry)}" if entry.is_reorder else "read as it comes"
        layouts = f"{layout(entry.source)} -> {layout(entry.desc)}"
        rows.append((entry.cost_ns, ("in", entry.input, how, layouts, us(entry.cost_ns))))
    for number, step in enumerate(plan.steps):
        why = reorder_reason(plan, step) if step.is_reorder else step.reason if step.is_row_major else ""
        how = "\n".join(filter(None, (primitive_name(step), step.spec.impl, why)))
        rows.append((step.cost_ns, (str(number), step.kernel, how, step_layouts(step), us(step.cost_ns))))
    if top is not None:
        rows = sorted(rows, key=itemgetter(0), reverse=True)[:top]
    return table(_HEADER, [row for _, row in rows], numbers=(0, 4))


def _summary(plan: Plan) -> list[str]:
    arena = f"arena {kib(plan.arena_nbytes)} KiB (at least {kib(plan.arena_lower_bound)})"
    rest = f"scratchpad {kib(plan.scratchpad_nbytes)} KiB, zero padding {kib(plan.padding_nbytes)} KiB"
    sources = [f"{n} {source}" for source, n in Counter(step.priced for step in plan.steps).most_common()]
    priced = f", by {' and '.join(sources)} prices" if sources else ""
    return [
        _shown_steps(plan),
        *([f"{len(plan.wide_steps)} steps in f32, {len(plan.conversions)} conversions"] if plan.wide_steps else []),
        f"{arena}, {rest}",
        f"{plan.multiply_adds / 1e6:.2f} M multiply-adds, {plan.padding_multiply_adds / 1e6:.2f} M more on padding",
        f"estimated{priced}: "
        + ", ".join(f"{policy_name(name)} {scaled_time(cost)}" for name, cost in plan.policy_costs),
        *exceptions(plan),
    ]


def exceptions(plan: Plan) -> list[str]:
    """A line for each kernel that no usual implementation runs, or that could not follow the policy."""
    return [
        *(f"reference: {step.kernel} ({step.spec.impl}): {only_reference(step)}" for step in plan.reference_steps),
        *(f"plain: {step.kernel} (about {scaled_time(step.cost_ns)}): {step.reason}" for step in plan.plain_steps),
        *(f"exception: {kernel}: {reason}" for kernel, reason in plan.exceptions),
    ]


def _shown_steps(plan: Plan) -> str:
    plain = f", {len(plan.plain_steps)} plain" if plan.plain_steps else ""
    reorders = f"{counted(len(plan.reorders), 'reorder')} ({kib(plan.reorder_nbytes)} KiB)"
    references = counted(len(plan.reference_steps), "reference step")
    return f"{counted(len(plan.steps), 'step')}, {reorders}, {references}{plain}"


def _heading(plan: Plan) -> str:
    chosen = f" ({policy_name(plan.chosen)})" if plan.chosen != plan.policy else ""
    precision = "".join(dict.fromkeys(f", {each.key} in {each.wanted}" for each in plan.precision))
    parts = f" for each of {plan.parts} parts of the rows" if plan.parts > 1 else ""
    return (
        f"plan of {plan.model}{parts}: layout {plan.policy}{chosen}, {plan.dtype}{precision}, "
        f"{counted(plan.n_threads, 'thread')}, {plan.isa}, oneDNN {plan.library}"
    )


def session_text(
    inputs: Sequence[str], outputs: Sequence[str], plans: Sequence[Plan], asked: Request | None, facts: Sequence[str]
) -> str:
    """A session in a line: inputs and outputs in words, its plans, how further ones are asked for, and more facts."""
    first = next(iter(inputs), "x").split()[0]
    unplanned = f" without a plan yet: run it, or load it with shapes={{{first!r}: (...)}};" if asked else ":"
    head = f" of {plans[0].model}:" if plans else unplanned
    borders = f"{', '.join(inputs)} -> {', '.join(outputs)}"
    return f"<Session{head} {'; '.join((borders, _choice(plans, asked), ', '.join(facts)))}>"


def session_html(text: str, plans: Sequence[Plan]) -> str:
    """A session for a notebook: its line, plans, and how to see more."""
    hint = "<code>.report()</code> shows the plan as a page, and <code>.report(feed)</code> with measured times."
    return f"<p><code>{escape(text)}</code></p>{''.join(map(plan_html, plans))}<p>{hint}</p>"


def _choice(plans: Sequence[Plan], asked: Request | None) -> str:
    if not plans:
        return f"layout {asked.policy}, {asked.dtype}" if asked else "no plan"
    last = plans[-1]
    prices = "a run-off of whole plans" if last.raced else last.priced_by
    chosen = f" ({policy_name(last.chosen)}, by {prices})" if last.policy == "auto" else ""
    number = f", the last of {len(plans)} plans" if len(plans) > 1 else ""
    return f"layout {last.policy}{chosen}, {last.dtype}{number}"
