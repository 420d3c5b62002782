"""How long does a step of training take as one plan, next to PyTorch's?

ResNets are trained on random images: forward, backward, and SGD with momentum, in f32. Here a step is compiled by
``bl.compile_step``; PyTorch runs it eagerly, all in channels-last. Both begin with the same weights and read the same
batch, so that their losses of the first step must agree. Each is a process of its own that is stopped while it is not
its turn; in its turn it runs for a tenth of a second, and then takes the time of the fastest step of a second. Told are
medians over the rounds, the ratio in the same round, the reorders of our plan, those of parameters on their way into
the step among them, and how long it takes to compile the step.

    python bench/training_step.py --json out.json --html out.html
    python bench/training_step.py --batch 1 --rounds 5
    python bench/training_step.py --models resnet10 --size 32 --batch 2 --rounds 1

PyTorch comes with ``pip install blocklayout[torch]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive, words
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread, TurnProcess, fastest_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OURS, THEIRS = "blocklayout", "torch channels last"
BLOCKS = {"resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
N_CLASSES = 1000
RATE, MOMENTUM = 0.01, 0.9
TURN_NS, WARM_UP_NS = 1e9, 1e8
MAX_DIFFERENCE = 1e-3
"""Of the first loss, as a share."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    if args.worker:
        return work(args)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = record["results"]
    write_page(args, record, "A step of training", charts(results))
    header = ("network", "ours ms", "PyTorch ms", "PyTorch's over ours", "reorders", "of state", "compiled in s")
    rows = [
        (
            result["model"],
            *(f"{result['ms'][name]['median']:.1f}" if name in result["ms"] else "-" for name in (OURS, THEIRS)),
            "{median:.2f} ({low:.2f}-{high:.2f})".format(**result["ratio"]) if "ratio" in result else "-",
            str(result["n_reorders"]),
            str(result["n_state_reorders"]),
            f"{result['compiled_s']:.1f}",
        )
        for result in results
    ]
    print_table(header, rows, title=f"a step of training, batch {results[0]['batch']}, f32")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=words, default=("resnet18",), help=f"among {', '.join(BLOCKS)}")
    parser.add_argument("--batch", type=positive, default=16, help="images of a step (default: 16)")
    parser.add_argument("--size", type=positive, default=224, help="their height and width (default: 224)")
    parser.add_argument("--rounds", type=positive, default=9, help="turns of each (default: 9)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    parser.add_argument("--worker", choices=(OURS, THEIRS), help=argparse.SUPPRESS)
    add_files(parser)
    args = parser.parse_args(argv)
    if unknown := [name for name in args.models if name not in BLOCKS]:
        parser.error(f"argument --models: no network {unknown[0]!r}; there are {', '.join(BLOCKS)}")
    return args


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks."""
    results = [measure(name, args) for name in args.models]
    return {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network, in both, in turn."""
    names = (OURS, THEIRS) if find_spec("torch") else (OURS,)
    extents = ("--models", name, "--batch", args.batch, "--size", args.size, "--threads", args.threads)
    times: dict[str, list[float]] = {each: [] for each in names}
    with ExitStack() as stack:
        processes = [TurnProcess(each, (__file__, *extents, "--worker", each)) for each in names]
        reports = [stack.enter_context(process).report for process in processes]
        for _ in range(args.rounds):
            for process in processes:
                times[process.name].append(process.turn()["ns"] / 1e6)
    losses = [report["losses"] for report in reports]
    if not np.allclose([each[0] for each in losses], losses[0][0], rtol=MAX_DIFFERENCE):
        raise SystemExit(f"{name}: losses differ: {losses}")
    ratio = {"ratio": to_builtins(Spread.of_ratios(times[THEIRS], times[OURS]))} if THEIRS in times else {}
    ours = {key: reports[0][key] for key in ("n_reorders", "n_state_reorders", "compiled_s")}
    ms = {each: to_builtins(Spread.of(values)) for each, values in times.items()}
    return {"model": name, "batch": args.batch, "size": args.size, "ms": ms, "losses": losses[0], **ratio, **ours}


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times of a step."""
    rows = [Row.of(name, spread, each["model"]) for each in results for name, spread in each["ms"].items()]
    return [Chart("Time of a step", "ms", rows)]


def work(args: argparse.Namespace) -> int:
    """Be one of the two: report, and then take a turn for each line."""
    step, report = (our_step if args.worker == OURS else their_step)(args)
    losses = [step() for _ in range(3)]
    print(json.dumps(report | {"losses": losses}), flush=True)
    for _ in sys.stdin:
        end = time.perf_counter_ns() + WARM_UP_NS
        while time.perf_counter_ns() < end:
            step()
        print(json.dumps({"ns": fastest_ns(step, TURN_NS)}), flush=True)
    return 0


def parameters_of(name: str) -> dict[str, np.ndarray]:
    """He weights by name; normalisations begin as the identity."""
    rng, found = np.random.default_rng(0), {}

    def conv(of: str, *dims: int) -> None:
        found[of] = rng.standard_normal(dims, np.float32) * np.float32((2 / np.prod(dims[1:])) ** 0.5)
        found[f"{of}.scale"], found[f"{of}.shift"] = np.ones(dims[0], np.float32), np.zeros(dims[0], np.float32)

    conv("stem", 64, 3, 7, 7)
    n_inputs = 64
    for block, n_outputs, stride in blocks(name):
        conv(f"{block}.conv1", n_outputs, n_inputs, 3, 3)
        conv(f"{block}.conv2", n_outputs, n_outputs, 3, 3)
        if stride > 1:
            conv(f"{block}.skip", n_outputs, n_inputs, 1, 1)
        n_inputs = n_outputs
    found["head"] = rng.standard_normal((N_CLASSES, n_inputs), np.float32) * np.float32(n_inputs**-0.5)
    found["head.bias"] = np.zeros(N_CLASSES, np.float32)
    return found


def blocks(name: str) -> list[tuple[str, int, int]]:
    """Each residual block's name, its channels and the stride of its first convolution."""
    counts = enumerate(BLOCKS[name])
    return [
        (f"layer{stage + 1}.{index}", 64 << stage, 2 if stage and not index else 1)
        for stage, n in counts
        for index in range(n)
    ]


def data(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Images, and one-hot labels."""
    rng = np.random.default_rng(1)
    images = rng.standard_normal((args.batch, 3, args.size, args.size), np.float32)
    return images, np.eye(N_CLASSES, dtype=np.float32)[rng.integers(0, N_CLASSES, args.batch)]


def logits_of(name: str, of: Mapping[str, Any], x: Any, use: Mapping[str, Callable[..., Any]]) -> Any:
    """The network, by the functions of either library."""

    def convolved(x: Any, layer: str, stride: int, pads: int) -> Any:
        return use["norm"](use["conv"](x, of[layer], stride, pads), of[f"{layer}.scale"], of[f"{layer}.shift"])

    x = use["pool"](use["relu"](convolved(x, "stem", 2, 3)))
    for block, _, stride in blocks(name):
        inner = use["relu"](convolved(x, f"{block}.conv1", stride, 1))
        skip = convolved(x, f"{block}.skip", stride, 0) if stride > 1 else x
        x = use["relu"](convolved(inner, f"{block}.conv2", 1, 1) + skip)
    return use["head"](x, of["head"], of["head.bias"])


def our_step(args: argparse.Namespace) -> tuple[Callable[[], float], dict[str, Any]]:
    """A compiled step, which returns its loss, and what there is to tell of its plan."""
    (name,), (images, answers) = args.models, data(args)
    of = {key: bl.from_array(array) for key, array in parameters_of(name).items()}
    optimizer = bl.optim.SGD(of, RATE, momentum=MOMENTUM)
    use = {
        "conv": lambda x, w, stride, pads: bl.conv(x, w, strides=stride, pads=pads),
        "norm": lambda x, scale, shift: bl.batch_norm_training(x, scale, shift).y,
        "relu": bl.relu,
        "pool": lambda x: bl.max_pool(x, 3, 2, 1),
        "head": lambda x, w, bias: bl.inner_product(bl.global_average_pool(x).reshape((len(images), -1)), w, bias),
    }

    def train(x: bl.Tensor, wanted: bl.Tensor) -> bl.Tensor:
        with bl.record() as tape:
            shares = bl.log_softmax(logits_of(name, of, x, use), 1)
            loss = (shares * wanted).sum() * (-1 / len(images))
        optimizer.step(tape.gradients(loss, of))
        return loss

    x, wanted = bl.reorder(images, bl.channels_last), bl.from_array(answers)
    start = time.perf_counter()
    step = bl.compile_step(train, (x, wanted), threads=args.threads)
    report = {
        "compiled_s": time.perf_counter() - start,
        "n_reorders": len(step.plan.reorders),
        "n_state_reorders": sum(entry.is_reorder and entry.input in step.state for entry in step.plan.entries),
    }
    return lambda: step(x, wanted).item(), report


def their_step(args: argparse.Namespace) -> tuple[Callable[[], float], dict[str, Any]]:
    """A step of PyTorch's, which returns its loss."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(args.threads)
    (name,), (images, answers) = args.models, data(args)

    def placed(array: np.ndarray) -> torch.Tensor:
        form = torch.channels_last if array.ndim == 4 else torch.contiguous_format
        return torch.from_numpy(array).clone(memory_format=torch.preserve_format).to(memory_format=form)

    of = {key: placed(array).requires_grad_() for key, array in parameters_of(name).items()}
    optimizer = torch.optim.SGD([*of.values()], RATE, momentum=MOMENTUM)
    use = {
        "conv": lambda x, w, stride, pads: functional.conv2d(x, w, stride=stride, padding=pads),
        "norm": lambda x, scale, shift: functional.batch_norm(x, None, None, scale, shift, training=True),
        "relu": lambda x: functional.relu(x, inplace=True),
        "pool": lambda x: functional.max_pool2d(x, 3, 2, 1),
        "head": lambda x, w, bias: functional.linear(functional.adaptive_avg_pool2d(x, 1).flatten(1), w, bias),
    }
    x, wanted = placed(images), placed(answers)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(logits_of(name, of, x, use), wanted)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, {}


if __name__ == "__main__":
    raise SystemExit(main())
