"""Memory that a session holds, by purpose."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.resource_limits import system_text

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.runtime.plan_book import PlanBook

_STATUS = Path("/proc/self/status")
_MIB = 1 << 20


class MemoryUse(Struct, frozen=True):
    """The bytes a session holds, each counted once, and those of the process it runs in.

    Attributes:
        n_plans: Plans it has.
        n_workspaces: Sets of arena, scratchpad and primitives: how many runs can go on at a time, for each plan.
        originals_nbytes: The model's own weights, where they are held for further plans: those of a file are read
            again instead, unless they are small or the session is for ranges of extents, and those of a Builder or
            ``ModelProto`` are its owner's as well.
        packed_nbytes: Packed weights; those that plans share are counted once.
        mapped_nbytes: The part of them that is mapped from a saved session: processes share it, and the system may
            take it back.
        arena_nbytes: Arenas: one a workspace; one a stream where a session was loaded for ranges of extents.
        arena_lower_bound: The largest sets of tensors alive at once: no arenas could be smaller.
        scratchpad_nbytes: Scratchpads, likewise.
        process_nbytes: Resident memory of the whole process, Python and code included; 0 where the system does not
            tell.
        process_peak_nbytes: The most it has been.
    """

    n_plans: int
    n_workspaces: int
    originals_nbytes: int
    packed_nbytes: int
    mapped_nbytes: int
    arena_nbytes: int
    arena_lower_bound: int
    scratchpad_nbytes: int
    process_nbytes: int
    process_peak_nbytes: int

    @classmethod
    def of(cls, books: Sequence[PlanBook]) -> MemoryUse:
        """Memory of the plan books of a model: of the whole, then of its pieces."""
        held = [each for book in books for each in book.held()]
        # A model in pieces holds the weights that its pieces hold as well.
        whole, *pieces = [book.maker.originals_nbytes() for book in books]
        placed = [(ready.plan, each) for ready, workspaces in held for each in workspaces]
        arenas = {id(each.arena): each.arena.nbytes for _, each in placed}
        scratchpads = {id(each.scratchpad): each.scratchpad.nbytes for _, each in placed}
        alive: dict[int, int] = {}
        for plan, each in placed:
            alive[id(each.arena)] = max(alive.get(id(each.arena), 0), plan.rationale.arena_lower_bound)
        packed = {id(array): array for ready, _ in held for array in ready.packed.values()}.values()
        now, most = process_nbytes()
        return cls(
            n_plans=len(held),
            n_workspaces=len(placed),
            originals_nbytes=max(whole, sum(pieces)),
            packed_nbytes=sum(array.nbytes for array in packed),
            mapped_nbytes=sum(array.nbytes for array in packed if _is_mapped(array)),
            arena_nbytes=sum(arenas.values()),
            arena_lower_bound=sum(alive.values()),
            scratchpad_nbytes=sum(scratchpads.values()),
            process_nbytes=now,
            process_peak_nbytes=most,
        )

    @property
    def nbytes(self) -> int:
        """All that the session holds."""
        return self.originals_nbytes + self.packed_nbytes + self.arena_nbytes + self.scratchpad_nbytes

    def __str__(self) -> str:
        over = f", {self.arena_nbytes / self.arena_lower_bound:.2f} of the least" if self.arena_lower_bound else ""
        mapped = f", {_mib(self.mapped_nbytes)} of it mapped from a file" if self.mapped_nbytes else ""
        return "\n".join(
            (
                f"{_mib(self.nbytes)} in {self.n_plans} plans, {self.n_workspaces} workspaces",
                f"  packed weights    {_mib(self.packed_nbytes)}{mapped}",
                f"  model's weights   {_mib(self.originals_nbytes)}",
                f"  arenas            {_mib(self.arena_nbytes)}{over}",
                f"  scratchpads       {_mib(self.scratchpad_nbytes)}",
                f"the process: {_mib(self.process_nbytes)}, at most {_mib(self.process_peak_nbytes)}",
            )
        )


def process_nbytes() -> tuple[int, int]:
    """Resident memory of this process, now and at most; zeros where the system does not tell."""
    fields = dict(line.partition(":")[::2] for line in system_text(_STATUS).splitlines())
    now, most = (int(fields.get(field, "0").split()[0]) * 1024 for field in ("VmRSS", "VmHWM"))
    return now, most


def _is_mapped(array: np.ndarray) -> bool:
    owner: object = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner is not None


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:,.1f} MiB"
