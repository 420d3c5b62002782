"""Does anything grow in a process that runs for long?

Random networks, those of the zoo that are small, models in pieces and recurrent ones are loaded, run, saved, loaded
again, watched, checked, cancelled, profiled, forked with and closed, in random order, by one process; operators are
called on Tensors, and training steps are made. Each step draws what it does from its own seed, so that it does the same
whenever it comes again, and its answer is compared with its first. Once a minute a line tells what the process holds:
resident memory, the heap in use (all that Python and C allocated), oneDNN's handles, open files, threads and child
processes.

At the end a straight line is fitted to each, by the median of the slopes between all samples after the warm-up of ten
minutes, or of a third of the time if that is less. The status is 1 where one of them grew by more than it may, where an
answer differs, and where it was too short to tell.

    python bench/soak.py --hours 1 --seed 7
    python bench/soak.py --minutes 5 --only saved,submitted
    python bench/soak.py --minutes 0.1 --variants 1
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

# Run as a script, it finds the package beside its folder, where that is not installed.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.records import write_json
from blocklayout import dnnl, zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.runtime.memory import process_nbytes
from blocklayout.show.output import print_table
from blocklayout.zoo import digits

MIB = 1 << 20
WARM_UP_MINUTES = 10.0
TOLERANCE = 1e-4
"""Of an answer, over the largest number in it: a plan may be another one when it is made anew."""

MAY_GROW: Mapping[str, float] = {
    "resident MiB": 1.0,
    "heap MiB": 1.0,
    "handles": 0.5,
    "files": 0.5,
    "threads": 0.5,
    "children": 0.5,
}
"""What each may grow by over the whole time."""

ONE_HEAP = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}
"""Environment in which Python's objects lie among everything else, and what is free goes back to the system: else
resident memory goes up and down by ten MiB with nothing held."""

BAR = 20
PATIENCE_S = 60.0
"""A forked child that takes longer hangs."""

Answer = Sequence[np.ndarray]
Step = Callable[[random.Random, Path], Answer]


_MALLINFO2 = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO2.split())


class Allocator:
    """The allocator of the C library, where it tells of itself as glibc does."""

    def __init__(self) -> None:
        c_library = ctypes.CDLL(None)
        self._told = getattr(c_library, "mallinfo2", None)
        self._trim = getattr(c_library, "malloc_trim", None)
        if self._told:
            self._told.restype = _Mallinfo2

    def used_nbytes(self) -> int:
        """Bytes that are allocated and not freed; 0 where the library does not tell."""
        told = self._told() if self._told else None
        return told.uordblks + told.hblkhd if told else 0

    def trim(self) -> None:
        """Return free pages to the system, so that resident memory is what is in use."""
        if self._trim:
            self._trim(0)


ALLOCATOR = Allocator()


def sample() -> dict[str, float]:
    """What the process holds now, without garbage."""
    gc.collect()
    ALLOCATOR.trim()
    tasks = [*Path("/proc/self/task").iterdir()]
    children = [pid for task in tasks for pid in _text(task / "children").split()]
    return {
        "resident MiB": process_nbytes()[0] / MIB,
        "heap MiB": ALLOCATOR.used_nbytes() / MIB,
        "handles": sum(dnnl.live_handles().values()),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - the fastest count
        "threads": len(tasks),
        "children": len(children),
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # of a thread that ended meanwhile, or of a kernel that has no such file
        return ""


# What is run.


def weights(rng: random.Random, *shape: int) -> np.ndarray:
    """Drawn so that activations keep their size."""
    drawn = np.random.default_rng(rng.getrandbits(32)).standard_normal(shape, np.float32)
    return np.asarray(drawn * np.float32((2 / np.prod(shape[1:])) ** 0.5))


def image(rng: random.Random, shape: Sequence[int]) -> np.ndarray:
    """Normally distributed."""
    return np.random.default_rng(rng.getrandbits(32)).standard_normal(tuple(shape), np.float32)


def network(rng: random.Random) -> bl.Builder:
    """A chain of blocks, each drawn: convolutions of all kinds, sums, concatenations, poolings, normalisations."""
    b = bl.Builder(f"net{rng.getrandbits(24)}")
    size, channels = rng.choice((9, 14, 20)), rng.choice((8, 17, 24))
    x = b.input("x", (rng.choice((1, 2, 3)), 3, size, size)).conv(weights(rng, channels, 3, 3, 3), pads=1).relu()
    for _ in range(rng.randint(1, 4)):
        x = rng.choice(BLOCKS)(b, rng, x)
    wide = x.shape[1]
    x = x.global_average_pool().flatten()
    b.output("y", x.gemm(weights(rng, 10, wide), trans_b=True).softmax())
    return b


def _residual(b: bl.Builder, rng: random.Random, x: Any) -> Any:
    del b
    n = x.shape[1]
    return (x.conv(weights(rng, n, n, 3, 3), pads=1).relu().conv(weights(rng, n, n, 1, 1)) + x).relu()


def _depthwise(b: bl.Builder, rng: random.Random, x: Any) -> Any:
    del b
    n = x.shape[1]
    return x.conv(weights(rng, n, 1, 3, 3), pads=1, group=n).clip(0, 6).conv(weights(rng, 2 * n, n, 1, 1)).hard_swish()


def _branches(b: bl.Builder, rng: random.Random, x: Any) -> Any:
    n = x.shape[1]
    parts = [x.conv(weights(rng, 8, n, 1, 1)).sigmoid(), x.conv(weights(rng, 16, n, 3, 3), pads=1).relu()]
    return b.concat([*parts, x.max_pool(3, strides=1, pads=1)])


def _pooled(b: bl.Builder, rng: random.Random, x: Any) -> Any:
    del b
    return rng.choice((x.max_pool, x.average_pool))(2, strides=2) if x.shape[2] > 4 else x.relu()


BLOCKS: tuple[Callable[[bl.Builder, random.Random, Any], Any], ...] = (_residual, _depthwise, _branches, _pooled)


def free_model(rng: random.Random) -> bytes:
    """Convolutions on images of any extents."""
    b = bl.Builder("free")
    x = b.input("x", (1, 3, 8, 8)).conv(weights(rng, 17, 3, 3, 3), pads=1).relu()
    b.output("y", x.conv(weights(rng, 8, 17, 3, 3), pads=1))
    proto = b.to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        for place in (0, 2, 3):
            value.type.tensor_type.shape.dim[place].dim_param = "nchw"[place]
    del proto.graph.value_info[:]
    return bytes(proto.SerializeToString())


def data_model(rng: random.Random) -> bytes:
    """A convolution, and the products of the places where it is positive: how many there are, only data settle."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("NonZero", ["r"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["v", "f"], ["y"]),
    ]
    constants = {"w": weights(rng, 4, 3, 3, 3), "v": weights(rng, 2, 4)}
    floats = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", (1, 3, 8, 8)), ("y", None))
    ]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "places", floats[:1], floats[1:], held)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )


