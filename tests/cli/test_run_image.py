"""``blocklayout run --image``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from blocklayout.zoo import digits
from tests.cli.command import saved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cli.command import Command

ROOT = Path(__file__).parents[2]
RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A red picture, 64 wide and 32 high, whose right half is white."""
    image = Image.new("RGB", (64, 32), RED)
    image.paste(WHITE, (32, 0, 64, 32))
    image.save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def model_of(
    path: Path,
    shape: tuple[Any, ...],
    ops: list[Any],
    outputs: dict[str, Any],
    *,
    dtype: int = 1,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """A file with an input ``x``, these nodes, and outputs that are computed (``None``) or constant arrays."""
    inits = [numpy_helper.from_array(array, f"c_{name}") for name, array in outputs.items() if array is not None]
    nodes = [helper.make_node(op, list(ins), [out], **attrs) for op, ins, out, attrs in ops]
    # Scores that are known: constants, behind a sum with something of the picture that is 0.
    nodes += [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)] if inits else []
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    nodes += [helper.make_node("Mul", ["most", "zero"], ["nothing"])] if inits else []
    for name, array in outputs.items():
        if array is not None:
            nodes.append(helper.make_node("Add", [f"c_{name}", "nothing"], [name]))
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        if array is not None
        else helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name, array in outputs.items()
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", dtype, shape)], infos, [*inits, *[zero] * bool(inits)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    return saved(model, path)


NAMES = {"names": "{0: 'red', 1: 'green', 2: 'blue'}"}
MEANS = [("ReduceMean", ["x"], "y", {"axes": [2, 3], "keepdims": 0})]
"""A classifier whose scores are the means of each channel."""


def test_the_embedded_model_reads_pictures_of_digits(cli: Command, tmp_path: Path) -> None:
    images, labels = digits.held_out()
    for each in range(3):
        pixels = (images[each, 0] * 255).astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)
        Image.fromarray(pixels).save(tmp_path / "digit.png")
        told = cli("run", "--image", tmp_path / "digit.png", "--rounds", 1, "--json").json
        best = told["answer"]["classes"][0]
        assert (best["class"], best["name"]) == (labels[each], str(labels[each]))
        assert best["score"] > 0.9
        assert told["picture"]["order"] == "grey"


PREPARED = [
    # shape, options, metadata, the input's channels on the red half and the white half
    ((1, 3, 32, 64), ("--pixels", "unit"), {}, (1, 0, 0), (1, 1, 1)),
    ((3, 32, 64), ("--pixels", "unit"), {}, (1, 0, 0), (1, 1, 1)),
    ((1, 32, 64, 3), ("--pixels", "unit", "--order", "bgr"), {}, (0, 0, 1), (1, 1, 1)),
    (("n", 3, "h", "w"), ("--pixels", "signed", "--shape", "x=1x3x32x64"), {}, (1, -1, -1), (1, 1, 1)),
    (
        (2, 3, 32, 64),
        (),
        {},
        (0.515 / 0.229, -0.456 / 0.224, -0.406 / 0.225),
        (0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225),
    ),
    (
        (1, 3, 32, 64),
        (),
        {"Image.NominalPixelRange": "NominalRange_0_255", "Image.BitmapPixelFormat": "Bgr8"},
        (0, 0, 255),
        (255, 255, 255),
    ),
    ((1, 3, 32, 64), ("--pixels", "0.5,0,0/2,1,1"), {}, (0.25, 0, 0), (0.25, 1, 1)),
    ((1, 1, 32, 64), (), {}, (76 / 255,), (1,)),
]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")  # constants by onnx.reference
@pytest.mark.parametrize(("shape", "options", "metadata", "red", "white"), PREPARED)
def test_a_picture_is_prepared_as_options_and_metadata_say(
    cli: Command,
    photo: Path,
    tmp_path: Path,
    shape: tuple[Any, ...],
    options: tuple[str, ...],
    metadata: dict[str, str],
    red: tuple[float, ...],
    white: tuple[float, ...],
) -> None:
    outputs = {"y": np.array([[0.25, 0.5, 0.25]], np.float32), "fed": None}
    net = model_of(tmp_path / "net.onnx", shape, [("Identity", ["x"], "fed", {})], outputs, metadata=metadata | NAMES)
    told = cli("run", net, "--image", photo, *options, "--fit", "stretch", "--rounds", 1, "--json").json
    [_, fed] = told["outputs"]
    assert fed["min"] == pytest.approx(min(*red, *white), abs=1e-5)
    assert fed["max"] == pytest.approx(max(*red, *white), abs=1e-5)
    assert fed["mean"] == pytest.approx(np.mean([red, white]), abs=0.01)  # but for the pixels between the halves
    assert fed["shape"] == [
        extent if isinstance(extent, int) else {"n": 1, "h": 32, "w": 64}[extent] for extent in shape
    ]
    assert told["picture"]["extents"] == fed["shape"]


