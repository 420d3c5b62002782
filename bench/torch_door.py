"""How fast is a PyTorch module by our backend of ``torch.compile``, and how soon, next to inductor?

Networks are torchvision's, with random weights, at batch 1 in f32. Each is run in five ways, in a process each, which
finds empty caches: by inductor with frozen weights, on a channels-last module and input; by ``torch.compile`` with our
backend; by ``torch.compile`` with one that computes nothing, which is what PyTorch itself takes; by ``bl.compile``; and
by ``bl.load`` of the ONNX file that PyTorch's exporter writes. All have the module, or the file, and the import of
PyTorch behind them when the clock for the first result starts. Then they take turns, round after round. Ratios are
medians of those of single rounds.

    python bench/torch_door.py --models resnet18,mobilenet_v2 --rounds 9
    python bench/torch_door.py --models squeezenet1_1 --size 64 --rounds 1
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, it finds its neighbours beside it.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.records import add_files, keep, read_measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODELS = (
    *("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0", "densenet121"),
    *("googlenet", "vgg11", "mnasnet1_0", "efficientnet_b0", "resnext50_32x4d", "vit_b_16"),
)
INDUCTOR, COMPILED, NOTHING, WHOLE, ONNX = WAYS = ("inductor", "torch.compile", "nothing", "bl.compile", "bl.load")
TURN_NS = 100e6


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS, help="of torchvision")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=WAYS, help=f"of {', '.join(WAYS)}")
    parser.add_argument("--size", type=int, default=224, help="height and width of images (default: 224)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each process (default: 7)")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    add_files(parser, has_page=False)
    args = parser.parse_args(argv)
    if args.worker:
        way, file = args.worker
        return work(args.models[0], way, file, args.size, args.threads)
    from blocklayout.commands.environment import describe_environment

    record = read_measured(args, "results")
    if record is None:
        results = [measure(name, args) for name in args.models]
        record = {"environment": describe_environment(args.threads), "rounds": args.rounds, "results": results}
    show(keep(args, record)["results"])
    return 0


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network: milliseconds of each way by rounds, and what each reported of its first result."""
    from blocklayout.timing import TurnProcess

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "model.onnx"
        shared = ["--models", name, "--size", args.size, "--threads", args.threads]

        def start(way: str, *, sleeps: bool = True) -> TurnProcess:
            own = folder / way
            own.mkdir()
            caches = {"TORCHINDUCTOR_CACHE_DIR": str(own), "BLOCKLAYOUT_CACHE_DIR": str(own), "TMPDIR": str(own)}
            command = [__file__, *shared, "--worker", way, file]
            return stack.enter_context(TurnProcess(way, command, caches, sleeps=sleeps))

        if ONNX in args.ways:
            start("export", sleeps=False)
        processes = [start(way) for way in args.ways]
        ms: dict[str, list[float]] = {way: [] for way in args.ways}
        for _ in range(args.rounds):
            for process in processes:
                ms[process.name].append(process.turn(TURN_NS)["ns"] / 1e6)
        return {"model": name, "ms": ms, "first": {each.name: each.report for each in processes}}


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the tables."""
    from blocklayout.show.output import print_table, say

    ways = [*results[0]["ms"]]
    pairs = [
        pair
        for pair in ((INDUCTOR, COMPILED), (INDUCTOR, WHOLE), (COMPILED, ONNX), (WHOLE, ONNX))
        if {*pair} <= {*ways}
    ]
    ratios = {pair: [_ratio(each["ms"], *pair) for each in results] for pair in pairs}
    rows, firsts = [], []
    for number, result in enumerate(results):
        first = result["first"]
        times = [f"{statistics.median(result['ms'][way]):.2f}" for way in ways]
        rows.append((result["model"], *times, *(f"{ratios[pair][number]:.3f}" for pair in pairs)))
        seconds, grown = ([f"{first[way][key]:.2f}" for way in ways] for key in ("first_s", "grown_mb"))
        worst = max(first[way]["difference"] for way in ways if way not in (INDUCTOR, NOTHING))
        firsts.append((result["model"], *seconds, f"{first[ways[0]]['weights_mb']:.0f}", *grown, f"{worst:.0e}"))
    print_table(("model", *ways, *map(" / ".join, pairs)), rows, title="Milliseconds of a run")
    for pair in pairs:
        say(f"{' / '.join(pair)}: geometric mean {math.exp(statistics.fmean(map(math.log, ratios[pair]))):.3f}")
    title = "Seconds to the first result, MB of weights, MB that each takes, our largest difference from eager"
    print_table(("model", *ways, "weights", *ways, "difference"), firsts, title=title)


def _ratio(ms: dict[str, list[float]], way: str, other: str) -> float:
    return statistics.median(own / base for own, base in zip(ms[way], ms[other], strict=True))


# In a process of its own


def work(name: str, way: str, file: str, size: int, threads: int) -> int:
    """Report the first result, then take turns until no line comes in."""
    warnings.simplefilter("ignore")
    import torch

    from blocklayout.commands.against.pytorch import import_converter

    torch.set_num_threads(threads)
    import_converter(torch)
    with torch.inference_mode():
        module, x = _network(name, size)
        if way == "export":
            torch.onnx.export(module, (x,), file, input_names=["x"], external_data=False, verbose=False)
            _say({})
            return 0
        if way == INDUCTOR:
            module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        answer = module(x) if way == NOTHING else None
        before, begin = _resident_mb(), time.perf_counter()
        run = _opened(way, module, x, file, threads, answer)
        y = run()
        first_s, grown_mb = time.perf_counter() - begin, _resident_mb() - before
        eager = module(x)
        difference = float((torch.as_tensor(y) - eager).abs().max() / eager.abs().max())
        weights_mb = sum(each.nbytes for each in (*module.parameters(), *module.buffers())) / 1e6
        _say({"first_s": first_s, "grown_mb": grown_mb, "weights_mb": weights_mb, "difference": difference})
        from blocklayout.timing import fastest_ns

        for line in sys.stdin:
            fastest_ns(run, TURN_NS)  # wakes the threads, which had given up what other processes took from them
            _say({"ns": fastest_ns(run, float(line))})
    return 0


def _network(name: str, size: int) -> tuple[Any, Any]:
    """A network of torchvision, whose normalisations have the statistics of some input, and another input."""
    import torch
    import torchvision

    torch.manual_seed(0)
    more: dict[str, Any] = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    more |= {"image_size": size} if name.startswith("vit") else {}
    module = torchvision.models.get_model(name, weights=None, **more)
    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm2d):
            each.momentum = None  # the mean of all
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    for each in module.parameters():
        if not each.any():  # such as the heads of transformers, whose answers would be 0
            torch.nn.init.normal_(each, std=0.02)
    module.train()(torch.randn(4, 3, size, size))
    return module.eval(), torch.randn(1, 3, size, size)


def _opened(way: str, module: Any, x: Any, file: str, threads: int, answer: Any) -> Callable[[], Any]:
    import torch

    if way == INDUCTOR:
        import torch._inductor.config

        torch._inductor.config.freezing = True  # noqa: SLF001 - inductor's switch for it
        compiled = torch.compile(module)
        return lambda: compiled(x)
    if way == NOTHING:
        compiled = torch.compile(module, backend=lambda _graph, _inputs: lambda *_: (answer,))
        return lambda: compiled(x)
    import blocklayout as bl

    if way == ONNX:
        session, array = bl.load(file, threads=threads), x.numpy()
        return lambda: session.run(None, {"x": array})[0]
    if way == WHOLE:
        compiled = bl.compile(module, (x,), threads=threads)
    else:
        compiled = torch.compile(module, backend=bl.torch.backend, options={"threads": threads})
    return lambda: compiled(x)


def _resident_mb() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
