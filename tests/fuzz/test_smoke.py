"""The fuzzer itself: it counts, it keeps what it finds, and it tries that again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import blocklayout as bl
from fuzz import doors
from fuzz.board import Board
from fuzz.choices import Choices
from fuzz.finds import keep_end, keep_error
from tests import nets

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "fuzz" / "corpus"


def fuzz(environ: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environ | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
        timeout=120,
    )


def test_a_door_is_tried_and_counted(tree_environ: dict[str, str], tmp_path: Path) -> None:
    run = fuzz(tree_environ, tmp_path, "layouts", "--seconds", "1.5", "--unguided", "--finds", "finds")
    assert run.returncode == 0, run.stdout + run.stderr
    [counts] = re.findall(r"layouts +([\d,]+) inputs, +([\d,]+) refused, 0 ended", run.stdout)
    n_tried, n_refused = (int(count.replace(",", "")) for count in counts)
    assert n_tried > n_refused > 0


def test_one_input_is_tried_again(tree_environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "case").write_bytes(b"\0\0\0\3xyz")
    run = fuzz(tree_environ, tmp_path, "layouts", "--file", "case")
    assert run.returncode == 0
    assert run.stdout.startswith(("done, without", "LayoutError: "))


AT_EACH_DOOR = """
import os
from fuzz import child, doors

for door in doors.names():
    os.mkdir(door)
    os.environ["BLOCKLAYOUT_CACHE_DIR"] = os.path.abspath(os.path.join(door, "cache"))
    print(door, end=": ", flush=True)
    child.main([door, "--folder", os.path.abspath(door), "--file", "case"])
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of the empty input, by the door: one process tries it at all of them."""
    folder = tmp_path_factory.mktemp("doors")
    (folder / "case").write_bytes(b"")
    (folder / "seeds").mkdir()  # the onnx package's take seconds to gather
    bl.save(nets.chain(), folder / "seeds" / "chain.onnx")
    run = subprocess.run(
        [sys.executable, "-c", AT_EACH_DOOR],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
        timeout=120,
    )
    found = dict(line.split(": ", 1) for line in run.stdout.splitlines() if ": " in line)
    return found if run.returncode == 0 else found | {[*found][-1]: run.stderr}


@pytest.mark.parametrize("door", doors.names())
def test_every_door_opens_and_takes_an_input(said: dict[str, str], door: str) -> None:
    assert re.match(r"done, without|\w+Error: |\w+Warning: ", said[door]), said[door]
    assert doors.module_of(door).SUMMARY


def test_a_door_that_there_is_not_is_named(tree_environ: dict[str, str], tmp_path: Path) -> None:
    run = fuzz(tree_environ, tmp_path, "windows")
    assert run.returncode == 1
    assert "no door windows; there are arrays" in run.stderr


def test_finds_of_one_place_are_one_and_the_shortest_is_kept(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "given.onnx").write_bytes(b"model")
    for data in (b"longer", b"short", b"the longest"):
        try:
            json.loads("[")
        except ValueError as error:
            keep_error(tmp_path / "finds", "door", data, error, given)
    [find] = (tmp_path / "finds").iterdir()
    assert find.name.startswith("door-JSONDecodeError-")
    assert (find / "case").read_bytes() == b"short"
    assert (find / "given.onnx").read_bytes() == b"model"
    assert "Traceback" in (find / "report.txt").read_text()


def test_an_end_of_the_process_is_told_by_where_it_was(tmp_path: Path) -> None:
    for line, door in ((1, "a"), (2, "b"), (3, "b")):
        text = f'most recent call first):\n  File "x/blocklayout/api.py", line {line} in {door}\n'
        keep_end(tmp_path / "finds", "door", b"data", "SIGSEGV", text, tmp_path)
    assert len([*(tmp_path / "finds").iterdir()]) == 2


def test_another_process_reads_the_board(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    board.begin(b"first, longer")
    board.n_refused += 1
    board.begin(b"second")
    other = Board(tmp_path / "board")
    assert other.read() == b"second"
    assert (other.n_tried, other.n_refused) == (2, 1)


def test_decisions_are_the_same_again() -> None:
    data = bytes(range(256)) * 4
    value = {"a": [1, 2.5, "text", None, {"b": True}], "c": {}}

    def decided() -> list[object]:
        choices = Choices(data)
        found = [choices.integer(), choices.extents(), choices.spoilt(b"0123456789"), choices.spoilt_text("nChw16c")]
        return [*found, *(choices.spoilt_json(value) for _ in range(20))]

    assert repr(decided()) == repr(decided())
    assert value == {"a": [1, 2.5, "text", None, {"b": True}], "c": {}}


def test_behind_the_end_decisions_are_the_first() -> None:
    choices = Choices(b"")
    assert choices.is_over
    assert (choices.below(7), choices.pick("ab"), choices.chance(1), choices.extents()) == (0, "a", False, ())


def test_the_corpus_is_small() -> None:
    assert 0 < sum(path.stat().st_size for path in CORPUS.rglob("*")) < 200_000
