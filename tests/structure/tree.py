"""The tree as the structure tests read it: its files, and what each of them imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "blocklayout"


@dataclass(frozen=True)
class Import:
    """One name that a module imports.

    Attributes:
        target: Dotted module, as deep as the statement tells: ``blocklayout.layout``.
        line: Where.
        function: The innermost function that it is in; empty where it runs with the module.
    """

    target: str
    line: int
    function: str = ""


def is_ignored(path: Path) -> bool:
    """Whether a path is left by a tool or a build, as .gitignore has it."""
    patterns = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    parts = path.relative_to(ROOT).parts
    return any(fnmatch(part, pattern) for part in parts for pattern in [".git", *patterns])


def files(folder: Path, pattern: str = "*") -> list[Path]:
    """Files of the tree below ``folder``, in a stable order."""
    return sorted(path for path in folder.rglob(pattern) if path.is_file() and not is_ignored(path))


def modules() -> list[Path]:
    """Python files of the package."""
    return files(PACKAGE, "*.py")


def relative(path: Path) -> str:
    """How a message names a file."""
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop)
"""Nodes that hold no import."""


@cache
def imports(path: Path) -> list[Import]:
    """Every import of a module of the package: inside functions and under TYPE_CHECKING too."""
    found: list[Import] = []
    _find_imports(path, parsed(path), "", found)
    return found


def _find_imports(path: Path, parent: ast.AST, function: str, found: list[Import]) -> None:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, _LEAVES):
            continue
        if isinstance(node, ast.Import):
            found += (Import(alias.name, node.lineno, function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, node)
            found += (Import(_deepest(base, alias.name), node.lineno, function) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_module(node):
            found.append(Import(_literal(node.args[0]), node.lineno, function))
        within = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        _find_imports(path, node, within, found)


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = path.relative_to(ROOT).parent.parts
    parents = package[: len(package) - node.level + 1]
    return ".".join([*parents, *filter(None, [node.module])])


@cache
def _deepest(base: str, name: str) -> str:
    """``from blocklayout import dnnl`` imports a module, ``from blocklayout import load`` only the facade."""
    candidate = ROOT.joinpath(*base.split("."), name)
    is_module = candidate.is_dir() or candidate.with_suffix(".py").is_file()
    return f"{base}.{name}" if is_module else base


def _is_import_module(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "import_module" and bool(call.args) and _literal(call.args[0]) != ""


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
