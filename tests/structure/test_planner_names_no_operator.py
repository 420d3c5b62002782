"""Passes, the planner and the runtime ask operators, and never which operator they have before them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import onnx.defs
import pytest

from blocklayout import ops
from tests.structure.tree import PACKAGE, files, imports, parsed, relative

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OP_TYPES = frozenset(ops.op_types()) | {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
PASSES = PACKAGE / "model" / "passes"
BLIND = [*files(PACKAGE / "plan", "*.py"), *files(PACKAGE / "runtime", "*.py")]

IDIOMS = (
    "idioms.py",
    "patterns.py",
    "decompose.py",
    "expressions.py",
    "merge_clips.py",
    "expand_functions.py",
)
"""One operator written as others, or read from them: these passes say which."""

SUBJECTS: Mapping[str, frozenset[str]] = {
    "ChainConcats": frozenset({"Concat"}),  # reads and writes the inputs of concatenations
    "DropExpands": frozenset({"Expand"}),  # takes them out where the reader does the same
    "Scheme": frozenset({"DequantizeLinear", "QuantizeLinear"}),  # reads their parameters
    "SinkScales": frozenset({"GlobalAveragePool"}),  # takes scales out of averages
    "FoldMasks": frozenset({"Dropout"}),  # makes a constant of its second result
}
"""The operators that a pass is about, by its class."""

GENERIC = [path for path in files(PASSES, "*.py") if not any(fnmatch(path.name, pattern) for pattern in IDIOMS)]


def names_of_operators(tree: ast.AST, op_types: frozenset[str]) -> Iterator[str]:
    """Each place where code could tell one operator from another."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in op_types:
            yield f"line {node.lineno} names the operator {node.value!r}"
        elif isinstance(node, ast.Attribute) and node.attr in {"op_type", "op_types"}:
            yield f"line {node.lineno} reads .{node.attr}"
        elif isinstance(node, ast.Constant) and node.value in {"op_type", "op_types"}:
            yield f"line {node.lineno} names the attribute {node.value!r}"


def choices_by_operator(tree: ast.AST, op_types: frozenset[str]) -> Iterator[str]:
    """Each place where a pass names an operator, but to write a node of it, or chooses by a node's op type."""
    written = {id(argument) for node in ast.walk(tree) for argument in _arguments_of_a_node(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in op_types and id(node) not in written:
            yield f"line {node.lineno} names the operator {node.value!r}"
        elif isinstance(node, ast.Compare | ast.Subscript | ast.Match) and _reads_op_type(node):
            yield f"line {node.lineno} chooses by .op_type"


def _arguments_of_a_node(node: ast.AST) -> list[ast.expr]:
    """The arguments of a call that makes a node; none of anything else."""
    is_made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Node"
    return node.args if isinstance(node, ast.Call) and is_made else []


def _reads_op_type(node: ast.Compare | ast.Subscript | ast.Match) -> bool:
    inner = node.subject if isinstance(node, ast.Match) else node
    return any(isinstance(each, ast.Attribute) and each.attr == "op_type" for each in ast.walk(inner))


@pytest.mark.parametrize("path", BLIND, ids=relative)
def test_no_operator_is_named(path: Path) -> None:
    assert not list(names_of_operators(parsed(path), OP_TYPES))


@pytest.mark.parametrize("path", [*BLIND, *files(PASSES, "*.py")], ids=relative)
def test_no_operator_is_imported(path: Path) -> None:
    assert not [found for found in imports(path) if found.target.startswith("blocklayout.ops.")]


@pytest.mark.parametrize("path", GENERIC, ids=relative)
def test_no_pass_chooses_by_operator(path: Path) -> None:
    others = [node for node in parsed(path).body if not (isinstance(node, ast.ClassDef) and node.name in SUBJECTS)]
    assert not list(choices_by_operator(ast.Module(others, []), OP_TYPES))


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_pass_about_an_operator_names_no_other(name: str) -> None:
    [tree] = (
        node for path in GENERIC for node in parsed(path).body if isinstance(node, ast.ClassDef) and node.name == name
    )
    assert not [found for found in choices_by_operator(tree, OP_TYPES - SUBJECTS[name]) if ".op_type" not in found]
    assert list(choices_by_operator(tree, SUBJECTS[name])), f"{name} needs no exemption"


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


def test_a_pass_may_write_a_node_but_not_look_for_one() -> None:
    code = """
nodes.append(Node(name, "Reshape", (source,), (name,)))
if node.op_type in ("Conv", "Relu"):
    pass
rule = RULES[node.op_type]
match node.op_type:
    case "Conv":
        pass
"""
    assert len(list(choices_by_operator(ast.parse(code), frozenset({"Conv", "Relu", "Reshape"})))) == 6
