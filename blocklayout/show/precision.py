"""Which layers of a model compute with bytes, and why: as a table, and as a picture of time against error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from blocklayout.show.words import counted, small, table

if TYPE_CHECKING:
    from blocklayout.plan.precision import FrontPoint, LayerPrecision, PrecisionReport

_HEADER = ("layer", "operator", "in", "error alone", "the other way: us", "error")
_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 24, 56, 52
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:17px;font-weight:600}.axis{stroke:#999}"
    ".line{fill:none;stroke:#2b6cb0;stroke-width:1.6}"
    ".point{fill:#2b6cb0}.chosen{fill:#b5473c}.quiet{fill:#777}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.quiet{fill:#aaa}.line{stroke:#7ab3ef}.point{fill:#7ab3ef}}"
)


def precision_text(report: PrecisionReport) -> str:
    """The layers as a table, below the verdict."""
    return "\n".join([verdict(report), "", *table(_HEADER, [*map(_row, report.layers)], numbers=(3, 4, 5))])


def verdict(report: PrecisionReport) -> str:
    """How many layers are in bytes, their error, and times of runs."""
    n_in_bytes = sum(layer.in_bytes for layer in report.layers)
    allowed = f"{report.metric} error {small(report.error)} of {small(report.max_error)} allowed"
    lines = [f"{n_in_bytes} of {counted(len(report.layers), 'layer')} in bytes, others in {report.dtype}; {allowed}"]
    times = ", ".join(f"{name} {ms:.3f} ms" for name, ms in report.times_ms.items())
    lines += [f"run whole, in turn: {times}"] * bool(times)
    if not n_in_bytes:
        lines.append("nothing is quantised: what fits the budget is no faster" if times else "nothing that fits pays")
    return "\n".join(lines)


def _row(layer: LayerPrecision) -> tuple[str, ...]:
    alone = "" if layer.error is None else small(layer.error)
    other = "no choice" if layer.otherwise_ns is None else f"{layer.otherwise_ns / 1000:+,.1f}"
    change = "" if layer.error is None else f"{'-' if layer.in_bytes else '+'}{alone}"
    return layer.node, layer.op_type, "bytes" if layer.in_bytes else "floats", alone, other, change


def front_svg(report: PrecisionReport) -> str:
    """Estimated time against estimated error, from the most exact choice to the fastest; the chosen one apart.

    The same report makes the same text.
    """
    points = [point for point in (*report.front, report.chosen) if point.estimated_error is not None]
    most_ms = max((point.ns for point in points), default=1.0) / 1e6 * 1.05 or 1.0
    most_error = max((point.estimated_error or 0.0 for point in points), default=0.0) * 1.1 or 1.0

    def place(point: FrontPoint) -> tuple[str, str]:
        x = _LEFT + (point.estimated_error or 0.0) / most_error * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - point.ns / 1e6 / most_ms * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f}", f"{y:.1f}"

    places = [place(point) for point in points]
    title = f"Time against error: {len(report.layers)} layers in bytes or {report.dtype}"
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"',
        f' role="img"><title>{escape(title)}</title><style>{_STYLE}</style>',
        f'<text class="title" x="{_LEFT}" y="30">{escape(title)}</text>',
        f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        *_ticks(most_ms, most_error),
        f'<polyline class="line" points="{" ".join(map(",".join, places[:-1]))}"/>',
    ]
    for point, (x, y) in zip(points, places, strict=True):
        is_chosen = point is report.chosen
        said = f"{point.n_in_bytes} in bytes, {point.ns / 1e6:.3f} ms, error {small(point.estimated_error or 0.0)}"
        measured = "" if point.error is None else f", {report.metric} {small(point.error)} on the data"
        kind, radius = ("chosen", 6) if is_chosen else ("point", 4)
        lines.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius}"><title>{said}{measured}</title></circle>')
    chosen = f"chosen: {report.chosen.n_in_bytes} in bytes, {report.metric} {small(report.error)} on the data"
    lines.append(f'<text class="quiet" x="{right}" y="{_TOP}" text-anchor="end">{escape(chosen)}</text>')
    return "\n".join((*lines, "</svg>\n"))


def _ticks(most_ms: float, most_error: float) -> Iterator[str]:
    for number in range(5):
        x = _LEFT + number / 4 * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - number / 4 * (_HEIGHT - _TOP - _BOTTOM)
        error, ms = most_error * number / 4, most_ms * number / 4
        yield f'<text class="quiet" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{error:.2g}</text>'
        yield f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{ms:.3g} ms</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{_HEIGHT - 10}" text-anchor="middle">error of the outputs, estimated</text>'
