"""Differences between two plans of one model: kernels computed otherwise, reorders gone, reorders new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blocklayout.plan.plan import Entry
from blocklayout.show.plan_text import short

if TYPE_CHECKING:
    from blocklayout.plan.choices import KernelChoice
    from blocklayout.plan.plan import Plan


def changes_record(before: Plan, after: Plan) -> dict[str, Any]:
    """The differences, as values that JSON can hold.

    ``kernels`` has each kernel whose layouts or implementations differ, with ``before`` and ``after``, ``null`` where
    a plan has no such kernel; ``reorders_gone`` those that only the first plan has, ``reorders_new`` only the second.
    """
    old, new = ({choice.kernel: _way_record(choice) for choice in plan.choices} for plan in (before, after))
    was, now = dict(_reorders(before)), dict(_reorders(after))
    return {
        "kernels": [
            {"name": name, "before": old.get(name), "after": new.get(name)}
            for name in dict.fromkeys((*new, *old))
            if _what(old.get(name)) != _what(new.get(name))
        ],
        "reorders_gone": [record for key, record in was.items() if key not in now],
        "reorders_new": [record for key, record in now.items() if key not in was],
    }


def _way_record(choice: KernelChoice) -> dict[str, Any]:
    way = choice.chosen
    return {
        "reads": [short(desc) for desc in way.sources],
        "writes": short(way.dst),
        "impls": way.impls,
        "cost_ns": way.cost_ns,
    }


def _what(way: dict[str, Any] | None) -> dict[str, Any] | None:
    """A way without its price, which another plan may know otherwise."""
    return way and {name: value for name, value in way.items() if name != "cost_ns"}


def _reorders(plan: Plan) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    """Each reorder by the value that it copies and its two layouts."""
    for reorder in plan.reorders:
        if isinstance(reorder, Entry):
            value, src, dst = reorder.input, reorder.source, reorder.desc
        else:
            value = plan.buffers[reorder.dst.buffer].name
            src, dst = dict(reorder.operands)["src"].desc, reorder.dst.desc
        layouts = {"src": short(src), "dst": short(dst)}
        moved = {"readers": reorder.readers, "nbytes": reorder.nbytes_moved, "cost_ns": reorder.cost_ns}
        yield (value, layouts["src"], layouts["dst"]), {"value": value, **layouts, **moved}
