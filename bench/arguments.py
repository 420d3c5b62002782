"""Arguments that several benchmarks take."""

from __future__ import annotations

import argparse

from blocklayout import zoo
from blocklayout.commands.options import positive, words


def networks(text: str) -> tuple[str, ...]:
    """Networks of the zoo such as ``resnet50,squeezenet1_1``."""
    found = words(text)
    unknown = {*found} - {*zoo.names()}
    if unknown:
        raise argparse.ArgumentTypeError(f"no such network: {', '.join(sorted(unknown))}")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Numbers of at least 1, such as ``1,16``."""
    return tuple(positive(word) for word in words(text))
