"""Random numbers are in no plan."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout.errors import UnsupportedError
from blocklayout.model import Builder, lower


def test_a_plan_computes_the_same_every_time() -> None:
    b = Builder()
    x = b.input("x", (2, 3))
    b.output("y", x + b.op("RandomNormalLike", x))
    with pytest.raises(UnsupportedError, match="random"):
        lower(b.to_graph())


def test_random_numbers_are_no_constants() -> None:
    b = Builder()
    b.output("y", b.op("Bernoulli", b.constant(np.ones((2, 3), np.float32))))
    assert [node.op_type for node in b.to_graph().nodes] == ["Bernoulli"]
