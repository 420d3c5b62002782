"""Profiles and reports of the runs of a plan book."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from blocklayout.errors import PlanError
from blocklayout.runtime.ceilings import measured_machine
from blocklayout.runtime.pieces import Call
from blocklayout.show.profile import Profile, StepProfile, check_n_runs, profile_of, profile_of_call
from blocklayout.show.report import Report
from blocklayout.show.verdict import Verdict

if TYPE_CHECKING:
    from blocklayout.plan import Machine, Plan
    from blocklayout.runtime import Piece, PlanBook


def profile(book: PlanBook, feed: Mapping[str, Any], n_runs: int) -> Profile:
    """A typical run, step by step; as :meth:`blocklayout.Session.profile`.

    Of a model that is cut, the steps of each piece behind each other.
    """
    check_n_runs(n_runs)
    seen = book.streams.call(book.timed, feed, n_runs)
    if isinstance(seen, tuple):
        return profile_of(*seen, _machine(seen[0]))
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
        plan, machine = seen[0], _machine(seen[0])
        return Report.of(plan, machine, profile_of(*seen, machine), nodes=book.nodes(plan))
    reports: list[tuple[dict[str, Any], Report | None, float | None]] = []
    for piece, fed, again in seen.walk(feed):
        inner = seen.book_of(piece, fed)
        if inner is not None:
            reports.append((_facts(piece), report(inner, fed, n_runs), None))
            continue
        ns = _timed(piece, again, n_runs).ns
        within = _last_report(piece) if isinstance(piece, Call) else None  # of the node's subgraphs
        reports.append((_facts(piece), within, ns))
    return Report.of_pieces(reports)


def verdict(book: PlanBook, seen: Profile | None) -> Verdict:
    """Which layout is best, and what would help; as :meth:`blocklayout.Session.verdict`."""
    plans = book.plans
    if not plans:
        raise PlanError("no plan yet: give shapes= when loading, or run once")
    calls = {each.name: each.by for each in book.pieces or () if each.by}
    inputs = book.signature.inputs
    is_free = all(each.shape and not (isinstance(each.shape[0], int) or each.layout or each.ranges) for each in inputs)
    batched = [each.name for each in inputs] if is_free else []
    return Verdict.of(plans[-1:] if book.pieces is None else plans, batched, calls, seen)


def _machine(plan: Plan) -> Machine:
    return measured_machine(plan.config.isa, plan.config.n_threads, plan.config.dtype)


def _untimed(book: PlanBook) -> Report:
    """The report of the plan that ran last, or of each piece's, without times."""
    if book.pieces is not None:
        return Report.of_pieces([(_facts(piece), _last_report(piece), None) for piece in book.pieces])
    plan = book.plans[-1]
    return Report.of(plan, plan.machine(), nodes=book.nodes(plan))


def _facts(piece: Piece) -> dict[str, Any]:
    """A piece as its report shows it."""
    return {"name": piece.name, "by": piece.by, "reason": piece.reason, "notes": list(piece.notes)}


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
