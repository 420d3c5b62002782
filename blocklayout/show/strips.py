"""A picture of a run in SVG: a strip for each layout policy, its steps in order, as wide as they take time.

It takes no script and no library, follows the reader's choice of a light or a dark ground, and is for places that show
pictures only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, TypeVar
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct

from blocklayout.show.page import LAYOUT_COLOURS, spelt
from blocklayout.show.words import counted, scaled_time

_WORDS = {
    "plain": ("plane by plane (nchw)", "plane by plane", "nchw"),
    "channels last": ("channels last (nhwc)", "channels last", "nhwc"),
    "8c": ("blocks of 8 channels", "blocks of 8", "8c"),
    "16c": ("blocks of 16 channels", "blocks of 16", "16c"),
    "int8": ("8-bit integers", "8-bit"),
    "other": ("another layout",),
    "any": ("makes no difference",),
    "reorder": ("reorder",),
    "outside": ("outside of steps",),
}
"""Classes of layouts in words: for the legend, then shorter ones for a strip."""

POLICY_WORDS = {
    "auto": "the cheapest combination",
    "nhwc": "channels last throughout",
    "blocked": "blocks of channels throughout",
    "plain": "plane by plane throughout",
    "per-op": "into and out of every primitive",
    "any": "each primitive's own favourite",
}
"""Policies in words."""

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_WIDTH, _MARGIN = 960, 24
_SPAN = _WIDTH - 2 * _MARGIN
_TOP, _PITCH, _BLOCKS, _STRIP, _FOOT = 106, 74, 24, 30, 8
"""Where the first row begins; heights of a row, of names of blocks below it, of a strip and of marks below."""

_SMALL, _LARGE = 14, 22
"""Sizes of text: usual ones, and on a narrow screen, where the picture is shrunk."""

_LETTER = 0.58
"""Width of a letter, on average, over the size of text."""

_SEEN = {"ground": ("#ffffff", "#16171a"), "text": ("#1d1d1f", "#f0f0f2"), "quiet": ("#5c5c61", "#adadb3")}


class _Piece(Struct, frozen=True):
    """A part of a run: ``work`` of a kernel, the ``reorder`` of a kernel or an input, or time ``outside`` of steps.

    Attributes:
        block: The outermost block of the network that its kernel is in; empty where it is in none.
        family: The class of the layout that it writes.
        what: The primitive.
    """

    kernel: str
    block: str
    family: str
    layout: str
    what: str
    ns: float
    kind: str


_Key = TypeVar("_Key")
_Span = tuple[_Piece, float, float]


class _Strip(Struct, frozen=True):
    """A run under one policy."""

    policy: str
    pieces: list[_Piece]

    @property
    def ns(self) -> float:
        return sum(piece.ns for piece in self.pieces)

    @property
    def spans(self) -> list[_Span]:
        """Its pieces, each with the nanoseconds at which it begins and ends."""
        ends = pairwise(accumulate((piece.ns for piece in self.pieces), initial=0.0))
        return [(piece, begin, end) for piece, (begin, end) in zip(self.pieces, ends, strict=True)]

    def together(self, key: Callable[[_Piece], _Key]) -> Iterator[tuple[_Key, float, float]]:
        """Pieces in a row that have the same key: it, and when they begin and end."""
        for value, group in groupby(self.spans, lambda span: key(span[0])):
            spans = list(group)
            yield value, spans[0][1], spans[-1][2]

    @property
    def reorders(self) -> str:
        n = sum(piece.kind == "reorder" for piece in self.pieces)
        return counted(n, "reorder") if n else "no reorders"


def strips_svg(record: Mapping[str, Any]) -> str:
    """A picture of a plan's run, and of those of other policies beside it.

    The width of a step is its time, to one scale for all strips: measured where each plan has a profile, else
    predicted. Its colour is the class of the layout that it writes; reorders reach below their strip. The same record
    makes the same text.
    """
    runs = [(record["plan"], record["profile"]), *((each["plan"], each["profile"]) for each in record["others"])]
    is_measured = all(profile is not None for _, profile in runs)
    own, *others = (_strip(plan, profile if is_measured else None) for plan, profile in runs)
    strips = [own, *sorted(others, key=lambda strip: strip.ns)]
    scale = _SPAN / (max(strip.ns for strip in strips) or 1.0)
    rows = [_TOP + _PITCH * number + _BLOCKS * (number > 0) for number in range(len(strips))]
    bottom = rows[-1] + _PITCH + _BLOCKS * (len(rows) == 1)
    legend, height = _legend(strips, scale, bottom + 62)
    how = _how(runs[0][1] if is_measured else None, len(strips))
    title, *about = _heading(record, len(strips), how)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="strips" viewBox="0 0 {_WIDTH} {height}"',
        f' width="{_WIDTH}" height="{height}" role="img" aria-labelledby="strips-title strips-desc">',
        f'<title id="strips-title">{escape(title)}</title>',
        f'<desc id="strips-desc">{escape(_in_words(strips, how))}</desc>',
        f"<style>{_style()}</style>",
        '<pattern id="strips-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">',
        '<rect class="ground" width="2" height="6"/></pattern>',
        f'<rect class="ground" width="{_WIDTH}" height="{height}" rx="8"/>',
        _text(_MARGIN, 38, _cut(title, 30), "title"),
        *(_text(_MARGIN, 66 + 26 * number, _cut(line, _LARGE), "quiet") for number, line in enumerate(about)),
        *_axis(strips, scale, bottom + 6),
    ]
    for number, (strip, y) in enumerate(zip(strips, rows, strict=True)):
        lines += _row(strip, own, scale, y)
        lines += _blocks(strip, scale, y + 28 + _STRIP + _FOOT) if number == 0 else ()
    ends = "".join(f"M{_x(own.ns, scale)} {y + 26}v{_STRIP + 12}" for y in rows[1:])
    lines.append(f'<path class="end" d="{ends}"/>')
    for strip, y in zip(strips, rows, strict=True):
        lines += _labels(strip, scale, y + 28)
    return "\n".join((*lines, *legend, "</svg>\n"))


def _strip(plan: Mapping[str, Any], profile: Mapping[str, Any] | None) -> _Strip:
    timed = [] if profile is None else profile["steps"]
    of_steps = {each["number"]: each["ns"] for each in timed if each["number"] is not None}
    of_inputs: dict[str, list[float]] = {}
    pieces = []
    for each in timed:
        if each["kind"] == "input":
            of_inputs.setdefault(each["name"], []).append(each["ns"])
        elif each["kind"] == "outside":
            pieces.append(_Piece("", "", "outside", "", each["primitive"], each["ns"], "outside"))
    for entry in plan["entries"]:
        if entry["is_reorder"]:
            desc, name = plan["descs"][entry["desc"]], entry["input"]
            ns = entry["cost_ns"] if profile is None else of_inputs[name].pop(0) if of_inputs.get(name) else 0.0
            pieces.append(_Piece(name, "", desc["class"], desc["layout"], "reorder", ns, "reorder"))
    kernels = {kernel["name"]: plan["descs"][kernel["chosen"]["dst"]] for kernel in plan["kernels"]}
    blocks = {kernel["name"]: (*kernel["path"], "")[0] for kernel in plan["kernels"]}
    for number, step in enumerate(plan["steps"]):
        written = [plan["descs"][each["desc"]] for each in step["operands"] if each["argument"].startswith("dst")]
        family, layout = (written[0]["class"], written[0]["layout"]) if written else ("any", "")
        if family == "any" and step["kernel"] in kernels:  # a step may see a tensor as a vector
            family = kernels[step["kernel"]]["class"]
        ns = step["cost_ns"] if profile is None else of_steps.get(number, 0.0)
        kind = "reorder" if step["kind"] == "reorder" else "work"
        block = blocks.get(step["kernel"], "")
        pieces.append(_Piece(step["kernel"], block, family, layout, step["primitive"], ns, kind))
    return _Strip(plan["policy"], pieces)


def _heading(record: Mapping[str, Any], n_strips: int, how: str) -> tuple[str, str, str]:
    plan, machine = record["plan"], record["machine"]
    count = _NUMBERS[n_strips] if n_strips < len(_NUMBERS) else str(n_strips)
    under = f"under {count} layout policies" if n_strips > 1 else "step by step"
    threads = counted(plan["n_threads"], "thread")
    where = ", ".join(spelt(each) for each in (plan["dtype"], threads, machine.get("cpu"), plan["isa"]) if each)
    name = spelt(record["title"] or plan["model"])
    title = f"One run of {_cut(name, 30, 350)}, {under}"
    return title, where, f"The width of a step is its time: {how}"


def _how(profile: Mapping[str, Any] | None, n_strips: int) -> str:
    if profile is None:
        return "predicted; nothing was run"
    return f"measured, medians of {profile['n_runs']} runs{' in turn' * (n_strips > 1)}"


def _in_words(strips: Sequence[_Strip], how: str) -> str:
    first, *others = strips
    words = (
        f"; {spelt(strip.policy)} {scaled_time(strip.ns)} ({_ratio(strip, first)} times) with {strip.reorders}"
        for strip in others
    )
    own = f"{spelt(first.policy)} {scaled_time(first.ns)} with {first.reorders}"
    return f"A strip of steps for each policy ({how}): {own}{''.join(words)}."


def _row(strip: _Strip, first: _Strip, scale: float, y: int) -> Iterator[str]:
    """A policy's name and numbers, and its strip."""
    yield f'<g class="row" data-policy={quoteattr(spelt(strip.policy))}>'
    policy = escape(_cut(spelt(strip.policy), _LARGE, 400))
    words = (
        f'<tspan class="quiet wide" dx="10">{POLICY_WORDS[strip.policy]}</tspan>'
        if strip.policy in POLICY_WORDS
        else ""
    )
    yield f'<text x="{_MARGIN}" y="{y + 20}"><tspan class="name">{policy}</tspan>{words}</text>'
    columns = [(_WIDTH - _MARGIN - 350, "name", scaled_time(strip.ns)), (_WIDTH - _MARGIN, "", strip.reorders)]
    if strip is not first:
        against = f"{_ratio(strip, first)} \N{MULTIPLICATION SIGN} {_cut(spelt(first.policy), _LARGE, 80)}"
        columns.append((_WIDTH - _MARGIN - 165, "", against))
    yield from (_text(x, y + 20, text, f"{kind} end-of".strip()) for x, kind, text in columns)
    yield from _drawn(strip, scale, y + 28)
    yield "</g>"


