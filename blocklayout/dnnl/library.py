"""The loaded oneDNN library: found and loaded once, at the first call that needs it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from blocklayout.dnnl import enums
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.native import wants_team
from blocklayout.errors import UnsupportedError
from blocklayout.forking import Lock

VARIABLE = "BLOCKLAYOUT_ONEDNN"
DISTRIBUTION = "onednn-cpu-gomp"
REQUIREMENT = f"{DISTRIBUTION}==2023.2.0"
FILE_NAME = "libdnnl.so.3"

_OWN_BUILD = f"or set {VARIABLE} to the libdnnl.so.3 of a oneDNN 3.x build whose CPU runtime is OpenMP or sequential"
_MAJOR = 3
_RUNTIMES = {0: "none", 1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool"}
_USABLE_RUNTIMES = (1, 2)
_ISAS_OF_DTYPES = {
    "bf16": ("AVX-512", ("avx512_core", "avx2_vnni_2")),
    "f16": ("AVX512-FP16", ("avx512_core_fp16", "avx2_vnni_2")),
}
"""Requirements of computing with narrow floats: a CPU maker's name, and instruction sets one of which suffices."""

_TAGS_BOUND = 10_000  # a library that names no last tag must not keep us for ever

lock = Lock()
"""Held while the library is loaded, and for other work that is done once a process; for a short time."""

_loaded: Any = None


def load() -> Any:
    """The library's functions; the first call finds, loads and checks the library.

    Raises:
        UnsupportedError: It cannot be used here; the message says why, and a remedy.
    """
    global _loaded  # noqa: PLW0603 - a process has one
    if _loaded is None:
        with lock:
            if _loaded is None:
                path = find_library()
                c_library = _open(path)
                _check_version(c_library, path)
                # Specs are the key of our own caches; the library's would keep primitives that they have let go.
                c_library.dnnl_set_primitive_cache_capacity(0)
                _loaded = c_library
    return _loaded


def find_library() -> Path:
    """The path of the library to load; it exists.

    ``BLOCKLAYOUT_ONEDNN`` comes first, then the files that the ``onednn-cpu-gomp`` distribution lists. An
    UnsupportedError where the variable names no file, or the distribution is not installed, lacks its library, or is
    not made for this platform.
    """
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return _installed_library()
    path = Path(chosen).expanduser()
    if not path.is_file():
        raise UnsupportedError(f"{VARIABLE}={chosen}: there is no such file; name the libdnnl.so.3 itself")
    return path.resolve()


def _not_installed() -> UnsupportedError:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return UnsupportedError(
            f"oneDNN's wheel exists for Linux on x86-64 only, and this is {platform.system()} on "
            f"{platform.machine()}: layouts can be computed and inspected here, nothing can run; use such a "
            f"machine, {_OWN_BUILD}"
        )
    return UnsupportedError(f"oneDNN is not installed; run 'pip install {REQUIREMENT}', {_OWN_BUILD}")


def _installed_library() -> Path:
    """The file that the distribution lists; looked for without ``importlib.metadata``, which takes 30 ms."""
    begin = f"{DISTRIBUTION.replace('-', '_')}-"
    infos: list[Path] = []
    for folder in sys.path:
        with suppress(OSError):  # it is none, or may not be read
            infos += [Path(entry) for entry in os.scandir(folder or ".") if entry.name.startswith(begin)]
    if not infos:
        raise _not_installed()
    record = infos[0] / "RECORD"
    lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
    files = [line.partition(",")[0] for line in lines]
    listed = [infos[0].parent / file for file in files if Path(file).name == FILE_NAME]
    unlisted = Path(sys.prefix) / "lib" / FILE_NAME  # for packagers who install without a list of files
    found = next((path.resolve() for path in listed or [unlisted] if path.is_file()), None)
    if found is not None:
        return found
    installed = infos[0].stem.replace("-", " ").replace("_", "-")
    if listed:
        raise UnsupportedError(
            f"{installed} is installed, but its {FILE_NAME} is missing ({listed[0]}): "
            f"'pip install --target' drops that file, because the wheel puts it into the environment's lib/; "
            f"install {REQUIREMENT} into a virtual environment or with --user, {_OWN_BUILD}"
        )
    raise UnsupportedError(
        f"{installed} lists no {FILE_NAME}, and there is none in {unlisted.parent}: this "
        f"package needs {REQUIREMENT}; run 'pip install {REQUIREMENT}', {_OWN_BUILD}"
    )


def _open(path: Path) -> Any:
    from blocklayout.dnnl.libgomp import measured_spin_count  # which calls this library

    try:
        with nullcontext() if wants_team() else measured_spin_count():
            return ffi.dlopen(str(path))
    except OSError as error:
        raise UnsupportedError(_loading_failure(path, str(error))) from error


def _loading_failure(path: Path, reason: str) -> str:
    if "libgomp.so" in reason:
        return (
            f"{path} needs libgomp.so.1, the GNU OpenMP runtime, and this system has none: install the system "
            f"package libgomp1 (Debian, Ubuntu: 'apt-get install libgomp1') or libgomp (Fedora, RHEL: "
            f"'dnf install libgomp')"
        )
    if "libstdc++" in reason or "libgcc_s" in reason:
        return (
            f"{path} needs the C++ runtime, and this system has none: install the system package libstdc++6 "
            f"(Debian, Ubuntu) or libstdc++ (Fedora, RHEL); the loader said: {reason}"
        )
    if any(sign in reason for sign in ("ELF", "Exec format", "file too short", "mach-o")):
        return (
            f"{path} is no library for this platform; set {VARIABLE} to a oneDNN 3.x built for it; "
            f"the loader said: {reason}"
        )
    return f"{path} cannot be loaded: {reason}"


