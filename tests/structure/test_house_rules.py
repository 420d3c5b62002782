"""Small rules that keep the tree as it is meant to be."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.structure.tree import PACKAGE, ROOT, files, is_ignored, parsed, relative

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = {"blocklayout", "cdefs", "tests", "bench", "docs", "fuzz", ".ci"}
FILES = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt|opt)/\w|\b[A-Z]:\\\\?Users")


def op_files() -> list[Path]:
    """Files of ``ops/`` that implement an operator: those with a class that says which."""
    return [path for path in files(PACKAGE / "ops", "*.py") if any(map(names_op_types, ast.walk(parsed(path))))]


def names_op_types(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    targets = [
        ast.unparse(target)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
    ]
    return "op_types" in targets


def test_the_top_of_the_tree_holds_what_it_should() -> None:
    entries = [path for path in ROOT.iterdir() if not is_ignored(path)]
    assert {path.name for path in entries if path.is_dir()} <= FOLDERS
    assert {path.name for path in entries if path.is_file()} <= FILES


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = {
        f"{relative(path)}:{number}: {line.strip()}"
        for path in files(ROOT)
        if path.suffix in {".py", ".md", ".toml", ".h", ".c", ".json", ".txt"} or path.parent.name == ".ci"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if MACHINE_PATH.search(line) and path.name != "test_house_rules.py"
    }
    assert not found, found


def test_the_quick_part_names_tests_that_there_are() -> None:
    names = (ROOT / ".ci" / "quick").read_text(encoding="utf-8").split()
    assert not [name for name in names if not (ROOT / name).exists()]


@pytest.mark.parametrize("path", op_files(), ids=relative)
def test_every_operator_file_has_its_test(path: Path) -> None:
    test = ROOT / "tests" / "ops" / f"test_{path.name}"
    assert test.is_file(), f"{relative(path)} needs {relative(test)}"