def _drawn(strip: _Strip, scale: float, y: int) -> Iterator[str]:
    feet = []
    for piece, begin, end in strip.spans:
        x = _x(begin, scale)
        family = piece.family if piece.kind == "work" else piece.kind
        width = _n(_x(end, scale) - x)
        says = ", ".join(
            filter(None, (spelt(piece.kernel), spelt(piece.what), spelt(piece.layout), scaled_time(piece.ns)))
        )
        yield (
            f'<rect class="{_class(family)}" x="{x}" y="{y}" width="{width}" height="{_STRIP}">'
            f"<title>{escape(says)}</title></rect>"
        )
        if piece.kind == "reorder":
            wide = max(width, 2.5)
            feet.append(f"M{_n(x + width / 2 - wide / 2)} {y + _STRIP}h{wide}v{_FOOT}h{-wide}z")
            if width >= 8:
                yield f'<rect class="hatched" x="{x}" y="{y}" width="{width}" height="{_STRIP}"/>'
    yield _separators(strip, scale, y)
    if feet:
        yield f'<path class="{_class("reorder")} feet" d="{"".join(feet)}"/>'


def _separators(strip: _Strip, scale: float, y: int) -> str:
    """Notches between steps that are wide enough to be seen apart."""
    ends = [
        f"M{_x(begin, scale)} {y}v6m0 {_STRIP - 12}v6"
        for (before, _, _), (piece, begin, _) in pairwise(strip.spans)
        if scale * min(before.ns, piece.ns) >= 3
    ]
    return f'<path class="between" d="{"".join(ends)}"/>'


