"""How much slower than the best plan is the one that prices choose, on machines that are not here?

Times that were recorded on a machine (``bench/atlas.py record``) are taken as the truth: each network is planned by
other prices, and its plan, the best plan, and those of the uniform policies are priced by the recorded times. The
regret is what the chosen plan costs over the best, less one; a best plan profits from every time that came out low by
chance, so that some per cent of regret are noise. Planning goes by an atlas of all times (``everything``), of those
that other networks asked for (``network left out``), of those taken under other instruction sets (``isa left out``),
of another machine (``machine left out``, by ``--other``), or by the model alone (``model``). ``recorded`` is the share
of the best plan's time that the truth knows itself; the rest follows from all times. What is said of all networks
leaves out those with less than four fifths: later versions may ask for other primitives than were recorded.

Of several sessions, a folder each, the geometric mean is the truth, which halves the noise of single ones. Where a
network was recorded in more than one, ``again`` is the noise itself: the regret of planning by all that the last of
them measured, judged by the others.

Where prices are too doubtful, the first load of a model measures the most doubted ones, and runs plans whole, each
chosen by what the steps of those before took: ``prices`` and ``race`` are the regrets before that and after it. What is
measured, and each step of a run, takes its true time, and these times decide the race, too; a real one decides by
whole runs. For all that there is half of what the rest of a load takes, as it was seen on a quiet machine: a share for
every load, for each Spec that planning asks for, and for packing.

    python bench/regret.py recorded --models squeezenet1_1,mobilenet_v2
    python bench/regret.py recorded recorded-again --other blocklayout/plan/costs/atlases/xeon_amx.npz --json out.json

Each file of times, an instruction set and a data type, has a process of its own; those that the CPU lacks are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlas import MAX_ISA, SUFFIX, Recorded, proposed, read_sessions

from blocklayout import dnnl
from blocklayout.commands.options import words
from blocklayout.commands.output import json_text, print_table, write_json
from blocklayout.loading.from_model import MAX_RUN_SECONDS, MEASURED_SHARE, PACKED_PER_NS, STILL_TO_COME, SURE_BELOW
from blocklayout.loading.racing import turn_of_ns
from blocklayout.plan import CostModel
from blocklayout.plan.costs.atlas import Atlas
from blocklayout.plan.costs.known import KnownCosts, RecordedCosts
from blocklayout.plan.costs.model import price_of
from blocklayout.plan.costs.repeating import N_LEAST_RUNS, SLOW_NS
from blocklayout.plan.costs.tuning import N_BRIEF_RUNS, brief_turns
from blocklayout.plan.doubted import mean_doubt, most_doubted
from blocklayout.plan.portfolio import UNIFORM_POLICIES, Portfolio, contenders_of
from blocklayout.plan.pricing import measurements
from blocklayout.plan.race import Race
from blocklayout.plan.solving.solve import solve_layouts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blocklayout.plan.costs.model import Costs
    from blocklayout.plan.network import Choice, Network
    from blocklayout.plan.portfolio import Contender

WAYS = ("everything", "network left out", "isa left out", "machine left out", "model")

CPU_KIND = "Maker family 1"
"""Of the machine that times were recorded on; no atlas of another is of it."""

LOAD_SECONDS, ASKED_SECONDS = 0.11, 1e-4
"""What reading and proposing take, and how much more for each Spec that is asked for."""

CHOOSING_SECONDS, PRICED_SECONDS = 0.02, 6e-5
"""What choosing takes then, likewise."""

MEASURING_NS, AGAIN_NS = 10e6, 3e6
"""What it takes to begin to measure: random numbers, and constants that are far away; and once more."""

SPEC_NS, STEP_NS = 0.3e6, 0.06e6
"""What it takes to create a primitive, and to bind one as a step of a plan: some of these share one."""

SOLVED_NS = 1.5e4
"""What pricing and choosing anew take, for each Spec that planning asks for."""

MIN_RECORDED = 0.8
"""Least share of the best plan's time that has to be recorded for a network to count."""


