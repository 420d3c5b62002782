"""Batches in parts: whether rows run sooner a few at a time, whose values the caches hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import model
from blocklayout.dnnl import processor
from blocklayout.errors import InputError, ModelError, UnsupportedError
from blocklayout.serve.queue import check_rows_apart

if TYPE_CHECKING:
    from blocklayout.loading.signature import Opened
    from blocklayout.plan import Plan
    from blocklayout.runtime import InputInfo, ReadyPlan
    from blocklayout.runtime.plan_book import Shapes

ROWS_SHARE, PART_SHARE = 0.5, 0.25
"""Of the last cache: for the buffers of all rows, beyond which parts are tried, and for those of a part.

The rest is for weights, inputs and outputs, and on a shared machine for others.
"""

SAME_TIME = 1.03
"""Share of another plan's time at which both are as fast: the same plan, loaded twice, differs by as much."""


class RowParts(Struct, frozen=True):
    """In how many parts a batch is run (1: all rows at once), and the share of its time at once that this takes."""

    n: int
    share: float = 1.0

    def of(self, shapes: Shapes) -> Shapes:
        """The extents of one part."""
        return tuple((name, (extents[0] // self.n, *extents[1:])) for name, extents in shapes)

    def joined(self, ready: ReadyPlan) -> ReadyPlan:
        """The plan of one part, as that of all of them."""
        plan = ready.plan
        n_rows = plan.inputs[0][1].dims[0]
        rows = f"{self.n * n_rows} rows run in {self.n} parts of {n_rows}"
        priced_by = f"{plan.rationale.priced_by}; {rows}, which took {self.share:.2f} of their time at once"
        why = replace(plan.rationale, priced_by=priced_by)
        return replace(ready, plan=replace(plan, parts=self.n, rationale=why))


def parts_that_fit(plan: Plan, shapes: Shapes, caches: Sequence[processor.Cache]) -> int:
    """The least number of equal parts whose values the last cache holds well; 1 where it holds those of all rows."""
    rows = {extents[0] if extents else 1 for _, extents in shapes}
    of_cache = plan.arena_nbytes / caches[-1].nbytes if caches else 0.0
    if len(rows) != 1 or of_cache <= ROWS_SHARE or any(result.buffer is None for result in plan.results):
        return 1
    [n_rows] = rows
    fitting = (n for n in range(1, n_rows + 1) if n_rows % n == 0 and of_cache <= n * PART_SHARE)
    return next(fitting, n_rows)


def prove_parts(opened: Opened, borders: Sequence[InputInfo], shapes: Shapes, n: int) -> None:
    """Refuse parts in a model that does not compute each row apart from the others, whether or not it declares some."""
    for info in borders:
        if info.container or not info.shape:
            raise UnsupportedError(f"{info.name!r} is {info.container or 'a scalar'}, without rows")
        check_rows_apart(info)
    n_rows = shapes[0][1][0]
    row = {name: (1, *extents[1:]) for name, extents in shapes}
    try:
        model.check_rows(model.with_free_rows(opened), row, (n_rows // n, n_rows))
    except (InputError, ModelError) as error:
        raise UnsupportedError(f"another number of rows cannot be run: {error}") from error
    finally:
        if isinstance(opened, model.ModelFile):
            opened.let_go()
