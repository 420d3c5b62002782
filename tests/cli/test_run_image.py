"""``blocklayout run --image``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from blocklayout.commands.answers import Boxes, Classes, Mask, Text
from blocklayout.commands.findings import Frame, Question
from blocklayout.commands.reading import cut_out
from blocklayout.commands.regions import boxes_of
from blocklayout.zoo import digits
from tests.cli.command import saved

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cli.command import Command

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
    # A detector whose boxes are known: constants, behind a sum with something of the picture that is 0.
    nodes += [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)] if inits else []
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    nodes += [helper.make_node("Mul", ["most", "zero"], ["nothing"])] if inits else []
    for name, array in outputs.items():
        if array is not None and array.dtype == np.float32:
            nodes.append(helper.make_node("Add", [f"c_{name}", "nothing"], [name]))
        elif array is not None:
            nodes.append(helper.make_node("Identity", [f"c_{name}"], [name]))
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


MEANS = [("ReduceMean", ["x"], "y", {"axes": [2, 3], "keepdims": 0})]
"""A classifier that tells the mean of each channel."""


def test_the_embedded_model_reads_pictures_of_digits(cli: Command, tmp_path: Path) -> None:
    images, labels = digits.held_out()
    for each in range(3):
        pixels = (images[each, 0] * 255).astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)
        Image.fromarray(pixels).save(tmp_path / "digit.png")
        saved_to = tmp_path / "out.png"
        told = cli("run", "--image", tmp_path / "digit.png", "--save", saved_to, "--rounds", 1, "--json").json
        best = told["answer"]["classes"][0]
        assert (best["class"], best["name"]) == (labels[each], None)
        assert best["score"] > 0.9
        assert told["picture"]["order"] == "grey"
    drawn = np.asarray(Image.open(saved_to))
    assert (drawn != np.stack([pixels] * 3, axis=2)).any()


PREPARED = [
    # shape, options, metadata, what the input's channels are on the red half and the white half
    ((1, 3, 32, 64), ("--pixels", "unit"), {}, (1, 0, 0), (1, 1, 1)),
    ((1, 32, 64, 3), ("--pixels", "unit", "--order", "bgr"), {}, (0, 0, 1), (1, 1, 1)),
    (("n", 3, "h", "w"), ("--pixels", "signed"), {}, (1, -1, -1), (1, 1, 1)),
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
    net = model_of(tmp_path / "net.onnx", shape, [("Identity", ["x"], "y", {})], {"y": None}, metadata=metadata)
    told = cli("run", net, "--image", photo, *options, "--fit", "stretch", "--rounds", 1, "--json").json
    [output] = told["outputs"]
    assert output["min"] == pytest.approx(min(*red, *white), abs=1e-5)
    assert output["max"] == pytest.approx(max(*red, *white), abs=1e-5)
    assert output["mean"] == pytest.approx(np.mean([red, white]), abs=0.01)  # but for the pixels between the halves
    assert output["shape"] == [
        extent if isinstance(extent, int) else {"n": 1, "h": 32, "w": 64}[extent] for extent in shape
    ]


def test_a_classifier_has_names_and_a_softmax(cli: Command, photo: Path, tmp_path: Path) -> None:
    net = model_of(
        tmp_path / "net.onnx",
        ("n", 3, "h", "w"),
        MEANS,
        {"y": None},
        metadata={"names": "{0: 'red', 1: 'green', 2: 'blue'}"},
    )
    flags = ("--fit", "stretch", "--pixels", "bytes", "--rounds", 1)
    done = cli("run", net, "--image", photo, *flags, "--top", 1)
    assert "photo.png, 64x32: resized to 64x32, stretched (stretch), rgb, bytes pixels; fed to x, 1x3x32x64" in done.out
    assert "size by the picture's own" in done.out
    assert "softmax of y" in done.out
    assert "red " in done.out
    assert "green " not in done.out
    (tmp_path / "labels.txt").write_text("rot\ngrün\nblau\n", encoding="utf-8")
    told = cli("run", net, "--image", photo, *flags, "--labels", tmp_path / "labels.txt", "--json").json["answer"]
    assert [each["name"] for each in told["classes"]] == ["rot", "grün", "blau"]
    assert sum(each["score"] for each in told["classes"]) == pytest.approx(1)


DETECTORS = [
    {  # as torchvision has them, in the input's pixels
        "boxes": np.array([[8, 8, 24, 24], [0, 0, 5, 5]], np.float32),
        "labels": np.array([1, 0], np.int64),
        "scores": np.array([0.9, 0.2], np.float32),
    },
    {  # as TensorFlow has them
        "detection_boxes": np.array([[[0.25, 0.25, 0.75, 0.75]]], np.float32),
        "detection_scores": np.array([[0.9]], np.float32),
        "detection_classes": np.array([[1]], np.float32),
    },
    {"rows": np.array([[[0, 0, 3, 3, 0.1, 1], [8, 8, 24, 24, 0.9, 1]]], np.float32)},
    {"rows": np.array([[[[0, 1, 0.9, 0.25, 0.25, 0.75, 0.75], [-1, 0, 0, 0, 0, 0, 0]]]], np.float32)},
    {"v8": np.array([[16, 16, 16, 16, 0, 0.9], [16, 17, 16, 16, 0, 0.8], *[[0] * 6] * 3], np.float32).T[None]},
    {"v5": np.array([[[16, 16, 16, 16, 0.95, 0.1, 0.9475]]], np.float32)},
]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")  # constants by onnx.reference
@pytest.mark.parametrize("outputs", DETECTORS, ids=lambda outputs: next(iter(outputs)))
def test_boxes_are_drawn_where_they_are(cli: Command, photo: Path, tmp_path: Path, outputs: dict[str, Any]) -> None:
    net = model_of(tmp_path / "net.onnx", (1, 3, 32, 32), [], outputs, metadata={"names": "['cat', 'dog']"})
    out = tmp_path / "out.png"
    told = cli("run", net, "--image", photo, "--fit", "stretch", "--save", out, "--rounds", 1, "--json").json["answer"]
    [found] = told["boxes"]
    assert (found["name"], found["box"]) == ("dog", [16, 8, 48, 24])
    assert found["score"] == pytest.approx(0.9, abs=1e-3)
    drawn = np.asarray(Image.open(out)).astype(int)
    before = np.asarray(Image.open(photo)).astype(int)
    assert (drawn[24, 16:48] == drawn[24, 16]).all()  # the lower side, in one colour that was not there
    assert (drawn[24, 16] != before[24, 16]).any()
    assert (drawn[25:] == before[25:]).all()
    assert (drawn[:, :16] == before[:, :16]).all()


def test_a_mask_tints_what_is_no_background(cli: Command, photo: Path, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.array([[2, -1, -1], [-1, 1, 1]], np.float32).reshape(2, 3, 1, 1))
    ops = [("Constant", [], "w", {"value": weights}), ("Conv", ["x", "w"], "y", {})]
    net = model_of(tmp_path / "net.onnx", (1, 3, 16, 32), ops, {"y": None})
    out = tmp_path / "out.png"
    done = cli("run", net, "--image", photo, "--pixels", "unit", "--save", out, "--rounds", 1, "--json").json
    shares = {each["class"]: each["share"] for each in done["answer"]["classes"]}
    assert shares == {0: 0.5, 1: 0.5}
    drawn, before = np.asarray(Image.open(out)), np.asarray(Image.open(photo))
    assert (drawn[:, :32] == before[:, :32]).all()
    assert (drawn[:, 32:] != before[:, 32:]).any(axis=2).all()


def test_boxes_and_masks_find_back_from_every_fit() -> None:
    padded = Frame((200, 100), (64, 64), (64, 32), (0, 16))
    cut = Frame((200, 100), (64, 64), (128, 64), (-32, 0))
    assert padded.points_in_picture(np.array([[32, 16], [64, 48]])).tolist() == [[100, 0], [200, 100]]
    assert cut.points_in_picture(np.array([[0, 0], [64, 32]])).tolist() == [[50, 0], [150, 50]]
    mask = np.arange(2)[:, None].repeat(4, axis=1)
    assert padded.mask_in_picture(mask).tolist() == [[0] * 200] * 50 + [[1] * 200] * 50
    assert cut.mask_in_picture(mask)[0].tolist() == [-1] * 50 + [0] * 100 + [-1] * 50


SQUARE = Frame((8, 8), (8, 8), (8, 8), (0, 0))


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        ({"y": np.full((1, 1000, 1, 1), 0.001)}, Classes),
        ({"y": np.zeros((1, 6, 300))}, type(None)),  # nobody says how many classes
        ({"out": np.zeros((1, 21, 8, 8)), "aux": np.zeros((1, 21, 8, 8))}, Mask),
        ({"y": np.zeros((1, 8, 8), np.int64)}, Mask),
        ({"y": np.zeros((1, 1, 8, 8))}, Mask),
        ({"a": np.zeros((1, 255, 8, 8)), "b": np.zeros((1, 255, 4, 4))}, type(None)),
        ({"y": np.zeros((1, 0, 6))}, Boxes),
        ({"y": np.zeros(3)}, type(None)),
        ({"y": np.zeros((0, 7))}, type(None)),
        ({"y": np.full((1, 2, 6), np.nan)}, type(None)),
        ({"a": np.zeros((1, 9, 2)), "b": np.zeros((1, 9, 32))}, type(None)),
        ({"y": np.array([[[9, 9, 3, 3, 0.9, 1], [np.nan, 0, 3, 3, 0.9, 1]]])}, Boxes),
    ],
)
def test_outputs_are_told_apart_by_their_extents(outputs: dict[str, Any], kind: type) -> None:
    assert isinstance(Question(SQUARE).answer(outputs), kind)


READ = [
    # names, the best class at each place, what it says
    (["a", "b"], [0, 1, 1, 0, 1, 2, 2, 0], 3, "aab"),  # none is first
    (["a", "b"], [1, 3, 2, 0, 3, 3], 4, "a b "),  # and a space is last
    (["a", "b", "<blank>"], [0, 2, 0, 0, 1, 2], 3, "aab"),
    (["", "a", "b"], [0, 0], 3, ""),
]


@pytest.mark.parametrize(("names", "best", "n_classes", "text"), READ)
def test_characters_are_read_as_ctc_has_them(names: list[str], best: list[int], n_classes: int, text: str) -> None:
    likely = np.eye(n_classes, dtype=np.float32)[best]
    for scores in (likely[None], likely[:, None], 40 * likely[None] - 20):
        answer = Question(SQUARE, names).answer({"y": scores})
        assert isinstance(answer, Text)
        assert (answer.said[0], round(answer.said[1], 6)) == (text, 1.0 if text else 0.0)


def test_regions_are_boxed_as_they_are_turned() -> None:
    along, across = np.array([4, 3]) / 5, np.array([-3, 4]) / 5
    y, x = np.mgrid[:100, :120]
    points = np.stack([x, y], axis=-1) - np.array([60, 50])
    turned = (np.abs(points @ along) < 40) & (np.abs(points @ across) < 6)
    level = (x >= 5) & (x < 35) & (y >= 80) & (y < 90)
    specks = ((x == 100) | (x == 103)) & (y == 5)
    corners, scores = boxes_of(np.where(turned | level | specks, 0.9, 0.1), 0.5, 1.6)
    first, second = sorted(corners.tolist(), key=lambda box: box[0][1])
    middle = 60.5, 50.5  # regions begin a pixel before they end
    expected = [middle + u * along + v * across for u, v in ((-48, -14), (48, -14), (48, 14), (-48, 14))]
    assert np.abs(first - np.array(expected)).max() < 3  # its corners are rounded to whole pixels before they are boxed
    assert second == [[-1, 74], [41, 74], [41, 96], [-1, 96]]
    assert (scores > 0.75).all()
    assert boxes_of(np.zeros((9, 9)), 0.5, 1.6)[0].shape == (0, 4, 2)


def test_candidates_of_several_maps_are_boxes() -> None:
    scores = [np.zeros((1, n, 2), np.float32) for n in (16, 4)]
    sides = [np.zeros((1, n, 4 * 8), np.float32) for n in (16, 4)]
    scores[1][0, 3, 1] = 0.9
    sides[1][0, 3].reshape(4, 8)[range(4), (1, 0, 0, 0)] = 50
    outputs = dict(zip("abcd", (*scores, *sides), strict=True))
    answer = Question(Frame((32, 32), (32, 32), (32, 32), (0, 0)), ["cat", "dog"]).answer(outputs)
    assert isinstance(answer, Boxes)
    assert answer.facts()["boxes"][0] | {"score": 0.9, "corners": 0} == {
        "class": 1, "name": "dog", "score": 0.9, "box": [8, 24, 24, 24], "corners": 0,
    }  # fmt: skip


def test_boxes_are_cut_out_as_they_are() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    image = Image.fromarray(pixels)
    level = np.array([[3, 4], [13, 4], [13, 9], [3, 9.0]])
    assert (np.asarray(cut_out(image, level)) == pixels[4:9, 3:13]).all()
    assert (np.asarray(cut_out(image, level[:, ::-1][[0, 3, 2, 1]])) == np.rot90(pixels[3:13, 4:9])).all()


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")  # constants by onnx.reference
def test_boxes_that_are_upside_down_are_turned(cli: Command, photo: Path, tmp_path: Path) -> None:
    boxes = np.array([[[20, 8, 44, 16]]], np.float32)
    found = {"boxes": boxes, "labels": np.zeros((1, 1), np.int64), "scores": np.full((1, 1), 0.9, np.float32)}
    finds = model_of(tmp_path / "finds.onnx", (1, 3, 32, 64), [], found)
    weights = np.zeros((2, 3, 8, 24), np.float32)
    weights[0, 1, :, :12] = weights[1, 1, :, 12:] = 1  # what is green: white, at the left or at the right
    ops = [("Constant", [], "w", {"value": numpy_helper.from_array(weights)}), ("Conv", ["x", "w"], "y", {})]
    side = model_of(tmp_path / "side.onnx", (1, 3, 8, 24), ops, {"y": None}, metadata={"names": "['left', 'right']"})
    flags = (finds, "--image", photo, "--pixels", "unit", "--rounds", 1, "--json")
    for turn, word in (((), "right"), (("--turn", side), "left")):
        [line] = cli("run", *flags, "--then", side, *turn).json["answer"]["lines"]
        assert line["text"] == word
    assert "--turn belongs to --then" in cli("run", *flags, "--turn", side).refusal


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")  # constants by onnx.reference
def test_then_classifies_what_is_in_boxes(cli: Command, photo: Path, tmp_path: Path) -> None:
    boxes = np.array([[[0, 0, 32, 31], [36, 8, 60, 24]]], np.float32)
    found = {"boxes": boxes, "labels": np.zeros((1, 2), np.int64), "scores": np.full((1, 2), 0.9, np.float32)}
    finds = model_of(tmp_path / "finds.onnx", (1, 3, 32, 64), [], found)
    ops: list[Any] = [
        ("Conv", ["x", "w"], "y", {}),
        ("GlobalAveragePool", ["y"], "z", {}),
        ("Flatten", ["z"], "out", {}),
    ]
    weights = {"value": numpy_helper.from_array(np.array([[9, -9, 0], [0, 9, 0]], np.float32).reshape(2, 3, 1, 1))}
    names = {"names": "['red', 'white']"}
    ops = [("Constant", [], "w", weights), *ops]
    tells = model_of(tmp_path / "tells.onnx", (1, 3, 8, 8), ops, {"out": None}, metadata=names)
    out = tmp_path / "out.png"
    flags = ("--image", photo, "--pixels", "unit", "--rounds", 1, "--then")
    told = cli("run", finds, *flags, tells, "--save", out, "--json").json["answer"]
    assert [(line["text"], line["box"]) for line in told["lines"]] == [
        ("red", [0, 0, 32, 31]),
        ("white", [36, 8, 60, 24]),
    ]
    assert (np.asarray(Image.open(out))[16, 32:64] != 255).any()
    assert "finds.onnx: it neither reads nor classifies" in cli("run", finds, *flags, finds).refusal
    assert f"--then {tells}: {tells} finds no boxes (out 1x2)" in cli("run", tells, *flags, tells).refusal
    assert "absent.onnx" in cli("run", finds, *flags, "absent.onnx").refusal


def test_what_is_not_understood_is_shown_in_numbers(cli: Command, photo: Path, tmp_path: Path) -> None:
    ops = [("ReduceMean", ["x"], "y", {"axes": [1, 2, 3], "keepdims": 0})]
    net = model_of(tmp_path / "net.onnx", (1, 3, 8, 8), ops, {"y": None})
    assert "no classes, boxes, mask or text" in cli("run", net, "--image", photo, "--rounds", 1).out
    refusal = cli("run", net, "--image", photo, "--rounds", 1, "--save", tmp_path / "out.png").refusal
    assert "y 1)" in refusal


WRONG = [
    ((), {"image": "absent.png"}, "--image absent.png: no such file"),
    ((), {"image": "net.onnx"}, "no picture of a format that Pillow reads"),
    ((), {"image": "cut.png"}, "cut.png"),
    ((), {"image": "deep.png"}, "8 bits a channel"),
    (("--save", "out.xyz"), {}, "--save out.xyz: its ending says no format"),
    (("--save", "absent/out.png"), {}, "--save absent/out.png: No such file"),
    (("--labels", "absent.txt"), {}, "--labels absent.txt: No such file"),
    (("--labels", "cut.png"), {}, "no UTF-8 text"),
    (("--labels", "two.txt"), {"op": MEANS}, "2 names, and the model has 3 classes"),
    (("--pixels", "0.5/0"), {}, "give imagenet, unit"),
    (("--threshold", "2"), {}, "a number from 0 to 1"),
    (("--unclip", "-1"), {}, "a number of at least 0"),
    ((), {"shape": (1, 5)}, "is an image (x is f32 1x5)"),
    ((), {"shape": ("n", "c", "h", "w")}, "x is f32 nxcxhxw"),
    (("--pixels", "imagenet"), {"shape": (1, 1, 8, 8)}, "x has 1 channel"),
    (("--pixels", "unit"), {"shape": (1, 3, 8, 8), "dtype": TensorProto.UINT8}, "bytes as they are"),
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
    ops = case.get("op", [("Cast", ["x"], "y", {"to": TensorProto.FLOAT})])
    (tmp_path / "two.txt").write_text("red\ngreen\n")
    shape, dtype = case.get("shape", (1, 3, 8, 8)), case.get("dtype", TensorProto.FLOAT)
    model_of(tmp_path / "net.onnx", shape, ops, {"y": None}, dtype=dtype)
    assert words in cli("run", "net.onnx", "--image", case.get("image", photo), "--rounds", 1, *options).refusal


def test_options_for_pictures_want_one(cli: Command) -> None:
    assert "--save belongs to --image" in cli("run", "--save", "out.png").refusal


def test_without_pillow_the_extra_is_named(cli: Command, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert "pip install 'blocklayout[image]'" in cli("run", "--image", photo).refusal


def test_what_ultralytics_writes_is_obeyed(cli: Command, photo: Path, tmp_path: Path) -> None:
    written = {"names": "{0: 'cat'}", "stride": "32", "imgsz": "[96, 64]"}
    net = model_of(tmp_path / "net.onnx", ("n", 3, "h", "w"), [("Relu", ["x"], "y", {})], {"y": None}, metadata=written)
    told = cli("run", net, "--image", photo, "--rounds", 1, "--json").json
    assert (told["picture"]["size"], told["picture"]["extents"]) == ([64, 32], [1, 3, 96, 64])
    assert told["picture"]["origins"].items() >= {"size": "metadata", "fit": "metadata", "pixels": "metadata"}.items()
    [output] = told["outputs"]
    assert output["shape"] == [1, 3, 96, 64]
    grey, red, white = 114 / 255, 1 / 3, 1
    assert output["mean"] == pytest.approx(grey * 2 / 3 + (red + white) / 6, abs=1e-4)


def test_other_inputs_must_be_fed(cli: Command, photo: Path, tmp_path: Path) -> None:
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", (1, 3, 8, 8)), ("k", (1,)))]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "k"], ["y"])],
        "net",
        infos,
        [helper.make_tensor_value_info("y", 1, (1, 3, 8, 8))],
    )
    net = saved(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "net.onnx"
    )
    assert "feed k by --input" in cli("run", net, "--image", photo).refusal
    np.save(tmp_path / "k.npy", np.ones(1, np.float32))
    assert cli("run", net, "--image", photo, "--input", f"k={tmp_path / 'k.npy'}", "--rounds", 1).status == 0
