"""An atlas of times: what planning asks for is recorded on a machine, and packed into the file that prices come from.

Recording plans each network for each instruction set and data type in a process of its own, and measures every
implementation in every combination of layouts, and every reorder, as tuning does. Times are lines of JSON in files
called ``ISA-DTYPE.jsonl.gz``: the network that first asked, the value of ``ONEDNN_MAX_CPU_ISA``, nanoseconds, and the
Spec. Times of steps in place, inside of whole runs, are recorded in the same form, as ``ISA-DTYPE.place.gz``: some
primitives are faster there than alone, and others slower, by tens of percent. A folder is a session. Packing takes
sessions together, however many machines of one kind they are of: it brings them to one level, since a machine's speed
changes by the hour, and moves times towards those in place.

    python bench/atlas.py record --models resnet50,digits --isa native,avx2 --dtypes f32,bf16 --into recorded
    python bench/atlas.py place --models resnet50 --dtypes f32,bf16 --into recorded
    python bench/atlas.py pack recorded --into blocklayout/plan/costs/atlases/mine.npz --about "2 threads, a quiet host"

It takes a quiet machine: half an hour for all networks of the zoo on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blocklayout as bl
from blocklayout import dnnl, zoo
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive, words
from blocklayout.dnnl import Spec, processor, validate
from blocklayout.model import legalize, lower, open_model, read, simplify
from blocklayout.plan import CostModel, Machine
from blocklayout.plan.candidates.fuse import fuse
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.costs.atlas import Atlas, in_steps
from blocklayout.plan.costs.store import CostStore
from blocklayout.plan.costs.traits import SpecClass, spec_class, spec_numbers
from blocklayout.plan.costs.tuning import tune
from blocklayout.plan.network import propose_all
from blocklayout.plan.pricing import measurements
from blocklayout.zoo import digits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blocklayout.model import Graph
    from blocklayout.plan.costs.atlas import RecordedTime
    from blocklayout.plan.network import Network

EMBEDDED = "digits"
NATIVE = "native"
MAX_ISA = "ONEDNN_MAX_CPU_ISA"
MODELS = (
    *("alexnet", "convnext_tiny", "densenet121", "digits", "efficientnet_b0", "googlenet", "mnasnet1_0"),
    *("mobilenet_v2", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg11"),
)
SUFFIX, PLACE_SUFFIX = ".jsonl.gz", ".place.gz"

PLACE_POLICIES = ("auto", "any", "nhwc", "blocked")
N_RUNS = 16
MAX_LOG = 0.4
"""Beyond it, steps in place and primitives alone are not the same work."""

Steps = tuple[int, ...]


@dataclass(frozen=True)
class Recorded:
    """One time.

    Attributes:
        network: That first asked for it.
        isa: Value of ``ONEDNN_MAX_CPU_ISA`` that it was taken under.
        dtype: That the network was planned in.
        spec: What was timed.
        ns: Nanoseconds.
    """

    network: str
    isa: str
    dtype: str
    spec: Spec
    ns: float

    @property
    def as_time(self) -> RecordedTime:
        """As an atlas takes it."""
        return spec_class(self.spec, self.isa.lower()), spec_numbers(self.spec), self.ns


def main(argv: Sequence[str] | None = None) -> int:
    """Record, or pack what was recorded."""
    args = parse(argv)
    if args.what == "pack":
        pack(args)
    elif args.worker:
        (record_here if args.what == "record" else place_here)(args)
    else:
        record(args)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    record = {
        "record": "measure what planning networks asks for",
        "place": "time the steps of plans inside of whole runs",
    }
    for name, what in record.items():
        recording = commands.add_parser(name, help=what)
        recording.add_argument("--models", type=words, default=MODELS, help=f"of the zoo, or {EMBEDDED}")
        recording.add_argument("--isa", type=words, default=(NATIVE,), help=f"values of {MAX_ISA}, or {NATIVE}")
        recording.add_argument("--dtypes", type=words, default=("f32",), help="f32, bf16; the latter where the CPU can")
        recording.add_argument("--kinds", type=words, default=(), help="of primitives, to add what an atlas lacks")
        recording.add_argument("--threads", type=positive, help="by default all that this process may use")
        recording.add_argument("--seconds", type=float, default=math.inf, help="for each network (default: no limit)")
        recording.add_argument("--into", type=Path, required=True, help="folder of the files")
        recording.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    packing = commands.add_parser("pack", help="make an atlas of recorded times")
    packing.add_argument("folder", type=Path, nargs="+", help="what was recorded")
    packing.add_argument("--about", required=True, help="what the machine and the recording were, in words")
    packing.add_argument(
        "--cpu",
        default=f"{processor.cpu_name()} ({processor.cpu_kind()})",
        help="name of the CPU, and its kind (default: this one's)",
    )
    packing.add_argument("--into", type=Path, required=True, help="the file to write")
    args = parser.parse_args(argv)
    unknown = {*getattr(args, "models", ())} - {EMBEDDED, *zoo.names()}
    if unknown:
        parser.error(f"no such network: {', '.join(sorted(unknown))}; there are {EMBEDDED}, {', '.join(zoo.names())}")
    return args


def record(args: argparse.Namespace) -> None:
    """Each instruction set and data type in a process of its own."""
    args.into.mkdir(parents=True, exist_ok=True)
    for isa in args.isa:
        for dtype in args.dtypes:
            environ = dict(os.environ) if isa == NATIVE else os.environ | {MAX_ISA: isa.upper()}
            command = [sys.executable, __file__, args.what, "--worker", "--into", str(args.into), "--dtypes", dtype]
            command += ["--models", ",".join(args.models), "--seconds", str(args.seconds)]
            command += ["--threads", str(args.threads)] if args.threads else []
            command += ["--kinds", ",".join(args.kinds)] if args.kinds else []
            subprocess.run(command, check=True, env=environ)


def record_here(args: argparse.Namespace) -> None:
    """Measure what each network asks for that none before did, and write it down."""
    [dtype] = args.dtypes
    if dtype == "bf16" and not dnnl.has_bf16():
        print(f"bf16: not on this CPU ({dnnl.isa()})")
        return
    seen: set[Spec] = set()
    lines: list[dict[str, Any]] = []
    n_threads = args.threads or dnnl.default_threads()
    for name in args.models:
        specs = [spec for spec in measurements(proposed(name, dtype, n_threads)) if _is_wanted(spec, args.kinds)]
        times = _measured([spec for spec in specs if spec not in seen], args.seconds)
        seen.update(specs)
        for spec, ns in times.items():
            record = {"net": name, "isa": dnnl.isa().upper(), "ns": round(ns), "spec": spec.to_dict()}
            lines.append(record)
        print(f"{name} {dtype} {dnnl.isa()}: {len(times)} times", flush=True)
        _write(args.into / f"{dnnl.isa().upper()}-{dtype}{SUFFIX}", lines)


def place_here(args: argparse.Namespace) -> None:
    """Time the steps of each network's plans inside of whole runs."""
    [dtype] = args.dtypes
    if dtype == "bf16" and not dnnl.has_bf16():
        print(f"bf16: not on this CPU ({dnnl.isa()})")
        return
    lines: list[dict[str, Any]] = []
    for name in args.models:
        graph = open_graph(name, seed=0)
        feeds = random_feeds(graph)
        sessions = [
            bl.load(graph, layout=policy, dtype=dtype, threads=args.threads, tune="model") for policy in PLACE_POLICIES
        ]
        runs: list[list[list[float]]] = [[] for _ in sessions]
        for _ in range(N_RUNS):  # in turn, so that whatever slows the machine for a while slows them all
            for session, taken in zip(sessions, runs, strict=True):
                session.run(None, feeds)  # for its weights to be as near as they are where it runs again and again
                steps = session.profile(feeds, n_runs=1).steps
                taken.append([step.ns for step in steps if step.kind not in ("outside", "input")])
        for session, taken in zip(sessions, runs, strict=True):
            for step, *times in zip(session.plan.steps, *taken, strict=True):
                if isinstance(step.spec, Spec) and _is_wanted(step.spec, args.kinds):
                    ns = sorted(times)[N_RUNS // 4]
                    lines.append({"net": name, "isa": dnnl.isa().upper(), "ns": round(ns), "spec": _asked(step.spec)})
        print(f"{name} {dtype} {dnnl.isa()}: {len(lines)} steps in place", flush=True)
        _write(args.into / f"{dnnl.isa().upper()}-{dtype}{PLACE_SUFFIX}", lines)


def _is_wanted(spec: Spec, kinds: Sequence[str]) -> bool:
    return not kinds or spec.kind in kinds


def _asked(spec: Spec) -> dict[str, Any]:
    """A reorder as the planner asks for it: of any implementation."""
    return (spec.replace(impl="") if spec.kind == "reorder" else spec).to_dict()


def _write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _measured(specs: list[Spec], seconds: float) -> dict[Spec, float]:
    """Times taken now, whatever is known already."""
    with tempfile.TemporaryDirectory() as folder, CostStore(Path(folder, "costs.sqlite3")) as store:
        tune(dict.fromkeys(specs, 1.0), store, seconds)
        return store.times(specs)


def proposed(name: str, dtype: str, n_threads: int) -> Network:
    """A network with everything that could be chosen in it, batch 1 at its usual extents."""
    program = lower(legalize(simplify(open_graph(name, seed=None))))
    costs = CostModel(Machine(dnnl.isa(), n_threads))
    return propose_all(program, fuse(program, dtype, n_threads), Proposer(costs, dtype), {})


def open_graph(name: str, seed: int | None) -> Graph:
    """A network, batch 1; without weights where there is no seed."""
    if name == EMBEDDED:
        return read(open_model(digits.model_bytes()), {"image": (1, 1, 8, 8)})
    return zoo.build(name, seed=seed).to_graph()


def read_recorded(folder: Path, suffix: str = SUFFIX) -> Iterator[Recorded]:
    """All times in a folder's files."""
    for path in sorted(folder.glob(f"*{suffix}")):
        dtype = path.name.removesuffix(suffix).rpartition("-")[2]
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                spec = validate(Spec.from_dict(record["spec"]))
                yield Recorded(record["net"], record["isa"], dtype, spec, record["ns"])


def read_sessions(folders: Sequence[Path]) -> list[list[Recorded]]:
    """Each folder's times; those of each network, all together, at the level that the first session's would price them.

    A factor that all times of a network share tells how fast the machine was in that hour, and changes no choice.
    """
    sessions = [list(read_recorded(folder)) for folder in folders]
    if not any(sessions):
        sys.exit(f"nothing was recorded in {', '.join(map(str, folders))}")
    first, *others = [session for session in sessions if session]
    atlas = Atlas.of("the first session", first[0].spec.n_threads, [each.as_time for each in first])
    return [first, *([*_at_level(atlas, session)] for session in others)]


def _at_level(atlas: Atlas, session: Sequence[Recorded]) -> Iterator[Recorded]:
    networks: dict[tuple[str, str, str], list[Recorded]] = defaultdict(list)
    for each in session:
        networks[each.network, each.isa, each.dtype].append(each)
    for times in networks.values():
        prices = [(each.ns, atlas.ns_of(*each.as_time[:2])) for each in times]
        ratios = [ns / price_ns for ns, price_ns in prices if price_ns is not None]
        level = statistics.median(ratios) if ratios else 1.0
        yield from (replace(each, ns=each.ns / level) for each in times)


def pack(args: argparse.Namespace) -> None:
    """Write an atlas, and tell how far its prices are off."""
    recorded = [*chain.from_iterable(read_sessions(args.folder))]
    [n_threads] = {each.spec.n_threads for each in recorded}
    isas = ", ".join(sorted({each.isa.lower() for each in recorded}))
    networks = sorted({each.network for each in recorded})
    origin = (
        f"{args.cpu}: {args.about}; {isas}; {n_threads} threads; oneDNN {'.'.join(map(str, dnnl.version()))}; "
        f"{len(recorded)} times that {', '.join(networks)} asked for"
    )
    atlas = Atlas.of(origin, n_threads, [each.as_time for each in recorded])
    sessions = [[*read_recorded(folder, PLACE_SUFFIX)] for folder in args.folder]
    factors = in_place(atlas, [session for session in sessions if session])
    atlas = atlas.slowed(factors)
    args.into.parent.mkdir(parents=True, exist_ok=True)
    atlas.save(args.into)
    print(f"{origin}\n{len(atlas.ns)} different times in {len(atlas.classes)} classes, ", end="")
    print(f"{args.into.stat().st_size / 1024:.0f} KiB")
    changed = [factor for factor in factors if factor != 1]
    print(f"{len(changed)} of them were timed in place, too; factors {min(factors):.2f} to {max(factors):.2f}")


def in_place(atlas: Atlas, sessions: Sequence[Sequence[Recorded]]) -> list[float]:
    """How much longer each recorded primitive takes in place than alone, next to what all have in common.

    A machine's speed changes by the hour, so a factor that all steps of one network share says nothing. A session's
    times are as doubtful as what they correct: of the mean of one, half is believed, of two, two thirds. What others
    of its implementation take tells nothing of a primitive, as networks show whose own times are left out.
    """
    found: dict[tuple[SpecClass, Steps], list[float]] = defaultdict(list)
    for session in sessions:
        for network in sorted({each.network for each in session}):
            for is_f32 in (True, False):
                times = [each.as_time for each in session if each.network == network]
                for key, log in _next_to_common(atlas, [time for time in times if time[0].is_f32 is is_f32]):
                    found[key].append(log)
    logs = ((sum(found[key]), len(found[key])) for key in atlas.keys)
    return [math.exp(min(max(total / (n + 1), -MAX_LOG), MAX_LOG)) for total, n in logs]


def _next_to_common(atlas: Atlas, times: Sequence[RecordedTime]) -> Iterator[tuple[tuple[SpecClass, Steps], float]]:
    """For each primitive that was recorded alone, too, the logarithm of its time in place, next to the median."""
    alike: dict[tuple[SpecClass, Steps], list[float]] = defaultdict(list)
    for kind, numbers, ns in times:
        alone_ns = atlas.recorded_ns(kind, numbers)
        if alone_ns is not None:
            alike[kind, in_steps(numbers)] += [math.log(ns / alone_ns)] * round(alone_ns / 1000)
    whole = [log for logs in alike.values() for log in logs]  # one for each microsecond
    common = statistics.median(whole) if whole else 0.0
    for key, logs in alike.items():
        if logs:
            yield key, statistics.median(logs) - common


if __name__ == "__main__":
    sys.exit(main())
