"""Whatever a command prints fits 80 columns of a pipe, begins with the verdict, and is coloured in terminals alone."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from PIL import Image

import blocklayout as bl
from blocklayout.cli import COMMANDS
from blocklayout.show.output import painted
from blocklayout.show.words import screen_width, table, width_of, wrapped
from tests import nets, quantised
from tests.cli.command import conv_model, saved
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.command import Command

KINDS = ("conv", "pool", "eltwise", "matmul", "rnn")
OTHERS = [
    ("inspect", "nChw16c", "1x17x5x4", "--offsets", "--to", "nhwc", "--index", "0,16,4,3"),
    ("inspect", "gOIhw4i16o4i", "2x64x64x3x3", "--offsets", "--to", "goihw"),
    ("inspect", "nchw", "64x512x56x56", "--offsets"),
    ("inspect", "chwn", "3x3x11x40", "--offsets"),
    ("candidates", "conv", "1x16x8x8", "16x16x3x3"),
    ("candidates", "rnn", "8x1x16", "16", "--cell", "lbr_gru", "--no-time"),
    ("operators", "Conv", "LSTM", "Softmax", "Det", "Resize"),
    ("show", "net.onnx", "--shape", "x=1x3x8x8", "-o", "net.html"),
    ("quantize", "net.onnx", "--data", "data", "--max-error", "any", "-o", "net-int8.onnx"),
    ("run", "--image", "digit.png", "--rounds", 1, "--layout", "auto,nChw8c"),
    ("run", "zoo:squeezenet1_1", "--image", "photo.png", "--labels", "labels.txt", "--rounds", 1),
    ("run", "--rounds", 1, "--why"),
    ("bench", "net.onnx", "--streams", 2, "--threads", 2, "--rounds", 1),
    ("--version",),
]


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Standard output is none of a terminal, and nobody says how wide it is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)


def _models(folder: Path) -> Iterator[tuple[str, ...]]:
    """Command lines' models, with what each needs: names of every length, pieces, bytes, and what nothing computes."""
    saved(conv_model(), folder / "net.onnx")
    yield "net.onnx", "--shape", "x=2x3x8x8"
    yield "zoo:squeezenet1_1", "--shape", "x=1x3x64x64"
    onnx.save(quantised.model_of(quantised.chain), folder / "bytes.onnx")
    yield ("bytes.onnx",)
    onnx.save(model_of([*PLACES, NODE("Cast", ["p"], ["y"], to=F32)], {"x": IMAGE}), folder / "cut.onnx")
    yield "cut.onnx", "--shape", "x=1x3x8x8"
    rng, b = np.random.default_rng(0), bl.Builder("文字" * 30)
    x = b.input("/model/backbone/stem/input.with.a.very.long.name/x", (1, 16, 8, 8))
    y = x.conv(nets.he(rng, 16, 16, 3, 3), pads=1, name="/model/backbone/stage4/blocks.11/attention/projection/Conv")
    b.output("y", b.op("Det", b.op("HardSwish", y), name="x" * 120))
    bl.save(b, folder / "long.onnx")
    yield ("long.onnx",)


def assert_fits(out: str, argv: object) -> None:
    wide = [line for line in out.splitlines() if width_of(line) > 80]
    assert not wide, (argv, wide[:3])
    assert "\x1b" not in out


