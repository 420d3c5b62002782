"""A plan with everything it needs to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

if TYPE_CHECKING:
    from blocklayout.kernels import Compute
    from blocklayout.plan import Plan


class ReadyPlan(Struct, frozen=True, eq=False):
    """A plan with everything it needs to run.

    Attributes:
        plan: The plan.
        packed: Bytes of its packed constants, by buffer.
        constants: Outputs that are known without running, by name.
        computes: What runs the plan's plain steps, by their number.
        contents: The inputs it was made for together with what they hold, by name; nothing enters by them.
        keeps_denormals: Whether they are computed with as they are, however long that takes.
    """

    plan: Plan
    packed: Mapping[int, np.ndarray]
    constants: Mapping[str, np.ndarray]
    computes: Mapping[int, Compute] = field(default_factory=dict)
    contents: Mapping[str, np.ndarray] = field(default_factory=dict)
    keeps_denormals: bool = False
