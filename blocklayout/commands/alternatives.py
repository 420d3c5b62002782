"""Offers of oneDNN for one problem: implementations, layouts, estimated and measured times."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.commands.feeds import SEED
from blocklayout.plan.candidates.recipes import NOT_OFFERED
from blocklayout.plan.costs.model import CostModel
from blocklayout.runtime.in_turn import time_in_turn
from blocklayout.runtime.racing import random_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blocklayout.commands.problems import Ask
    from blocklayout.dnnl import Resolved
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Machine

N_ROUNDS = 5


class Alternative(Struct, frozen=True):
    """One way to compute a problem.

    Attributes:
        asked: The layouts that were asked for when it was offered first.
        is_picked: Whether oneDNN picks it where every layout is left to it.
        resolved: Its implementation, descriptors and scratchpad.
        estimated_ns: By the cost model.
        measured_ns: The fastest of some runs alone, on random data; ``None`` if it was not run.
    """

    asked: str
    is_picked: bool
    resolved: Resolved
    estimated_ns: float
    measured_ns: float | None = None

    @property
    def descs(self) -> dict[str, MemoryDesc]:
        """Its descriptors, by argument."""
        spec = self.resolved.spec
        return {name: spec.memory_desc(name) for name, _ in spec.descs}

    @property
    def is_reference(self) -> bool:
        """Whether it is an unoptimised reference implementation."""
        return self.resolved.spec.impl.startswith("ref")

    @property
    def layouts(self) -> dict[str, str]:
        """Tags by argument, each in the letters of its role; a matrix has none."""
        descs = self.descs
        if self.resolved.spec.kind == "matmul":
            return {name: desc.canonical_tag or desc.tag for name, desc in descs.items()}
        is_grouped = "weights" in descs and descs["weights"].ndims > descs["src"].ndims
        roles = {"weights": "grouped_weights" if is_grouped else "weights"}
        return {name: desc.named(roles.get(name, "src")) for name, desc in descs.items()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "implementation": self.resolved.spec.impl,
            "is_picked": self.is_picked,
            "asked": self.asked,
            "prop_kind": self.resolved.spec.prop_kind,
            "layouts": self.layouts,
            "padded_dims": {name: desc.padded_dims for name, desc in self.descs.items()},
            "scratchpad_nbytes": self.resolved.scratchpad_nbytes,
            "estimated_ns": self.estimated_ns,
            "measured_ns": self.measured_ns,
        }


def find_alternatives(asks: Iterable[Ask], machine: Machine) -> list[Alternative]:
    """Every distinct implementation with its layouts; what ``any`` picks comes first.

    Raises:
        DnnlError: Nothing at all is offered.
    """
    costs = CostModel(machine)
    found: dict[tuple[object, ...], Alternative] = {}
    refusal: Exception | None = None
    for asked, spec in asks:
        try:
            offered = list(dnnl.implementations(spec))
        except NOT_OFFERED as error:
            refusal = refusal or error
            continue
        for rank, resolved in enumerate(offered):
            is_picked = rank == 0 and asked == "any"
            alternative = Alternative(asked, is_picked, resolved, costs.step_ns(resolved.spec))
            found.setdefault((resolved.spec.impl, resolved.spec.descs), alternative)
    if not found and refusal is not None:
        raise refusal
    return list(found.values())


def measured(alternatives: Sequence[Alternative], *, with_references: bool = False) -> list[Alternative]:
    """The same with measured times, taken in turn.

    Args:
        alternatives: Of one problem, all with the same threads.
        with_references: Whether to run reference implementations, hundreds of times slower, even where there
            are others.
    """
    is_run = [with_references or not alternative.is_reference for alternative in alternatives]
    if not any(is_run):
        is_run = [True] * len(alternatives)
    chosen = list(compress(alternatives, is_run))
    arrays = _random_arrays(chosen)
    calls = [_bound(alternative, arrays).run for alternative in chosen]
    n_threads = chosen[0].resolved.spec.n_threads
    times = iter(dnnl.run_parallel(lambda: time_in_turn(calls, N_ROUNDS), n_threads))
    return [
        replace(alternative, measured_ns=min(next(times))) if runs else alternative
        for alternative, runs in zip(alternatives, is_run, strict=True)
    ]


def _random_arrays(alternatives: Iterable[Alternative]) -> dict[str, np.ndarray]:
    """Data for each argument; extents and types are those of the problem, whatever the alternative."""
    generator = np.random.default_rng(SEED)
    dims = {(name, desc.dims, desc.dtype) for alternative in alternatives for name, desc in alternative.descs.items()}
    return {name: random_array(dtype, shape, generator) for name, shape, dtype in sorted(dims)}


def _bound(alternative: Alternative, arrays: Mapping[str, np.ndarray]) -> dnnl.Execution:
    memories = {name: dnnl.Memory(desc, desc.pack(arrays[name])) for name, desc in alternative.descs.items()}
    nbytes = alternative.resolved.scratchpad_nbytes
    if nbytes:
        memories["scratchpad"] = dnnl.Memory(dnnl.MemoryDesc((nbytes,), "u8"), dnnl.aligned_empty(nbytes))
    return dnnl.Primitive(alternative.resolved.spec).bind(memories)