def recurrent_model(rng: random.Random) -> bl.Builder:
    """An LSTM, or a GRU, over a short sequence."""
    b = bl.Builder("recurrent")
    kind, gates = rng.choice((("LSTM", 4), ("GRU", 3)))
    steps, wide, hidden = rng.choice((3, 5)), rng.choice((8, 12)), 16
    x = b.input("x", (steps, 2, wide))
    w, r = weights(rng, 1, gates * hidden, wide), weights(rng, 1, gates * hidden, hidden)
    y = b.op(kind, x, w, r, hidden_size=hidden, n_outputs=2)[0]
    b.output("y", y)
    return b


def feed_of(session: bl.Session, rng: random.Random) -> dict[str, np.ndarray]:
    """Data for every input of a session whose extents are fixed."""
    return {
        info.name: image(rng, [each if isinstance(each, int) else 2 for each in info.shape or ()])
        for info in session.get_inputs()
    }


def loaded(rng: random.Random, source: Any, **options: Any) -> bl.Session:
    """A session by options that are drawn."""
    drawn = {"layout": rng.choice((None, "auto", "nhwc", "blocked", "plain", "any")), "threads": rng.choice((1, 2, 3))}
    return bl.load(source, **drawn | options)


# Steps.


def ran(rng: random.Random, folder: Path) -> Answer:
    """A random network, by a drawn policy."""
    del folder
    with loaded(rng, network(rng)) as session:
        feed = feed_of(session, rng)
        return same([session.run(None, feed) for _ in range(3)])


