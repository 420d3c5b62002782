"""Random numbers."""

from __future__ import annotations

from blocklayout.ir import Facts


class RandomNumbers(Facts, frozen=True):
    """Other numbers in each run, which no plan computes."""

    op_types = (
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
    is_random = True
