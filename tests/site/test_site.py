"""The site of docs/: built without a warning, whole, and of public names alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from blocklayout.cli import COMMANDS
from tests.structure.stubs import all_of
from tests.structure.tree import ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("sphinx", reason="the extra docs is not installed")

WRITTEN = [path.relative_to(ROOT / "docs") for path in files(ROOT / "docs", "*.md")]
PARTS = ("tutorials", "how-to", "reference", "explanation")


class Links(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - as the base has it
        found = dict(attrs)
        self.targets += [each for each in (found.get("href"), found.get("src")) if each]
        self.places |= {each for each in (found.get("id"), found.get("name")) if each}


def names_in(site: Path) -> set[str]:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as stream:
        inventory = InventoryFile.load(stream, "", lambda base, name: base + name)
    return {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_every_page_is_in_the_site(site: Path, page: Path) -> None:
    assert (site / page.with_suffix(".html")).is_file()


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: Links(path) for path in site.rglob("*.html") if path.name != "digits.html"}
    lost = []
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not aim.is_file() or (parts.fragment and aim in pages and parts.fragment not in pages[aim].places):
                lost.append(f"{path.relative_to(site)}: {target}")
    assert not lost


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    elsewhere = (
        r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//|<link[^>]+rel=\"stylesheet\"[^>]+href=\"(?:https?:)?//"
    )
    loads = re.compile(elsewhere)
    assert not [path for path in site.rglob("*.html") if loads.search(path.read_text(encoding="utf-8"))]


def test_the_reference_holds_every_public_name(site: Path) -> None:
    """Each under one name: what ``blocklayout`` and a module of it both have is documented as the former's."""
    expected = {f"blocklayout.{name}" for name in all_of("blocklayout")} - {
        "blocklayout.__version__",
        "blocklayout.eager",
        "blocklayout.errors",
    }
    for package in (f"blocklayout.{module}" for module in ("dnnl", "layout", "optim", "serve", "zoo", "torch", "ray")):
        home = import_module(package)  # layers within PyTorch are there with it alone
        names = (name for name in all_of(package) if hasattr(home, name) and name not in all_of("blocklayout"))
        expected |= {f"{package}.{name}" for name in names}
    assert not expected - names_in(site)


def test_the_reference_holds_nothing_private(site: Path) -> None:
    assert not [name for name in names_in(site) if any(part.startswith("_") for part in name.split("."))]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_holds_each_command(site: Path, command: str) -> None:
    text = (site / "reference" / "generated" / "commands.html").read_text(encoding="utf-8")
    assert f"usage: blocklayout {command} " in text


def test_llms_txt_names_each_page_that_is_written_by_hand(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    targets = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    assert not [target for target in targets if not (site / target).is_file()]
    expected = {f"_sources/{page}.txt" for page in WRITTEN if page.parts[0] in PARTS and page.stem != "index"}
    assert expected <= set(targets)
