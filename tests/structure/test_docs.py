"""Everything the README and docs show runs as shown.

The blocks of a page share one namespace and one empty folder, in order. A block that imports a
package that is no test dependency must stand alone: it runs in a process of its own, where it can.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from blocklayout import dnnl
from tests.structure.fences import KINDS, absent_packages, blocks, commands, run, run_alone, run_pycon, run_python
from tests.structure.tree import ROOT, files, relative

if TYPE_CHECKING:
    from pathlib import Path

    from tests.structure.fences import Block

PAGES = [ROOT / "README.md", *files(ROOT / "docs", "*.md")]
OPTIONAL = ("torch", "openvino", "ray", "sklearn", "matplotlib")
NEED_AVX2 = ("docs/how-to/train.md",)
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
def test_page_runs_as_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if relative(path) in NEED_AVX2 and not dnnl.has_isa("avx2"):
        pytest.skip(f"warns of layouts that have no optimised kernels on {dnnl.isa()}")
    monkeypatch.chdir(tmp_path)
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
