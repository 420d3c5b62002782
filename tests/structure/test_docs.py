"""Everything the README and docs show runs as shown.

The blocks of a page share one namespace and one folder, in order, which is empty but for what GIVEN has. A block that
imports a package that is no test dependency must stand alone: it runs in a process of its own, where it can.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import blocklayout as bl
from blocklayout import dnnl, zoo
from tests.structure.fences import KINDS, absent_packages, blocks, commands, run, run_alone, run_pycon, run_python
from tests.structure.tree import ROOT, files, modules, relative

if TYPE_CHECKING:
    from pathlib import Path

    from tests.structure.fences import Block

PAGES = [ROOT / "README.md", *files(ROOT / "docs", "*.md")]
OPTIONAL = ("torch", "openvino", "ray", "sklearn", "matplotlib")
NEED_AVX2 = ("docs/how-to/train.md",)
ON_ONE_THREAD = ("docs/how-to/train.md",)
"""Operators so small that two threads take twice the CPU time and no less of ours."""

GIVEN = {"README.md": ("model.onnx", "squeezenet1_1")}
"""A reader's own file: its name, and a network of the zoo in its place."""

MOST_WORDS = 35_000
BY_PROGRAMS = re.compile(r"^```.*?^```$|^<!-- (?:tables|the rules).*?^<!-- end of", re.MULTILINE | re.DOTALL)
"""Examples, which are run, and tables that programs write, as they do all of conformance.md: no words of ours."""

LINK = re.compile(r"\]\((?!https?://|#|mailto:)(?P<target>[^)#\s]+)")


def blocks_of(path: Path) -> list[Block]:
    return list(blocks(relative(path), path.read_text(encoding="utf-8")))


def needs_optional(block: Block) -> bool:
    return any(re.search(rf"^(>>> )?\s*(import|from) {name}\b", block.text, re.MULTILINE) for name in OPTIONAL)


STANDALONE = [block for path in PAGES for block in blocks_of(path) if needs_optional(block)]


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_block_says_what_it_is(path: Path) -> None:
    assert not [block.where for block in blocks_of(path) if block.kind not in KINDS]


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_no_block_is_indented(path: Path) -> None:
    assert not re.search(r"^ +```", path.read_text(encoding="utf-8"), re.MULTILINE), "it would not be run"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_page_runs_as_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if relative(path) in NEED_AVX2 and not dnnl.has_isa("avx2"):
        pytest.skip(f"warns of layouts that have no optimised kernels on {dnnl.isa()}")
    if relative(path) in ON_ONE_THREAD:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    if relative(path) in GIVEN:
        name, network = GIVEN[relative(path)]
        bl.save(zoo.build(network), name)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(path):
        if not needs_optional(block):
            run(block, names)


@pytest.mark.parametrize("block", STANDALONE, ids=lambda block: block.where)
def test_block_with_optional_packages_runs(block: Block, tree_environ: dict[str, str], tmp_path: Path) -> None:
    absent = absent_packages(block)
    if absent:
        pytest.skip(f"not installed: {', '.join(sorted(absent))}")
    run_alone(block, tree_environ | {"RAY_ADDRESS": "local"}, tmp_path)  # no cluster that happens to be here


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_links_within_the_tree_lead_somewhere(path: Path) -> None:
    targets = LINK.findall(path.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_every_variable_of_the_environment_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in modules()]
    # The settings of the server are one row.
    names = {name for text in texts for name in re.findall(r"\bBLOCKLAYOUT_(?:SERVE_|[A-Z_]+)", text)}
    assert names
    assert not [name for name in names if f"`{name}" not in page]


def words_of(path: Path) -> int:
    """How many words a person has to read, and another had to write: runs of characters with a letter among them."""
    text = BY_PROGRAMS.sub("", path.read_text(encoding="utf-8"))
    return sum(any(map(str.isalpha, each)) for each in text.split())


def test_the_docs_are_no_longer_than_can_be_read() -> None:
    counts = {relative(path): words_of(path) for path in PAGES if path.name != "conformance.md"}
    assert sum(counts.values()) <= MOST_WORDS, sorted(counts.items(), key=lambda each: -each[1])


def test_the_readme_is_read_at_a_glance() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 150


def test_the_readme_holds_the_two_commands_of_ci() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    marked = re.findall(r"^<!-- \.ci/run -->\n```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert [text.count("\n") for text in marked] == [1, 1]
    assert "blocklayout run" in marked[0]
    assert "pytest" in marked[1]


def test_pycon_tells_a_wrong_output() -> None:
    [block] = blocks("page.md", "```pycon\n>>> n = 1 + 1\n>>> n\n3\n```\n")
    with pytest.raises(AssertionError, match="Expected:"):
        run_pycon(block, {})


def test_blocks_share_their_names() -> None:
    names: dict[str, Any] = {}
    first, second = blocks("page.md", "```pycon\n>>> n = 2\n```\n\n```python\nassert n == 2\n```\n")
    run_pycon(first, names)
    run_python(second, names)


def test_a_console_block_splits_into_commands() -> None:
    [block] = blocks("page.md", "```console\n$ blocklayout run \\\n  --json\nout\n$ blocklayout plan x\n```\n")
    assert commands(block) == [("blocklayout run   --json", "out\n"), ("blocklayout plan x", "")]