def of_a_file(rng: random.Random, folder: Path) -> Answer:
    """One that is read from a file, and whose plan another load replays; the session is not closed but let go."""
    path = folder / "model.onnx"
    bl.save(network(rng), path)
    session = bl.load(path, threads=2)
    feed = feed_of(session, rng)
    return same([session.run(None, feed), bl.load(path, threads=2).run(None, feed)])


def of_the_zoo(rng: random.Random, folder: Path) -> Answer:
    """A network of the literature."""
    del folder
    name, size = rng.choice((("squeezenet1_1", 64), ("digits", 0), ("shufflenet_v2_x0_5", 64)))
    source = digits.model_bytes() if name == "digits" else zoo.build(name, size=size)
    with bl.load(source, threads=rng.choice((1, 2))) as session:
        return session.run(None, feed_of(session, rng))


def saved(rng: random.Random, folder: Path) -> Answer:
    """A session that is saved, and loaded twice."""
    path = folder / "net.session"
    with loaded(rng, network(rng)) as session:
        feed = feed_of(session, rng)
        first = session.run(None, feed)
        session.save(path)
    with (
        bl.load(path, threads=session.plan.n_threads) as mapped,
        bl.load(path, threads=session.plan.n_threads, verify=False) as unverified,
    ):
        return same([first, mapped.run(None, feed), unverified.run(None, feed)])


def planned(rng: random.Random, folder: Path) -> Answer:
    """A plan that is saved, and used again."""
    source, path = network(rng), folder / "net.plan.json"
    first = loaded(rng, source)
    first.plan.save(path)
    second = bl.load(source, plan=path, threads=first.plan.n_threads)
    feed = feed_of(first, rng)
    return same([first.run(None, feed), second.run(None, feed)])


def with_new_extents(rng: random.Random, folder: Path) -> Answer:
    """More extents than plans are kept."""
    del folder
    with loaded(rng, free_model(rng), max_plans=3) as session:
        shapes = [(n, 3, height, width) for n in (1, 2) for height in (7, 12) for width in (9, 16)]
        rng.shuffle(shapes)
        return [session.run(None, {"x": image(rng, shape)})[0] for shape in shapes]


def in_pieces(rng: random.Random, folder: Path) -> Answer:
    """A model that is cut where only data settle extents."""
    del folder
    with loaded(rng, data_model(rng)) as session:
        results = [session.run(None, {"x": image(rng, (1, 3, 8, 8))})[0] for _ in range(3)]
        assert session.pieces is not None
        return results


def recurrent(rng: random.Random, folder: Path) -> Answer:
    """Sequences."""
    del folder
    with loaded(rng, recurrent_model(rng)) as session:
        feed = feed_of(session, rng)
        return same([session.run(None, feed) for _ in range(2)])


def submitted(rng: random.Random, folder: Path) -> Answer:
    """Streams; of what is submitted some is cancelled, and some when it runs already."""
    del folder
    with loaded(rng, network(rng), streams=2, threads=rng.choice((2, 4))) as session:
        feed = feed_of(session, rng)
        futures = [session.submit(feed) for _ in range(12)]
        kept = [future for future in futures if rng.random() < 0.6 or not future.cancel()]
        return same([session.run(None, feed), *(future.result() for future in kept)])


