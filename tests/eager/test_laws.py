"""What holds of any chain of operators: layouts change where bytes lie, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl

RNG = np.random.default_rng(0)
WEIGHTS = (RNG.standard_normal((17, 17, 3, 3)) / 12).astype(np.float32)
ROW, COLUMN = RNG.uniform(0.5, 1.5, (2, 17)).astype(np.float32)

STEPS: dict[str, Callable[[bl.Tensor], bl.Tensor]] = {
    "relu": bl.relu,
    "sigmoid": bl.sigmoid,
    "minus": lambda x: 1.5 - x,
    "column": lambda x: x * COLUMN[:, None, None],
    "double": lambda x: x + x,
    "conv": lambda x: bl.conv(x, WEIGHTS, ROW, pads=1),
    "pool": lambda x: bl.max_pool(x, 3, 1, 1),
    "mean": lambda x: bl.average_pool(x, 2, 1, (0, 0, 1, 1)),
    "norm": lambda x: bl.batch_norm(x, ROW, COLUMN, ROW, COLUMN),
    "instances": lambda x: bl.instance_norm(x, ROW, COLUMN),
    "softmax": lambda x: bl.softmax(x, 1),
    "erf": lambda x: bl.op("Erf", x),
    "halves": lambda x: bl.concat([x[:, 8:], x[:, :8]]),
    "image": lambda x: x[:, :, ::-1],
    "map": lambda x: x.map(np.cos),
}
LAYOUTS = ("nhwc", "nChw8c", "nChw16c", "chwn", "nChw4c", "abCd4c")


@settings(max_examples=40)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    layout=st.sampled_from(LAYOUTS),
    n_images=st.integers(1, 3),
    extent=st.integers(3, 9),
    seed=st.integers(0, 9),
)
def test_every_layout_gives_the_same_values_in_its_own_format(
    steps: list[str], layout: str, n_images: int, extent: int, seed: int
) -> None:
    array = np.random.default_rng(seed).standard_normal((n_images, 17, extent, 5)).astype(np.float32)
    plain: Any = bl.from_array(array)
    x: Any = bl.from_array(array, layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bl.BlockLayoutWarning)
        for name in steps:
            plain, x = STEPS[name](plain), STEPS[name](x)
            assert x.desc.format_tag == bl.FormatTag.parse(layout)
            assert x.padding_is_zero()
            np.testing.assert_allclose(x.numpy(), plain.numpy(), rtol=0, atol=2e-4 * max(1, abs(plain.numpy()).max()))
