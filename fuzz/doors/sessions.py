"""Saved sessions: bytes changed, or what the file says of its plans, with checksums that fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

import blocklayout as bl
from blocklayout.tensor.tensor_file import open_tensors, write_tensors
from fuzz.choices import Choices
from fuzz.doors import _networks
from fuzz.doors._feeding import run

SUMMARY = "saved sessions"
SHARE = 2
NBYTES, SECONDS = 256 << 20, 5.0


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    seeds = []
    for number, build in enumerate((_networks.convolutions, _networks.in_numpy)):
        saved = folder / f"seed{number}"
        bl.load(build(), tune="model", threads=1).save(saved)
        file = open_tensors(saved)
        tensors = {name: np.array(tensor) for name, tensor in file.tensors.items()}
        seeds.append((saved.read_bytes(), json.loads(file.text), tensors))
    several = folder / "several"
    bl.merge_sessions([folder / "seed0"], several)
    held = {name: np.array(tensor) for name, tensor in open_tensors(several).tensors.items()}
    seeds.append((several.read_bytes(), json.loads(open_tensors(several).text), held))
    path = folder / "given.session"

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        content, record, tensors = choices.pick(seeds)
        path.unlink(missing_ok=True)  # the one before may be mapped
        if choices.chance(6):
            path.write_bytes(choices.spoilt(content))
        elif "targets" in record and choices.chance(2):
            isa = choices.pick(sorted(record["targets"]))
            told = json.dumps(choices.spoilt_json(json.loads(tensors[isa].tobytes().rstrip(b"\0"))))
            write_tensors(path, json.dumps(record), tensors | {isa: np.frombuffer(told.encode(), np.uint8)})
        else:
            write_tensors(path, json.dumps(choices.spoilt_json(record)), tensors)
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            run(bl.load(path, threads=1, verify=not choices.chance(3)), choices)

    return attempt
