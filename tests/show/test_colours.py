"""Colours of layouts stand out from the ground, and from each other."""

from __future__ import annotations

from itertools import combinations

import pytest

from blocklayout.show.page import LAYOUT_COLOURS

GROUNDS = ("#ffffff", "#16171a")


def luminance(colour: str) -> float:
    """Relative luminance; source: "Web Content Accessibility Guidelines", 2.1."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", LAYOUT_COLOURS)
def test_it_stands_out_from_either_ground(name: str) -> None:
    for colour, ground in zip(LAYOUT_COLOURS[name], GROUNDS, strict=True):
        assert contrast(colour, ground) >= 3


@pytest.mark.parametrize("theme", [0, 1])
def test_no_two_are_alike(theme: int) -> None:
    colours = [each[theme] for each in LAYOUT_COLOURS.values()]
    for one, other in combinations(colours, 2):
        apart = sum((int(one[place : place + 2], 16) - int(other[place : place + 2], 16)) ** 2 for place in (1, 3, 5))
        assert apart >= 40**2
