"""A session for people: its line, its card in a notebook, profiles and reports of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from blocklayout.errors import PlanError
from blocklayout.runtime.ceilings import measured_machine
from blocklayout.runtime.pieces import Call
from blocklayout.runtime.profile import Profile, StepProfile, check_n_runs, profile_of, profile_of_call
from blocklayout.runtime.report import PieceReport, Report

if TYPE_CHECKING:
    from blocklayout.plan import Plan, Request
    from blocklayout.runtime import InputInfo, Piece, PlanBook
    from blocklayout.serve.queue import Queue


def profile(book: PlanBook, feed: Mapping[str, Any], n_runs: int) -> Profile:
    """A typical run, step by step; as :meth:`blocklayout.Session.profile`.

    Of a model that is cut, the steps of each piece behind each other.
    """
    check_n_runs(n_runs)
    seen = book.streams.call(book.timed, feed, n_runs)
    if isinstance(seen, tuple):
        return _profile_of(*seen)
    steps: list[StepProfile] = []
    for piece, fed, again in seen.walk(feed):
        inner = seen.book_of(piece, fed)
        steps += profile(inner, fed, n_runs).steps if inner is not None else [_timed(piece, again, n_runs)]
    return Profile(seen.name, n_runs, tuple(steps))


def report(book: PlanBook, feed: Mapping[str, Any] | None, n_runs: int) -> Report:
    """A page about a plan, or about pieces; as :meth:`blocklayout.Session.report`."""
    check_n_runs(n_runs)
    if feed is None:
        plans = book.plans
        if book.pieces is None and len(plans) != 1:
            rule = "give a feed, whose extents tell which" if plans else "give a feed, or shapes= when loading"
            raise PlanError(f"the session has {len(plans)} plans: {rule}")
        return _untimed(book)
    seen = book.streams.call(book.timed, feed, n_runs)
    if isinstance(seen, tuple):
        plan = seen[0]
        return Report.of(plan, _machine(plan), _profile_of(*seen), nodes=book.nodes(plan))
    reports = []
    for piece, fed, again in seen.walk(feed):
        inner = seen.book_of(piece, fed)
        if inner is not None:
            reports.append(PieceReport(piece, report(inner, fed, n_runs)))
            continue
        ns = _timed(piece, again, n_runs).ns
        within = _last_report(piece) if isinstance(piece, Call) else None  # of the node's subgraphs
        reports.append(PieceReport(piece, within, ns))
    return Report.of_pieces(reports)


def _machine(plan: Plan) -> Any:
    return measured_machine(plan.isa, plan.n_threads, plan.dtype)


def _profile_of(plan: Plan, runs: Sequence[Sequence[int]], wall: Sequence[int]) -> Profile:
    return profile_of(plan, runs, wall, _machine(plan))


def _untimed(book: PlanBook) -> Report:
    """The report of the plan that ran last, or of each piece's, without times."""
    if book.pieces is not None:
        return Report.of_pieces([PieceReport(piece, _last_report(piece)) for piece in book.pieces])
    plan = book.plans[-1]
    return Report.of(plan, plan.machine(), nodes=book.nodes(plan))


def _last_report(piece: Piece) -> Report | None:
    """The report of the plan that ran last, without times; ``None`` where there is no plan."""
    planned = [book for book in piece.books if book.plans]
    return _untimed(planned[-1]) if planned else None


def _timed(piece: Piece, again: Callable[[], None], n_runs: int) -> StepProfile:
    """A piece that is computed without a plan, run a few times."""
    again()
    times = []
    for _ in range(n_runs):
        start = time.monotonic_ns()
        again()
        times.append(time.monotonic_ns() - start)
    return profile_of_call(piece.name, piece.by or "onnx.reference", times)


def session_text(book: PlanBook, executor: str, queue: Queue | None) -> str:
    """The line of a session: inputs and outputs, layouts and what chose them, data type, threads.

    Args:
        book: Its plans.
        executor: The name of what runs their steps.
        queue: How its requests wait.
    """
    signature, streams, pieces = book.signature, book.streams, book.pieces
    borders = " -> ".join(", ".join(map(_border, infos)) for infos in (signature.inputs, signature.outputs))
    facts = [
        "1 thread" if streams.n_threads == 1 else f"{streams.n_threads} threads",
        f"{streams.n} streams" if streams.n > 1 else "",
        "" if pieces is None else f"cut into {len(pieces)} pieces",
        f"{executor} executor",
        f"check={book.check!r}" if book.check else "",
        f"batches of up to {queue.batching.max_batch}" if queue and queue.batching else "",
        f"at most {queue.max_waiting} wait" if queue and queue.max_waiting else "",
        "closed" if streams.is_closed else "",
    ]
    plans = book.plans
    name = f" of {plans[0].model}" if plans else ""
    return (
        f"<Session{name}: {'; '.join((borders, _choice(plans, book.maker.request), ', '.join(filter(None, facts))))}>"
    )


def session_html(text: str, plans: Sequence[Plan]) -> str:
    """The session for a notebook: its line, plans, and how to see more.

    Args:
        text: The line.
        plans: Those to show.
    """
    from blocklayout.plan.report.text import plan_html

    hint = "<code>.report()</code> shows the plan as a page, and <code>.report(feed)</code> with measured times."
    return f"<p><code>{escape(text)}</code></p>{''.join(map(plan_html, plans))}<p>{hint}</p>"


def _border(info: InputInfo) -> str:
    return " ".join(filter(None, (info.name, info.dtype, info.extents, info.border)))


def _choice(plans: Sequence[Plan], asked: Request | None) -> str:
    if not plans:
        return f"layout {asked.policy}, {asked.dtype}, no plan yet" if asked else "no plan"
    last = plans[-1]
    chosen = f" ({last.chosen}, by {_prices(last)})" if last.policy == "auto" else ""
    number = f", the last of {len(plans)} plans" if len(plans) > 1 else ""
    return f"layout {last.policy}{chosen}, {last.dtype}{number}"


def _prices(plan: Plan) -> str:
    return "a run-off of whole plans" if plan.raced else plan.priced_by
