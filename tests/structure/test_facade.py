"""The public names: told to type checkers and to Python alike, and documented."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import blocklayout
from blocklayout.eager import backward
from tests.structure.stubs import PACKAGES, all_of, is_made, path_of, stub_of
from tests.structure.tree import PACKAGE, files, parsed, relative

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

LAZY = [path for path in files(PACKAGE, "__init__.py") if "_HOMES" in path.read_text(encoding="utf-8")]
STUBS = [path_of(package) for package in PACKAGES]


def names_in_stub(path: Path) -> set[str]:
    body = parsed(path).body
    told = {alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname}
    told |= {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return told | {"__version__" for node in body if ast.unparse(node) == "__version__: str"}


@pytest.mark.parametrize("package", PACKAGES)
def test_stubs_are_up_to_date(package: str, *, update_golden: bool) -> None:
    path, written = path_of(package), stub_of(package)
    if update_golden:
        path.write_text(written, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == written, "pytest tests/structure --update-golden writes it"


@pytest.mark.parametrize("path", [path.with_suffix(".py") for path in STUBS] + LAZY, ids=relative)
def test_type_checkers_see_the_same_names(path: Path) -> None:
    parts = path.with_suffix("").relative_to(PACKAGE.parent).parts
    package = ".".join(part for part in parts if part != "__init__")
    assert names_in_stub(path.with_suffix(".pyi")) == set(all_of(package))


def package_at(path: Path) -> ModuleType:
    return importlib.import_module(".".join(path.relative_to(PACKAGE.parent).parent.parts))


@pytest.mark.parametrize("path", LAZY, ids=relative)
def test_every_name_can_be_fetched(path: Path) -> None:
    package = package_at(path)
    assert not [name for name in all_of(package.__name__) if getattr(package, name) is None]


@pytest.mark.parametrize("path", LAZY, ids=relative)
def test_type_checkers_look_where_names_are_fetched(path: Path) -> None:
    imports = [node for node in parsed(path.with_suffix(".pyi")).body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names if alias.asname}
    homes = vars(package_at(path))["_HOMES"]
    assert homes
    assert homes.items() <= seen.items()


@pytest.mark.parametrize("path", LAZY, ids=relative)
def test_an_unknown_name_is_an_attribute_error(path: Path) -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = package_at(path).lod


@pytest.mark.parametrize("name", sorted(set(all_of("blocklayout")) - {"__version__"}))
def test_every_public_thing_is_documented(name: str) -> None:
    thing = getattr(blocklayout, name)
    assert inspect.getdoc(thing), f"{name} has no docstring"
    if not inspect.isclass(thing):
        return
    members = [member for member in vars(thing) if not member.startswith("_") and callable(getattr(thing, member))]
    assert not [member for member in members if not inspect.getdoc(getattr(thing, member))]


def names_with_docstrings() -> list[str]:
    """Dotted public names of functions and classes; modules, texts and aliases of types have no docstring."""
    parts = ("", ".dnnl", ".layout", ".optim", ".serve", ".zoo", ".torch", ".ray")
    modules = [importlib.import_module(f"blocklayout{part}") for part in parts]
    return [
        f"{module.__name__}.{name}"
        for module in modules
        for name in sorted(all_of(module.__name__))
        if hasattr(module, name)  # layers of PyTorch's are there where it is installed
        if not inspect.ismodule(getattr(module, name)) and getattr(getattr(module, name), "__name__", "") == name
    ]


@pytest.mark.parametrize("dotted", names_with_docstrings())
def test_every_public_thing_has_an_example(dotted: str) -> None:
    module, _, name = dotted.rpartition(".")
    assert ">>> " in str(inspect.getdoc(getattr(importlib.import_module(module), name)))


@pytest.mark.parametrize("name", [each for each in backward.__all__ if is_made(getattr(backward, each))])
def test_examples_of_functions_that_are_made_run(name: str) -> None:
    """No file has them, so pytest does not find them."""
    function = getattr(backward, name)
    names = dict(vars(importlib.import_module(function.__module__)))
    example = doctest.DocTestParser().get_doctest(str(inspect.getdoc(function)), names, name, None, None)
    assert example.examples
    assert doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0


def test_public_names_show_in_dir_before_they_are_fetched() -> None:
    text = "import blocklayout; print(*dir(blocklayout)); blocklayout.load, blocklayout.relu; print(*dir(blocklayout))"
    printed = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout
    before, after = printed.splitlines()
    assert before == after
    names = set(before.split())
    public = {*all_of("blocklayout")}
    assert {"load", "Session", "Tensor", "reorder", "dnnl", "eager", "errors", "zoo"} <= names <= public
    assert len(names) < 70
    assert public - names <= {*dir(blocklayout.eager), *dir(blocklayout.eager.backward), *dir(blocklayout.errors)}


@pytest.mark.parametrize("module", ["dnnl", "eager", "optim", "zoo"])
def test_modules_with_names_of_many_others_list_their_own(module: str) -> None:
    own = getattr(blocklayout, module)
    assert {*own.__all__} <= {*dir(own)} <= {*own.__all__, "backward", "digits"}


def test_help_is_a_page() -> None:
    assert len(pydoc.render_doc(blocklayout).splitlines()) < 130


def test_the_docstring_names_things_that_there_are() -> None:
    text = str(blocklayout.__doc__)
    rows = re.findall(r"^    (\w[\w, ]*?)(?:, \.\.\.)?  ", text, re.MULTILINE)
    named = re.findall(r"bl\.([a-z]\w*)", text) + ", ".join(rows).split(", ")
    assert len(named) > 30
    assert not [name for name in named if not hasattr(blocklayout, name)]
