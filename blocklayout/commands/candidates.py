"""``blocklayout candidates``: what oneDNN's ``any`` picks for one problem, and every alternative."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from blocklayout.commands.options import Parser, add_command, add_threads, extents, indices, positive
from blocklayout.commands.output import say, say_json

if TYPE_CHECKING:
    import argparse

    from blocklayout.commands.alternatives import Alternative
    from blocklayout.commands.options import Subparsers
    from blocklayout.commands.problems import Ask, Asker, Window

    AskAbout = Callable[[argparse.Namespace, Asker], Iterator[Ask]]

SUMMARY = "List what oneDNN offers for one problem: every implementation, in every combination of layouts."
EPILOG = (
    "> marks what oneDNN itself picks where every layout is left to it.\n"
    "Measured times are those of one primitive run alone again and again on random data, its weights in the\n"
    "caches: inside a network it takes longer."
)


def add_parser(subparsers: Subparsers) -> None:
    """Add the command, and under it one for each kind of problem."""
    parser = subparsers.add_parser("candidates", help=SUMMARY, description=SUMMARY)
    kinds = parser.add_subparsers(metavar="KIND", required=True, parser_class=Parser)
    conv = _add_kind(kinds, "conv", "a convolution", _ask_convolution)
    conv.add_argument("src", type=extents, metavar="SRC", help="extents N x channels x spatial, such as 1x64x56x56")
    conv.add_argument("weights", type=extents, metavar="WEIGHTS", help="extents as ONNX has them, such as 64x64x3x3")
    _add_window(conv)
    conv.add_argument("--groups", type=positive, default=1, metavar="N", help="groups of channels (default: 1)")
    pool = _add_kind(kinds, "pool", "a pooling", _ask_pooling)
    pool.add_argument("src", type=extents, metavar="SRC", help="extents N x channels x spatial, such as 1x64x56x56")
    pool.add_argument("--kernel", type=indices, default=(2,), metavar="N[,N]", help="extents of it (default: 2)")
    pool.add_argument(
        "--algorithm",
        choices=("max", "avg_include_padding", "avg_exclude_padding"),
        default="max",
        help="what is made of the elements (default: max)",
    )
    _add_window(pool)
    eltwise = _add_kind(kinds, "eltwise", "a function of each element", _ask_eltwise)
    eltwise.add_argument("src", type=extents, metavar="SRC", help="extents, such as 1x64x56x56")
    eltwise.add_argument("--algorithm", default="relu", metavar="NAME", help="in oneDNN's words (default: relu)")
    matmul = _add_kind(kinds, "matmul", "a product of matrices", _ask_matmul)
    matmul.add_argument("src", type=extents, metavar="SRC", help="extents of the left one, such as 128x512")
    matmul.add_argument("weights", type=extents, metavar="WEIGHTS", help="extents of the right one, such as 512x256")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from blocklayout import dnnl
    from blocklayout.commands.alternatives import find_alternatives, measured
    from blocklayout.commands.environment import describe_environment
    from blocklayout.commands.problems import Asker
    from blocklayout.inspector.progress import shown_progress
    from blocklayout.plan import Machine

    n_threads = args.threads or dnnl.default_threads()
    machine = Machine(dnnl.isa(), n_threads)
    ask: AskAbout = args.ask
    with shown_progress("asking oneDNN", is_quiet=args.json) as tell:
        found = find_alternatives(ask(args, Asker(args.dtype, n_threads, machine.block_names)), machine)
        if not args.no_time:
            tell(f"measuring {len(found)} alternatives in turn")
            found = measured(found, with_references=args.references)
    environment = describe_environment(n_threads)
    ordered = sorted(found, key=_rank)
    if args.json:
        rows = [alternative.to_dict() for alternative in ordered]
        say_json({"environment": environment, "alternatives": rows})
        return
    say(f"{n_threads} threads, {environment['isa']}, oneDNN {environment['oneDNN']}, {args.dtype}\n")
    _print(ordered)


def _add_kind(kinds: Subparsers, name: str, what: str, ask: AskAbout) -> Parser:
    parser = add_command(kinds, name, run, f"What oneDNN offers for {what}, in every combination of layouts.", EPILOG)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="of all tensors (default: f32)")
    parser.add_argument("--no-time", action="store_true", help="do not run them")
    parser.add_argument("--references", action="store_true", help="run slow reference implementations too")
    add_threads(parser)
    parser.set_defaults(ask=ask)
    return parser


def _add_window(parser: Parser) -> None:
    parser.add_argument("--strides", type=indices, default=(1,), metavar="N[,N]", help="default: 1")
    parser.add_argument(
        "--pads", type=indices, default=(0,), metavar="N[,N,N,N]", help="one number, or all begins and all ends"
    )
    parser.add_argument("--dilations", type=indices, default=(1,), metavar="N[,N]", help="1 is dense, as in ONNX")


def _ask_convolution(args: argparse.Namespace, asker: Asker) -> Iterator[Ask]:
    return asker.convolution(args.src, args.weights, _window(args), args.groups)


def _ask_pooling(args: argparse.Namespace, asker: Asker) -> Iterator[Ask]:
    return asker.pooling(args.src, args.algorithm, args.kernel, _window(args))


def _ask_eltwise(args: argparse.Namespace, asker: Asker) -> Iterator[Ask]:
    return asker.eltwise(args.src, args.algorithm)


def _ask_matmul(args: argparse.Namespace, asker: Asker) -> Iterator[Ask]:
    return asker.matmul(args.src, args.weights)


def _window(args: argparse.Namespace) -> Window:
    from blocklayout.commands.problems import Window

    return Window(args.strides, args.pads, args.dilations)


def _rank(alternative: Alternative) -> tuple[bool, float]:
    """Those that were run first, then by time."""
    if alternative.measured_ns is None:
        return True, alternative.estimated_ns
    return False, alternative.measured_ns


def _print(alternatives: list[Alternative]) -> None:
    from blocklayout.inspector.tables import kib, print_table

    arguments = list(alternatives[0].layouts)
    header = ("", "implementation", *arguments, "KiB", "est. us", "us")
    rows = [
        (
            ">" if alternative.is_picked else "",
            alternative.resolved.spec.impl,
            *(alternative.layouts.get(name, "") for name in arguments),
            kib(alternative.resolved.scratchpad_nbytes),
            _microseconds(alternative.estimated_ns),
            "-" if alternative.measured_ns is None else _microseconds(alternative.measured_ns),
        )
        for alternative in alternatives
    ]
    print_table(header, rows, text_columns=range(2 + len(arguments)))
    say("\n>: what oneDNN picks where layouts are left to it; KiB: scratchpad; est.: by the cost model")


def _microseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:,.1f}" if nanoseconds < 1e6 else f"{nanoseconds / 1000:,.0f}"
