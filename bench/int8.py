"""How fast and how exact are quantised networks, next to f32, and to other runtimes on the same files?

Networks of the zoo (random weights) and trained ones that read text are quantised by onnxruntime's static quantiser, as
QDQ and as QOperator, and by NNCF; the files are kept in a folder and made once. The parts:

- ``time``: f32, bf16 and each quantised file in blocklayout, onnxruntime and OpenVINO, each in a process of its own,
  which sleeps but in its turn, and is warmed again before it is timed. Ratios are of the same round: those over ours on
  the same file above 1 mean that the peer is slower, those over our f32 below 1 that quantising pays.
- ``accuracy``: the share of right answers, where there are labels: the orientation of a page, the direction of a line,
  its text. The error is the root of the mean square of differences from our f32, over that of its outputs.
- ``agreement``: the largest difference in quanta, and the share of results that are more than one away. *At each* is
  every quantisation by itself, of inputs that are the same for all, from onnxruntime without optimisations, which
  computes in f32 between one quantisation and the next. *At end* is where results of the whole file are quantised last,
  from onnxruntime's own. What differs early may have grown there: how far onnxruntime is from itself without
  optimisations says by how much.
- ``plan``: what our plan leaves to numpy and to ``onnx.reference``.

    python bench/int8.py --rounds 7 --json out.json
    python bench/int8.py --models orientation,direction,recognition --part accuracy --images 1000
    python bench/int8.py --models resnet50 --files qdq,nncf --part agreement,plan
    python bench/int8.py --models squeezenet1_1 --size 64 --files qdq --calibration 2 --images 2 --rounds 1

``pip install blocklayout[bench,bench-int8]`` brings the other runtimes, quantisers, trained networks and fonts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import platformdirs
from msgspec import Struct, convert, structs, to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.quantised_files import FORMS, TRAINED, ZOO, Files, Network, characters, network_named
from bench.quantised_parts import save_taken_apart, save_up_to_quantised, save_with_all_quantised
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl
from blocklayout.commands.against.contest import Competitor, Contest, save_feeds
from blocklayout.commands.against.runtimes import OURS, RUNTIMES, Runtime
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive, words
from blocklayout.errors import BlockLayoutError
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.show.words import small, spread
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blocklayout.commands.against.runtimes import Arrays, Run

MODELS = (*ZOO, *TRAINED)
PARTS = ("time", "accuracy", "agreement", "plan")
NAMES = (OURS, "onnxruntime", "openvino")
YARDSTICK = "onnxruntime"
UNFUSED = "onnxruntime, unfused"

IN_BF16 = ("bf16", "mixed")
"""Forms what of which is not quantised is computed in bf16."""

OWN = ("ours", "mixed")
"""Forms that our quantiser makes."""

FAR = 1.5
"""Quanta: more than one, however scales were rounded."""

N_SHOWN = 5
WARM_NS = 100e6
N_UNLABELLED = 16
"""Images at most of a network without labels, and for agreement."""

HEADER = (
    *("file", "runtime", "ms", "least-most", "over ours", "least-most", "over our f32", "least-most"),
    *("right", "error", "at each", "beyond 1", "at end", "beyond 1"),
)


class Contender(NamedTuple):
    """A runtime on a file: ``form`` is ``f32``, ``bf16``, or of a quantised file which quantiser made it."""

    form: str
    runtime: Runtime
    path: Path

    @property
    def dtype(self) -> str:
        """Data type of what is not quantised."""
        return "bf16" if self.form in IN_BF16 else "f32"


class Distance(Struct, frozen=True):
    """How far results are from others: the most in quanta, and the share of those more than one away."""

    most: float
    beyond: float

    @classmethod
    def of(cls, differences: Sequence[np.ndarray]) -> Distance:
        """The distance of all together."""
        together = np.concatenate([difference.ravel() for difference in differences])
        return cls(float(together.max()), float((together > FAR).mean()))


class Standing(Struct, omit_defaults=True, kw_only=True):
    """What was measured of a contender; ``None`` where it was not.

    Attributes:
        time_ms: Milliseconds of a run: the fastest of each turn, over the rounds.
        over_ours: Its time over that of ours on the same file, in the same round.
        over_f32: Its time over that of ours in f32, in the same round.
        accuracy: Share of right answers.
        error: Root mean square of the differences from f32, over that of its outputs.
        at_each: Distance at each quantisation by itself.
        at_end: Distance where results are quantised last.
        far: Values that are more than a quantum away at a quantisation, and how far, the farthest first.
        plan: Of ours, how many steps there are, and what is left to whom.
        reason: Why it cannot run the file.
    """

    form: str
    runtime: str
    time_ms: Spread | None = None
    over_ours: Spread | None = None
    over_f32: Spread | None = None
    accuracy: float | None = None
    error: float | None = None
    at_each: Distance | None = None
    at_end: Distance | None = None
    far: list[str] = []
    plan: str = ""
    reason: str = ""


Standings = dict[Contender, Standing]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = {each["model"]: convert(each["standings"], list[Standing]) for each in record["results"]}
    for name, standings in results.items():
        show(name, standings)
    summarise(results)
    write_page(args, record, "Quantised networks", charts(results))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = (("--models", MODELS), ("--files", tuple(FORMS)), ("--part", PARTS), ("--against", NAMES[1:]))
    for option, names in known:
        parser.add_argument(option, type=partial(some_of, names), default=names, help=f"of {', '.join(names)}")
    parser.add_argument("--size", type=positive, help="height and width of images of the zoo (default: 224)")
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each process (default: 7)")
    parser.add_argument("--images", type=positive, default=400, help="images with labels (default: 400)")
    parser.add_argument("--calibration", type=positive, default=100, help="images that quantisers see (default: 100)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    folder = platformdirs.user_cache_path("blocklayout") / "bench" / "int8"
    parser.add_argument("--folder", type=Path, default=folder, help=f"where the files are kept (default: {folder})")
    add_files(parser)
    return parser.parse_args(argv)


def some_of(names: Sequence[str], text: str) -> tuple[str, ...]:
    """Some of these names, with commas between them."""
    found = words(text)
    unknown = [name for name in found if name not in names]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}, but {', '.join(names)}")
    return found


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    results: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}
    for name in args.models:
        standings = measure(network_named(name, args.size), args)
        results.append({"model": name, "standings": to_builtins([*standings.values()])})
        keep(args, record)
        print(f"{name}: measured", file=sys.stderr, flush=True)
    return record


def measure(network: Network, args: argparse.Namespace) -> Standings:
    """One network, by all parts."""
    standings = {each: Standing(form=each.form, runtime=each.runtime.name) for each in contenders(network, args)}
    order = [each.form for each in standings]
    if "time" in args.part:
        add_times(standings, network, args)
    if "accuracy" in args.part:
        add_accuracy(standings, network, args)
    if "agreement" in args.part:
        for form in args.files:
            standings |= agreement({each: own for each, own in standings.items() if each.form == form}, network, args)
    if "plan" in args.part:
        add_plans(standings, network)
    return {each: standings[each] for each in sorted(standings, key=lambda each: order.index(each.form))}


def contenders(network: Network, args: argparse.Namespace) -> Iterator[Contender]:
    """Every installed runtime on every file that can be made; ours in f32 comes first."""
    files = Files(args.folder, args.calibration)
    runtimes = [RUNTIMES[name] for name in NAMES if name == OURS or name in args.against]
    forms = ("f32", "bf16", *args.files)
    for form in forms if dnnl.has_bf16() else [form for form in forms if form not in IN_BF16]:
        try:
            path = files.path(network, "f32" if form == "bf16" else form)
        except Exception as error:  # noqa: BLE001 - whatever a quantiser raises is its reason
            print(f"{network.name}: no file by {form}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        for runtime in runtimes:
            if runtime.is_installed and (form not in IN_BF16 or "bf16" in runtime.dtypes):
                yield Contender(form, runtime, path)


def add_times(standings: Standings, network: Network, args: argparse.Namespace) -> None:
    """Time all contenders in turn, each in a process of its own."""
    feeds = {"x": network.sample(0).image}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        save_feeds(feeds, folder / "feeds.npz")
        processes: dict[Contender, Competitor] = {}
        for number, (each, own) in enumerate(standings.items()):
            contest = Contest(each.path, feeds, args.threads, each.dtype, args.rounds, lambda _: None)
            process = Competitor(contest, each.runtime, folder / str(number))
            try:
                processes[each] = stack.enter_context(process)
            except BlockLayoutError as error:
                own.reason = str(error)
        for _ in range(args.rounds):
            for each, process in [*processes.items()]:
                try:
                    process.turn(WARM_NS)
                    process.take_turn()
                except BlockLayoutError as error:
                    standings[each].reason = str(error)
                    del processes[each]
    times = {(each.form, each.runtime.name): process.times for each, process in processes.items()}
    for each in processes:
        own, taken = standings[each], times[each.form, each.runtime.name]
        own.time_ms = Spread.of(taken).scaled(1e-6)
        own.over_ours = over(taken, times.get((each.form, OURS)))
        own.over_f32 = over(taken, times.get(("f32", OURS)))


def over(times: Sequence[float], reference: Sequence[float] | None) -> Spread | None:
    """Times over those of a reference that may have none."""
    return None if reference is None else Spread.of_ratios(times, reference)


def add_accuracy(standings: Standings, network: Network, args: argparse.Namespace) -> None:
    """Count right answers, and add up differences from the first contender's outputs, which is f32."""
    samples = [network.sample(seed) for seed in range(args.images if network.is_labelled else n_few(args))]
    expected: list[np.ndarray] = []
    for each, own in standings.items():
        outputs = outputs_of(each, each.path, [{"x": sample.image} for sample in samples], args, own)
        if not outputs:
            continue
        firsts = [given[0].astype(np.float64) for given in outputs]
        expected = expected or firsts
        wrong = sum(float(((ours - f32) ** 2).sum()) for ours, f32 in zip(firsts, expected, strict=True))
        own.error = float(np.sqrt(wrong / sum(float((f32**2).sum()) for f32 in expected)))
        if network.is_labelled:
            answers = [answer(network, given) for given in firsts]
            own.accuracy = sum(map(lambda a, b: a == b.label, answers, samples)) / len(samples)