@pytest.mark.parametrize(("fit", "seen"), [("crop", (1, 0, 0)), ("fill", (1, 0, 0)), ("stretch", (0.5, 0, 0.5))])
def test_a_picture_is_cut_as_the_option_says(cli: Command, tmp_path: Path, fit: str, seen: tuple[float, ...]) -> None:
    """Red in its middle, which is as high as the picture or 7/8 of that, and blue beside it."""
    height = 56 if fit == "crop" else 64
    image = Image.new("RGB", (128, 64), (0, 0, 255))
    image.paste(RED, (64 - height // 2, 32 - height // 2, 64 + height // 2, 32 + height // 2))
    image.save(tmp_path / "photo.png")
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 32), MEANS, {"y": None}, metadata=NAMES)
    flags = ("--image", tmp_path / "photo.png", "--fit", fit, "--pixels", "unit", "--rounds", 1, "--json")
    answer = cli("run", net, *flags).json["answer"]
    assert answer["rule"] == "y as it is"
    scores = {each["name"]: each["score"] for each in answer["classes"]}
    told = tuple(scores[name] for name in ("red", "green", "blue"))
    assert told == pytest.approx(seen, abs=0.02)  # but for pixels at the border


def test_integers_are_bytes_as_they_are(cli: Command, photo: Path, tmp_path: Path) -> None:
    ops = [("Cast", ["x"], "f", {"to": TensorProto.FLOAT}), ("ReduceMax", ["f"], "y", {"axes": [2, 3], "keepdims": 0})]
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 32), ops, {"y": None}, dtype=TensorProto.UINT8, metadata=NAMES)
    told = cli("run", net, "--image", photo, "--rounds", 1, "--json").json
    assert (told["picture"]["pixels"], told["outputs"][0]["max"]) == ("bytes", 255)


def test_a_classifier_has_names_and_a_softmax(cli: Command, photo: Path, tmp_path: Path) -> None:
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 64), MEANS, {"y": None}, metadata=NAMES)
    flags = ("--fit", "stretch", "--pixels", "bytes", "--rounds", 1)
    done = cli("run", net, "--image", photo, *flags, "--top", 1)
    told = "".join(done.out.split())  # a long path is broken, too
    assert "photo.png,64x32:stretch,rgb,bytespixels;fedtox,1x3x32x64" in told
    assert "softmax of y" in done.out
    assert "red " in done.out
    assert "green " not in done.out
    (tmp_path / "labels.txt").write_text("rot\ngrün\nblau\n", encoding="utf-8")
    told = cli("run", net, "--image", photo, *flags, "--labels", tmp_path / "labels.txt", "--json").json["answer"]
    assert [each["name"] for each in told["classes"]] == ["rot", "grün", "blau"]
    assert sum(each["score"] for each in told["classes"]) == pytest.approx(1)


@pytest.mark.parametrize("written", ["['red', 'green', 'blue']", "{'1': 'green', '0': 'red', '2': 'blue'}"])
def test_names_are_a_list_or_by_number(cli: Command, photo: Path, tmp_path: Path, written: str) -> None:
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 64), MEANS, {"y": None}, metadata={"names": written})
    told = cli("run", net, "--image", photo, "--pixels", "unit", "--rounds", 1, "--json").json["answer"]["classes"]
    assert sorted((each["class"], each["name"]) for each in told) == [(0, "red"), (1, "green"), (2, "blue")]


NO_CLASSIFIERS = [
    ({}, {"y": None}, "net.onnx does not say that it is one: a classifier has names of classes, in its metadata or by"),
    ({"names": "Ada"}, {"y": None}, "does not say that it is one"),
    (NAMES, {"y": np.zeros((1, 9, 7), np.float32)}, "y is 1x9x7; there are 3 names of classes"),
]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")  # constants by onnx.reference
@pytest.mark.parametrize(("metadata", "outputs", "words"), NO_CLASSIFIERS)
def test_other_models_are_refused_by_a_line_that_names_the_examples(
    cli: Command, photo: Path, tmp_path: Path, metadata: dict[str, str], outputs: dict[str, Any], words: str
) -> None:
    ops = [] if outputs["y"] is not None else MEANS
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 64), ops, outputs, metadata=metadata)
    refusal = cli("run", net, "--image", photo, "--rounds", 1).refusal
    assert words in refusal
    for example in re.findall(r"docs/examples/\w+\.py", refusal):
        assert (ROOT / example).is_file()
    assert refusal.count("docs/examples/") == 2


WRONG = [
    ((), {"image": "absent.png"}, "--image absent.png: no such file"),
    ((), {"image": "net.onnx"}, "no picture of a format that Pillow reads"),
    ((), {"image": "cut.png"}, "cut.png"),
    ((), {"image": "deep.png"}, "8 bits a channel"),
    (("--labels", "absent.txt"), {}, "--labels absent.txt: No such file"),
    (("--labels", "cut.png"), {}, "no UTF-8 text"),
    (("--labels", "empty.txt"), {}, "--labels empty.txt: it is empty"),
    (("--labels", "two.txt"), {}, "y is 1x3; there are 2 names"),
    (("--pixels", "0.5/0"), {}, "give imagenet, unit"),
    (("--pixels", "1,2/1,2,3"), {}, "give imagenet, unit"),
    (("--pixels", "zebra"), {}, "--pixels zebra: give imagenet, unit"),
    ((), {"shape": (1, 5)}, "is an image (x is f32 1x5)"),
    ((), {"shape": ("n", "c", "h", "w")}, "x is f32 nxcxhxw"),
    (("--pixels", "imagenet"), {"shape": (1, 1, 8, 8)}, "x has 1 channel"),
    (("--pixels", "unit"), {"dtype": TensorProto.UINT8}, "bytes as they are"),
]


