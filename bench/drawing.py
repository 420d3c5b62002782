"""One style for the pictures of benchmarks: plain numbers, names beside what they name, spreads as lines.

A picture is an SVG on a white ground, for pages of any colour. Text stays text, and the same data make the same file.
"""

from __future__ import annotations

import math
import re
from io import StringIO
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blocklayout.show.page import LAYOUT_COLOURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from blocklayout.timing import Spread

TEXT, QUIET, LINE, BAND = "#1d1d1f", "#5c5c61", "#d2d2d7", "#f5f5f7"

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "blocklayout",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.edgecolor": LINE,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
}

_STEPS = (
    (1, 1.2, 1.5, 2, 3, 4, 5, 7),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)
"""Numbers on an axis, times powers of ten: the first that have room are taken."""

LANE_PT, GAP_PT = 9.0, 5.0
"""Height of a lane, and of what is free between groups of them."""

_LOOKS = {
    "blocklayout": (TEXT, "o"),
    "blocklayout (saved)": (QUIET, "D"),
    "onnxruntime": ("#0072b2", "s"),
    "openvino": ("#d1430b", "^"),
    "torch": ("#007a5a", "v"),
    "torch-inductor": ("#9c4a80", "P"),
    "auto": (TEXT, "o"),
    "any": (LAYOUT_COLOURS["other"][0], "P"),
    "plain": (LAYOUT_COLOURS["plain"][0], "s"),
    "nhwc": (LAYOUT_COLOURS["channels last"][0], "^"),
    "blocked": (LAYOUT_COLOURS["16c"][0], "v"),
    "blocked8": (LAYOUT_COLOURS["8c"][0], "v"),
    "blocked16": (LAYOUT_COLOURS["16c"][0], "v"),
    "per-op": (LAYOUT_COLOURS["reorder"][0], "D"),
}
_OTHERS = (
    *(("#0072b2", "o"), ("#d1430b", "s"), ("#007a5a", "^"), ("#9c4a80", "v"), ("#b07d00", "D")),
    *(("#5b4bb5", "P"), ("#6e6e73", "X"), ("#1d1d1f", "*")),
)


Cloud = tuple["Sequence[float]", "Sequence[float]"]
"""Values on x and on y."""


class Lane(NamedTuple):
    """A line of a picture.

    Attributes:
        spans: By contender.
        name: What the line is of, shown on the left if it is not empty.
    """

    spans: Mapping[str, Spread]
    name: str = ""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, in this style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = mpl.rcParams
    settings.update(STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=9 / 72, h_pad=5 / 72)  # other fonts may be wider
    return figure


def save(figure: Figure, path: str) -> None:
    """Write a figure as SVG, with hundredths of points; the same each time."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    rounded = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d\d)\d+", r"\1", tag[0]), text.getvalue())
    Path(path).write_text(re.sub(r"[ \t]+$", "", rounded, flags=re.MULTILINE), encoding="utf-8")


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name, always the same for runtimes and for layouts."""
    others = iter(_OTHERS * 8)
    return {name: _LOOKS.get(name) or next(others) for name in names}


def lanes_height(groups: Mapping[str, Sequence[Lane]]) -> float:
    """Inches that the lanes take."""
    return sum(LANE_PT * len(lanes) + GAP_PT for lanes in groups.values()) / 72


def draw_lanes(axis: Axes, groups: Mapping[str, Sequence[Lane]], *, is_named: bool = True, n_most: int = 7) -> None:
    """Contenders in lanes below each other: a marker at the median, a line from the least to the most.

    Args:
        axis: Where to draw; its values are on a logarithmic scale with plain numbers.
        groups: Lanes by the name of their group, which stands on the left.
        is_named: Whether a contender's name stands beside it where it is first.
        n_most: Numbers on the axis at most.
    """
    known = looks(dict.fromkeys(name for lanes in groups.values() for lane in lanes for name in lane.spans))
    drawn: dict[str, list[tuple[float, Spread]]] = {name: [] for name in known}
    place, centres = 0.0, {}
    half = (LANE_PT + GAP_PT) / 2
    for number, (group, lanes) in enumerate(groups.items()):
        begin = place
        for lane in lanes:
            for name, span in lane.spans.items():
                drawn[name].append((place, span))
            _write(axis, lane.name, (0.0, place), -4, xycoords=("axes fraction", "data"), ha="right", fontsize=6.5)
            place += LANE_PT
        centres[group] = (begin + place - LANE_PT) / 2
        if number % 2 == 0:
            axis.axhspan(begin - half, place - LANE_PT + half, color=BAND, lw=0, zorder=0)
        place += GAP_PT
    for name, found in drawn.items():
        colour, marker = known[name]
        places, spans = zip(*found, strict=True)
        axis.hlines(
            places, [span.low for span in spans], [span.high for span in spans], color=colour, lw=1.6, alpha=0.5
        )
        axis.plot([span.median for span in spans], places, marker, color=colour, ms=4.2, mew=0, label=name)
        if is_named:
            _write(axis, name, (spans[0].high, places[0]), 6, color=colour)
    axis.set_yticks([*centres.values()], [*centres])
    has_names = any(lane.name for lanes in groups.values() for lane in lanes)
    axis.tick_params(axis="y", length=0, pad=32 if has_names else 4)
    axis.set_ylim(place - LANE_PT - GAP_PT + half, -half)
    ends = [value for found in drawn.values() for _, span in found for value in (span.low, span.high)]
    log_scale(axis.xaxis, ends, n_most)