def n_few(args: argparse.Namespace) -> int:
    """Images where a few tell as much."""
    n_images: int = args.images
    return min(n_images, N_UNLABELLED)


def outputs_of(
    contender: Contender, path: Path, feeds: Sequence[Arrays], args: argparse.Namespace, standing: Standing
) -> list[list[np.ndarray]]:
    """A runtime's outputs for each of the feeds; none where it cannot run the file, and the standing says why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = contender.runtime.open(contender.runtime.start(), str(path), args.threads, contender.dtype)
            return [[np.array(output) for output in run(each)] for each in feeds]
    except Exception as error:  # noqa: BLE001 - whatever a runtime raises is its reason
        standing.reason = f"{contender.runtime.name}: {type(error).__name__}: {shorten(str(error), 500)}"
        return []


def answer(network: Network, output: np.ndarray) -> int | str:
    """The class, or the text: a character for each run of the same class, of which 0 is none."""
    if network.name != "recognition":
        return int(output.argmax())
    classes = output[0].argmax(-1)
    starts = np.concatenate([[True], classes[1:] != classes[:-1]])
    table = characters(network)
    return "".join(table[index] for index in classes[starts & (classes != 0)]).replace(" ", "")


def agreement(standings: Standings, network: Network, args: argparse.Namespace) -> Standings:
    """Compare all contenders on one quantised file; that without optimisations comes with them."""
    yardstick = next((each for each in standings if each.runtime.name == YARDSTICK), None)
    if yardstick is None:
        return {}
    exact = yardstick._replace(runtime=yardstick.runtime._replace(name=UNFUSED, open=open_unfused))
    standings = standings | {exact: Standing(form=exact.form, runtime=UNFUSED)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        add_at_end(standings, yardstick, path, network, args)
        add_at_each(standings, exact, path, network, args)
    return standings


def open_unfused(module: Any, path: str, n_threads: int, dtype: str) -> Run:
    """Onnxruntime without optimisations: every node by itself, in the data type that it has."""
    del dtype
    options = module.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, dict(feeds)))


def add_at_end(
    standings: Standings, yardstick: Contender, path: Path, network: Network, args: argparse.Namespace
) -> None:
    """Compare where results of the whole file are quantised last; what follows rounds nothing."""
    quanta = save_up_to_quantised(yardstick.path, path)
    feeds = [{"x": network.sample(seed).image} for seed in range(n_few(args))]
    outputs = {each: outputs_of(each, path, feeds, args, own) for each, own in standings.items()}
    expected = outputs.pop(yardstick)
    for each, given in outputs.items():
        if given and expected:
            pairs = zip(given, expected, strict=True)
            standings[each].at_end = Distance.of([away for pair in pairs for away in differences(*pair, quanta)])


def add_at_each(standings: Standings, exact: Contender, path: Path, network: Network, args: argparse.Namespace) -> None:
    """Compare at every quantisation, all inputs of which are as exact arithmetic has them."""
    image = {"x": network.sample(0).image}
    names = save_with_all_quantised(exact.path, path)
    for expected in outputs_of(exact, path, [image], args, standings[exact]):
        feeds = image | save_taken_apart(exact.path, path, dict(zip(names, expected, strict=True)))
        for each, own in standings.items():
            for given in outputs_of(each, path, [feeds], args, own) if each is not exact else ():
                found = differences(given, expected, [np.float32(1)] * len(names))
                own.at_each = Distance.of(found)
                most = {name: float(away.max()) for name, away in zip(names, found, strict=True)}
                far = sorted(most, key=most.__getitem__, reverse=True)
                own.far = [f"{name} {most[name]:.0f}" for name in far if most[name] > FAR]


def differences(given: Sequence[Any], expected: Sequence[Any], quanta: Sequence[Any]) -> list[np.ndarray]:
    """Differences of arrays in quanta."""
    return [
        np.abs(array.astype(np.float64) - other) / quantum
        for array, other, quantum in zip(given, expected, quanta, strict=True)
    ]


def add_plans(standings: Standings, network: Network) -> None:
    """Count what our plans leave to numpy and to the reference, by operator."""
    for each, own in standings.items():
        if each.runtime.name != OURS:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                session = bl.load(each.path, dtype=each.dtype, tune="model")
            session.run(None, {"x": network.sample(0).image})
        except BlockLayoutError as error:
            own.reason = str(error)
            continue
        steps = [step for plan in session.plans for step in plan.steps]
        specs = [step.spec for step in steps if not isinstance(step.spec, dnnl.Spec)]
        counts = Counter(f"{spec.kind} {spec.label}".strip() for spec in specs)
        left = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        own.plan = f"{len(steps)} steps, {counts.total()} on the host{': ' if left else ''}{left}"


def show(name: str, standings: Sequence[Standing]) -> None:
    """Print the table of a network, rows and columns with numbers, and below it reasons why some have none."""
    rows = [row for row in map(cells, standings) if {*row[2:]} != {"-"}]
    columns = [column for column in zip(HEADER, *rows, strict=True) if {*column[1:]} - {"-"}]
    if rows:
        header, *rows = zip(*columns, strict=True)
        print_table(header, rows, title=name, text_columns=(0, 1))
    for own in standings:
        if own.plan:
            print(f"{own.form}: {own.plan}")
        if own.far:
            print(f"{own.form}, {own.runtime}: far at {len(own.far)} quantisations: {', '.join(own.far[:N_SHOWN])}")
    for reason in dict.fromkeys(f"{own.form}: {own.reason}" for own in standings if own.reason):
        print(reason)


def cells(own: Standing) -> tuple[str, ...]:
    """A row of the table."""
    spreads = [("-", "-") if each is None else spread(each) for each in (own.time_ms, own.over_ours, own.over_f32)]
    distances = [
        ("-", "-") if each is None else (f"{each.most:.0f}", f"{each.beyond:.3%}") for each in (own.at_each, own.at_end)
    ]
    accuracy = "-" if own.accuracy is None else f"{own.accuracy:.2%}"
    error = "-" if own.error is None else small(own.error)
    return (own.form, own.runtime, *chain(*spreads), accuracy, error, *chain(*distances))


def summarise(results: Mapping[str, Sequence[Standing]]) -> None:
    """For each form of files the best peer over ours, our f32 over ours, and where quantisations differ."""
    forms = dict.fromkeys(own.form for standings in results.values() for own in standings)
    for form in forms:
        of_form = {name: [own for own in standings if own.form == form] for name, standings in results.items()}
        peers = {name: best_peer(standings) for name, standings in of_form.items()}
        tell(f"{form}: the best peer's time over ours", peers)
        if form == "f32":
            continue
        ours = {name: own for name, standings in of_form.items() for own in standings if own.runtime == OURS}
        tell(f"{form}: our f32's time over ours", {name: gain(own) for name, own in ours.items()})
        compared = {name: own.at_each for name, own in ours.items() if own.at_each is not None}
        if compared:
            far = ", ".join(name for name, distance in compared.items() if distance.most > FAR)
            print(f"{form}: more than a quantum away at some quantisation: {far or 'none'} of {len(compared)}")
    quantised = {name: [own for own in standings if own.form in FORMS] for name, standings in results.items()}
    tell("the best peer's time on others' files over our best", {name: best(of) for name, of in quantised.items()})
    own = {name: best([each for each in of if is_own(each)]) for name, of in quantised.items()}
    tell("the best peer's time on others' files over ours on our own quantiser's", own)


def is_own(standing: Standing) -> bool:
    """Whether it is ours on a file of our quantiser, or a peer on another quantiser's."""
    return (standing.form in OWN) == (standing.runtime == OURS)


