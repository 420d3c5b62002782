"""The package's names: what type checkers see is what is fetched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from blocklayout import dnnl


def imports_seen_by_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(str(dnnl.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: str(statement.module)
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_type_checkers_see_the_same_names() -> None:
    assert set(imports_seen_by_type_checkers()) == set(vars(dnnl)["_HOMES"])


def test_type_checkers_look_where_names_are_fetched() -> None:
    seen = imports_seen_by_type_checkers()
    ours = {name: home for name, home in seen.items() if home.startswith("blocklayout.dnnl")}
    assert ours.items() <= vars(dnnl)["_HOMES"].items()


@pytest.mark.parametrize("name", dnnl.__all__)
def test_every_name_can_be_fetched(name: str) -> None:
    assert getattr(dnnl, name) is not None
    assert name in dir(dnnl)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dnnl.nothing  # type: ignore[attr-defined]
