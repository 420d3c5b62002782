"""Where the oneDNN library is: the user's choice, or the file its distribution installed."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from importlib import metadata

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
    found = _recorded_library()
    if found is not None:
        return found
    from importlib import metadata

    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise _not_installed() from None
    return _installed_library(distribution)


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
            files = (line.partition(",")[0] for line in record.read_text(encoding="utf-8").splitlines())
            found = [path for file in files if (path := Path(folder, file)).name == FILE_NAME and path.is_file()]
            return found[0].resolve() if found else None
    return None


def _not_installed() -> UnsupportedError:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return UnsupportedError(
            f"oneDNN's wheel exists for Linux on x86-64 only, and this is {platform.system()} on "
            f"{platform.machine()}: layouts can be computed and inspected here, nothing can run; use such a "
            f"machine, {_OWN_BUILD}",
        )
    return UnsupportedError(f"oneDNN is not installed; run 'pip install {REQUIREMENT}', {_OWN_BUILD}")


def _installed_library(distribution: metadata.Distribution) -> Path:
    # Not ``distribution.files``: from Python 3.12 on it leaves out files that are missing.
    import csv

    record = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    listed = [file for file, *_ in record if Path(file).name == FILE_NAME]
    for file in listed:
        path = Path(str(distribution.locate_file(file)))
        if path.is_file():
            return path.resolve()
    if not listed:
        return _unlisted_library(distribution)
    raise UnsupportedError(
        f"{DISTRIBUTION} {distribution.version} is installed, but its {FILE_NAME} is missing "
        f"({Path(str(distribution.locate_file(listed[0])))}): 'pip install --target' drops that file, because the "
        f"wheel puts it into the environment's lib/; install {REQUIREMENT} into a virtual environment or with "
        f"--user, {_OWN_BUILD}",
    )


def _unlisted_library(distribution: metadata.Distribution) -> Path:
    """For packagers who install without a list of files."""
    path = Path(sys.prefix) / "lib" / FILE_NAME
    if path.is_file():
        return path.resolve()
    raise UnsupportedError(
        f"{DISTRIBUTION} {distribution.version} lists no {FILE_NAME}, and there is none in {path.parent}: this "
        f"package needs {REQUIREMENT}; run 'pip install {REQUIREMENT}', {_OWN_BUILD}",
    )
