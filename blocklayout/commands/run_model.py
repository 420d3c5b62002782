"""A model run on files or random data: what comes out, how long it takes, what its layouts cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.comparison_text import say_comparison
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import load_options
from blocklayout.commands.output import say, say_json
from blocklayout.commands.plan_file import open_with_plan
from blocklayout.inspector.progress import shown_progress
from blocklayout.inspector.tables import print_table

if TYPE_CHECKING:
    import argparse

    from blocklayout.plan import Plan

OUTPUT_HEADER = ("output", "type", "shape", "smallest", "mean", "largest")


def run_model(args: argparse.Namespace) -> None:
    """Run a model with each of the policies, and print its outputs and their times.

    Raises:
        BlockLayoutError: The model, what it is fed, or a policy is wrong, or cannot run here.
    """
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened, feeds, plan = open_with_plan(args)
        race = Race(opened, feeds, args.threads, args.rounds, tell, load_options(args))
        measurements = race.run(_contenders(args, plan))
    outputs = [output_facts(name, array) for name, array in measurements[0].outputs.items()]
    environment = describe_environment(measurements[0].facts.n_threads)
    if args.json:
        runs = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, "outputs": outputs, "runs": runs})
        return
    print_table(OUTPUT_HEADER, [_output_row(output) for output in outputs], text_columns=(0, 1, 2))
    say("")
    say_comparison(measurements)


def _contenders(args: argparse.Namespace, plan: Plan | None) -> list[Contender]:
    if plan is not None:
        return [Contender(policy, args.dtype, plan) for policy in args.layout or (None,)]
    return [Contender(policy, args.dtype or "f32") for policy in args.layout or ("auto",)]


def output_facts(name: str, array: np.ndarray) -> dict[str, Any]:
    """An output in numbers; those of nothing, and what is not finite, are left open."""
    wide = array.astype(np.float64)
    facts: dict[str, Any] = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    with np.errstate(invalid="ignore"):  # a mean of infinities
        numbers = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()} if wide.size else {}
    return facts | {key: float(number) for key, number in numbers.items()}


def _output_row(output: dict[str, Any]) -> tuple[str, ...]:
    shape = "x".join(map(str, output["shape"])) or "scalar"
    numbers = (f"{output[key]:.6g}" if key in output else "-" for key in ("min", "mean", "max"))
    return (output["name"], output["dtype"], shape, *numbers)