def _write(axis: Axes, text: str, at: tuple[float, float], x_pt: float, y_pt: float = 0.0, **more: Any) -> None:
    """A text beside a point; it takes no room from the axes."""
    if text:
        usual: dict[str, Any] = {"color": QUIET, "fontsize": 8.0, "va": "center", "annotation_clip": False}
        note = axis.annotate(text, at, (x_pt, y_pt), textcoords="offset points", **(usual | more))
        note.set_in_layout(False)


def log_scale(axis: Any, values: Iterable[float], n_most: int = 7) -> None:
    """A logarithmic x or y axis around some values, with numbers such as 0.5, 1, 2, 5."""
    kept = [value for value in values if value > 0]
    low, high = min(kept, default=1.0), max(kept, default=1.0)
    room = max((high / low) ** 0.04, 1.02)
    low, high = low / room, high * room
    marks = _ticks(low, high, n_most)
    name = axis.axis_name
    axis.axes.set(**{f"{name}scale": "log"})
    axis.axes.set(**{f"{name}lim": (low, high)})
    axis.set_ticks(marks, [f"{mark:,.10g}" for mark in marks])
    axis.set_ticks([], minor=True)
    axis.set_tick_params(length=0)
    axis.grid(visible=True)


def _ticks(low: float, high: float, n_most: int) -> list[float]:
    """Round numbers, as many as have room."""
    if high / low < 2.0:  # next to linear
        widths = (step * 10.0**power for power in count(math.floor(math.log10(high - low)) - 1) for step in (1, 2, 5))
        width = next(each for each in widths if (high - low) / each < n_most - 1)
        return [round(number * width, 12) for number in range(math.ceil(low / width), math.floor(high / width) + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    least = (high / low) ** (0.7 / n_most)
    marks: list[float] = []
    for steps in _STEPS:
        found = [round(step * 10.0**power, 12) for power in powers for step in steps]
        marks = [mark for mark in found if low <= mark <= high]
        if len(marks) <= n_most and all(b / a >= least for a, b in pairwise(marks)):
            break
    return marks


def mark_one(axis: Axes, name: str) -> None:
    """A line at 1, with a name above if there is one."""
    axis.axvline(1.0, color=TEXT, lw=1.0, zorder=1)
    if name:
        write_above(axis, 1.0, name)


def write_above(axis: Axes, x: float, text: str, colour: str = TEXT) -> None:
    """A text above the axes, from a place on x on."""
    axis.annotate(
        text, (x, 1.0), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=8.0,
        color=colour, annotation_clip=False,
    )  # fmt: skip


def names_above(axis: Axes, n_columns: int) -> None:
    """Names of what is drawn, above the axes and beside nothing that they could hide."""
    axis.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=n_columns, handletextpad=0.2, columnspacing=1.2,
        borderaxespad=0.2, markerscale=1.3,
    )  # fmt: skip


def scatter(axis: Axes, clouds: Mapping[str, Cloud], values: Iterable[float]) -> None:
    """Points of two times, with the line on which both are the same.

    Args:
        axis: Where to draw; both axes are logarithmic and alike.
        clouds: By name, values on x and on y.
        values: What both axes reach to.
    """
    kept = [*values]
    known = looks(clouds)
    for name, (x, y) in clouds.items():
        colour, marker = known[name]
        axis.plot(x, y, marker, color=colour, ms=4.0, mew=0, alpha=0.7, label=name)
    for one in (axis.xaxis, axis.yaxis):
        log_scale(one, kept)
    axis.plot(axis.get_xlim(), axis.get_xlim(), color=QUIET, lw=0.8, zorder=1, scalex=False, scaley=False)


def name_end(axis: Axes, x: float, y: float, name: str, colour: str = TEXT) -> None:
    """The name of a curve behind its end."""
    _write(axis, name, (x, y), 5, color=colour)


def name_begin(axis: Axes, x: float, y: float, name: str, colour: str = TEXT) -> None:
    """The name of a rising curve above its begin."""
    _write(axis, name, (x, y), 0, 13, color=colour, va="bottom")
