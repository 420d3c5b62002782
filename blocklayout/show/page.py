"""HTML pages that are one file each: a record as JSON, the scripts that draw it, and the libraries these use.

A page loads nothing: it opens from disk, and its content security policy allows no script but its own. Names that a
model's author chose reach the document as text only.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from blocklayout.atomic_write import save_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

ASSETS = Path(__file__).parent / "assets"

LAYOUT_COLOURS = {
    "plain": ("#515156", "#c4c4ca"),
    "channels last": ("#0072b2", "#56b4e9"),
    "8c": ("#b07d00", "#e6b83c"),
    "16c": ("#007a5a", "#2fbf93"),
    "int8": ("#9c4a80", "#d98bbd"),
    "other": ("#5b4bb5", "#a99df0"),
    "any": ("#919196", "#6c6c72"),
    "reorder": ("#d1430b", "#ff7a45"),
}
"""Colours of classes of layouts on a light and on a dark ground, and of reorders.

After Okabe and Ito's palette, darkened or lightened until each has a contrast of at least 3 to its ground; ``any`` is
for vectors and single pixels, which have no layout to speak of.
"""

_VENDORED = ("d3.min.js", "plot.umd.min.js", "dagre.min.js")
_KINDS = {
    "network": (
        *(*_VENDORED, "base.js", "pieces.js", "strips.js", "graph.js", "search.js", "facts.js", "network.js"),
        *("node.js", "time.js", "memory.js", "steps.js", "compare.js", "served.js", "report.js"),
    ),
    "layout": (*_VENDORED[:1], "base.js", "layout.js"),
    "bench": (*_VENDORED[:2], "base.js", "bench.js"),
}
"""Scripts of each kind of page, in order."""

_LONGEST_TITLE = 200

_LIST_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;"
    "padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;"
    "padding:.4rem 1rem .4rem 0;border-bottom:1px solid #8886}"
)
_LIST_HEAD = ("model", "state", "inputs", "outputs")


def html_page(kind: str, title: str, record: Any) -> str:
    r"""A page that shows a record.

    Args:
        kind: ``network``, ``layout`` or ``bench``.
        title: Of the document, as plain text.
        record: Its contents, as values that JSON can hold; numbers that are not finite become ``null``.

    Example:
        >>> text = html_page("layout", "<b>", {"desc": "</script>"})
        >>> "<title>&lt;b&gt;</title>" in text, '{"desc":"\\u003c/script\\u003e"}' in text
        (True, True)
    """
    name = spelt(title)
    if len(name) > _LONGEST_TITLE:
        name = f"{name[: _LONGEST_TITLE - 1]}…"
    scripts = [_asset(script) for script in _KINDS[kind]]
    data = msgspec.json.encode(record).decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    allowed = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en" data-kind="{kind}"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(name)}</title>",
            f"<style>{_colours()}{_asset('style.css')}</style></head>",
            "<body><noscript>This page is drawn by the scripts in it; JavaScript is off.</noscript>",
            f'<script type="application/json" id="record">{data}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        )
    )


def models_page(models: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> str:
    """A page that lists models.

    Args:
        models: Of each, its name, state and reason, and its inputs and outputs while it serves, by the names that
            the Open Inference Protocol has for them.

    Example:
        >>> page = models_page([({"name": "<b>", "state": "UNAVAILABLE", "reason": "unloaded"}, None)])
        >>> "<td>&lt;b&gt;</td><td>UNAVAILABLE: unloaded</td>" in page
        True
    """
    rows = "".join(f"<tr>{_model_row(entry, metadata)}</tr>" for entry, metadata in models)
    head = "".join(f"<th>{each}</th>" for each in _LIST_HEAD)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>blocklayout: models</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_LIST_STYLE}</style></head>'
        f"<body><h1>Models</h1><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        '<p><a href="docs">API</a> · <a href="metrics">metrics</a></p></body></html>\n'
    )


def _model_row(entry: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> str:
    name = escape(spelt(entry["name"]))
    state = escape(spelt(": ".join(filter(None, (entry["state"], entry["reason"])))))
    if metadata is None:
        return f"<td>{name}</td><td>{state}</td><td></td><td></td>"
    link = f'<a href="models/{quote(entry["name"], safe="")}">{name}</a>'
    inputs, outputs = _tensors(metadata["inputs"]), _tensors(metadata["outputs"])
    return f"<td>{link}</td><td>{state}</td><td>{inputs}</td><td>{outputs}</td>"


def _tensors(tensors: Sequence[Mapping[str, Any]]) -> str:
    texts = (f"{each['name']} {each['datatype']} {'x'.join(map(str, each['shape']))}" for each in tensors)
    return "<br>".join(escape(spelt(text)) for text in texts)


def record_in(html: str) -> str:
    """The record of a page, as JSON; a ValueError where there is none."""
    _, _, behind = html.partition('<script type="application/json" id="record">')
    record, end, _ = behind.partition("</script>")
    if not end:
        raise ValueError("no page of ours")
    return record


class Page(Struct, frozen=True):
    """Something that has a page, which is how a notebook shows it."""

    def to_html(self) -> str:
        """The page: one document that loads nothing."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; a reader never sees half of it.

        Raises:
            InputError: The file cannot be written.
        """
        save_text(path, self.to_html())

    def _repr_html_(self) -> str:
        return framed(self.to_html())


def framed(html: str) -> str:
    """A page within another document, such as a notebook, whatever that document's encoding."""
    text = escape(html).encode("ascii", "xmlcharrefreplace").decode()
    return f'<iframe srcdoc="{text}" style="width:100%;height:44rem;border:0"></iframe>'


def spelt(text: object) -> str:
    r"""A name that a model's author chose, with characters that are not seen, or turn text around, spelt out.

    Example:
        >>> print(spelt("a\u202eb"))
        a\u202eb
    """
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in str(text))


@cache
def _asset(name: str) -> str:
    folder = ASSETS / "vendor" if name in _VENDORED else ASSETS
    return (folder / name).read_text(encoding="utf-8").rstrip("\n")


def _colours() -> str:
    """The colours as properties that styles and scripts refer to, such as ``--layout-channels-last``."""
    rules = (
        f"--layout-{name.replace(' ', '-')}:light-dark({light},{dark});"
        for name, (light, dark) in LAYOUT_COLOURS.items()
    )
    return f":root{{{''.join(rules)}}}"
