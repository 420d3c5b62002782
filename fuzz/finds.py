"""Finds: inputs that ended in anything but success or a ``BlockLayoutError``, each kind of end once, in a folder."""

from __future__ import annotations

import re
import shutil
import traceback
from hashlib import blake2b
from pathlib import Path

_FRAME = re.compile(r'File "(?:.*/)?(\w+/\w+\.py)", line \d+,? in (\w+)')
_N_FRAMES = 3


def keep_error(folder: Path, door: str, data: bytes, error: BaseException, given: Path) -> None:
    """Keep an input that raised what it must not.

    Args:
        folder: Of all finds.
        door: Where it was tried.
        data: The input.
        error: What was raised.
        given: The door's folder, with the files that were made for the case.
    """
    text = "".join(traceback.format_exception(error))
    _keep(folder, door, type(error).__name__, [*reversed(_FRAME.findall(text))], data, text, given)


def keep_end(folder: Path, door: str, data: bytes, what: str, text: str, given: Path) -> None:
    """Keep an input that ended its process.

    Args:
        folder: Of all finds.
        door: Where it was tried.
        data: The input.
        what: ``hang``, or the name of a signal.
        text: What the process wrote last: where each thread was.
        given: As for :func:`keep_error`.
    """
    current = text.partition("most recent call first")[2]
    _keep(folder, door, what, _FRAME.findall(current), data, text, given)


def _keep(
    folder: Path, door: str, what: str, frames: list[tuple[str, str]], data: bytes, text: str, given: Path
) -> None:
    """``frames``: the innermost first; two finds with the same innermost ones are one."""
    product = [frame for frame in frames if not frame[0].startswith(("fuzz/", "doors/"))][:_N_FRAMES]
    label = given / "given.label"
    own = label.read_text() if label.exists() else ""
    digest = blake2b(repr((what, product, own)).encode(), digest_size=4).hexdigest()
    home = folder / f"{door}-{what}-{digest}"
    if (home / "case").exists() and (home / "case").stat().st_size <= len(data):
        return
    home.mkdir(parents=True, exist_ok=True)
    (home / "case").write_bytes(data)
    (home / "report.txt").write_text(text[-20_000:], errors="replace")
    for path in given.glob("given*"):
        if path.is_file() and not path.is_symlink():
            shutil.copyfile(path, home / path.name)
