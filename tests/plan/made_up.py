"""Networks that nobody computes: groups with made-up candidates and prices, to solve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklayout.kernels import BaseOperator, Candidate, Kernel, Program, Value
from blocklayout.layout import MemoryDesc
from blocklayout.plan.fuse import Group
from blocklayout.plan.network import Network

SHAPE = (1, 24, 6, 6)
LAYOUTS = ("nchw", "nhwc", "nChw8c")


@dataclass
class MadeUpCosts:
    """A price for each pair of layouts."""

    prices: dict[tuple[str, str], float]

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return self.prices[src.named("src"), dst.named("src")]


def made_up(reads: Sequence[Sequence[int]], outputs: Sequence[int], seed: int, n_candidates: int = 3) -> Network:
    """A network of one input and a group for each item of ``reads``.

    Args:
        reads: For each group the values it reads: 0 is the input, ``n`` what the ``n``-th group computes.
        outputs: Values that the caller gets.
        seed: Of candidates and prices.
        n_candidates: Of each group; some may be alike but for their cost.
    """
    rng = np.random.default_rng(seed)
    values = [Value(f"v{index}", SHAPE, "f32") for index in range(len(reads) + 1)]
    groups = tuple(
        Group(Kernel(f"k{i}", BaseOperator(), _operands([values[v] for v in read]), (), values[i + 1], ()))
        for i, read in enumerate(reads)
    )
    candidates = tuple(tuple(_candidate(rng, len(read)) for _ in range(n_candidates)) for read in reads)
    prices = {(a, b): float(rng.integers(1, 50)) for a in LAYOUTS for b in LAYOUTS}
    program = Program("made up", (), (values[0],), tuple(values[index] for index in outputs))
    costs: Any = MadeUpCosts(prices)
    return Network(program, groups, candidates, costs)


def _operands(values: Sequence[Value]) -> tuple[tuple[str, Value], ...]:
    return tuple((f"src_{index}", value) for index, value in enumerate(values))


def _candidate(rng: np.random.Generator, n_sources: int) -> Candidate:
    def desc() -> MemoryDesc:
        return MemoryDesc(SHAPE, "f32", str(rng.choice(LAYOUTS)))

    sources = tuple((f"src_{index}", desc()) for index in range(n_sources))
    return Candidate(sources, (), desc(), (), (), None, float(rng.integers(0, 60)), "made up")
