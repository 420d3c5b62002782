"""Options that several commands take, and how their values are read."""

from __future__ import annotations

import argparse
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
"""Powers of two by letter."""


class Help(argparse.RawDescriptionHelpFormatter):
    """Help whose paragraphs are one line each in the source, and as wide as the screen for readers."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            super(argparse.RawDescriptionHelpFormatter, self)._fill_text(line, width, indent)
            for line in text.splitlines()
        )


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Report the error in one line that names ``--help``."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


class CommandParser(Parser):
    """The parser of a command, whose module is loaded once the command is named.

    The module's ``add_options`` completes the parser, its ``run`` is called with the parsed arguments.
    """

    def __init__(self, module: str, summary: str, **kwargs: Any) -> None:
        super().__init__(description=summary, formatter_class=Help, **kwargs)
        self._module = module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complete it first."""
        command = import_module(f"blocklayout.commands.{self._module}")
        self.set_defaults(run=command.run)
        command.add_options(self)
        return super().parse_known_args(args, namespace)


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, for machines")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """MODEL, the options that settle its inputs' extents, its threads and limits, and ``--json``."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="an ONNX file, or zoo:resnet50 and its like; by default the embedded one",
    )
    add_named(
        parser,
        "--shape",
        named_extents,
        "1x3x224x224",
        "extents of an input; a free first one is 1 by default. 32..640 is a range: the plan is for its largest, "
        "and others run in that one's memory",
    )
    add_named(
        parser, "--input", named_path, "FILE.npy", "the array for an input; by default random numbers, always the same"
    )
    add_named(
        parser,
        "--io-layout",
        named_layout,
        "nhwc",
        "format of an input or output at the border; an array is in that order, --shape and --input as well",
    )
    parser.add_argument(
        "--tune",
        choices=("cached", "model", "measure"),
        default="cached",
        help="where costs come from: times measured here, else a model (default); the model alone; or measure now",
    )
    parser.add_argument(
        "--tune-seconds",
        type=seconds,
        default=60.0,
        metavar="S",
        help="how long to measure at most, the most important first (default: 60)",
    )
    parser.add_argument(
        "--without",
        type=words,
        default=(),
        metavar="NAME[,NAME]",
        help="leave to the library what ours would compute: winograd, which rounds more, depthwise, grouped, direct",
    )
    add_named(
        parser,
        "--precision",
        named_layout,
        "f32",
        "data type that the kernels of this name, pattern of names or operator are computed in, in place of --dtype",
    )
    add_threads(parser)
    parser.add_argument(
        "--limit-memory",
        type=nbytes,
        metavar="SIZE",
        help="bytes such as 500M or 2G that a file, a tensor or a whole run may take; by default all there are",
    )
    parser.add_argument(
        "--limit-seconds", type=seconds, metavar="S", help="how long the command may take, looked at between steps"
    )
    add_json(parser)


def add_named(
    parser: argparse.ArgumentParser, option: str, read: Callable[[str], object], example: str, summary: str, *also: str
) -> None:
    """An option for something that has a name, such as ``--shape x=1x3x8x8``; it may be given many times.

    ``example`` is of its value, which ``read`` reads; ``also`` are other spellings of the option.
    """
    metavar = f"NAME={example}"
    parser.add_argument(option, *also, action="append", default=[], type=read, metavar=metavar, help=summary)


def load_options(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of ``load`` that a model's options stand for, but for threads, and extents where none is a range."""
    from blocklayout.loading.options import has_ranges

    shapes = dict(args.shape)
    return {
        "shapes": shapes if has_ranges(shapes) else {},
        "io_layout": dict(args.io_layout),
        "precision": dict(args.precision),
        "tune": args.tune,
        "tune_seconds": args.tune_seconds,
        "recipes": dict.fromkeys(args.without, False),
    }


def add_pins(parser: argparse.ArgumentParser) -> None:
    """``--pin``."""
    add_named(
        parser,
        "--pin",
        named_layout,
        "nChw8c",
        "a format that the kernel, node or value of this name must come in; all of a pattern of names such as "
        "'layer1.*', or of an operator such as Conv",
        "--force",
    )


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """``--layout``, ``--dtype`` and ``--plan``."""
    from blocklayout.dtypes import PRIMITIVE_FLOATS  # numpy takes 70 ms

    parser.add_argument("--layout", metavar="POLICY", help="a policy or a oneDNN tag (default: auto)")
    parser.add_argument("--dtype", choices=PRIMITIVE_FLOATS, help="data type of the activations inside (default: f32)")
    add_plan_file(parser)


def add_plan_file(parser: argparse.ArgumentParser) -> None:
    """``--plan``."""
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="a plan that plan --save wrote: nothing is chosen; extents and formats are the plan's unless given",
    )


