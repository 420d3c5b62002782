"""Random numbers."""

from __future__ import annotations

from typing import ClassVar

from blocklayout.ir import Facts


class RandomNumbers(Facts, frozen=True):
    """Other numbers in each run, which no plan computes."""

    op_types: ClassVar[tuple[str, ...]] = (
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
    is_random: ClassVar[bool] = True
