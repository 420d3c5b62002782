"""What has no end is refused at once, by every way in."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import blocklayout as bl
from blocklayout.cli import main
from blocklayout.errors import BlockLayoutError


@pytest.fixture(params=["device", "link to a device", "pipe", "pipe with a writer", "socket", "folder"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """What is no regular file."""
    path = tmp_path / "endless"
    if request.param == "device":
        yield Path("/dev/zero")
    elif request.param == "link to a device":
        path.symlink_to("/dev/zero")
        yield path
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            yield path
    elif request.param == "folder":
        path.mkdir()
        yield path
    else:
        os.mkfifo(path)
        writer = os.open(path, os.O_RDWR) if request.param == "pipe with a writer" else None
        yield path
        if writer is not None:
            os.close(writer)


@pytest.mark.parametrize("way", [bl.load, bl.load_tensors, bl.Plan.load])
def test_what_has_no_end_is_refused_at_once(endless: Path, way: Callable[[Path], object]) -> None:
    found: list[BaseException] = []

    def try_it() -> None:
        with pytest.raises(BlockLayoutError, match=str(endless)) as caught:
            way(endless)
        found.append(caught.value)

    trying = threading.Thread(target=try_it, daemon=True)  # without the check it would not come back
    trying.start()
    trying.join(60)
    assert len(found) == 1


@pytest.mark.parametrize(
    "options", ["plan {}", "run zoo:resnet18 --input x={}", "run zoo:resnet18 --plan {}", "run --image {}"]
)
def test_commands_say_so(options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(options.format(pipe).split()) != 0
    assert "it is a pipe or a device, not a regular file" in capsys.readouterr().err
