"""The page of a server's models: their states, inputs and outputs, and where their layouts are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from blocklayout.show.page import spelt

_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;"
    "padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;"
    "padding:.4rem 1rem .4rem 0;border-bottom:1px solid #8886}"
)
_HEAD = ("model", "state", "inputs", "outputs")


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
    rows = "".join(f"<tr>{_row(entry, metadata)}</tr>" for entry, metadata in models)
    head = "".join(f"<th>{each}</th>" for each in _HEAD)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>blocklayout: models</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><h1>Models</h1><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        '<p><a href="docs">API</a> · <a href="metrics">metrics</a></p></body></html>\n'
    )


def _row(entry: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> str:
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
