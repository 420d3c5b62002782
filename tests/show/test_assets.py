"""Files that pages are made of: complete, as their authors built them, harmless, and packed with the package."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import blocklayout as bl
from blocklayout.show import page
from blocklayout.show.page import ASSETS, html_page

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ASSETS / "vendor"
SCRIPTS = sorted(ASSETS.glob("*.js"))
LIBRARIES = re.findall(
    r"^\| (\S+\.js) \| (\S+) \| (\S+) \| (\S+) \| ([0-9a-f]{64}) \|$",
    (VENDOR / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
RISKY = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|setHTMLUnsafe|eval|importScripts)\b"
    r"|document\.write|new Function|\.html\(|\.srcdoc\b|(setTimeout|setInterval)\(\s*[\"'`]|javascript:"
)
ADDRESS = re.compile(
    r"<(?!script\b)[a-z]+[^>]*\b(?:src|href|action|data|poster|srcset)\s*=|@import|url\(\s*[\"']?https?:"
)


def test_every_vendored_file_is_listed() -> None:
    listed = {name for name, *_ in LIBRARIES}
    assert listed == {path.name for path in VENDOR.glob("*.js")} == set(page._VENDORED)
    licences = {f"{name.split('.')[0]}.LICENSE" for name in listed}
    assert {path.name for path in VENDOR.iterdir()} == listed | licences | {"README.md"}


@pytest.mark.parametrize(("name", "package", "version", "licence", "digest"), LIBRARIES, ids=lambda each: each)
def test_a_library_is_as_its_authors_built_it(name: str, package: str, version: str, licence: str, digest: str) -> None:
    assert sha256((VENDOR / name).read_bytes()).hexdigest() == digest, f"{name} is not {package} {version}"
    text = (VENDOR / f"{name.split('.', maxsplit=1)[0]}.LICENSE").read_text(encoding="utf-8")
    assert {"MIT": "Permission is hereby granted", "ISC": "Permission to use, copy, modify"}[licence] in text
    assert "Copyright" in text


def test_the_docs_name_each_library_with_its_licence() -> None:
    text = (
        (ROOT / "docs" / "how-to" / "look-at-a-network.md").read_text(encoding="utf-8").partition("## What is in it")[2]
    )
    missing = [package for _, package, _, licence, _ in LIBRARIES if f"{package} ({licence})" not in text]
    assert not missing


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_of_ours_is_strict_and_says_what_it_is(path: Path) -> None:
    first, second, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first == '"use strict";'
    assert second.startswith("// ")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_of_ours_makes_no_markup_or_code_of_text(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [f"{number}: {line.strip()}" for number, line in enumerate(lines, start=1) if RISKY.search(line)]
    assert not found


def test_every_script_is_in_a_page() -> None:
    named = {name for names in page._KINDS.values() for name in names}
    assert named == {path.name for path in SCRIPTS} | set(page._VENDORED)


def test_every_asset_is_packed() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["blocklayout.show"]
    paths = [path.relative_to(ASSETS.parent).as_posix() for path in ASSETS.rglob("*") if path.is_file()]
    assert paths
    assert not [path for path in paths if not any(fnmatch(path, pattern) for pattern in patterns)]


@pytest.mark.parametrize("kind", sorted(page._KINDS))
def test_a_page_allows_its_own_scripts_alone(kind: str) -> None:
    text = html_page(kind, "title", {})
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert policy.count("'sha256-") == text.count("<script>") == len(page._KINDS[kind])
    markup = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    assert not ADDRESS.search(markup)


def test_a_page_asks_for_nothing(open_page: Any) -> None:
    page = open_page(bl.describe(bl.MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), to="nhwc").to_html())
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0


def test_a_title_is_spelt_out_and_shortened() -> None:
    text = html_page("layout", "a\u202eb\n<i>" + "x" * 1000, {})
    title = re.findall("<title>(.*?)</title>", text)[0]
    assert title.startswith(r"a\u202eb\u000a&lt;i&gt;xxx")
    assert len(title) < 250