def _labels(strip: _Strip, scale: float, y: int) -> Iterator[str]:
    """Layouts in words, where steps in a row write the same one and leave room."""
    for (family, kind), begin, end in strip.together(lambda piece: (piece.family, piece.kind)):
        if kind == "work":
            middle, room = _x((begin + end) / 2, scale), scale * (end - begin) - 8
            yield from _fitting(_WORDS[family], middle, y + _STRIP / 2, room, f"mid within {_class(family, 'on')}")


def _blocks(strip: _Strip, scale: float, y: int) -> Iterator[str]:
    """Blocks of the network below a strip, or their numbers alone."""
    for block, begin, end in strip.together(lambda piece: piece.block):
        left, right = _x(begin, scale) + 1, _x(end, scale) - 1
        if block and right - left > 4:
            names = (spelt(block), *re.findall(r"\d+[a-z]?$", block))
            yield f'<path class="block" d="M{_n(left)} {y}v4H{_n(right)}v-4"/>'
            yield from _fitting(names, (left + right) / 2, y + 21, right - left, "mid quiet")


def _fitting(texts: Sequence[str], x: float, y: float, room: float, kind: str) -> Iterator[str]:
    """The longest of some texts that fits; another on a narrow screen, if any fits there."""
    usual, large = (
        next((text for text in texts if _wide(text, size) <= room), None) for size in (_SMALL - 1, _LARGE - 2)
    )
    if usual is not None and usual == large:
        yield _text(x, y, usual, f"small {kind}")
        return
    if usual is not None:
        yield _text(x, y, usual, f"small {kind} wide")
    if large is not None:
        yield _text(x, y, large, f"small {kind} narrow")


def _axis(strips: Sequence[_Strip], scale: float, y: int) -> Iterator[str]:
    """Times below all strips."""
    longest = max(strip.ns for strip in strips) or 1.0
    power = 10.0 ** math.floor(math.log10(longest / 3))
    step = next(power * factor for factor in (1, 2, 5, 10) if longest / (power * factor) <= 5)
    ticks = [step * number for number in range(int(longest / step) + 1)]
    marks = "".join(f"M{_x(ns, scale)} {y}v6" for ns in ticks)
    yield f'<path class="axis" d="M{_MARGIN} {y}H{_WIDTH - _MARGIN}{marks}"/>'
    for ns in ticks:
        place = "" if ns == 0 else " end-of" if scale * ns > _SPAN - 30 else " mid"
        yield _text(_x(ns, scale), y + 24, scaled_time(ns, is_round=True), f"small quiet{place}")


