"""Nothing asks a network for anything, nor opens a socket."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# The events are CPython's: https://docs.python.org/3/library/audit_events.html
WATCHED = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"{event}{arguments}")

sys.addaudithook(refuse)
"""

COMMAND = """
from blocklayout.cli import main
sys.exit(main())
"""

SESSION = """
import blocklayout as bl
from blocklayout import zoo
with bl.load(zoo.build("squeezenet1_1", size=32)) as session:
    session.save(sys.argv[1])
with bl.load(sys.argv[1]) as session:
    session.report()
"""


@pytest.mark.parametrize(
    "code", ["import socket; socket.socket()", "import socket; socket.getaddrinfo('localhost', 1)"]
)
def test_a_socket_would_be_seen(code: str, tmp_path: Path) -> None:
    assert "socket." in watched(code, tmp_path).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["run", "--rounds", "1"],
        ["plan", "--why"],
        ["profile"],
        ["show", "-o", "page.html"],
        ["inspect", "nChw16c", "1x17x5x4", "--html"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_open_no_socket(arguments: list[str], tmp_path: Path) -> None:
    done = watched(COMMAND, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr


def test_sessions_open_no_socket(tmp_path: Path) -> None:
    done = watched(SESSION, tmp_path, "saved.session")
    assert done.returncode == 0, done.stderr


def watched(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WATCHED + code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "BLOCKLAYOUT_CACHE_DIR": str(folder / "cache")},
    )
