"""Texts on the command line: ``--shape``, ``--input``, ``--pin`` and all others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

import blocklayout as bl
from blocklayout.cli import main
from fuzz.choices import Choices
from fuzz.doors import _networks

SUMMARY = "texts on the command line"
KNOWN = (
    *(
        "x=1x3x12x12",
        "x=",
        "x=nhwc",
        "second=nChw8c",
        "*=any",
        "Conv=nhwc",
        "nhwc",
        "nChw16c",
        "auto",
        "per-op",
        "1x3x4x4",
    ),
    *(
        "0,1,2,3",
        "1",
        "2",
        "f32",
        "bf16",
        "x",
        "image=nchw",
        "y=f32",
        "aBcd16b",
        "2x17x5x4",
        "layer1.*",
        "1e3",
        "64x64x3x3",
    ),
)
OPTIONS = (
    *("--shape", "--input", "--pin", "--io-layout", "--precision", "--layout", "--threads", "--tune-seconds"),
    "--limit-memory",
)
COMMANDS = ("plan", "run", "inspect", "candidates", "profile")


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    model, fed = folder / "x.onnx", folder / "x.npy"
    bl.save(_networks.convolutions(), model)
    np.save(fed, np.ones((1, 3, 12, 12), np.float32))
    known = (*KNOWN, f"x={fed}")
    given = folder / "given.npy"

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        command = choices.pick(COMMANDS)
        words = [command]
        if command in ("inspect", "candidates"):
            kinds = ("conv", "matmul", "relu", "pool", "reorder", "inner_product")
            first = choices.pick(kinds) if command == "candidates" else _word(choices, known)
            words += [first, *(_word(choices, known) for _ in range(1 + choices.below(3)))]
            words += [_word(choices, ("--index", "--dtype", "--pads", "--strides", "--at", *known))]
        else:
            words += [str(model), "--tune", "model", "--threads", "1"]
            words += ["--limit-memory", "256M", "--limit-seconds", "5"]
        for _ in range(choices.below(3)):
            option = choices.pick(OPTIONS)
            word = _word(choices, known)
            if option == "--input" and choices.chance(2):
                given.write_bytes(choices.spoilt(fed.read_bytes()))
                word = f"x={given}"
            words += [option, word]
        (folder / "given.txt").write_text(repr(words), errors="replace")
        status, text = _status_of(words, folder)
        if status not in (0, 2) or (status == 2 and len(text.strip().splitlines()) != 1):
            raise AssertionError(f"status {status}, and on standard error {text!r}")

    return attempt


def _status_of(words: list[str], folder: Path) -> tuple[int, str]:
    """What a command line ends with, and what it writes to standard error."""
    with (folder / "said").open("w+") as said, (folder / "refusal").open("w+") as refusal:
        with redirect_stdout(said), redirect_stderr(refusal):
            try:
                status = main(words)
            except SystemExit as error:
                status = int(error.code or 0)
        refusal.seek(0)
        return status, refusal.read()


def _word(choices: Choices, known: tuple[str, ...]) -> str:
    word = choices.pick(known)
    if not choices.chance(3):
        word = choices.spoilt_text(word, known)
    return word.replace("\0", "").encode("utf-8", "replace").decode()