def _legend(strips: Sequence[_Strip], scale: float, y: int) -> tuple[list[str], int]:
    """Meanings of the colours that are seen, three to a line, and where they end."""
    found = {
        piece.family if piece.kind == "work" else piece.kind
        for strip in strips
        for piece in strip.pieces
        if piece.kind == "reorder" or scale * piece.ns >= 1
    }
    lines = [_text(_MARGIN, y, "Colours are the layouts that steps write:", "quiet")]
    y += 14
    shown = [family for family in _WORDS if family in found]
    for number, family in enumerate(shown):
        x, top = _MARGIN + _SPAN // 3 * (number % 3), y + 30 * (number // 3)
        lines.append(f'<rect class="{_class(family)}" x="{x}" y="{top + 3}" width="22" height="16"/>')
        if family == "reorder":
            lines.append(f'<rect class="hatched" x="{x}" y="{top + 3}" width="22" height="16"/>')
            lines.append(f'<path class="{_class(family)}" d="M{x} {top + 18}h22v6h-22z"/>')
        lines.append(_text(x + 30, top + 17, _WORDS[family][0], ""))
    return lines, y + 30 * math.ceil(len(shown) / 3) + 12


def _text(x: float, y: float, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _wide(text: str, size: float) -> float:
    return size * sum(1.0 if ord(letter) > 0x2E80 else _LETTER for letter in text)


def _cut(text: str, size: float, room: float = _SPAN) -> str:
    """A text, or as much of it as there is room for."""
    if _wide(text, size) <= room:
        return text
    while text and _wide(f"{text}…", size) > room:
        text = text[:-1]
    return f"{text}…"


def _ratio(strip: _Strip, first: _Strip) -> str:
    return f"{strip.ns / first.ns:.2f}" if first.ns else "-"


def _x(ns: float, scale: float) -> float:
    return _n(_MARGIN + scale * ns)


def _n(value: float) -> float:
    """A coordinate, to hundredths; whole ones without a fraction."""
    near = round(value, 2)
    return int(near) if near == int(near) else near


def _class(family: str, how: str = "in") -> str:
    return f"{how}-{family.replace(' ', '-')}"


def _style() -> str:
    light, dark = _of_theme(0), _of_theme(1)
    return (
        f'.strips text{{font:{_SMALL}px system-ui,"Segoe UI","DejaVu Sans",sans-serif;unicode-bidi:isolate}}'
        ".strips .title{font-size:20px;font-weight:600}.strips .name{font-weight:600}"
        f".strips .small{{font-size:{_SMALL - 1}px}}.strips .end-of{{text-anchor:end}}"
        ".strips .mid{text-anchor:middle}"
        ".strips .within{dominant-baseline:central;stroke-width:5px;stroke-linejoin:round;paint-order:stroke}"
        ".strips path{fill:none}.strips .between{stroke-opacity:.45}.strips .end{stroke-dasharray:3 4}"
        ".strips .hatched{fill:url(#strips-hatch);fill-opacity:.6}.strips .narrow{display:none}"
        f"{light}"
        f"@media (max-width:560px){{.strips text{{font-size:{_LARGE}px}}.strips .title{{font-size:30px}}"
        f".strips .small{{font-size:{_LARGE - 2}px}}.strips .wide{{display:none}}.strips .narrow{{display:inline}}}}"
        f"@media (prefers-color-scheme:dark){{{dark}}}"
    )


def _of_theme(which: int) -> str:
    """Colours on a light ground (0) or a dark one (1)."""
    ground, text, quiet = (_SEEN[name][which] for name in ("ground", "text", "quiet"))
    rules = {
        ".ground": f"fill:{ground}",
        "text": f"fill:{text}",
        ".quiet": f"fill:{quiet}",
        ".between": f"stroke:{ground}",
        ".axis,.strips .block": f"stroke:{quiet}",
        ".end": f"stroke:{text}",
        ".in-outside": f"fill:{ground};stroke:{quiet}",
    }
    for family, colours in LAYOUT_COLOURS.items():
        rules[f".{_class(family)}"] = f"fill:{colours[which]}"
        rules[f".{_class(family, 'on')}"] = f"fill:{_on(colours[which])};stroke:{colours[which]}"
    return "".join(f".strips {selector}{{{rule}}}" for selector, rule in rules.items())


def _on(colour: str) -> str:
    """Black or white: the one that has a contrast of at least 4.5 to a colour."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (light + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"
