"""Saved plans: JSON with values changed, used with the model that they are of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import blocklayout as bl
from fuzz.choices import Choices
from fuzz.doors import _networks
from fuzz.doors._feeding import run

SUMMARY = "saved plans"
SHARE = 2
NBYTES, SECONDS = 256 << 20, 5.0


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    seeds = []
    for build in (_networks.convolutions, _networks.in_numpy):
        for layout in ("auto", "nhwc"):
            session = bl.load(build(), layout=layout, tune="model", threads=1)
            seeds.append((build(), session.plan.to_json()))
    path = folder / "given.plan"

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        model, text = choices.pick(seeds)
        if choices.chance(8):
            content = choices.spoilt(text.encode())
        else:
            content = json.dumps(choices.spoilt_json(json.loads(text))).encode()
        path.write_bytes(content)
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            plan = bl.Plan.load(path)
            str(plan)
            plan.to_json()
            run(bl.load(model, plan=plan, threads=1), choices)

    return attempt
