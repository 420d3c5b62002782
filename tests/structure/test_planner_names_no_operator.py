"""The planner and the runtime know roles and recipes, never which operator they have before them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from blocklayout import ops
from tests.structure.tree import PACKAGE, files, imports, parsed, relative

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLIND = [*files(PACKAGE / "plan", "*.py"), *files(PACKAGE / "runtime", "*.py")]


def names_of_operators(tree: ast.AST, op_types: frozenset[str]) -> Iterator[str]:
    """Each place where code could tell one operator from another."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in op_types:
            yield f"line {node.lineno} names the operator {node.value!r}"
        elif isinstance(node, ast.Attribute) and node.attr in {"op_type", "op_types"}:
            yield f"line {node.lineno} reads .{node.attr}"
        elif isinstance(node, ast.Constant) and node.value in {"op_type", "op_types"}:
            yield f"line {node.lineno} names the attribute {node.value!r}"


@pytest.mark.parametrize("path", BLIND, ids=relative)
def test_no_operator_is_named(path: Path) -> None:
    assert not list(names_of_operators(parsed(path), frozenset(ops.op_types())))


@pytest.mark.parametrize("path", BLIND, ids=relative)
def test_no_operator_is_imported(path: Path) -> None:
    assert not [found for found in imports(path) if found.target.startswith("blocklayout.ops.")]


def test_the_search_finds_what_it_looks_for() -> None:
    code = """
if kernel.operator.op_types[0] == "Conv":
    pass
match getattr(kernel, "op_type"):
    case "Relu":
        pass
costs = {"Conv": 3}
"""
    assert len(list(names_of_operators(ast.parse(code), frozenset({"Conv", "Relu"})))) == 5