@pytest.mark.parametrize("number", range(5))
def test_what_is_printed_of_a_model_fits_and_begins_with_the_verdict(cli: Command, tmp_path: Path, number: int) -> None:
    model = [*_models(tmp_path)][number]
    for command in (
        ("plan",),
        ("plan", "--steps", "--why"),
        ("plan", "--top", 3, "--layout", "per-op"),
        ("profile", "--runs", 1, "--why"),
        ("bench", "--rounds", 1, "--steps", "--why"),
        ("run", "--rounds", 1, "--layout", "plain,channels_last", "--steps"),
    ):
        done = cli(command[0], *model, *command[1:])
        assert done.status == 0, done
        assert_fits(done.out, command)
        labels = [line.partition(" ")[0] for line in done.out.splitlines()[:5]]
        assert labels == ["best", "others", "reorders", "slow", "try"], done.out


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")
@pytest.mark.parametrize("argv", OTHERS, ids=lambda argv: " ".join(map(str, argv))[:40])
def test_what_other_commands_print_fits(cli: Command, tmp_path: Path, argv: tuple[object, ...]) -> None:
    saved(conv_model(), tmp_path / "net.onnx")
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "0.npy", nets.random_input((1, 3, 8, 8)))
    Image.new("RGB", (8, 8), "white").save("digit.png")
    Image.new("RGB", (64, 64), "red").save("photo.png")
    (tmp_path / "labels.txt").write_text("\n".join(f"{'名' * 60} {each}" for each in range(1000)), encoding="utf-8")
    done = cli(*argv)
    assert done.status == 0, done
    assert done.out
    assert_fits(done.out, argv)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), *(("candidates", kind) for kind in KINDS)])
def test_help_fits(cli: Command, command: tuple[str, ...]) -> None:
    done = cli(*command, "--help")
    if "needs more packages" in done.err:
        pytest.skip(done.err)
    assert done.status == 0, done
    assert_fits(done.out, command)


def test_a_wider_screen_has_more_columns_in_it(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(conv_model(), tmp_path / "net.onnx")
    assert "GFLOP/s" not in cli.ok("profile", "net.onnx", "--runs", 1)
    monkeypatch.setenv("COLUMNS", "200")
    assert "GFLOP/s" in cli.ok("profile", "net.onnx", "--runs", 1)


def test_a_profile_is_sorted_by_time_and_as_long_as_asked_for(cli: Command) -> None:
    for options, n_shown in (((), 10), (("--top", 3), 3), (("--steps",), None)):
        out = cli.ok("profile", "--runs", 1, *options)
        [header] = [number for number, line in enumerate(out.splitlines()) if line.startswith("kernel ")]
        rows = [line.split() for line in out.splitlines()[header + 1 :]]
        times = [float(row[-3]) for row in rows if len(row) > 3 and row[-2].endswith("%") and row[-1].endswith("%")]
        assert times == sorted(times, reverse=True)
        assert ("more:" in out) == (n_shown is not None)


def test_columns_say_how_wide_a_pipe_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert screen_width() == 80
    for given, columns in (("132", 132), ("0", 80), ("wide", 80)):
        monkeypatch.setenv("COLUMNS", given)
        assert screen_width() == columns


def test_a_table_that_is_too_wide_leaves_out_spare_columns_then_breaks_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("some.long/name.of.a.kernel/that.has.no.end", "1,234.5", "spare"), ("x", "1.0", "spare")]
    header, *lines = table(("kernel", "us", "note"), rows, numbers=(1,), spare=(2,))
    assert "note" not in header
    assert max(map(width_of, (header, *lines))) <= 40
    assert "".join(line[:31].strip() for line in lines[:-1]) == "some.long/name.of.a.kernel/that.has.no.end"
    assert lines[0].endswith("1,234.5")
    monkeypatch.setenv("COLUMNS", "80")
    assert "note" in next(table(("kernel", "us", "note"), rows, numbers=(1,), spare=(2,)))


def test_long_lines_go_on_further_in() -> None:
    first, second = wrapped("  " + "word " * 20).splitlines()
    assert second.startswith("    word")
    assert width_of(first) <= 80
    lines = wrapped(f"  {'名' * 100}").splitlines()
    assert "".join(line.strip() for line in lines) == "名" * 100
    assert max(map(width_of, lines)) <= 80


@pytest.mark.parametrize(
    ("is_terminal", "environ", "is_coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, environ: dict[str, str], is_coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    out = io.StringIO()
    out.isatty = lambda: is_terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", out)
    assert ("\x1b[1m" in painted("best", 1)) == is_coloured
