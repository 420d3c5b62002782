"""The example that finds things in a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image, ImageDraw

import blocklayout as bl
from blocklayout import zoo

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "detect_objects.py"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("detect_objects", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """Twice as wide as high, with a red and a blue rectangle."""
    image = Image.new("RGB", (256, 128), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((64, 32, 95, 63), fill="red")
    draw.rectangle((160, 64, 191, 95), fill="blue")
    image.save(tmp_path / "scene.png")
    return tmp_path / "scene.png"


def red_and_blue(path: Path) -> Path:
    """A detector as YOLO exports them, of two classes: how red and how blue each of 16x16 cells is."""
    b = bl.Builder()
    colours = np.array([[1, -1, -1], [-1, -1, 1]], np.float32).reshape(2, 3, 1, 1).repeat(8, 2).repeat(8, 3) / 64
    scores = b.input("image", (1, 3, 128, 128)).conv(colours, strides=8).relu().reshape((1, 2, 256))
    rows, columns = np.divmod(np.arange(256), 16)
    cells = np.stack([columns * 8 + 4, rows * 8 + 4, *np.full((2, 256), 40)])[None].astype(np.float32)
    b.output("candidates", b.concat([cells, scores]))
    bl.save(b, path)
    return path


def test_boxes_are_found_and_drawn_where_they_are(
    example: Any, scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = red_and_blue(tmp_path / "detector.onnx"), tmp_path / "boxes.png"
    (tmp_path / "labels.txt").write_text("red thing\nblue thing\n")
    example.main([str(model), str(scene), "--labels", str(tmp_path / "labels.txt"), "--save", str(out)])
    # Half as large, and grey above and below: each thing is two by two cells, of which one is kept.
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [line.split()[0] for line in lines] == ["blue", "red"]
    blue, red = (np.array(line.split()[-4:], int) for line in lines)
    assert np.abs(red - [40, 8, 120, 88]).max() <= 8
    assert np.abs(blue - [136, 40, 216, 120]).max() <= 8
    before, drawn = np.asarray(Image.open(scene)).astype(int), np.asarray(Image.open(out)).astype(int)
    assert (drawn[red[3], red[0] : red[2]] != before[red[3], red[0] : red[2]]).any(axis=1).all()  # its lower side
    assert (drawn[:, 225:] == before[:, 225:]).all()


def test_a_better_box_of_the_same_class_takes_the_place(example: Any) -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 1, 10, 10], [1, 1, 10, 10], [20, 0, 30, 10.0]])
    found = example.Found(boxes, np.array([0.9, 0.8, 0.7, 0.6]), np.array([0, 0, 1, 0]))
    assert example.without_overlaps(found).scores.tolist() == [0.9, 0.7, 0.6]
    nothing = example.Found(boxes[:0], np.zeros(0), np.zeros(0, int))
    assert example.without_overlaps(nothing).boxes.shape == (0, 4)


def test_yolo_runs_as_it_is_exported(example: Any, scene: Path) -> None:
    """The zoo's network has boxes and scores apart, its exports have them in one output."""
    model = zoo.build("yolo_v8n", size=(64, 96), classes=3).to_onnx()
    model.graph.node.append(helper.make_node("Transpose", ["boxes"], ["corners"], perm=[0, 2, 1]))
    model.graph.node.append(helper.make_node("Concat", ["corners", "scores"], ["candidates"], axis=1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("candidates", onnx.TensorProto.FLOAT, None))
    with bl.load(model.SerializeToString(), threads=1) as session:
        found = example.detect(session, Image.open(scene), 0.0)
    assert 0 < len(found.boxes) < 126  # of the candidates of three levels
    assert (np.diff(found.scores) <= 0).all()
    assert ((found.boxes >= 0) & (found.boxes <= [256, 128, 256, 128])).all()
    assert {*found.classes.tolist()} <= {0, 1, 2}


def test_a_detector_that_drops_overlaps_itself(example: Any, scene: Path) -> None:
    model = zoo.detector("ssdlite320_mobilenet_v3_large", size=64, classes=3)
    [least] = [each for each in model.graph.initializer if each.name == "least"]
    least.CopyFrom(numpy_helper.from_array(np.zeros(1, np.float32), "least"))  # random weights are sure of nothing
    with bl.load(model.SerializeToString(), threads=1) as session:
        found = example.detect(session, Image.open(scene), 0.0)
    assert len(found.boxes)
    assert (np.diff(found.scores) <= 0).all()
    assert ((found.boxes >= 0) & (found.boxes <= [256, 128, 256, 128])).all()
    assert (found.boxes[:, 2:] > 2).any()  # in pixels of the picture, not in fractions


def test_other_outputs_are_refused(example: Any) -> None:
    with pytest.raises(ValueError, match="no boxes, scores and classes: a, b"):
        example.found_in({"a": np.zeros((1, 3)), "b": np.zeros((1, 5))}, (8, 8))
