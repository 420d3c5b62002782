"""Finding, loading and describing the library; every way in which it can be missing has its own message."""

from __future__ import annotations

import gc
import platform
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blocklayout.dnnl import library
from blocklayout.errors import UnsupportedError
from blocklayout.layout import FormatTag

FAKE = """
typedef struct {{ int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; }} version_t;
static const version_t version = {{ {major}, 7, 1, "none", {runtime}, 0 }};
const version_t *dnnl_version(void) {{ return &version; }}
int dnnl_set_primitive_cache_capacity(int capacity) {{ return capacity; }}
"""


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As if nothing had been loaded yet, and nothing were chosen."""
    gc.disable()  # what other tests left behind takes the library when it goes
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.delenv(library.VARIABLE, raising=False)
    yield monkeypatch
    gc.enable()


def message_of_loading() -> str:
    with pytest.raises(UnsupportedError) as caught:
        library.load()
    assert library._loaded is None
    return str(caught.value)


def installed_at(folder: Path, record: str | None) -> list[str]:
    """A path for modules, on which nothing else is."""
    info = folder / "onednn_cpu_gomp-2023.2.0.dist-info"
    info.mkdir(parents=True)
    if record is not None:
        (info / "RECORD").write_text(record)
    return [str(folder)]


def test_the_installed_library_is_found(unloaded: pytest.MonkeyPatch) -> None:
    assert library.find_library().is_file()
    unloaded.setattr(sys, "path", ["", "/no/such/folder", *sys.path])
    assert library.find_library().is_file()


def test_a_chosen_library_comes_first(unloaded: pytest.MonkeyPatch) -> None:
    path = library.find_library()
    unloaded.setattr(sys, "path", [])
    unloaded.setenv(library.VARIABLE, str(path))
    assert library.find_library() == path


def test_a_chosen_library_that_is_missing(unloaded: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unloaded.setenv(library.VARIABLE, str(tmp_path / "libdnnl.so.3"))
    assert "there is no such file" in message_of_loading()


def test_not_installed(unloaded: pytest.MonkeyPatch) -> None:
    unloaded.setattr(sys, "path", [])
    unloaded.setattr(sys, "platform", "linux")
    unloaded.setattr(platform, "machine", lambda: "x86_64")
    assert "pip install onednn-cpu-gomp==2023.2.0" in message_of_loading()


@pytest.mark.parametrize(("system", "machine"), [("linux", "aarch64"), ("darwin", "x86_64"), ("win32", "AMD64")])
def test_wrong_platform(unloaded: pytest.MonkeyPatch, system: str, machine: str) -> None:
    unloaded.setattr(sys, "path", [])
    unloaded.setattr(sys, "platform", system)
    unloaded.setattr(platform, "machine", lambda: machine)
    message = message_of_loading()
    assert "Linux on x86-64 only" in message
    assert machine in message


def test_installed_with_target_which_drops_the_file(unloaded: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unloaded.setattr(sys, "path", installed_at(tmp_path / "target", "../libdnnl.so.3,,\n"))
    assert "pip install --target" in message_of_loading()


def test_installed_for_the_user_puts_the_file_elsewhere(unloaded: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = installed_at(tmp_path / "lib" / "python3" / "site-packages", "../../libdnnl.so.3,,\n")
    (tmp_path / "lib" / "libdnnl.so.3").write_bytes(b"")
    unloaded.setattr(sys, "path", path)
    assert library.find_library() == (tmp_path / "lib" / "libdnnl.so.3").resolve()


@pytest.mark.parametrize("record", [None, "something/else.py,,\n"])
def test_installed_without_a_usable_list_of_files(
    unloaded: pytest.MonkeyPatch, tmp_path: Path, record: str | None
) -> None:
    unloaded.setattr(sys, "path", installed_at(tmp_path / "site", record))
    unloaded.setattr(sys, "prefix", str(tmp_path))
    assert "lists no libdnnl.so.3" in message_of_loading()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdnnl.so.3").write_bytes(b"")
    assert library.find_library().name == "libdnnl.so.3"


@pytest.mark.parametrize("content", [b"no library at all" * 10, b""])
def test_a_file_that_is_no_library(unloaded: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libdnnl.so.3"
    path.write_bytes(content)
    unloaded.setenv(library.VARIABLE, str(path))
    assert "no library for this platform" in message_of_loading()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FAKE.format(major=2, runtime=2), "is oneDNN 2.7.1, and this package needs 3.x"),
        (FAKE.format(major=3, runtime=4), "runs its threads by TBB"),
        (FAKE.format(major=3, runtime=8), "runs its threads by threadpool"),
        (FAKE.format(major=3, runtime=77), "runs its threads by 77"),
        ("int nothing_of_dnnl;", "is not oneDNN"),
    ],
)
def test_wrong_version(unloaded: pytest.MonkeyPatch, compile_library: Any, source: str, message: str) -> None:
    unloaded.setenv(library.VARIABLE, str(compile_library(source, "libdnnl.so.3")))
    assert message in message_of_loading()


def test_a_sequential_library_is_accepted(unloaded: pytest.MonkeyPatch, compile_library: Any) -> None:
    unloaded.setenv(library.VARIABLE, str(compile_library(FAKE.format(major=3, runtime=1), "libdnnl.so.3")))
    assert library.load().dnnl_version().cpu_runtime == 1


@pytest.mark.parametrize(
    ("needed", "message"),
    [
        ("libgomp.so.not_there", "apt-get install libgomp1"),
        ("libstdc++.so.not_there", "libstdc++6"),
        ("libother.so.not_there", "cannot be loaded"),
    ],
)
def test_a_system_library_is_missing(
    unloaded: pytest.MonkeyPatch, compile_library: Any, needed: str, message: str
) -> None:
    runtime = compile_library("int runtime(void) { return 1; }", needed, f"-Wl,-soname,{needed}")
    source = "int runtime(void); int use(void) { return runtime(); }"
    path = compile_library(source, "libdnnl.so.3", str(runtime))
    runtime.unlink()
    unloaded.setenv(library.VARIABLE, str(path))
    assert message in message_of_loading()


def test_eight_threads_load_it_once(unloaded: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    real_open = library._open

    def open_and_count(path: Path) -> Any:
        opened.append(path)
        return real_open(path)

    unloaded.setattr(library, "_open", open_and_count)
    barrier = threading.Barrier(8)
    found: list[Any] = []

    def load() -> None:
        barrier.wait()
        found.append(library.load())

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert len({id(c_library) for c_library in found}) == 1


def test_importing_does_not_load_it(run_python: Any) -> None:
    code = (
        "import blocklayout.dnnl, blocklayout.dnnl.memory, blocklayout.dnnl.threads, blocklayout.dnnl.library as l\n"
        "print(l._loaded is not None, 'libdnnl' in open('/proc/self/maps').read())"
    )
    assert run_python(code) == "False False"


def test_version() -> None:
    major, minor, _ = library.version()
    assert (major, minor) >= (3, 0)
    assert library.version_hash()


def test_the_librarys_own_primitive_cache_is_off() -> None:
    from blocklayout.dnnl._abi import ffi

    c_capacity = ffi.new("int *")
    assert library.load().dnnl_get_primitive_cache_capacity(c_capacity) == 0
    assert c_capacity[0] == 0


def test_isa_follows_the_environment(run_python: Any) -> None:
    code = "from blocklayout.dnnl import isa, has_bf16; print(isa(), has_bf16())"
    assert run_python(code, ONEDNN_MAX_CPU_ISA="SSE41") == "sse41 False"


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(0x7, False), (0xF, False), (0x1F, True), (0x27, True), (0xE7, True), (0x1FEF, True)],
)
def test_bf16_begins_with_avx512(monkeypatch: pytest.MonkeyPatch, bits: int, *, expected: bool) -> None:
    class Cpu:
        def dnnl_get_effective_cpu_isa(self) -> int:
            return bits

    library.isa()  # remembered now, or the fake's would be for all tests that follow
    monkeypatch.setattr(library, "load", Cpu)
    assert library.has_bf16() is expected


@pytest.mark.parametrize(("bits", "has_it"), [(0xE7, False), (0xF, False), (0x1F, True), (0x1EF, True), (0xFEF, True)])
def test_f16_needs_instructions_of_its_own(monkeypatch: pytest.MonkeyPatch, bits: int, *, has_it: bool) -> None:
    class Cpu:
        def dnnl_get_effective_cpu_isa(self) -> int:
            return bits

    monkeypatch.setattr(library, "load", Cpu)
    missing = library.missing_isa("f16")
    assert (missing is None) is has_it
    assert has_it or "AVX512-FP16 (avx512_core_fp16)" in str(missing)


def test_every_tag_of_the_library_parses_to_itself() -> None:
    names = library.fmt_tag_names()
    assert names[:3] == ("undef", "any", "a")
    assert len(names) > 700
    assert [FormatTag.parse(name).canonical for name in names[2:]] == list(names[2:])
