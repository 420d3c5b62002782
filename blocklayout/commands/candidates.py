"""``blocklayout candidates``: oneDNN's own choice for one problem, and every alternative."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import Help, Parser, add_json, add_threads, extents, indices, positive
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import InputError
from blocklayout.ir import TensorInfo, wished_desc
from blocklayout.layout import MemoryDesc
from blocklayout.plan import Machine
from blocklayout.plan.candidates.recipes import NOT_OFFERED
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.costs.random_data import Tape, random_elements
from blocklayout.show.output import print_table, say, say_json, shown_progress
from blocklayout.show.words import kib, us
from blocklayout.timing import time_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blocklayout.dnnl import AnyDesc, Desc, Resolved, Spec

    AskAbout = Callable[["Asker", argparse.Namespace], Iterator["Ask"]]

EPILOG = (
    "> marks oneDNN's own pick where every layout is left to it.\n"
    "Measured times are those of one primitive run alone again and again on random data, its weights in the "
    "caches: inside a network it takes longer."
)
ANY = "any"
N_ROUNDS = 5

Ask = tuple[str, "Spec"]
"""The problem in words, and as a Spec."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add a command for each kind of problem."""
    kinds = parser.add_subparsers(metavar="KIND", required=True, parser_class=Parser)
    images = "extents N x channels x spatial, such as 1x64x56x56"
    conv = _add_kind(kinds, "conv", "a convolution", Asker.convolution, images)
    conv.add_argument("weights", type=extents, metavar="WEIGHTS", help="extents as ONNX has them, such as 64x64x3x3")
    _add_window(conv)
    conv.add_argument("--groups", type=positive, default=1, metavar="N", help="groups of channels (default: 1)")
    pool = _add_kind(kinds, "pool", "a pooling", Asker.pooling, images)
    pool.add_argument("--kernel", type=indices, default=(2,), metavar="N[,N]", help="extents of it (default: 2)")
    algorithms = ("max", "avg_include_padding", "avg_exclude_padding")
    made = f"of the elements of a window: {', '.join(algorithms)} (default: max)"
    pool.add_argument("--algorithm", choices=algorithms, default="max", metavar="NAME", help=made)
    _add_window(pool)
    eltwise = _add_kind(kinds, "eltwise", "a function of each element", Asker.eltwise, "extents, such as 1x64x56x56")
    eltwise.add_argument("--algorithm", default="relu", metavar="NAME", help="in oneDNN's words (default: relu)")
    left = "extents of the left one, such as 128x512"
    matmul = _add_kind(kinds, "matmul", "a product of matrices", Asker.matmul, left)
    matmul.add_argument("weights", type=extents, metavar="WEIGHTS", help="extents of the right one, such as 512x256")
    steps = "extents steps x N x channels, such as 64x1x128"
    recurrent = _add_kind(kinds, "rnn", "a recurrent layer", Asker.recurrent, steps)
    recurrent.add_argument("states", type=positive, metavar="STATES", help="channels of its state, such as 256")
    recurrent.add_argument("--cell", default="vanilla_lstm", metavar="NAME", help="default: vanilla_lstm")
    recurrent.add_argument("--bidirectional", action="store_true", help="in both directions")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    n_threads = args.threads or dnnl.default_threads()
    machine = Machine(dnnl.isa(), n_threads)
    ask: AskAbout = args.ask
    with shown_progress("asking oneDNN", is_quiet=args.json) as tell:
        found = find_alternatives(ask(Asker(args.dtype, n_threads, machine.layout_names), args), machine)
        if not args.no_time:
            tell(f"measuring {len(found)} alternatives in turn")
            found = measured(found, with_references=args.references)
    environment = describe_environment(n_threads)
    ordered = sorted(found, key=lambda each: (each.measured_ns is None, each.measured_ns or each.estimated_ns))
    if args.json:
        rows = [alternative.to_dict() for alternative in ordered]
        say_json({"environment": environment, "alternatives": rows})
        return
    say(f"{n_threads} threads, {environment['isa']}, oneDNN {environment['oneDNN']}, {args.dtype}\n")
    _print(ordered)


def _add_kind(kinds: argparse._SubParsersAction[Parser], name: str, what: str, ask: AskAbout, src: str) -> Parser:
    summary = f"OneDNN's offers for {what}, in every combination of layouts."
    parser = kinds.add_parser(name, help=summary, description=summary, epilog=EPILOG, formatter_class=Help)
    add_json(parser)
    parser.add_argument(
        "--dtype", choices=(*PRIMITIVE_FLOATS, "s8"), default="f32", help="of all tensors (default: f32)"
    )
    parser.add_argument("--no-time", action="store_true", help="do not run them")
    parser.add_argument("--references", action="store_true", help="run slow reference implementations too")
    add_threads(parser)
    parser.set_defaults(ask=ask)
    parser.add_argument("src", type=extents, metavar="SRC", help=src)
    return parser