@pytest.mark.parametrize(("options", "case", "words"), WRONG, ids=lambda each: str(each)[:24])
def test_what_is_wrong_is_one_clear_line(
    cli: Command,
    photo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    case: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.png").write_bytes(photo.read_bytes()[:60])
    Image.fromarray(np.zeros((4, 4), np.uint16)).save("deep.png")
    (tmp_path / "two.txt").write_text("red\ngreen\n")
    (tmp_path / "empty.txt").write_text("")
    shape, dtype = case.get("shape", (1, 3, 8, 8)), case.get("dtype", TensorProto.FLOAT)
    ops = [("Cast", ["x"], "f", {"to": TensorProto.FLOAT}), ("ReduceMean", ["f"], "y", MEANS[0][3])]
    ops = ops if len(shape) == 4 else [("Relu", ["x"], "y", {})]
    model_of(tmp_path / "net.onnx", shape, ops, {"y": None}, dtype=dtype, metadata=NAMES)
    assert words in cli("run", "net.onnx", "--image", case.get("image", photo), "--rounds", 1, *options).refusal


def test_options_for_pictures_want_one(cli: Command) -> None:
    assert "--fit belongs to --image" in cli("run", "--fit", "crop").refusal


def test_random_weights_are_said_to_be_random(cli: Command, photo: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(map(str, range(1000))))
    options = ("zoo:squeezenet1_1", "--shape", "x=1x3x32x32", "--image", photo, "--rounds", 1)
    assert "zoo:squeezenet1_1 has random weights" in cli(*("run", *options)).refusal
    labels = ("--labels", tmp_path / "labels.txt")
    assert "zoo:squeezenet1_1 has random weights, so that the classes" in cli.ok("run", *options, *labels)
    assert cli("run", *options, *labels, "--json").json["answer"]["weights"] == "random"


SCORES, BOXES = np.zeros((1, 3), np.float32), np.zeros((1, 3, 4), np.float32)
DETECTORS = [
    ({"task": "detect"}, {"y": SCORES}, "by its metadata its task is to detect"),
    ({}, {"y": SCORES, "boxes": BOXES}, "y is float32 1x3 beside boxes in boxes"),
    ({"names": str({each: str(each) for each in range(12)})}, {"y": BOXES}, "y is float32 1x3x4"),
]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")  # constants by onnx.reference
@pytest.mark.parametrize(("metadata", "outputs", "words"), DETECTORS)
def test_detectors_are_not_read_as_classes(
    cli: Command, photo: Path, tmp_path: Path, metadata: dict[str, str], outputs: dict[str, Any], words: str
) -> None:
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 64), [], outputs, metadata=NAMES | metadata)
    refusal = cli("run", net, "--image", photo, "--rounds", 1).refusal
    assert words in refusal
    assert "docs/examples/detect_objects.py" in refusal


def test_without_pillow_the_extra_is_named(cli: Command, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "pip install 'blocklayout[image]'" in cli("run", "--image", photo).refusal


@pytest.mark.parametrize(
    ("sides", "extents"), [("[96, 64]", (96, 64)), ("[96]", (224, 224)), ("['a', 'b']", (224, 224))]
)
def test_what_ultralytics_writes_is_obeyed(
    cli: Command, photo: Path, tmp_path: Path, sides: str, extents: tuple[int, int]
) -> None:
    written = {"names": "{0: 'red', 1: 'green', 2: 'blue'}", "stride": "1", "imgsz": sides}
    net = model_of(tmp_path / "net.onnx", ("n", 3, "h", "w"), MEANS, {"y": None}, metadata=written)
    told = cli("run", net, "--image", photo, "--rounds", 1, "--json").json
    assert (told["picture"]["size"], told["picture"]["extents"]) == ([64, 32], [1, 3, *extents])
    assert (told["picture"]["fit"], told["picture"]["pixels"]) == ("fill", "unit")


def test_other_inputs_must_be_fed(cli: Command, photo: Path, tmp_path: Path) -> None:
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", (1, 3, 8, 8)), ("k", (1,)))]
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "k"], ["z"]),
            helper.make_node("ReduceMean", ["z"], ["y"], axes=[2, 3], keepdims=0),
        ],
        "net",
        infos,
        [helper.make_tensor_value_info("y", 1, (1, 3))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, NAMES)
    net = saved(model, tmp_path / "net.onnx")
    assert "feed k by --input" in cli("run", net, "--image", photo).refusal
    np.save(tmp_path / "k.npy", np.ones(1, np.float32))
    assert cli("run", net, "--image", photo, "--input", f"k={tmp_path / 'k.npy'}", "--rounds", 1).status == 0
