"""The user's store of plans: bytes changed, or what a file says, with a checksum that fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

import blocklayout as bl
from blocklayout.plan import plan_store
from fuzz.choices import Choices
from fuzz.doors import _networks
from fuzz.doors._feeding import run

SUMMARY = "plans that are remembered"
SHARE = 2
NBYTES, SECONDS = 256 << 20, 5.0


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    seeds = []
    store = folder / "cache" / plan_store.FOLDER_NAME  # what the parent's BLOCKLAYOUT_CACHE_DIR names
    for number, build in enumerate((_networks.convolutions, _networks.in_numpy)):
        model = folder / f"seed{number}.onnx"
        bl.save(build(), model)
        before = {*store.glob("*")}
        bl.load(model, threads=1)
        seeds.append((model, [(path, path.read_bytes()) for path in sorted({*store.glob("*")} - before)]))

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        model, kept = choices.pick(seeds)
        spoilt = choices.pick([path for path, _ in kept])
        for path in store.glob("*"):
            path.unlink()
        for path, content in kept:
            path.write_bytes(_spoilt(path, content, choices) if path == spoilt else content)
        (folder / "given.plan").write_bytes(spoilt.read_bytes())
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            run(bl.load(model, threads=1), choices)

    return attempt


def _spoilt(path: Path, content: bytes, choices: Choices) -> bytes:
    if choices.chance(4):
        return choices.spoilt(content)
    body = content[plan_store.DIGEST_NBYTES :]
    body = choices.spoilt(body) if choices.chance(4) else _encoded(choices.spoilt_json(msgspec.msgpack.decode(body)))
    return plan_store.checksum(path.stem, body) + body


def _encoded(data: object) -> bytes:
    try:
        return msgspec.msgpack.encode(data)
    except (OverflowError, UnicodeError):  # msgpack has no such number or text
        return b""
