"""``blocklayout plan``: the plan of a model, as text or JSON, saved or exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.comparing import race_of
from blocklayout.commands.options import (
    add_details,
    add_model_options,
    add_named,
    add_pins,
    add_plan_options,
    named_layout,
    words,
)
from blocklayout.errors import InputError, PlanError
from blocklayout.loading.exporting import export
from blocklayout.show.output import json_text, put, say, shown_progress
from blocklayout.show.verdict import say_details, say_verdict
from blocklayout.show.words import counted

if TYPE_CHECKING:
    import argparse

    from blocklayout.session import Session


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_model_options(parser)
    add_details(parser)
    add_pins(parser)
    add_named(
        parser,
        "--expect",
        named_layout,
        "channels_last",
        "refuse the plan unless the kernel, node or value of this name, pattern or operator comes in this format",
    )
    parser.add_argument(
        "--on-layout-loss",
        choices=("warn", "raise"),
        help="warn of, or refuse, an operator that drops a run of blocked or channels-last layouts to plain",
    )
    parser.add_argument("--save", metavar="FILE", help="write the plan there, for --plan and bl.load(..., plan=FILE)")
    parser.add_argument(
        "--save-session",
        metavar="FILE",
        help="write the session there, packed weights and all, for bl.load(FILE) without the model",
    )
    parser.add_argument(
        "--targets",
        type=words,
        metavar="ISA[,ISA]",
        help="instruction sets of the CPUs that --save-session is for, such as avx2,avx512_core (default: this CPU's)",
    )
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="write the model there with the plan's channels-last regions, as ONNX for other runtimes: see bl.export",
    )
    add_plan_options(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.targets is not None and args.save_session is None:
        raise InputError("--targets is for --save-session FILE")
    asked = {"pin": dict(args.pin), "expect": dict(args.expect), "on_layout_loss": args.on_layout_loss}
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        race, contender = race_of(args, tell, 1, **asked)
        session = race.session(contender)
        if args.save_session is not None:
            session.save(args.save_session, targets=args.targets, feeds=[race.feeds])
    if session.pieces is not None and (args.save is not None or args.export is not None):
        n_pieces = len(session.pieces)
        raise PlanError(f"--save, --export: the model is cut into {n_pieces} pieces; there is no plan of the whole")
    if args.save is not None:
        session.plans[-1].save(args.save)
    if args.export is not None:
        export(race.opened, args.export, session.plans[-1])
    if args.json:
        put(f"{_json(session)}\n")
    else:
        _say(args, session)


def _say(args: argparse.Namespace, session: Session) -> None:
    plans = session.plans[-1:] if session.pieces is None else session.plans
    if plans:
        say_verdict(session.verdict())
    if session.pieces is None or args.top:
        say_details(args, plans)
    elif args.steps or args.why or not plans:
        say("\n\n".join([*[""] * bool(plans), str(session.pieces), *(plan.explain() for plan in plans if args.why)]))
    if plans and not (args.steps or args.top or args.why):
        n_steps = sum(len(plan.steps) for plan in plans)
        say(f"\n--steps shows its {counted(n_steps, 'step')}, --top 10 the longest, --why the reasons")


def _json(session: Session) -> str:
    """The plan, or those of the pieces and where the model is cut."""
    if session.pieces is None:
        return session.plans[-1].to_json()
    plans = ", ".join(plan.to_json() for plan in session.pieces.plans)
    cut = json_text([{"node": piece.name, "reason": piece.reason} for piece in session.pieces if piece.reason])
    return f'{{"cut": {cut}, "plans": [{plans}]}}'
