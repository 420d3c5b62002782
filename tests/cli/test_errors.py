"""Whatever is wrong ends in status 2 and one line that says what would be right."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

from blocklayout import cli as cli_module
from blocklayout import dnnl
from blocklayout.commands import plan as plan_command
from blocklayout.errors import PolicyWarning
from tests.cli.command import conv_model, saved

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def run_apart(arguments: list[str], environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blocklayout", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
        cwd=folder,
        timeout=60,
    )


def test_truncated_file(cli: Command, tiny: Path) -> None:
    tiny.write_bytes(tiny.read_bytes()[:-100])
    assert str(tiny) in cli("plan", tiny).refusal


def test_separators_of_lines_are_none_in_a_refusal(cli: Command, tiny: Path) -> None:
    refusal = cli("plan", tiny, "one\x85two\x1dthree\nfour").refusal
    assert "unrecognized arguments: one two three four" in refusal


def test_limits_of_memory_and_time(cli: Command, tiny: Path) -> None:
    assert "bl.limits allows 1,024 here" in cli("plan", tiny, "--limit-memory", "1K").refusal
    assert "seconds that bl.limits allows here are over" in cli("run", tiny, "--limit-seconds", "1e-9").refusal
    assert "'2X': give a number of bytes such as 500M" in cli("plan", tiny, "--limit-memory", "2X").refusal
    assert cli("plan", tiny, "--limit-memory", "1G", "--limit-seconds", "3600").status == 0


def test_a_file_that_is_no_model(cli: Command, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no model\n" * 20)
    assert "ONNX" in cli("run", path).refusal


def test_no_file(cli: Command, tmp_path: Path) -> None:
    assert "no such file" in cli("bench", tmp_path / "absent.onnx").refusal


def test_a_folder(cli: Command, tmp_path: Path) -> None:
    assert "directory" in cli("plan", tmp_path).refusal


def test_an_operator_of_someone_elses(cli: Command, tmp_path: Path) -> None:
    path = saved(conv_model(op_type="Sparkle", domain="com.example"), tmp_path / "foreign.onnx")
    assert "Sparkle" in cli("plan", path).refusal


def test_an_operator_that_no_primitive_computes(cli: Command, tmp_path: Path) -> None:
    path = saved(conv_model(op_type="Det"), tmp_path / "plain.onnx")
    told = cli("plan", path)
    assert told.status == 0
    assert told.err.startswith("blocklayout: ")
    assert "no primitive computes" in told.err
    assert "onnx.reference" in told.out
    assert cli("bench", path, "--rounds", 1, "--json").json["policies"][0]["plain"][0][1] == "plain Det"


def test_an_input_the_model_does_not_have(cli: Command, tiny: Path) -> None:
    assert "'x'" in cli("run", tiny, "--shape", "y=1x3x8x8").refusal


def test_a_shape_of_another_rank(cli: Command, tiny: Path) -> None:
    assert "(N, 3, 8, 8)" in cli("run", tiny, "--shape", "x=3x8x8").refusal


def test_a_shape_against_the_model(cli: Command, tiny: Path) -> None:
    assert "fixed to 3" in cli("run", tiny, "--shape", "x=1x4x8x8").refusal


@pytest.mark.parametrize("shape", [("N", 3, "H", "W"), (None, 3, None, 8), (1, 3, "H", 8)])
def test_an_extent_left_free(cli: Command, tmp_path: Path, shape: tuple[int | str | None, ...]) -> None:
    path = saved(conv_model(shape), tmp_path / "free.onnx")
    advice = cli("plan", path).refusal.partition("--shape x=")[2]
    assert advice in ("1x3x224x224", "1x3x224x8")
    assert cli("plan", path, "--shape", "x=1x3x8x8").status == 0


def test_deprecations_of_others_reach_no_user(cli: Command, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: object) -> None:
        warnings.warn("numpy 3 will do without", DeprecationWarning, stacklevel=1)
        warnings.warn("onnx 2 will do otherwise", FutureWarning, stacklevel=1)
        warnings.warn("a policy", PolicyWarning, stacklevel=1)

    monkeypatch.setattr(plan_command, "run", plan)
    done = cli("plan", tiny)
    assert (done.status, done.err) == (0, "blocklayout: a policy\n")


def test_an_array_of_another_type(cli: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 8, 8)))
    assert ".astype('float32')" in cli("run", tiny, "--input", f"x={tmp_path / 'x.npy'}").refusal


def test_an_array_of_another_shape(cli: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 8), np.float32))
    assert "(1, 3, 8)" in cli("run", tiny, "--input", f"x={tmp_path / 'x.npy'}").refusal


def test_files_that_hold_no_array(cli: Command, tiny: Path, tmp_path: Path) -> None:
    text, empty, short, archive, objects = (tmp_path / name for name in ("t.npy", "e.npy", "s.npy", "a.npz", "o.npy"))
    text.write_text("numbers")
    np.save(short, np.zeros((1, 3, 8, 8), np.float32))
    short.write_bytes(short.read_bytes()[:-9])
    empty.touch()
    np.savez(archive, x=np.zeros(3))
    np.save(objects, np.array([{}, None], dtype=object), allow_pickle=True)
    for path in (text, empty, short, archive, objects):
        assert "numpy.save" in cli("run", tiny, "--input", f"x={path}").refusal
    assert "no such file" in cli("run", tiny, "--input", f"x={tmp_path / 'absent.npy'}").refusal
    assert "irectory" in cli("run", tiny, "--input", f"x={tmp_path}").refusal


def test_more_than_there_is_memory_for(cli: Command, tiny: Path) -> None:
    refusal = cli("run", tiny, "--shape", "x=1000000000000x3x8x8").refusal
    assert "memory" in refusal or "elements" in refusal


def test_no_such_policy(cli: Command, tiny: Path) -> None:
    assert "per-op" in cli("run", tiny, "--layout", "fastest").refusal


def test_bf16_where_the_cpu_has_none(cli: Command, tiny: Path) -> None:
    if dnnl.has_bf16():
        pytest.skip("this CPU computes in bf16")
    assert "avx512_core" in cli("plan", tiny, "--dtype", "bf16").refusal


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["run", "--threads", "0"], "at least 1"),
        (["run", "--threads", "two"], "at least 1"),
        (["run", "--rounds", "-1"], "at least 1"),
        (["run", "--shape", "1x3x8x8"], "x=1x3x224x224"),
        (["run", "--shape", "x=1x3x8xw"], "1x3x224x224"),
        (["run", "--shape", "x=1x3x8x8..9..10"], "32..640"),
        (["run", "--shape", "x=1x3x8x8.."], "32..640"),
        (["run", "zoo:resnet18", "--shape", "x=1x3x64x64..96"], "one set of extents"),
        (["run", "--input", "x"], "x=file.npy"),
        (["run", "--layout", ","], "commas"),
        (["plan", "--dtype", "f64"], "bf16"),
        (["plan", "--colour"], "--colour"),
        (["inspect", "nchw"], "DIMS"),
    ],
)
def test_arguments_that_cannot_be_read(cli: Command, argv: list[str], told: str) -> None:
    assert told in cli(*argv).refusal


def test_no_library(tree_environ: dict[str, str], tmp_path: Path) -> None:
    environ = tree_environ | {"BLOCKLAYOUT_ONEDNN": "/nonexistent"}
    done = run_apart(["run"], environ, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "BLOCKLAYOUT_ONEDNN=/nonexistent" in done.stderr
    version = run_apart(["--version"], environ, tmp_path)
    assert version.returncode == 0
    assert "no oneDNN: BLOCKLAYOUT_ONEDNN=/nonexistent" in version.stdout


def test_version(cli: Command) -> None:
    out = cli.ok("--version")
    assert out.startswith("blocklayout ")
    assert f"oneDNN {'.'.join(map(str, dnnl.version()))}, {dnnl.isa()}" in out


def test_help_of_every_command(cli: Command) -> None:
    for argv in ([], ["run"], ["plan"], ["inspect"], ["candidates"], ["candidates", "conv"], ["bench"]):
        assert "usage: blocklayout" in cli.ok(*argv, "--help")


def test_an_interrupt(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_module, "make_parser", interrupted)
    done = cli("run")
    assert (done.status, done.out, done.err) == (130, "", "blocklayout: interrupted\n")


def test_a_reader_that_leaves_early(tree_environ: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "blocklayout", "inspect", "nchw", "1x32x8x8", "--offsets", "--no-library"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=tree_environ,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert err == b""
