"""Where the oneDNN library is: the user's choice, or the file its distribution installed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from blocklayout.errors import UnsupportedError

VARIABLE = "BLOCKLAYOUT_ONEDNN"
DISTRIBUTION = "onednn-cpu-gomp"
REQUIREMENT = f"{DISTRIBUTION}==2023.2.0"
FILE_NAME = "libdnnl.so.3"

_OWN_BUILD = f"or set {VARIABLE} to the libdnnl.so.3 of a oneDNN 3.x build whose CPU runtime is OpenMP or sequential"


def find_library() -> Path:
    """The path of the library to load; it exists.

    ``BLOCKLAYOUT_ONEDNN`` comes first, then the files that the ``onednn-cpu-gomp`` distribution lists.

    Raises:
        UnsupportedError: There is none, and why: the variable names no file, the distribution is not
            installed, was installed without its library, or is not made for this platform.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return _chosen_library(chosen)
    return _recorded_library() or _installed_library()


def _chosen_library(chosen: str) -> Path:
    path = Path(chosen).expanduser()
    if not path.is_file():
        raise UnsupportedError(f"{VARIABLE}={chosen}: there is no such file; name the libdnnl.so.3 itself")
    return path.resolve()


def _recorded_library() -> Path | None:
    """The file that pip's record lists; found without ``importlib.metadata``, which takes 30 ms."""
    name, _, version = REQUIREMENT.partition("==")
    for folder in sys.path:
        record = Path(folder, f"{name.replace('-', '_')}-{version}.dist-info", "RECORD")
        if record.is_file():
            return _first_file(_listed(record.read_text(encoding="utf-8"), Path(folder).joinpath))
    return None


def _listed(record: str, locate: Callable[[str], object]) -> list[Path]:
    """Where the library is by pip's record, whose files may be missing."""
    files = (line.partition(",")[0] for line in record.splitlines())
    return [Path(str(locate(file))) for file in files if Path(file).name == FILE_NAME]


def _first_file(paths: list[Path]) -> Path | None:
    return next((path.resolve() for path in paths if path.is_file()), None)


def _not_installed() -> UnsupportedError:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return UnsupportedError(
            f"oneDNN's wheel exists for Linux on x86-64 only, and this is {platform.system()} on "
            f"{platform.machine()}: layouts can be computed and inspected here, nothing can run; use such a "
            f"machine, {_OWN_BUILD}",
        )
    return UnsupportedError(f"oneDNN is not installed; run 'pip install {REQUIREMENT}', {_OWN_BUILD}")


def _installed_library() -> Path:
    from importlib import metadata

    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise _not_installed() from None
    # Not ``distribution.files``: from Python 3.12 on it leaves out files that are missing.
    listed = _listed(distribution.read_text("RECORD") or "", distribution.locate_file)
    unlisted = Path(sys.prefix) / "lib" / FILE_NAME  # for packagers who install without a list of files
    found = _first_file(listed or [unlisted])
    if found is not None:
        return found
    if listed:
        raise UnsupportedError(
            f"{DISTRIBUTION} {distribution.version} is installed, but its {FILE_NAME} is missing ({listed[0]}): "
            f"'pip install --target' drops that file, because the wheel puts it into the environment's lib/; "
            f"install {REQUIREMENT} into a virtual environment or with --user, {_OWN_BUILD}",
        )
    raise UnsupportedError(
        f"{DISTRIBUTION} {distribution.version} lists no {FILE_NAME}, and there is none in {unlisted.parent}: this "
        f"package needs {REQUIREMENT}; run 'pip install {REQUIREMENT}', {_OWN_BUILD}",
    )
