"""``blocklayout inspect``: a layout explained, element by element if wanted, and shown on a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import replace

from blocklayout.commands.options import add_json, extents, indices, natural
from blocklayout.layout import MemoryDesc
from blocklayout.show.inspector import describe, library_agreement
from blocklayout.show.output import file_name, say, say_json, say_page


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "It needs no library; for people, it also asks oneDNN, where that can be loaded, whether it agrees."
    parser.add_argument("tag", metavar="TAG", help="such as nChw16c, OIhw8i8o, acdb or channels_last")
    parser.add_argument("dims", metavar="DIMS", type=extents, help="such as 1x17x5x4")
    parser.add_argument("--dtype", default="f32", metavar="NAME", help="f32 (default), bf16, f16, f64, s32, s8 or u8")
    parser.add_argument("--to", metavar="TAG", help="a layout to compare with, and the reorder to it")
    parser.add_argument("--index", type=indices, metavar="N,C,H,W", help="say where this element lies")
    parser.add_argument("--offset", type=natural, metavar="K", help="say which element lies so many from the start")
    parser.add_argument("--offsets", action="store_true", help="draw the map of memory")
    parser.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a page with the map of memory (default: the tag and the dims with .html)",
    )
    parser.add_argument(
        "--library",
        action=argparse.BooleanOptionalAction,
        help="whether to load oneDNN and ask it too (default: yes, but not with --json)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    desc = MemoryDesc(args.dims, args.dtype, args.tag)
    has_page = args.html is not None
    report = describe(desc, args.index, args.offset, show_offsets=args.offsets or has_page, to=args.to)
    asks_library = not args.json if args.library is None else args.library
    if asks_library:
        report = replace(report, library=library_agreement(desc))
    if has_page:
        names = [args.tag, "x".join(map(str, args.dims)), *(["to", args.to] if args.to else [])]
        path = Path(args.html or file_name("-".join(names), ".html"))
        report.save(path)
    if args.json:
        say_json(report.to_dict())
    elif has_page:
        say_page(path)
    else:
        say(report.to_text())
