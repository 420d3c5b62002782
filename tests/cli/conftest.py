from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.command import Command, conv_model, saved

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A file with ``x`` of (N, 3, 8, 8) and ``y`` of (N, 9, 8, 8)."""
    return saved(conv_model(), tmp_path / "tiny.onnx")