def add_details(parser: argparse.ArgumentParser, top: str = "show the N steps that take longest") -> None:
    """``--steps``, ``--why`` and ``--top``: details behind the verdict."""
    parser.add_argument("--steps", action="store_true", help="show every step, with its layouts")
    parser.add_argument("--top", type=positive, metavar="N", help=top)
    parser.add_argument(
        "--why",
        action="store_true",
        help="show the alternatives of each kernel, the reason of each reorder, the ends of runs of a layout",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """``--threads``."""
    parser.add_argument("--threads", type=positive, metavar="N", help="by default all that this process may use")


def nbytes(text: str) -> int:
    """A number of bytes such as ``512``, or ``2K`` and ``3G`` in units of 1024."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "")
    if not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of bytes such as 500M or 2G")
    return int(number) << _UNITS.get(unit, 0)


def extents(text: str) -> tuple[int, ...]:
    """Extents such as ``1x3x224x224``."""
    return _integers(text, "x", "extents such as 1x3x224x224")


def indices(text: str) -> tuple[int, ...]:
    """Integers such as ``0,16,4,3``."""
    return _integers(text, ",", "integers such as 0,16,4,3")


def positive(text: str) -> int:
    """A number of at least 1."""
    return _integer(text, 1)


def natural(text: str) -> int:
    """A number of at least 0."""
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of at least {least}")
    return int(text)


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give a positive number of seconds")
    return number


def words(text: str) -> tuple[str, ...]:
    """Words such as ``auto,nhwc``."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: give names with commas between them")
    return found


def policies(text: str) -> tuple[str, ...]:
    """Layout policies such as ``auto,nhwc``, each once; ``channels_last`` and its like are policies, too."""
    from blocklayout.plan.policies import ALIASES

    return tuple(dict.fromkeys(ALIASES.get(word, word) for word in words(text)))


def named_extents(text: str) -> tuple[str, tuple[int | tuple[int, int], ...]]:
    """An input and its extents, such as ``x=1x3x224x224``; some may be ranges, none are those of a scalar.

    Example:
        >>> named_extents("x=1x3x32..640"), named_extents("x=")
        (('x', (1, 3, (32, 640))), ('x', ()))
    """
    name, separator, rest = text.rpartition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: give an input's name and extents, such as x=1x3x224x224")
    wanted = "extents such as 1x3x224x224, or with ranges such as 1x3x32..640x32..640"
    parts = [_integers(part, "..", wanted) for part in rest.split("x")] if rest else []
    if any(len(part) > 2 for part in parts):
        raise argparse.ArgumentTypeError(f"{rest!r}: give {wanted}")
    return name, tuple(part[0] if len(part) == 1 else (part[0], part[1]) for part in parts)


def named_path(text: str) -> tuple[str, str]:
    """An input and a file, such as ``x=file.npy``."""
    return _named(text, text.partition("="), "an input's name and a file, such as x=file.npy")


def named_layout(text: str) -> tuple[str, str]:
    """An input or output and its format, such as ``x=nhwc``."""
    return _named(text, text.rpartition("="), "a name and a format, such as x=nhwc")


def _named(text: str, parts: tuple[str, str, str], wanted: str) -> tuple[str, str]:
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r}: give {wanted}")
    return parts[0], parts[2]


def _integers(text: str, separator: str, wanted: str) -> tuple[int, ...]:
    parts = text.split(separator)
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: give {wanted}")
    return tuple(map(int, parts))