def _check_version(c_library: Any, path: Path) -> None:
    needed = f"set {VARIABLE} to a oneDNN 3.x whose CPU runtime is OpenMP or sequential, or unset it"
    try:
        c_version = c_library.dnnl_version()
    except ffi.error:
        raise UnsupportedError(f"{path} is not oneDNN: it has no dnnl_version; {needed}") from None
    if c_version.major != _MAJOR:
        found = f"{c_version.major}.{c_version.minor}.{c_version.patch}"
        raise UnsupportedError(f"{path} is oneDNN {found}, and this package needs {_MAJOR}.x; {needed}")
    if c_version.cpu_runtime not in _USABLE_RUNTIMES:
        runtime = _RUNTIMES.get(c_version.cpu_runtime, str(c_version.cpu_runtime))
        raise UnsupportedError(f"{path} runs its threads by {runtime}, which this package cannot drive; {needed}")


def version() -> tuple[int, int, int]:
    """The loaded library's version.

    Example:
        >>> version()[0]
        3
    """
    c_version = load().dnnl_version()
    return c_version.major, c_version.minor, c_version.patch


def version_hash() -> str:
    """The commit the loaded library was built from."""
    return str(ffi.string(load().dnnl_version().hash), "ascii")


@cache
def is_sequential() -> bool:
    """Whether the loaded library was built without threads."""
    return bool(load().dnnl_version().cpu_runtime == ffi.integer_const("DNNL_RUNTIME_SEQ"))


@cache
def isa() -> str:
    """The instruction set the library uses, such as ``avx2``: this CPU's best that ``ONEDNN_MAX_CPU_ISA`` allows.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.isa() in dnnl.isa_names()
        True
    """
    return enums.name("cpu_isa", load().dnnl_get_effective_cpu_isa())


def has_isa(name: str) -> bool:
    """Whether the library may use an instruction set, as :func:`isa` spells it, here; a later one has the earlier ones.

    Example:
        >>> has_isa(isa()), has_isa("sse2000")
        (True, False)
    """
    bits = load().dnnl_get_effective_cpu_isa()
    wanted = enums.values("cpu_isa").get(name)
    return wanted is not None and bits & wanted == wanted


def sums_bytes_exactly() -> bool:
    """Whether sums of products of bytes are exact on this CPU: before VNNI, sums of two saturate at 16 bits.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.sums_bytes_exactly() in (True, False)
        True
    """
    return has_isa("avx512_core_vnni") or has_isa("avx2_vnni")


def isa_names() -> tuple[str, ...]:
    """The instruction sets that the library knows, as :func:`isa` spells them, lowest first.

    Example:
        >>> isa_names()[:3]
        ('sse41', 'avx', 'avx2')
    """
    order = enums.values("cpu_isa")
    return tuple(sorted((name for name, bits in order.items() if bits), key=order.__getitem__))


def highest_isa(names: Iterable[str]) -> str:
    """The instruction set among some, as :func:`isa` spells them, that has most of the others; unknown ones come first.

    Example:
        >>> highest_isa(["avx2", "avx512_core_amx", "avx512_core"])
        'avx512_core_amx'
    """
    order = enums.values("cpu_isa")
    return max(names, key=lambda name: order.get(name, -1))


def has_bf16() -> bool:
    """Whether the library computes in bf16 here.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.has_bf16() <= dnnl.has_isa("avx512_core")
        True
    """
    return missing_isa("bf16") is None


def missing_isa(dtype: str) -> str | None:
    """The instruction set that arithmetic in a data type needs and this CPU lacks, in words; ``None`` if it has it.

    Source: "Data Types", oneDNN developer guide, v3.2.

    Example:
        >>> missing_isa("f32") is None
        True
    """
    if dtype not in _ISAS_OF_DTYPES:
        return None
    name, isas = _ISAS_OF_DTYPES[dtype]
    return None if any(map(has_isa, isas)) else f"needs a CPU with {name} ({isas[0]}); this one runs {isa()}"


def channel_blocks(isa: str) -> tuple[int, ...]:
    """Sizes of the channels' blocks that have kernels of their own, largest first: AVX-512 has registers of 16 lanes.

    Example:
        >>> channel_blocks("avx512_core"), channel_blocks("avx2")
        ((16, 8), (8,))
    """
    return (16, 8) if isa.startswith("avx512") else (8,)


@cache
def fmt_tag_names() -> tuple[str, ...]:
    """The names of the loaded library's format tags, by value; the first two are ``undef`` and ``any``.

    Example:
        >>> fmt_tag_names()[:6]
        ('undef', 'any', 'a', 'ab', 'abc', 'abcd')
    """
    c_library = load()
    names: list[str] = []
    while len(names) < _TAGS_BOUND:
        name = ffi.string(c_library.dnnl_fmt_tag2str(len(names))).decode()
        if name in ("format_tag_last", "unknown fmt_tag"):
            break
        names.append(name)
    return tuple(names)
