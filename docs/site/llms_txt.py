"""Writes ``llms.txt`` (llmstxt.org) beside the site: every page with its first sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

PARTS = {"tutorials": "Tutorials", "how-to": "How-to", "reference": "Reference", "explanation": "Explanation"}


def first_sentence(doctree: nodes.document) -> str:
    """Of a page's first paragraph."""
    paragraphs = (each for each in doctree.findall(nodes.paragraph) if isinstance(each.parent, nodes.section))
    text = " ".join(next((each.astext() for each in paragraphs), "").split())
    return re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0].rstrip(":")


def lines(app: Sphinx) -> Iterator[str]:
    """The text, line by line; pages in alphabetical order, by their Markdown where they have one."""
    env = app.env
    yield from [f"# {app.config.project}", "", f"> {first_sentence(env.get_doctree('index'))}", ""]
    for part, title in PARTS.items():
        yield from [f"## {title}", ""]
        for name in sorted(env.found_docs):
            if name.startswith(f"{part}/") and not name.endswith("/index"):
                source = f"{name}.html" if "/generated/" in name else f"_sources/{name}.md.txt"
                yield f"- [{env.titles[name].astext()}]({source}): {first_sentence(env.get_doctree(name))}"
        yield ""


def write_llms_txt(app: Sphinx, exception: Exception | None) -> None:
    """Write it once a site of HTML is built."""
    if exception is None and app.builder.name == "html":
        Path(app.outdir, "llms.txt").write_text("\n".join(lines(app)), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("build-finished", write_llms_txt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