def best(standings: Sequence[Standing]) -> float | None:
    """The least of the peers' times on files of other quantisers over the least of ours on any."""
    known = [own for own in standings if own.over_f32 is not None]
    ours = [own.over_f32.median for own in known if own.over_f32 and own.runtime == OURS]
    peers = [own.over_f32.median for own in known if own.over_f32 and own.runtime != OURS and own.form not in OWN]
    return min(peers) / min(ours) if ours and peers else None


def best_peer(standings: Sequence[Standing]) -> float | None:
    """The least of the peers' times over ours."""
    ratios = [own.over_ours.median for own in standings if own.runtime != OURS and own.over_ours is not None]
    return min(ratios, default=None)


def gain(own: Standing) -> float | None:
    """The time of our f32 over that of ours."""
    return None if own.over_f32 is None else 1 / own.over_f32.median


def tell(what: str, ratios: Mapping[str, float | None]) -> None:
    """The geometric mean of ratios and the least of them, if there are any."""
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if known:
        least = min(known, key=known.__getitem__)
        mean = statistics.geometric_mean(known.values())
        print(f"{what}: {mean:.3f} (geometric mean over {len(known)} networks); least {known[least]:.3f}, {least}")


def charts(results: Mapping[str, Sequence[Standing]]) -> list[Chart]:
    """Times, and ratios of the same round."""

    def rows(field: str) -> list[Row]:
        return [
            Row.of(f"{own.form} {own.runtime}", value, name)
            for name, standings in results.items()
            for own in standings
            if (value := structs.asdict(own)[field]) is not None
        ]

    ratios = {"over_ours": f"{OURS} on the same file", "over_f32": f"{OURS} in f32"}
    found = [Chart(f"Time over that of {of}", "", rows(field), baseline=of) for field, of in ratios.items()]
    return [chart for chart in (*found, Chart("Time of a run", "ms", rows("time_ms"))) if chart.rows]


if __name__ == "__main__":
    sys.exit(main())
