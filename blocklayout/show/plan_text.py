"""A plan as text: what runs, in which layouts, and why each reorder is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from blocklayout.ir import Fused, HostSpec, layout_name
from blocklayout.show.text_table import table

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.plan.plan import Plan, Step


def plan_text(plan: Plan) -> str:
    """The whole plan, one line a step."""
    return "\n".join(line.rstrip() for line in _lines(plan))


def plan_html(plan: Plan) -> str:
    """The plan for a notebook: its facts, and its steps where one asks for them."""
    facts = escape("\n".join([heading(plan), *summary(plan)]))
    steps = escape("\n".join(line.rstrip() for line in table(_HEADER, plan_rows(plan))))
    more = f"<details><summary>Its {len(plan.steps)} steps</summary><pre>{steps}</pre></details>"
    return f'<pre style="white-space:pre-wrap">{facts}</pre>{more}'


_HEADER = ("#", "kernel", "primitive", "implementation", "layouts", "est. us", "reason")


def plan_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Number, kernel, primitive, implementation, layouts, cost and reason of every step, entries first."""
    rows: list[tuple[str, ...]] = []
    for entry in plan.entries:
        kind = "reorder" if entry.is_reorder else "bind"
        layouts = f"{short(entry.source)} -> {short(entry.desc)}"
        rows.append(("in", entry.input, kind, "", layouts, us(entry.cost_ns), entry.reason))
    for number, step in enumerate(plan.steps):
        what = (step.kernel, primitive_name(step), step.spec.impl, step_layouts(step), us(step.cost_ns), step.reason)
        rows.append((str(number), *what))
    return rows


def step_layouts(step: Step) -> str:
    """The layouts a step reads and writes, such as ``nChw8c, OIhw8i8o -> nChw8c``."""
    sources = [short(operand.desc) for arg, operand in step.operands if arg == "src" or arg.startswith("src_")]
    weights = [short(operand.desc, weights_role(step)) for arg, operand in step.operands if arg == "weights"]
    others = [f"+{short(operand.desc)}" for arg, operand in step.operands if arg.startswith("post_op_")]
    dst = ", ".join(short(operand.desc) for arg, operand in step.operands if arg.startswith("dst"))
    read = ", ".join([*sources, *weights, *others])
    return f"{read} -> {dst}" if read else dst


def summary(plan: Plan) -> list[str]:
    """Reorders, references, memory and the policies' costs, a line each."""
    arena = f"arena {_kib(plan.arena_nbytes)} KiB (at least {_kib(plan.arena_lower_bound)})"
    rest = f"scratchpad {_kib(plan.scratchpad_nbytes)} KiB, zero padding {_kib(plan.padding_nbytes)} KiB"
    lines = [
        shown_steps(plan),
        *([f"{len(plan.wide_steps)} steps in f32, {len(plan.conversions)} conversions"] if plan.wide_steps else []),
        f"{arena}, {rest}",
        f"{plan.multiply_adds / 1e6:.2f} M multiply-adds, {plan.padding_multiply_adds / 1e6:.2f} M more on padding",
        f"estimated{_sources(plan)}: " + ", ".join(f"{name} {cost / 1000:.0f} us" for name, cost in plan.policy_costs),
    ]
    lines += [f"reference: {step.kernel} ({step.spec.impl}): {reference_reason(step)}" for step in plan.reference_steps]
    lines += [f"plain: {step.kernel} (about {us(step.cost_ns)} us): {step.reason}" for step in plan.plain_steps]
    lines += [f"exception: {kernel}: {reason}" for kernel, reason in plan.exceptions]
    return lines


def _sources(plan: Plan) -> str:
    """Where estimates come from: ``, by 10 measured and 3 modelled prices``."""
    counts = Counter(step.priced for step in plan.steps).most_common()
    return f", by {' and '.join(f'{n} {source}' for source, n in counts)} prices" if counts else ""


def shown_steps(plan: Plan) -> str:
    """Numbers of its steps, by kind."""
    plain = f", {len(plan.plain_steps)} plain" if plan.plain_steps else ""
    reorders = f"{len(plan.reorders)} reorders ({_kib(plan.reorder_nbytes)} KiB)"
    return f"{len(plan.steps)} steps, {reorders}, {len(plan.reference_steps)} reference steps{plain}"


def heading(plan: Plan) -> str:
    """Model, layouts, data type and machine."""
    chosen = f" ({plan.chosen})" if plan.chosen != plan.policy else ""
    precision = "".join(dict.fromkeys(f", {each.key} in {each.wanted}" for each in plan.precision))
    parts = f" for each of {plan.parts} parts of the rows" if plan.parts > 1 else ""
    return (
        f"plan of {plan.model}{parts}: layout {plan.policy}{chosen}, {plan.dtype}{precision}, "
        f"{plan.n_threads} threads, {plan.isa}, oneDNN {plan.library}"
    )


def reference_reason(step: Step) -> str:
    """Why a step runs a reference implementation."""
    return f"oneDNN has nothing faster for this {step.spec.kind} in any layout asked for"


def _lines(plan: Plan) -> Iterator[str]:
    yield heading(plan)
    yield from table(_HEADER, plan_rows(plan))
    yield from summary(plan)


def weights_role(step: Step) -> str:
    """The role by which the layout of a step's weights is named."""
    grouped = step.spec.memory_desc("weights").ndims == step.spec.memory_desc("src").ndims + 1
    return "grouped_weights" if grouped else "weights"


def primitive_name(step: Step) -> str:
    """Name of the primitive of a step with its post-ops, or of the host step in its place."""
    if isinstance(step.spec, HostSpec):
        return f"{step.spec.kind.replace('_', ' ')} {step.spec.label}".rstrip()
    names = [type(post_op).__name__.lower() for post_op in step.spec.attr.post_ops]
    detailed = [getattr(op, "algorithm", "") or name for op, name in zip(step.spec.attr.post_ops, names, strict=True)]
    return " + ".join([step.spec.kind, *detailed])


def short(desc: ValueLayout, role: str = "src") -> str:
    """A layout by its name, with the data type unless that is f32."""
    if isinstance(desc, Fused):
        return layout_name(desc)
    dtype = "" if desc.dtype == "f32" else f":{desc.dtype}"
    return f"{desc.named(role)}{dtype}"


def us(nanoseconds: float) -> str:
    """Nanoseconds in microseconds."""
    return f"{nanoseconds / 1000:.1f}"


def _kib(nbytes: int) -> str:
    return f"{nbytes / 1024:,.0f}"
