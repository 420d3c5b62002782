"""The ``blocklayout`` command: 0 when it has done its work, 2 with one line on standard error when it cannot."""

from __future__ import annotations

import os
import sys
import warnings
from argparse import SUPPRESS, Action
from typing import TYPE_CHECKING, Any

from blocklayout.commands.options import CommandParser, Parser
from blocklayout.errors import BlockLayoutError, BlockLayoutWarning
from blocklayout.resource_limits import limits
from blocklayout.show.output import say

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

COMMANDS = {
    "run": "Run a model and show its outputs, its times and the costs of its layouts.",
    "plan": "Show the plan of a model: its steps, their layouts and implementations, and why each reorder is there.",
    "show": "Write a page that shows a model's layouts, reorders, memory and times, and why they are so.",
    "profile": "Time each step of a model: its implementation, layouts and bytes, and its share of the machine's peak.",
    "inspect": "Explain a layout: padding, strides, the formula of offsets, and where an element lies.",
    "candidates": "List oneDNN's offers for one problem: every implementation, in every combination of layouts.",
    "operators": "List the layouts in which each operator computes on this CPU, its implementations and their prices.",
    "bench": "Time layout policies on one model, each in turn with auto.",
    "serve": "Serve models over HTTP by the Open Inference Protocol, with metrics and pages of their layouts.",
    "quantize": "Make a model of 8-bit weights and activations, by ranges that are seen on data of yours.",
}
"""Modules of :mod:`blocklayout.commands`."""

REFUSED = 2
INTERRUPTED = 130
"""As a shell reports a command that SIGINT ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's arguments, and return the exit status.

    Raises:
        SystemExit: As argparse does, after ``--help`` (0), or for arguments it cannot read (2).
    """
    try:
        args = make_parser().parse_args(argv)
        with warnings.catch_warnings():
            for of_developers in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", of_developers)
            warnings.filterwarnings("ignore", module=r"(numpy|onnx)\b")
            warnings.simplefilter("always", BlockLayoutWarning)
            warnings.showwarning = _warn
            with limits(nbytes=getattr(args, "limit_memory", None), seconds=getattr(args, "limit_seconds", None)):
                args.run(args)
        sys.stdout.flush()
    except BlockLayoutError as error:
        return _refuse(str(error))
    except MemoryError as error:
        return _refuse(f"not enough memory: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("blocklayout: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="blocklayout",
        description="Runs convolutional networks on CPUs, chooses every tensor's memory layout, and shows why.",
    )
    parser.add_argument("--version", action=_Version, help="show versions and the CPU's instruction set, and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    for name, summary in COMMANDS.items():
        subparsers.add_parser(name, help=summary, module=name, summary=summary)
    return parser


def version_text() -> str:
    """Our version, oneDNN's, and the instruction set it runs; why, where it does not."""
    import blocklayout
    from blocklayout import dnnl

    try:
        executor = "C" if dnnl.has_native_executor() else "Python: no compiler built the other"
        library = f"oneDNN {'.'.join(map(str, dnnl.version()))}, {dnnl.isa()}, executor in {executor}"
        library += f", threads: {dnnl.threads_name()}"
    except BlockLayoutError as error:
        library = f"no oneDNN: {error}"
    return f"blocklayout {blocklayout.__version__}, {library}"


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as a line, without its place in the source."""
    sys.stderr.write(f"blocklayout: {message}\n")


def _refuse(message: str) -> int:
    sys.stderr.write(f"blocklayout: {' '.join(message.split())}\n")
    return REFUSED


class _Version(Action):
    """Shows versions; they are looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=SUPPRESS, help=kwargs["help"])

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        say(version_text())
        parser.exit()
