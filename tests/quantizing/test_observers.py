"""Schemes that observers choose for known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import blocklayout as bl
from blocklayout.quantizing.observers import NEED_HISTOGRAM, Seen, observed, scheme_of

NUMBERS = arrays(np.float32, st.integers(1, 60), elements=st.floats(-1e4, 1e4, width=32))
OBSERVERS = ("minmax", "mean-minmax", *sorted(NEED_HISTOGRAM))


def seen(*arrays: np.ndarray) -> Seen:
    found = Seen("x", has_histogram=True)
    for array in arrays:
        found.add({"x": np.asarray(array, np.float32)})
    return found


def error(numbers: np.ndarray, observer: str, percentile: float = 99.9, *, around_zero: bool = True) -> float:
    scheme = observed(seen(numbers), observer, percentile, around_zero=around_zero)
    return float(((scheme.numbers(scheme.nearest(numbers)) - numbers) ** 2).mean())


@given(st.lists(NUMBERS, min_size=1, max_size=3), st.booleans())
def test_minmax_covers_all_that_was_seen(arrays: list[np.ndarray], around_zero: bool) -> None:  # noqa: FBT001
    found = seen(*arrays)
    if found.largest < 1e-30:
        return
    scheme = observed(found, "minmax", 99.9, around_zero=around_zero)
    for array in arrays:
        assert np.abs(scheme.numbers(scheme.nearest(array)) - array).max() <= scheme.scale * 0.51
    assert scheme.numbers(np.array([scheme.zero_point])) == 0
    assert scheme.zero_point == 0 or not around_zero
    assert (scheme.dtype == "s8") == (around_zero and found.range[0] < 0)


@given(NUMBERS, st.sampled_from(OBSERVERS), st.booleans())
def test_no_observer_goes_beyond_what_was_seen(numbers: np.ndarray, observer: str, around_zero: bool) -> None:  # noqa: FBT001
    found = seen(numbers)
    if found.largest < 1e-30:
        return
    scheme = observed(found, observer, 99.0, around_zero=around_zero)
    assert 0 < scheme.scale <= scheme_of(*found.range, around_zero=around_zero).scale * 1.01


@given(st.integers(0, 99), st.sampled_from([1.0, 3.0, 30.0]), st.sampled_from([-np.inf, 0]), st.booleans())
def test_least_squares_are_no_worse_than_minmax(seed: int, outlier: float, least: float, around_zero: bool) -> None:  # noqa: FBT001
    numbers = np.random.default_rng(seed).standard_normal(20_000).astype(np.float32)
    numbers[:3] *= outlier
    numbers = np.maximum(numbers, np.float32(least))
    assert error(numbers, "mse", around_zero=around_zero) <= error(numbers, "minmax", around_zero=around_zero) * 1.001


def test_entropy_clips_a_gaussian_with_outliers_and_no_uniform_distribution() -> None:
    generator = np.random.default_rng(0)
    gaussian = generator.standard_normal(200_000).astype(np.float32)
    gaussian[:20] = 40
    scheme = observed(seen(gaussian), "entropy", 99.9, around_zero=True)
    assert 2.5 < scheme.scale * 127 < 12
    assert error(gaussian[20:], "entropy") < error(np.append(gaussian[20:], np.float32(40)), "minmax") / 4
    uniform = generator.uniform(0, 3, 200_000).astype(np.float32)
    assert observed(seen(uniform), "entropy", 99.9, around_zero=True).scale * 255 == pytest.approx(3, rel=0.05)


def test_a_percentile_is_one_of_magnitudes() -> None:
    numbers = np.linspace(-1, 1, 100_001, dtype=np.float32)
    for percentile in (60.0, 90.0, 99.0, 100.0):
        scheme = observed(seen(numbers), "percentile", percentile, around_zero=True)
        assert scheme.scale * 127 == pytest.approx(percentile / 100, abs=2e-3)
    sparse = np.zeros(10_000, np.float32)
    sparse[:300] = np.linspace(0.1, 1, 300)
    assert observed(seen(sparse), "percentile", 98.0, around_zero=True).scale * 255 == pytest.approx(0.4, abs=0.01)


def test_means_of_extremes_are_those_of_feeds() -> None:
    scheme = observed(seen(np.array([-1, 1]), np.array([-3, 5])), "mean-minmax", 99.9, around_zero=False)
    assert scheme.dtype == "u8"
    assert scheme.scale * 255 == pytest.approx(5)
    assert observed(
        seen(np.array([0, 1]), np.array([0, 5])), "mean-minmax", 99.9, around_zero=True
    ).scale == pytest.approx(3 / 255)


@given(st.lists(NUMBERS, min_size=2, max_size=4))
def test_a_histogram_is_the_same_however_data_come(arrays: list[np.ndarray]) -> None:
    one_by_one, at_once = seen(*arrays), seen(np.concatenate(arrays))
    names = [str(number) for number in range(len(arrays))]
    together = Seen(*names, has_histogram=True)
    together.add(dict(zip(names, arrays, strict=True)))
    for found in (one_by_one, together):
        assert (found.range, found.n_elements) == (at_once.range, at_once.n_elements)
        assert found.limit == at_once.limit
        assert np.abs(np.cumsum(found.counts) - np.cumsum(at_once.counts)).max() <= at_once.n_elements
        assert found.counts.sum() == at_once.counts.sum()


def test_what_has_no_scale() -> None:
    with pytest.raises(bl.InputError, match=r"x is 0 in all calibration data, so that no scale follows; .* f32"):
        observed(seen(np.zeros(3)), "minmax", 99.9, around_zero=True)
    with pytest.raises(bl.InputError, match="feed 2: x is NaN somewhere"):
        Seen("x", has_histogram=False).add({"x": np.array([1, np.nan], np.float32)}, "feed 2: ")
    with pytest.raises(bl.InputError, match="x is infinite somewhere"):
        seen(np.array([1, -np.inf]))
