"""A model run on files or random data: what comes out, how long it takes, what its layouts cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.commands.comparing import Contender, Measurement, Race
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import feeds_of, open_model
from blocklayout.commands.output import say, say_json
from blocklayout.inspector.progress import shown_progress
from blocklayout.inspector.tables import kib, print_table, small

if TYPE_CHECKING:
    import argparse

POLICY_HEADER = (
    "layout",
    "dtype",
    "ms",
    "time / first",
    "estimated ms",
    "reorders",
    "KiB reordered",
    "reference steps",
    "difference",
    "values in each layout",
)
OUTPUT_HEADER = ("output", "type", "shape", "smallest", "mean", "largest")


def run_model(args: argparse.Namespace) -> None:
    """Run a model with each of the policies, and print its outputs and their times.

    Raises:
        BlockLayoutError: The model, what it is fed, or a policy is wrong, or cannot run here.
    """
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args.model)
        race = Race(opened, feeds_of(opened, args), args.threads, args.rounds, tell)
        contenders = [Contender(policy, args.dtype or "f32") for policy in args.layout or ("auto",)]
        measurements = race.run(contenders)
    outputs = [output_facts(name, array) for name, array in measurements[0].outputs.items()]
    environment = describe_environment(measurements[0].facts.n_threads)
    if args.json:
        runs = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, "outputs": outputs, "runs": runs})
        return
    print_table(OUTPUT_HEADER, [_output_row(output) for output in outputs], text_columns=(0, 1, 2))
    print_measurements(measurements)


def output_facts(name: str, array: np.ndarray) -> dict[str, Any]:
    """An output in numbers; those of nothing, and what is not finite, are left open."""
    wide = array.astype(np.float64)
    facts: dict[str, Any] = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    numbers = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()} if wide.size else {}
    return facts | {key: float(number) for key, number in numbers.items()}


def print_measurements(measurements: list[Measurement]) -> None:
    """Print one row for each policy, and what there is to say about reference steps and exceptions."""
    rows = [_policy_row(measurement) for measurement in measurements]
    print_table(POLICY_HEADER, rows, text_columns=(0, 1, len(POLICY_HEADER) - 1))
    for measurement in measurements:
        facts = measurement.facts
        for kernel, impl, reason in facts.references:
            say(f"{facts.policy}: {kernel} runs {impl}: {reason}")
        for kernel, reason in facts.exceptions:
            say(f"{facts.policy}: {kernel}: {reason}")


def _policy_row(measurement: Measurement) -> tuple[str, ...]:
    facts = measurement.facts
    spread = asdict(measurement.ratio)
    return (
        facts.policy if facts.chosen == facts.policy else f"{facts.policy} ({facts.chosen})",
        facts.dtype,
        f"{measurement.time_ms.median:,.3f}",
        "{median:.2f} ({low:.2f}-{high:.2f})".format(**spread),
        f"{facts.estimated_ns / 1e6:,.3f}",
        str(facts.n_reorders),
        kib(facts.reorder_nbytes),
        str(len(facts.references)),
        small(measurement.difference),
        facts.layout_counts,
    )


def _output_row(output: dict[str, Any]) -> tuple[str, ...]:
    shape = "x".join(map(str, output["shape"])) or "scalar"
    numbers = (f"{output[key]:.6g}" if key in output else "-" for key in ("min", "mean", "max"))
    return (output["name"], output["dtype"], shape, *numbers)
