"""``blocklayout quantize``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from PIL import Image

import blocklayout as bl
from blocklayout.quantizing.budget import Search
from blocklayout.zoo import digits
from tests.cli.command import conv_model, saved

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the digits model and its images, as arrays and as pictures, which is the current one."""
    images, _ = digits.held_out()
    for name in ("arrays", "pictures"):
        (tmp_path / name).mkdir()
    for number, image in enumerate(images[:12]):
        np.save(tmp_path / "arrays" / f"{number:02}.npy", image if number % 2 else image[None])
        Image.fromarray(np.uint8(image[0] * 255)).save(tmp_path / "pictures" / f"{number:02}.PNG")
    (tmp_path / "digits.onnx").write_bytes(digits.model_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_of_arrays_and_the_recipe_beside(cli: Command, folder: Path) -> None:
    out = cli.ok("quantize", "digits.onnx", "--data", "arrays", "--max-error", "any")
    assert "12 values are quantised, ranges seen on 12 files" in out
    images, labels = digits.held_out()
    written = folder / "digits-int8.onnx"
    assert (np.asarray(bl.load(written)(images)).argmax(1) == labels).mean() > 0.98
    recipe = folder / "digits-int8.onnx.recipe.json"
    assert bl.QuantizationRecipe.of(recipe) == bl.QuantizationRecipe(max_error="any")
    cli.ok("quantize", "digits.onnx", "--data", "arrays", "--recipe", recipe, "-o", "again.onnx")
    assert (folder / "again.onnx").read_bytes() == written.read_bytes()


def test_a_folder_of_pictures(cli: Command, folder: Path) -> None:
    (folder / "r.toml").write_text('activations = "minmax"\n[exceptions]\nGemm = "f32"\n')
    argv = (
        "quantize",
        "digits.onnx",
        "--data",
        "pictures",
        "--samples",
        5,
        "--recipe",
        "r.toml",
        "--max-error",
        "any",
        "-o",
        "q.onnx",
        "--json",
    )
    done = cli(*argv).json
    assert (done["file"], done["recipe"], done["n_quantized"]) == ("q.onnx", "q.onnx.recipe.json", 10)
    assert done["nbytes"] == (folder / "q.onnx").stat().st_size
    [gemm] = [node for node in onnx.load(folder / "q.onnx").graph.node if node.op_type == "Gemm"]
    assert not gemm.input[1].endswith("_dequantized")


def test_arrays_by_name(cli: Command, folder: Path) -> None:
    saved(conv_model(), folder / "tiny.onnx")
    (folder / "named").mkdir()
    np.savez(folder / "named" / "a.npz", x=np.ones((1, 3, 8, 8), np.float32))
    assert "1 values" in cli.ok("quantize", "tiny.onnx", "--data", "named", "--max-error", "any")


def test_a_network_of_the_zoo(cli: Command, folder: Path) -> None:
    (folder / "noise").mkdir()
    np.save(folder / "noise" / "a.npy", np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32))
    argv = ("quantize", "zoo:squeezenet1_1", "--shape", "x=1x3x32x32", "--data", "noise")
    assert "squeezenet1_1-int8.onnx" in cli.ok(*argv)


def test_a_budget_of_error(cli: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_times_ms", lambda *_: {"int8": 1.0, "f32": 2.0})  # a model so small may be no faster
    out = cli.ok("quantize", "digits.onnx", "--data", "arrays", "--max-error", "0.01", "--picture", "front.svg")
    report = bl.PrecisionReport.of(folder / "digits-int8.onnx")
    assert report is not None
    assert report.error <= 0.01
    assert str(report) in out
    assert (folder / "front.svg").read_text() == report.to_svg()
    recipe = folder / "digits-int8.onnx.recipe.json"
    assert bl.QuantizationRecipe.of(recipe).exceptions == dict.fromkeys(report.left, "f32")
    cli.ok("quantize", "digits.onnx", "--data", "arrays", "--recipe", recipe, "-o", "again.onnx")
    first, again = (onnx.load(folder / name) for name in ("digits-int8.onnx", "again.onnx"))
    assert first.graph == again.graph
    assert str(report) in cli.ok("plan", "digits-int8.onnx", "--why")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--data", "nowhere"), "--data: nowhere is no folder"),
        (("--data", "empty"), "--data: empty has neither .npy or .npz files nor pictures"),
        (("--data", "broken"), "--data broken/a.npy: no array as numpy.save writes it"),
        (("--data", "bad"), "--data bad/a.png: no picture of a format that Pillow reads"),
        (("--data", "zipped"), "--data zipped/a.npz: no arrays as numpy.savez writes them"),
        (("--data", "arrays", "--recipe", "r.toml"), "recipe: r.toml: weights: input should be 'channel' or 'tensor'"),
        (("--data", "arrays", "-o", "nowhere/q.onnx"), "--output: cannot write nowhere/q.onnx: No such file"),
        (("--data", "others"), "calibration feed 1: "),
        (("--data", "arrays", "--max-error", "0"), "--max-error: 0: give a number above 0, or any"),
        (("--data", "arrays", "--max-error", "any", "--picture", "a.svg"), "--picture: --max-error any has no choice"),
    ],
)
def test_refusals(cli: Command, folder: Path, argv: tuple[str, ...], said: str) -> None:
    for name, file in {"broken": "a.npy", "bad": "a.png", "zipped": "a.npz"}.items():
        (folder / name).mkdir()
        (folder / name / file).write_bytes(b"nothing")
    (folder / "empty").mkdir()
    (folder / "others").mkdir()
    np.save(folder / "others" / "a.npy", np.ones((2, 2), np.float32))
    (folder / "r.toml").write_text('weights = "row"')
    assert said in cli("quantize", "digits.onnx", *argv).refusal
    assert not (folder / "digits-int8.onnx").exists()
