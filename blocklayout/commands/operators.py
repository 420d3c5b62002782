"""``blocklayout operators``: layouts in which each operator computes, implementations and prices."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import to_builtins

from blocklayout import dnnl
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import add_json
from blocklayout.eager.offers import HOWS, Offer, all_op_types, candidates, default_layouts
from blocklayout.show.output import print_table, say, say_json, shown_progress
from blocklayout.show.words import us

if TYPE_CHECKING:
    import argparse

PLAIN = "plain"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="as ONNX writes it (default: every one)")
    parser.add_argument("--layout", metavar="FORMAT", help="one format, such as nhwc or nChw16c, beside plain")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="of the tensors (default: f32)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    layouts = default_layouts() if args.layout is None else tuple(dict.fromkeys((PLAIN, args.layout)))
    found: list[tuple[Offer, ...]] = []
    names = args.operators or all_op_types()
    with shown_progress("planning", is_quiet=args.json) as tell:
        for name in names:
            tell(name)
            found.append(candidates(name, layouts=layouts, dtype=args.dtype))
    environment = describe_environment(dnnl.default_threads())
    if args.json:
        say_json({"environment": environment, "operators": [to_builtins(each) for offers in found for each in offers]})
        return
    say(f"{environment['isa']}, oneDNN {environment['oneDNN']}, {args.dtype}; samples, as bl.op runs them\n")
    computed = [offers for offers in found if any(each.how != "none" for each in offers)]
    shown = layouts[1:] or layouts if args.layout else layouts
    rows = [_row(each, offers[0]) for offers in computed for each in offers if each.layout in shown]
    header = ("operator", "layout", "how", "implementation", "computes in", "reorders", "est. us", "of plain")
    print_table(header, rows, text_columns=range(5))
    say("")
    for layout in layouts:
        counts = Counter(each.how for offers in computed for each in offers if each.layout == layout)
        say(f"{layout}: {', '.join(f'{counts[how]} {how}' for how in HOWS if counts[how])}")
    say("\n" + "\n".join(f"{how}: {meaning}" for how, meaning in HOWS.items()))
    others = [offers[0] for offers in found if offers not in computed]
    if args.operators:
        for each in others:
            say(f"{each.op_type} is not computed: {each.reason}")
    elif others:
        say(f"\nno sample, or not computed: {', '.join(each.op_type for each in others)}")


def _row(offer: Offer, plain: Offer) -> tuple[str, ...]:
    implementations = dict.fromkeys(offer.implementations)
    is_compared = plain.how != "none" and offer.how != "none" and plain.ns > 0
    return (
        offer.op_type,
        offer.layout,
        offer.how,
        " ".join(implementations),
        " ".join(offer.computes_in),
        str(offer.n_reorders),
        us(offer.ns),
        f"{offer.ns / plain.ns:.2f}" if is_compared else "",
    )
