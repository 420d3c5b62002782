"""A session in a line, and for notebooks: inputs and outputs, layouts and what chose them, data type, threads."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from blocklayout.plan import Plan, Request


class Border(Protocol):
    """An input or an output of a model, in words."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def extents(self) -> str: ...

    @property
    def border(self) -> str | None: ...


def session_text(
    inputs: Sequence[Border],
    outputs: Sequence[Border],
    plans: Sequence[Plan],
    asked: Request | None,
    facts: Sequence[str],
) -> str:
    """The line.

    Args:
        inputs: The model's.
        outputs: The model's.
        plans: Those that there are.
        asked: How plans are asked for, if any may be made.
        facts: Threads, and whatever else is to be said.
    """
    borders = " -> ".join(", ".join(map(_border, infos)) for infos in (inputs, outputs))
    name = f" of {plans[0].model}" if plans else ""
    return f"<Session{name}: {'; '.join((borders, _choice(plans, asked), ', '.join(facts)))}>"


def session_html(text: str, plans: Sequence[Plan]) -> str:
    """The session for a notebook: its line, plans, and how to see more.

    Args:
        text: The line.
        plans: Those to show.
    """
    from blocklayout.show.plan_text import plan_html

    hint = "<code>.report()</code> shows the plan as a page, and <code>.report(feed)</code> with measured times."
    return f"<p><code>{escape(text)}</code></p>{''.join(map(plan_html, plans))}<p>{hint}</p>"


def _border(info: Border) -> str:
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
