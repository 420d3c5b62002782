"""What is told about the CPU, on machines that tell much or nothing."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from blocklayout.dnnl import processor
from blocklayout.dnnl.processor import Cache, cpu_name, data_caches


def describe(folder: Path, **words: str) -> None:
    folder.mkdir()
    for name, word in words.items():
        (folder / name).write_text(f"{word}\n", encoding="ascii")


def test_caches_of_instructions_are_left_out(tmp_path: Path) -> None:
    describe(tmp_path / "index0", level="1", type="Data", size="32K")
    describe(tmp_path / "index1", level="1", type="Instruction", size="32K")
    describe(tmp_path / "index2", level="2", type="Unified", size="2M")
    assert data_caches(tmp_path) == (Cache(1, 32 << 10), Cache(2, 2 << 20))


def test_a_system_that_tells_nothing_has_no_caches(tmp_path: Path) -> None:
    describe(tmp_path / "index0", level="1", type="Data")
    assert data_caches(tmp_path) == ()
    assert data_caches(tmp_path / "absent") == ()


def test_the_cpu_has_a_name() -> None:
    assert cpu_name()


def test_no_other_program_is_asked_for_a_name_that_the_system_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU of Words\n", encoding="ascii")
    monkeypatch.setattr(processor, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: pytest.fail("it starts uname"))
    assert cpu_name.__wrapped__() == "A CPU of Words"