def from_threads(rng: random.Random, folder: Path) -> Answer:
    """Several callers of one session, threads that end."""
    del folder
    found: list[Answer] = []
    with loaded(rng, network(rng)) as session:
        feed = feed_of(session, rng)
        callers = [threading.Thread(target=lambda: found.append(session.run(None, feed))) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    return same(found)


def forked(rng: random.Random, folder: Path) -> Answer:
    """A child that runs its parent's session, and one of its own."""
    del folder
    session = loaded(rng, network(rng))
    feed = feed_of(session, rng)
    expected = session.run(None, feed)
    child = os.fork()
    if child == 0:
        try:
            is_right = all(agree(session.run(None, feed), expected) for _ in range(2))
            os._exit(0 if is_right else 3)
        finally:
            os._exit(4)
    deadline = time.monotonic() + PATIENCE_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError("a forked child hangs")
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(ended[1])
    assert code == 0, f"a forked child ended with {code}"
    return expected


def watched(rng: random.Random, folder: Path) -> Answer:
    """Runs that are watched, one of which a watch ends, and one that is checked."""
    del folder
    with loaded(rng, network(rng), layout="nhwc") as session:
        feed = feed_of(session, rng)
        with bl.watch("record", steps=True) as seen:
            first = session.run(None, feed)
        assert len(seen) > 0
        turned = {name: array.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2) for name, array in feed.items()}
        try:
            with bl.watch("raise"):
                session.run(None, turned)
        except bl.WatchError:
            pass
        with bl.checking():
            return same([first, session.run(None, feed)])


def reported(rng: random.Random, folder: Path) -> Answer:
    """A profile with its trace, and a page."""
    with loaded(rng, network(rng)) as session:
        feed = feed_of(session, rng)
        session.profile(feed, n_runs=2).save_chrome_trace(folder / "trace.json")
        session.report(feed, n_runs=2).save(folder / "report.html")
        assert str(session.memory())
        assert repr(session)
        return session.run(None, feed)


