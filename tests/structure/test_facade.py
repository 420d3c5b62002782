"""The public names: told to type checkers and to Python alike, and documented."""

from __future__ import annotations

import ast
import inspect

import pytest

import blocklayout
from tests.structure.tree import PACKAGE, parsed


def names_told_to_type_checkers() -> set[str]:
    tree = parsed(PACKAGE / "__init__.py")
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    told = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return told | {ast.unparse(node.target) for node in block.body if isinstance(node, ast.AnnAssign)}


def test_type_checkers_see_the_same_names() -> None:
    assert names_told_to_type_checkers() == set(blocklayout.__all__)


@pytest.mark.parametrize("name", sorted(set(blocklayout.__all__) - {"__version__"}))
def test_every_public_thing_is_documented(name: str) -> None:
    thing = getattr(blocklayout, name)
    assert inspect.getdoc(thing), f"{name} has no docstring"
    if not inspect.isclass(thing):
        return
    members = [member for member in vars(thing) if not member.startswith("_") and callable(getattr(thing, member))]
    assert not [member for member in members if not inspect.getdoc(getattr(thing, member))]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = blocklayout.lod  # type: ignore[attr-defined]


def test_public_names_show_in_dir_before_they_are_fetched() -> None:
    assert set(blocklayout.__all__) <= set(dir(blocklayout))
