"""Measured policies as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.output import say
from blocklayout.inspector.tables import kib, print_table, small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.commands.comparing import Measurement

HEADER = ("layout", "ms", "ratio", "least-most", "est. ms", "reorders", "KiB moved", "ref", "plain")


def say_comparison(measurements: Sequence[Measurement]) -> None:
    """Print a row for each policy, and what there is to say about results, layouts and exceptions."""
    print_table(HEADER, [_row(measurement) for measurement in measurements])
    first = measurements[0].facts
    say(
        f"\nratio: time over that of {first.policy} in the same round, median; moved: by reorders\n"
        "est.: what the plan expects; ref: steps that run a reference implementation; plain: by onnx.reference"
    )
    say_agreement(measurements)
    say_layouts(measurements)
    for measurement in measurements:
        facts = measurement.facts
        for kernel, impl, reason in facts.references:
            say(f"{facts.policy}: {kernel} runs {impl}: {reason}")
        for kernel, what, reason in facts.plain:
            say(f"{facts.policy}: {kernel} runs as {what}: {reason}")
        for kernel, reason in facts.exceptions:
            say(f"{facts.policy}: {kernel}: {reason}")


def say_agreement(measurements: Sequence[Measurement]) -> None:
    """Print how far the results lie apart, where there are several."""
    if len(measurements) > 1:
        largest = max(measurement.difference for measurement in measurements)
        say(f"results differ by up to {small(largest)}, relative to the largest value")


def say_layouts(measurements: Sequence[Measurement]) -> None:
    """Print how many values each policy has in which layout."""
    say("\nvalues in each layout")
    width = max(len(measurement.facts.name) for measurement in measurements)
    for measurement in measurements:
        facts = measurement.facts
        say(f"  {facts.name:<{width}}  {facts.dtype:<4}  {facts.layout_counts}")


def _row(measurement: Measurement) -> tuple[str, ...]:
    facts = measurement.facts
    return (
        facts.policy,
        f"{measurement.time_ms.median:,.3f}",
        f"{measurement.ratio.median:.2f}",
        f"{measurement.ratio.low:.2f}-{measurement.ratio.high:.2f}",
        f"{facts.estimated_ns / 1e6:,.3f}",
        str(facts.n_reorders),
        kib(facts.reorder_nbytes),
        str(len(facts.references)),
        str(len(facts.plain)),
    )
