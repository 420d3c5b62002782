"""Reductions by numpy's names."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl

NAMES = ("sum", "mean", "max", "min", "prod")
SHAPE = (2, 17, 3, 2)

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")


@pytest.mark.parametrize("memory_format", ["contiguous_format", "channels_last", "nChw8c"])
@pytest.mark.parametrize("name", NAMES)
def test_they_are_numpys(name: str, memory_format: str) -> None:
    x = bl.rand_like(bl.zeros(SHAPE, memory_format=memory_format), rng=0) + 0.5
    for axes in (None, 1, (2, 3), (-1,)):
        kept = getattr(x, name)(axes, keepdims=True)
        np.testing.assert_allclose(kept.numpy(), getattr(x.numpy(), name)(axes, keepdims=True), rtol=1e-5)
        assert kept.desc.format_tag == x.desc.format_tag
        gone = getattr(x, name)(axes)
        np.testing.assert_allclose(gone.numpy(), np.atleast_1d(getattr(x.numpy(), name)(axes)), rtol=1e-5)
    assert getattr(x, name)().item() == pytest.approx(getattr(x.numpy(), name)(), rel=1e-5)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_builder_has_them_too(name: str) -> None:
    b = bl.Builder()
    x = b.input("x", SHAPE)
    b.output("all", getattr(x, name)())
    b.output("one", getattr(x, name)(1, keepdims=True))
    b.output("count", (x > 0.5).sum((2, 3)))
    array = np.random.default_rng(0).random(SHAPE, np.float32)
    found = bl.load(b).run(None, {"x": array})
    np.testing.assert_allclose(found[0], getattr(array, name)(), rtol=1e-5)
    np.testing.assert_allclose(found[1], getattr(array, name)(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(found[2], (array > 0.5).sum((2, 3)))
