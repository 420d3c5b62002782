"""Plans of one model side by side: in numbers for JSON, as a table in a terminal, as charts of a page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout.plan.make import CLEARLY
from blocklayout.plan.reasons import only_reference
from blocklayout.show.bench_page import Chart, Row, Table
from blocklayout.show.names import policy_name, primitive_name
from blocklayout.show.output import print_table, say
from blocklayout.show.plan_text import exceptions
from blocklayout.show.words import kib, small, spread
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from blocklayout.plan import Plan

_HEADER = ("layout", "ms", "ratio", "least-most", "est. ms", "reorders", "KiB moved", "ref", "plain")
_OF_A_PLAN = (
    *("policy", "chosen", "dtype", "n_threads", "reorder_nbytes", "padding_nbytes", "multiply_adds"),
    *("padding_multiply_adds", "exceptions"),
)


class Measurement(Struct, frozen=True):
    """Result of a policy.

    Attributes:
        plan: The plan, or all steps of those of its pieces.
        plans: The plan, or those of its pieces.
        time_ms: Milliseconds of one run, over the rounds.
        ratio: Its time over that of the first contender in the same round.
        difference: Largest difference from the first contender's outputs, over their largest value.
    """

    plan: Plan
    plans: Sequence[Plan]
    time_ms: Spread
    ratio: Spread
    difference: float
    outputs: Mapping[str, np.ndarray]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the plan in numbers, and all measurements but the outputs."""
        plan = self.plan
        measured: dict[str, Any] = {"time_ms": self.time_ms, "ratio": self.ratio, "difference": self.difference}
        return {name: getattr(plan, name) for name in _OF_A_PLAN} | {
            "estimated_ns": plan.cost_ns,
            "n_steps": len(plan.steps),
            "n_reorders": len(plan.reorders),
            "layouts": dict(_layout_counts(plan)),
            "references": [(step.kernel, step.spec.impl, only_reference(step)) for step in plan.reference_steps],
            "plain": [(step.kernel, primitive_name(step), step.reason) for step in plan.plain_steps],
            **to_builtins(measured),
        }


def clearly_fastest(others: Iterable[Measurement]) -> Measurement | None:
    """The fastest of those that are faster than the first contender, beyond the spread; ``None`` where none is."""
    faster = (each for each in others if each.ratio.third_quartile < CLEARLY)
    return min(faster, key=lambda each: each.ratio.median, default=None)


def say_comparison(measurements: Sequence[Measurement]) -> None:
    """Print a row for each policy, then lines about results, layouts and exceptions."""
    print_table(_HEADER, [_row(measurement) for measurement in measurements])
    first = measurements[0].plan
    say(
        f"\nratio: time over that of {first.policy} in the same round, median; moved: by reorders\n"
        "est.: what the plan expects; ref: steps that run a reference implementation; plain: by onnx.reference"
    )
    say_agreement(measurements)
    say_layouts(measurements)
    for line in exceptions_of(measurements):
        say(line)


def _row(measurement: Measurement) -> tuple[str, ...]:
    plan = measurement.plan
    return (
        plan.policy,
        f"{measurement.time_ms.median:,.3f}",
        *spread(measurement.ratio),
        f"{plan.cost_ns / 1e6:,.3f}",
        str(len(plan.reorders)),
        kib(plan.reorder_nbytes),
        str(len(plan.reference_steps)),
        str(len(plan.plain_steps)),
    )


def exceptions_of(measurements: Sequence[Measurement]) -> list[str]:
    """Exceptions in every plan, each after its policy."""
    return [f"{each.plan.policy}: {line}" for each in measurements for line in exceptions(each.plan)]


def say_agreement(measurements: Sequence[Measurement]) -> None:
    """Print how far the results lie apart, where there are several."""
    if len(measurements) > 1:
        largest = max(measurement.difference for measurement in measurements)
        say(f"results differ by up to {small(largest)}, relative to the largest value")


def say_layouts(measurements: Sequence[Measurement]) -> None:
    """Print how many values each policy has in which layout."""
    say("\nvalues in each layout")
    plans = [measurement.plan for measurement in measurements]
    names = [
        plan.policy if plan.chosen == plan.policy else f"{plan.policy} ({policy_name(plan.chosen)})" for plan in plans
    ]
    for plan, name in zip(plans, names, strict=True):
        layouts = ", ".join(f"{tag} {n}" for tag, n in _layout_counts(plan))
        say(f"  {name:<{max(map(len, names))}}  {plan.dtype:<4}  {layouts}")


def _layout_counts(plan: Plan) -> list[tuple[str, int]]:
    """How many values are in each layout, most frequent first."""
    return Counter(desc.named("src") for desc in plan.formats.values()).most_common()


def comparison_charts(measurements: Sequence[Measurement]) -> list[Chart]:
    """Ratios and times of every policy."""
    first = measurements[0].plan.policy
    ratios = [Row(each.plan.policy, each.ratio) for each in measurements]
    times = [Row(each.plan.policy, each.time_ms) for each in measurements]
    return [
        Chart(f"Time over {first}'s in the same round", "", ratios, baseline=first),
        Chart("Time of a run", "ms", times),
    ]


def comparison_table(measurements: Sequence[Measurement]) -> Table:
    """Plans in numbers, and how far results lie apart."""
    header = (
        *("layout", "chosen", "predicted ms", "reorders", "KiB moved", "KiB of padding", "references", "plain"),
        "differs by",
    )
    rows = [
        (
            *(each.plan.policy, policy_name(each.plan.chosen), each.plan.cost_ns / 1e6, len(each.plan.reorders)),
            *(each.plan.reorder_nbytes / 1024, each.plan.padding_nbytes / 1024),
            *(len(each.plan.reference_steps), len(each.plan.plain_steps), each.difference),
        )
        for each in measurements
    ]
    return Table("Plans", header, rows)