def _add_window(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strides", type=indices, default=(1,), metavar="N[,N]", help="default: 1")
    parser.add_argument(
        "--pads", type=indices, default=(0,), metavar="N[,N,N,N]", help="one number, or all begins and all ends"
    )
    parser.add_argument("--dilations", type=indices, default=(1,), metavar="N[,N]", help="1 is dense, as in ONNX")


class Asker(Struct, frozen=True):
    """One primitive's problem on tensors of one data type, in every combination of layouts worth asking for."""

    dtype: str
    n_threads: int
    layouts: tuple[str, ...]

    def convolution(self, args: argparse.Namespace) -> Iterator[Ask]:
        """A convolution, its favourite first; the weights' layout is always the implementation's to choose."""
        src, dims = args.src, grouped(args.weights, args.groups)
        window = _window(args)

        def make(source: Desc, dst: Desc | None, prop_kind: str) -> Spec:
            return dnnl.convolution(
                source, self._any(dims), dst, **window, prop_kind=prop_kind, n_threads=self.n_threads
            )

        favourite = make(self._any(src), None, "forward_inference")
        yield ANY, favourite
        yield "any, for training", make(self._any(src), None, "forward_training")
        dst_dims = favourite.desc("dst").dims
        for source in (ANY, *self.layouts):
            for dst in (ANY, *self.layouts):
                descs = self._desc(source, src), self._desc(dst, dst_dims)
                yield f"{source} to {dst}", make(*descs, "forward_inference")

    def matmul(self, args: argparse.Namespace) -> Iterator[Ask]:
        """A product of matrices: favourite layouts, and each operand as it is or transposed."""
        src, weights = args.src, args.weights
        yield ANY, dnnl.matmul(self._any(src), self._any(weights), n_threads=self.n_threads)
        for left in _matrix_tags(len(src)):
            for right in (ANY, *_matrix_tags(len(weights))):
                descs = self._desc(left, src), self._desc(right, weights)
                yield f"{left} by {right}", dnnl.matmul(*descs, n_threads=self.n_threads)

    def pooling(self, args: argparse.Namespace) -> Iterator[Ask]:
        """A pooling in each layout; it keeps the one that comes."""
        window = {"kernel": _one_or_all(args.kernel), **_window(args)}
        for layout in self.layouts:
            src = self._desc(layout, args.src)
            yield layout, dnnl.pooling(src, None, args.algorithm, **window, n_threads=self.n_threads)

    def eltwise(self, args: argparse.Namespace) -> Iterator[Ask]:
        """A function of each element in each layout; it keeps the one that comes."""
        for layout in self.layouts:
            yield layout, dnnl.eltwise(self._desc(layout, args.src), algorithm=args.algorithm, n_threads=self.n_threads)

    def recurrent(self, args: argparse.Namespace) -> Iterator[Ask]:
        """A recurrent layer: steps or sequences first in the source and the result, and weights in blocks or not."""
        cell, sides, channels = args.cell, 2 if args.bidirectional else 1, args.src[-1]
        gates = {"lstm": 4, "rnn": 1}.get(cell.rpartition("_")[2], 3)
        of_weights = [(1, sides, extent, gates, args.states) for extent in (channels, args.states)]
        bias = MemoryDesc((1, sides, gates + cell.startswith("lbr"), args.states))
        direction = "bidirectional_concat" if args.bidirectional else "unidirectional_left2right"
        for order in ("abc", "bac"):
            src, dst = (self._desc(order, dims) for dims in (args.src, (*args.src[:2], sides * args.states)))
            for blocks in (ANY, "plain"):
                input_weights, recurrent = (
                    self._any(dims) if blocks == ANY else MemoryDesc(dims, self.dtype) for dims in of_weights
                )
                descs = src, input_weights, recurrent, bias, dst
                spec = dnnl.rnn(*descs, algorithm=cell, direction=direction, n_threads=self.n_threads)
                yield ANY if (order, blocks) == ("abc", ANY) else f"{order}, {blocks} weights", spec

    def _any(self, dims: tuple[int, ...]) -> AnyDesc:
        return dnnl.AnyDesc(dims, self.dtype)

    def _desc(self, layout: str, dims: Sequence[int]) -> Desc:
        return wished_desc(layout, TensorInfo(tuple(dims), self.dtype))


def grouped(weights: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """ONNX's extents of a convolution's weights as oneDNN writes them; an InputError where groups do not divide them.

    Example:
        >>> grouped((64, 1, 3, 3), 64)
        (64, 1, 1, 3, 3)
    """
    if groups == 1:
        return weights
    if not weights or weights[0] % groups:
        raise InputError(f"--groups {groups}: the {weights[0] if weights else 0} output channels are no multiple of it")
    return (groups, weights[0] // groups, *weights[1:])


def _window(args: argparse.Namespace) -> dict[str, Any]:
    """Strides, pads and dilations in oneDNN's words, where a dilation of 0 is dense; one number does for all."""
    if min(args.dilations) < 1:
        raise InputError("--dilations: 1 is a dense kernel; give numbers of at least 1")
    skipped = tuple(dilation - 1 for dilation in args.dilations)
    return {"strides": _one_or_all(args.strides), "pads": _one_or_all(args.pads), "dilations": _one_or_all(skipped)}


def _one_or_all(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    return numbers[0] if len(numbers) == 1 else numbers


def _matrix_tags(ndims: int) -> tuple[str, str]:
    """Row-major, and with the last two dimensions exchanged."""
    letters = "abcdefghijkl"[:ndims]
    return letters, letters[:-2] + letters[:-3:-1]


class Alternative(Struct, frozen=True):
    """One way to compute a problem.

    Attributes:
        asked: The layouts that were asked for when it was offered first.
        is_picked: Whether oneDNN picks it where every layout is left to it.
        estimated_ns: By the cost model.
        measured_ns: The fastest of some runs alone, on random data; ``None`` if it was not run.
    """

    asked: str
    is_picked: bool
    resolved: Resolved
    estimated_ns: float
    measured_ns: float | None = None

    @property
    def descs(self) -> dict[str, MemoryDesc]:
        """By argument."""
        spec = self.resolved.spec
        return {name: spec.memory_desc(name) for name, _ in spec.descs}

    @property
    def layouts(self) -> dict[str, str]:
        """Tags by argument, each in the letters of its role; a matrix has none."""
        descs = self.descs
        if self.resolved.spec.kind in ("matmul", "rnn"):
            return {name: desc.canonical_tag or desc.tag for name, desc in descs.items()}
        is_grouped = "weights" in descs and descs["weights"].ndims > descs["src"].ndims
        roles = {"weights": "grouped_weights" if is_grouped else "weights"}
        return {name: desc.named(roles.get(name, "src")) for name, desc in descs.items()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "implementation": self.resolved.spec.impl,
            "is_picked": self.is_picked,
            "asked": self.asked,
            "prop_kind": self.resolved.spec.prop_kind,
            "layouts": self.layouts,
            "padded_dims": {name: desc.padded_dims for name, desc in self.descs.items()},
            "scratchpad_nbytes": self.resolved.scratchpad_nbytes,
            "estimated_ns": self.estimated_ns,
            "measured_ns": self.measured_ns,
        }


def find_alternatives(asks: Iterable[Ask], machine: Machine) -> list[Alternative]:
    """Every distinct implementation with its layouts, the choice for ``any`` first; a DnnlError where there is none."""
    costs = CostModel(machine)
    found: dict[tuple[object, ...], Alternative] = {}
    refusal: Exception | None = None
    for asked, spec in asks:
        try:
            offered = list(dnnl.implementations(spec))
        except NOT_OFFERED as error:
            refusal = refusal or error
            continue
        for rank, resolved in enumerate(offered):
            is_picked = rank == 0 and asked == "any"
            alternative = Alternative(asked, is_picked, resolved, costs.step_ns(resolved.spec))
            found.setdefault((resolved.spec.impl, resolved.spec.descs), alternative)
    if not found and refusal is not None:
        raise refusal
    return list(found.values())


def measured(alternatives: Sequence[Alternative], *, with_references: bool = False) -> list[Alternative]:
    """Alternatives of one problem with measured times, taken in turn.

    References, hundreds of times slower, are run if ``with_references``, or where there is nothing else.
    """
    chosen = [each for each in alternatives if with_references or not each.resolved.is_reference] or alternatives
    calls = [_bound(each).run for each in chosen]
    n_threads = chosen[0].resolved.spec.n_threads
    times = dnnl.run_parallel(lambda: time_in_turn(calls, N_ROUNDS), n_threads)
    fastest = dict(zip(chosen, map(min, times), strict=True))
    return [replace(each, measured_ns=fastest.get(each)) for each in alternatives]


def _bound(alternative: Alternative) -> dnnl.Execution:
    memories = {}
    for name, desc in alternative.descs.items():
        tape = Tape(random_elements(desc.dtype))
        tape.reserve(desc.nbytes)
        memories[name] = dnnl.Memory(desc, tape.piece(desc.nbytes))
    return dnnl.Primitive(alternative.resolved.spec).bind(memories)


def _print(alternatives: list[Alternative]) -> None:
    arguments = list(alternatives[0].layouts)
    header = ("", "implementation", *arguments, "KiB", "est. us", "us")
    rows = [
        (
            ">" if alternative.is_picked else "",
            alternative.resolved.spec.impl,
            *(alternative.layouts.get(name, "") for name in arguments),
            kib(alternative.resolved.scratchpad_nbytes),
            us(alternative.estimated_ns),
            "-" if alternative.measured_ns is None else us(alternative.measured_ns),
        )
        for alternative in alternatives
    ]
    print_table(header, rows, text_columns=range(2 + len(arguments)))
    say("\n>: oneDNN's pick where layouts are left to it; KiB: scratchpad; est.: by the cost model")
