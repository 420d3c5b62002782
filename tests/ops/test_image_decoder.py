"""ImageDecoder."""

from __future__ import annotations

import sys
from io import BytesIO

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from PIL import Image

import blocklayout as bl
from blocklayout.errors import UnsupportedError

PIXELS = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


def stream_of(image: Image.Image, kind: str = "png") -> np.ndarray:
    file = BytesIO()
    image.save(file, kind)
    return np.frombuffer(file.getvalue(), np.uint8)


def decoder(**attrs: str) -> ModelProto:
    """A stream, the picture in it, and the mean of each of its channels."""
    nodes = [
        helper.make_node("ImageDecoder", ["stream"], ["pixels"], name="decode", **attrs),
        helper.make_node("Cast", ["pixels"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["wide", "axes"], ["means"], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("stream", TensorProto.UINT8, ("n",))]
    outputs = [
        helper.make_tensor_value_info("pixels", TensorProto.UINT8, ("h", "w", "c")),
        helper.make_tensor_value_info("means", TensorProto.FLOAT, ("c",)),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, (2,), (0, 1))
    return helper.make_model(
        helper.make_graph(nodes, "net", inputs, outputs, [axes]), opset_imports=[helper.make_opsetid("", 20)]
    )


def test_one_session_decodes_pictures_of_any_extents_and_kind() -> None:
    session = bl.load(decoder())
    picture = Image.fromarray(PIXELS)
    few = picture.quantize(4)
    for image, expected in (
        (picture, PIXELS),
        (picture.rotate(90, expand=True), np.rot90(PIXELS)),
        (few, np.asarray(few.convert("RGB"))),
        (picture.convert("L"), np.asarray(picture.convert("L").convert("RGB"))),
    ):
        pixels, means = map(np.asarray, session.run(None, {"stream": stream_of(image)}))
        assert (pixels == expected).all()
        assert means == pytest.approx(expected.mean(axis=(0, 1)), rel=1e-5)


@pytest.mark.parametrize(
    ("pixel_format", "expected"),
    [("BGR", PIXELS[:, :, ::-1]), ("Grayscale", np.asarray(Image.fromarray(PIXELS).convert("L"))[..., None])],
)
def test_pixels_are_in_the_order_that_is_asked_for(pixel_format: str, expected: np.ndarray) -> None:
    session = bl.load(decoder(pixel_format=pixel_format))
    pixels = np.asarray(session.run(["pixels"], {"stream": stream_of(Image.fromarray(PIXELS))})[0])
    assert pixels.shape == expected.shape
    assert (pixels == expected).all()


def test_what_is_no_picture_has_no_elements() -> None:
    session = bl.load(decoder())
    whole = stream_of(Image.fromarray(PIXELS))
    for broken in (whole[:50], np.zeros(9, np.uint8)):
        assert session.run(["pixels"], {"stream": broken})[0].shape == (0, 0, 3)


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match=r"node 'decode': Pillow .* pip install 'blocklayout\[image\]'"):
        bl.load(decoder()).run(None, {"stream": np.zeros(9, np.uint8)})