def refused(rng: random.Random, folder: Path) -> Answer:
    """What is not accepted: feeds, options, and damaged files."""
    path = folder / "net.session"
    with loaded(rng, network(rng)) as session:
        feed = feed_of(session, rng)
        result = session.run(None, feed)
        session.save(path)
        attempts: list[Callable[[], object]] = [
            lambda: session.run(None, {}),
            lambda: session.run(None, {"x": feed["x"][:, :1]}),
            lambda: session.run(["nothing"], feed),
            lambda: bl.load(folder / "none.onnx"),
            lambda: bl.load(b"nothing"),
            lambda: bl.load(path, layout="chwn"),
            lambda: bl.concat([feed["x"], feed["x"][0]]),
        ]
        contents = bytearray(path.read_bytes())
        contents[rng.randrange(8, len(contents))] ^= 1 << rng.randrange(8)
        path.write_bytes(contents[: rng.choice((len(contents), len(contents) // 2))])
        for attempt in (*attempts, lambda: bl.load(path, verify=True)):
            try:
                attempt()
            except bl.BlockLayoutError:
                continue
            assert attempt not in attempts, "what is wrong was accepted"  # a flipped bit may be a space
        return result


def eagerly(rng: random.Random, folder: Path) -> Answer:
    """Operators on Tensors, and a file of them."""
    shape = (rng.choice((1, 2)), rng.choice((8, 17)), rng.choice((8, 11)), 8)
    x = bl.from_array(image(rng, shape)).to(memory_format=rng.choice(("nChw8c", bl.channels_last, "nchw")))
    w = weights(rng, shape[1], shape[1], 3, 3)
    y = bl.max_pool(bl.relu(bl.conv(x, w, pads=1) + x), 2)
    z = bl.concat([y, y * 2.0]).mean((2, 3))
    bl.save(y, folder / "y.tensor")
    np.testing.assert_array_equal(bl.Tensor.load(folder / "y.tensor").numpy(), y.numpy())
    return [y.numpy(), z.numpy(), y.permute(0, 2, 3, 1).numpy(), bl.softmax(y).numpy()]


def trained(rng: random.Random, folder: Path) -> Answer:
    """Two steps of descent through a convolution, a normalisation and a pooling."""
    del folder
    x = bl.from_array(image(rng, (2, 8, 10, 10))).to(memory_format=rng.choice(("nChw8c", bl.channels_last)))
    w = bl.as_tensor(weights(rng, 8, 8, 3, 3))
    scale, shift = np.ones(8, np.float32), np.zeros(8, np.float32)
    losses = []
    for _ in range(2):
        c = bl.conv(x, w, pads=1)
        n, mean, variance = bl.batch_norm_training(c, scale, shift)
        y = bl.max_pool(bl.relu(n), 2)
        losses.append(np.asarray([np.square(y.numpy()).mean()]))
        grad = bl.relu_backward(bl.max_pool_backward(y, bl.relu(n), 2), n)
        grad = bl.batch_norm_backward(grad, c, scale, mean, variance).data
        w.physical()[:] -= np.float32(1e-4) * bl.conv_backward(grad, x, w, pads=1).weights.physical()
    return [*losses, w.numpy()]


STEPS: Mapping[str, Step] = {
    step.__name__: step
    for step in (
        ran,
        of_a_file,
        of_the_zoo,
        saved,
        planned,
        with_new_extents,
        in_pieces,
        recurrent,
        submitted,
        from_threads,
        forked,
        watched,
        reported,
        refused,
        eagerly,
        trained,
    )
}


def same(answers: Sequence[Answer]) -> Answer:
    """The first of some answers that must agree."""
    first, *others = answers
    assert all(agree(first, other) for other in others), "answers of one step differ"
    return first


def agree(one: Answer, other: Answer) -> bool:
    """Whether two answers are the same up to rounding."""
    return len(one) == len(other) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * float(np.abs(b).max(initial=1)))
        for a, b in zip(one, other, strict=True)
    )


# The run.


def main(argv: Sequence[str] | None = None) -> int:
    """Run, tell, and judge."""
    args = parse(argv)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BLOCKLAYOUT_CACHE_DIR"] = str(Path(folder, "cache"))
        soaked = soak(args, Path(folder))
    grown = judge(soaked["samples"], args.minutes, len(args.only) * args.variants)
    drawn = f"--seed {args.seed} --variants {args.variants} --only {','.join(args.only)}"
    again = f"python bench/soak.py --minutes {args.minutes:g} {drawn}"
    record = {"environment": describe_environment(2), "minutes": args.minutes, "again": again, **soaked}
    write_json(args.json, record | {"growth": grown})
    return show(record, grown)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_long = parser.add_mutually_exclusive_group(required=True)
    how_long.add_argument("--hours", type=float, help="how long")
    how_long.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="of the order, and of all that is drawn (default: 0)")
    parser.add_argument("--only", type=kinds, default=[*STEPS], metavar="KINDS", help=f"some of {','.join(STEPS)}")
    parser.add_argument("--variants", type=positive, default=4, help="of each kind of step (default: 4)")
    parser.add_argument("--json", metavar="FILE", help="file to write what was seen to")
    args = parser.parse_args(argv)
    args.minutes = args.minutes if args.hours is None else 60 * args.hours
    if not args.minutes > 0:
        parser.error("give more than no time")
    return args


def kinds(text: str) -> list[str]:
    """Names of steps, from the command line."""
    names = text.split(",")
    if unknown := [name for name in names if name not in STEPS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(STEPS)}")
    return names


def soak(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Steps until the time is over: samples of what the process held, how often each kind ran, and what went wrong."""
    start = time.monotonic()
    answers: dict[tuple[str, int], Answer] = {}
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    samples: list[dict[str, float]] = []
    interval = min(1.0, args.minutes / 20)
    for kind, variant in order(args):
        minutes = (time.monotonic() - start) / 60
        if minutes >= interval * len(samples) or minutes >= args.minutes:
            samples.append({"minute": minutes, **sample(), "steps": counts.total()})
            tell(samples[-1], args.minutes)
        if minutes >= args.minutes:
            break
        try:
            compare(answers, (kind, variant), STEPS[kind](random.Random(f"{args.seed} {kind} {variant}"), folder))
        except Exception as error:  # noqa: BLE001 - whatever is wrong is told, and all goes on
            wrong[f"{kind} {variant}: {error!r:.300}"] += 1
            traceback.print_exc()
        counts[kind] += 1
    return {"counts": dict(counts), "wrong": dict(wrong), "samples": samples}


def order(args: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """All variants of all kinds in random order, again and again."""
    rng = random.Random(args.seed)
    deck = [(kind, variant) for kind in args.only for variant in range(args.variants)]
    while True:
        rng.shuffle(deck)
        yield from deck


def compare(answers: dict[tuple[str, int], Answer], key: tuple[str, int], answer: Answer) -> None:
    """Hold an answer against the first one of its step."""
    if key not in answers:
        assert all(np.isfinite(each).all() for each in answer), "an answer is not finite"
        answers[key] = [each.copy() for each in answer]
    assert agree(answers[key], answer), "the answer is not the first one"


def tell(now: Mapping[str, float], minutes: float) -> None:
    """Print a sample."""
    share = min(1.0, now["minute"] / minutes)
    bar = "#" * round(BAR * share) + "." * round(BAR * (1 - share))
    facts = "  ".join(
        f"{name} {value:,.1f}" if "MiB" in name else f"{name} {value:,.0f}"
        for name, value in now.items()
        if name != "minute"
    )
    print(f"[{bar}] {now['minute']:6.2f} min  {facts}", flush=True)


def judge(samples: Sequence[Mapping[str, float]], minutes: float, n_steps: int) -> dict[str, float]:
    """Growth after the warm-up, by the median of the slopes between all samples; empty where that is too short to tell.

    Args:
        samples: In the order of time.
        minutes: How long it was to last.
        n_steps: All that there are: each fills caches the first time, and some the second.
    """
    until = min(WARM_UP_MINUTES, minutes / 3)
    warm = [each for each in samples if each["minute"] >= until and each["steps"] >= 2 * n_steps]
    if len(warm) < 2:
        return {}
    span = warm[-1]["minute"] - warm[0]["minute"]

    def rise(name: str) -> float:
        return span * median((b[name] - a[name]) / (b["minute"] - a["minute"]) for a, b in combinations(warm, 2))

    return {name: rise(name) for name in MAY_GROW}


def show(record: Mapping[str, Any], grown: Mapping[str, float]) -> int:
    """Print what ran and what grew; the status."""
    print("steps: " + ", ".join(f"{kind} {n:,}" for kind, n in record["counts"].items()))
    rows = [
        (
            name,
            f"{record['samples'][0][name]:,.1f}",
            f"{record['samples'][-1][name]:,.1f}",
            f"{growth:+,.2f}",
            f"{MAY_GROW[name]:g}",
            "GROWS" if growth > MAY_GROW[name] else "",
        )
        for name, growth in grown.items()
    ]
    print_table(("held", "first", "last", "growth after the warm-up", "may", ""), rows, title="Growth")
    for what, n in record["wrong"].items():
        print(f"wrong {n} times: {what}")
    if not grown:
        print("too short: each step must have run twice when the warm-up ends")
    print(f"again: {record['again']}")
    return int(not grown or bool(record["wrong"]) or any(growth > MAY_GROW[name] for name, growth in grown.items()))


if __name__ == "__main__":
    if not ONE_HEAP.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, os.environ | ONE_HEAP)
    sys.exit(main())