def main(argv: Sequence[str] | None = None) -> int:
    """Plan, print a table, and write JSON if asked to."""
    args = parse(argv)
    if args.worker:
        sys.stdout.write(json_text(regrets(args)))
        return 0
    results = []
    for name in sorted({path.name for folder in args.folder for path in folder.glob(f"*{SUFFIX}")}):
        results += regrets_apart(name.removesuffix(SUFFIX), args)
    show(results)
    write_json(args.json, {"results": results})
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+", help=f"with files called ISA-DTYPE{SUFFIX}, a session each")
    parser.add_argument("--models", type=words, help="by default all that were recorded")
    parser.add_argument("--other", type=Path, help="the atlas of another machine")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def regrets_apart(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One file, in a process of its own; nothing where the CPU cannot."""
    isa = name.partition("-")[0]
    if not dnnl.has_isa(isa.lower()):
        print(f"{name}: not on this CPU ({dnnl.isa()})")
        return []
    command = [sys.executable, __file__, *map(str, args.folder), "--worker", name]
    command += ["--models", ",".join(args.models)] if args.models else []
    command += ["--other", str(args.other)] if args.other else []
    done = subprocess.run(command, check=True, env=os.environ | {MAX_ISA: isa}, stdout=subprocess.PIPE, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return found


def regrets(args: argparse.Namespace) -> dict[str, Any]:
    """Work of a worker: every network of one instruction set and data type, planned in every way."""
    isa, _, dtype = args.worker.partition("-")
    sessions = read_sessions(args.folder)
    all_times = [*chain.from_iterable(sessions)]
    own = [[each for each in session if (each.isa, each.dtype) == (isa, dtype)] for session in sessions]
    truth = _means(chain.from_iterable(own))
    networks = args.models or sorted({each.network for session in own for each in session})
    elsewhere = _atlas([each for each in all_times if each.isa != isa])
    everything = _atlas(all_times)
    other = Atlas.open(args.other) if args.other else None
    results = []
    for name in networks:
        network = proposed(name, dtype, all_times[0].spec.n_threads)
        model = CostModel(network.costs.machine)
        others = _atlas([each for each in all_times if each.network != name])
        atlases = dict(zip(WAYS, (everything, others, elsewhere, other), strict=False))
        prices: dict[str, Costs] = {
            way: RecordedCosts(model, atlas, CPU_KIND, dtype) for way, atlas in atlases.items() if atlas is not None
        }
        known = partial(KnownCosts, prices["everything"])
        found = _of_network(network.priced(known(truth)), prices | {"model": model}, truth)
        *before, last = [session for session in own if any(each.network == name for each in session)] or [[]]
        if before:
            judge = network.priced(known(_means(chain.from_iterable(before))))
            again = network.priced(known(_means(last)))
            found["again"] = by_prices(judge, again) / solve_layouts(judge).cost_ns - 1
        results.append({"isa": isa, "dtype": dtype, "model": name} | found)
    return {"results": results}


def _means(times: Iterable[Recorded]) -> dict[dnnl.Spec, float]:
    """The geometric mean of each Spec's times."""
    found: dict[dnnl.Spec, list[float]] = defaultdict(list)
    for each in times:
        found[each.spec].append(each.ns)
    return {spec: statistics.geometric_mean(ns) for spec, ns in found.items()}


def _atlas(times: Sequence[Recorded]) -> Atlas | None:
    if not times:
        return None
    return Atlas.of(f"a CPU ({CPU_KIND})", times[0].spec.n_threads, [each.as_time for each in times])


def _of_network(true: Network, prices: dict[str, Costs], truth: dict[dnnl.Spec, float]) -> dict[str, Any]:
    """The regret of each way to price, next to the best plan and to the best uniform policy."""
    best = solve_layouts(true)
    best_ns = best.cost_ns
    uniform = {each.name: each.cost_ns for each in contenders_of(true, None) if each.name in UNIFORM_POLICIES}
    return {
        "best_ms": best_ns / 1e6,
        "recorded": _recorded_share(true, best.choice, truth),
        "uniform": {name: ns / best_ns for name, ns in uniform.items()},
        "regret": {way: regret(true, true.priced(costs), best_ns) for way, costs in prices.items()},
        "best_uniform": min(uniform.values()) / best_ns,
    }


def _recorded_share(true: Network, choice: Choice, truth: Mapping[dnnl.Spec, float]) -> float:
    """Of the time of a choice's steps, without reorders."""
    steps = [step.spec for offered, taken in zip(true.candidates, choice, strict=True) for step in offered[taken].steps]
    known_ns = sum(true.costs.step_ns(spec) for spec in steps if spec in truth)
    return known_ns / max(sum(map(true.costs.step_ns, steps)), 1.0)


def by_prices(true: Network, network: Network) -> float:
    """True nanoseconds of what a network's prices choose."""
    return true.total_ns(Portfolio.of(network).cheapest.choice)


def regret(true: Network, network: Network, best_ns: float) -> dict[str, float | bool]:
    """Of what ``auto`` chooses by a network's prices, and after what its first load measures and runs."""
    lost = by_prices(true, network) / best_ns - 1
    if mean_doubt(network) < SURE_BELOW:
        return {"prices": lost, "race": lost, "is_raced": False}
    n_asked = len(measurements(network))
    load_s = LOAD_SECONDS + ASKED_SECONDS * n_asked
    measuring_s = MEASURED_SHARE * seconds_to_run(load_s)
    times = measured(most_doubted(network, measuring_s), true, 1e9 * measuring_s - MEASURING_NS)
    known = network.priced(KnownCosts.over(network.costs, times))
    portfolio = Portfolio(contenders_of(known, None), solve_layouts(known))
    nbytes = packed_nbytes(network, portfolio.cheapest.choice)
    load_s += CHOOSING_SECONDS + PRICED_SECONDS * n_asked
    left_ns = 1e9 * (seconds_to_run(load_s, nbytes / PACKED_PER_NS / 1e9) - measuring_s)
    won_ns = fastest_ns(true, portfolio, left_ns, SOLVED_NS * n_asked)
    return {"prices": lost, "race": won_ns / best_ns - 1, "is_raced": True}


def seconds_to_run(before_s: float, packing_s: float = 0.0) -> float:
    """A third of what a load takes, by what it took so far."""
    return min(MAX_RUN_SECONDS, ((1 + STILL_TO_COME) * before_s + packing_s) / 2)


def fastest_ns(true: Network, portfolio: Portfolio, left_ns: float, learning_ns: float) -> float:
    """True nanoseconds of the fastest plan of a race: runs, measuring and solving anew take their time."""
    made: set[object] = set()
    found: list[float] = []
    clock_ns = 0.0

    def has_time(ns: float, specs: Sequence[object]) -> bool:
        return starting_ns(specs) + turn_of_ns(ns) <= left_ns - clock_ns

    def starting_ns(specs: Sequence[object]) -> float:
        return SPEC_NS * len({*specs} - made) + STEP_NS * len(specs)

    def measure(specs: Sequence[dnnl.Spec], seconds: float) -> dict[dnnl.Spec, float]:
        nonlocal clock_ns
        clock_ns += 1e9 * seconds + learning_ns
        return measured(specs, true, 1e9 * seconds - AGAIN_NS)

    race = Race(portfolio, lambda _, contender: contender, measure, lambda: 0.0)  # learning is counted here
    contender: Contender | None = race.plans[0]
    while contender is not None:
        found.append(true.total_ns(contender.choice))
        clock_ns += starting_ns(contender.specs) + turn_of_ns(found[-1]) + learning_ns
        made |= {*contender.specs}
        race.learn(
            [step.cost_ns for step in contender.at(true).assembly.steps], (left_ns - clock_ns - learning_ns) / 1e9
        )
        contender = race.next(has_time)
    _, winner, _ = race.result([[ns] for ns in found])
    return true.total_ns(winner.choice)


def packed_nbytes(network: Network, choice: Choice) -> int:
    """Bytes of the weights that a choice needs."""
    steps = (
        (group, step.spec)
        for group, taken in enumerate(choice)
        for step in network.candidates[group][taken].steps
        if isinstance(step.spec, dnnl.Spec) and step.spec.has("weights")
    )
    return sum({(group, desc): desc.nbytes for group, spec in steps for desc in [spec.memory_desc("weights")]}.values())


def measured(specs: Sequence[dnnl.Spec], true: Network, left_ns: float) -> dict[dnnl.Spec, float]:
    """The true times of the first Specs, of as many turns as there is time for: of the last one fewer runs."""
    times: dict[dnnl.Spec, float] = {}
    for chunk in brief_turns(specs):
        turn = {spec: price_of(true.costs, spec).ns for spec in chunk}
        n_least = N_LEAST_RUNS + any(ns < SLOW_NS for ns in turn.values())
        left_ns -= SPEC_NS * len(turn) + n_least * sum(turn.values())
        if left_ns < 0:
            break
        times |= turn
        left_ns -= (1 + N_BRIEF_RUNS - n_least) * sum(turn.values())
    return times


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the tables: each network, and what is true of all."""
    header = ("model", "isa", "dtype", "best ms", "recorded", *UNIFORM_POLICIES, "again", *WAYS)
    rows = []
    for each in results:
        uniform = [f"{each['uniform'][name]:.2f}" for name in UNIFORM_POLICIES]
        cells = [f"{each['again']:.1%}" if "again" in each else "-"]
        cells += [_shown(each["regret"].get(way)) for way in WAYS]
        where = (each["model"], each["isa"].lower(), each["dtype"])
        rows.append((*where, f"{each['best_ms']:.2f}", f"{each['recorded']:.0%}", *uniform, *cells))
    title = "uniform policies over the best plan, and the regret of each way to price (before > after a race)"
    print_table(header, rows, title=title, text_columns=(0, 1, 2))
    for isa, dtype in dict.fromkeys((each["isa"], each["dtype"]) for each in results):
        alike = [each for each in results if (each["isa"], each["dtype"]) == (isa, dtype)]
        some = [each for each in alike if each["recorded"] >= MIN_RECORDED]
        again = [each["again"] for each in some if "again" in each]
        if again:
            print(f"{isa.lower()} {dtype}, again: median {statistics.median(again):.1%}, worst {max(again):.1%}")
        for way in WAYS:
            found = [(each["regret"][way], each["best_uniform"]) for each in some if way in each["regret"]]
            if found:
                n_raced = sum(record["is_raced"] for record, _ in found)
                by_prices, raced = (
                    _summary([(record[by], best) for record, best in found]) for by in ("prices", "race")
                )
                print(f"{isa.lower()} {dtype}, {way}: {by_prices}; {n_raced} raced, then {raced}")


def _shown(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    prices = f"{found['prices']:.1%}"
    return f"{prices} > {found['race']:.1%}" if found["is_raced"] else prices


def _summary(found: Sequence[tuple[float, float]]) -> str:
    """Of regrets, and what the best uniform policy takes over the best plan."""
    above = max((1 + lost) / best - 1 for lost, best in found)
    lost = [each for each, _ in found]
    return f"median {statistics.median(lost):.1%}, worst {max(lost):.1%} ({above:+.1%} next to the best uniform policy)"


if __name__ == "__main__":
    sys.exit(main())
