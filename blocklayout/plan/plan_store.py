"""The store of plans: choices made on this machine before, so that another process need not choose again."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from blocklayout.atomic_write import replacing
from blocklayout.encoding import from_msgpack, to_msgpack
from blocklayout.errors import PlanStoreWarning
from blocklayout.plan.checked import check_bounds
from blocklayout.plan.costs.store import VARIABLE, cost_environment, cost_store_path, warn_once
from blocklayout.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blocklayout.plan.request import Request

FOLDER_NAME = "plans"
MAX_FILES = 512
MAX_NBYTES = 64 << 20
"""Of all of them together; whichever was not used for the longest time goes."""

_SUFFIX = ".plan"
_SKEW_NS = 3600 * 10**9
"""By how much machines that share a folder may differ about the time."""

DIGEST_NBYTES = 16
_PACKAGE = Path(__file__).parents[1]

_Kept = TypeVar("_Kept", bound=Struct)


def plan_store_path() -> Path:
    """Where plans are remembered: the folder ``plans`` beside the measured costs."""
    return cost_store_path().with_name(FOLDER_NAME)


def plan_key(made_of: str, request: Request, n_threads: int, costs: str) -> str | None:
    """Digest of all that the choice of a plan depends on, in hexadecimal; ``None`` where that cannot be known.

    Args:
        made_of: Identifies the computation.
        request: Expectations in it decide nothing and have no say: they are for the plan that is found.
        n_threads: Threads of a run.
        costs: State of the measured costs.
    """
    package = _package_state()
    if package is None:
        return None
    asked = (request.policy, request.dtype, request.is_frugal, sorted(request.without))
    borders = (sorted(request.io_layout.items()), sorted(request.carried.items()))
    names = (*borders, request.demanded.pins, request.demanded.precision)
    variables = sorted(item for item in os.environ.items() if item[0].startswith(("ONEDNN_", "DNNL_")))
    parts = (package, cost_environment(), variables, costs, n_threads, asked, names, made_of)
    return blake2b(repr(parts).encode(), digest_size=DIGEST_NBYTES).hexdigest()


class PlanStore:
    """Plans, and other knowledge of models, by key, each in a file, kept from process to process.

    Files are written whole or not at all, so processes and threads may share a store. No method raises for faults
    of files: one that is damaged, or that cannot be read or written, is reported once in a process, by a
    :class:`~blocklayout.errors.PlanStoreWarning`, and the plan is made anew.

    Args:
        folder: Of the files; made when the first is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recall(self, key: str, kind: type[_Kept], check: Callable[[_Kept], None] | None = None) -> _Kept | None:
        """The plan, or another ``kind``, that was kept under a key; ``None`` where there is none.

        Args:
            key: See :func:`plan_key`.
            kind: Its type.
            check: Raises where it cannot be the one that is wanted.
        """
        path = self._path(key)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._report(error)
            return None
        try:
            kept = _read(content, key, kind)
            if check is not None:
                check(kept)
        except Exception as error:  # noqa: BLE001 - damage raises anything in a reader
            self._report(error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used just now
        return kept

    def keep(self, key: str, kept: Struct) -> None:
        """Keep something under a key; the least recently used makes room."""
        try:
            if "~" in self.folder.parts:
                raise FileNotFoundError("the user's home folder is unknown")
            self.folder.mkdir(parents=True, exist_ok=True)
            target, body = self._path(key), to_msgpack(kept)
            with replacing(target, outlasts_power=False) as beside:  # a checksum tells a damaged one
                beside.write_bytes(checksum(key, body) + body)
            for path in self._superfluous(target.stat().st_mtime_ns):
                path.unlink(missing_ok=True)
        except OSError as error:
            self._report(error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _superfluous(self, now_ns: int) -> Iterator[Path]:
        """The files beyond the limits, by when they were used; those of a clock that was ahead go first."""
        found = []
        with os.scandir(self.folder) as entries:  # in half the time of pathlib
            for entry in entries:
                if entry.name.endswith(_SUFFIX):
                    with contextlib.suppress(OSError):  # another process has just removed it
                        status = entry.stat()
                        used_ns = status.st_mtime_ns
                        found.append((used_ns if used_ns <= now_ns + _SKEW_NS else 0, status.st_size, entry.path))
        nbytes = 0
        for number, (_, size, path) in enumerate(sorted(found, reverse=True)):
            nbytes += size
            if number >= MAX_FILES or nbytes > MAX_NBYTES:
                yield Path(path)

    def _report(self, error: Exception) -> None:
        remedy = f"see to its disk and permissions, delete it, or set {VARIABLE} to another folder"
        message = f"plans cannot be remembered in {self.folder}: {error}; {remedy}. They are made anew."
        warn_once(self.folder, message, PlanStoreWarning)


def _read(content: bytes, key: str, kind: type[_Kept]) -> _Kept:
    body = content[DIGEST_NBYTES:]
    if content[:DIGEST_NBYTES] != checksum(key, body):
        raise ValueError(f"{key}{_SUFFIX} is damaged")
    kept = from_msgpack(kind, body)
    if isinstance(kept, Plan):
        check_bounds(kept, {packed.buffer: packed.desc.nbytes for packed in kept.constants})
    return kept


def checksum(key: str, body: bytes) -> bytes:
    """The bytes in front of an entry's body."""
    return blake2b(body, digest_size=DIGEST_NBYTES, key=key.encode()).digest()


@cache
def _package_state() -> str | None:
    """Digest of names, sizes and times of the package's files: another version, or an edited one, plans otherwise."""
    try:
        files = sorted(_states(str(_PACKAGE)))
    except OSError:
        return None
    return blake2b(repr(files).encode(), digest_size=DIGEST_NBYTES).hexdigest()


def _states(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _states(entry.path)
            elif entry.name.endswith((".py", ".so", ".npz")):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
