"""Weights that a Builder was given as Tensors keep their formats in ONNX files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import blocklayout as bl
from blocklayout.model import write

KEY = "blocklayout.format"


def built() -> tuple[bl.Builder, dict[str, bl.Tensor]]:
    """A network whose weights are channels-last, in blocks, transposed and plain, by their names in the file."""
    w1 = bl.rand_like(bl.zeros((16, 3, 3, 3), memory_format="channels_last"), rng=1)
    w2 = bl.rand_like(bl.zeros((17, 16, 3, 3), memory_format="OIhw8i8o"), rng=2)
    bias = bl.rand_like(bl.zeros((17,)), rng=3)
    matrix = bl.rand_like(bl.zeros((17, 5), memory_format="ba"), rng=4)
    b = bl.Builder()
    x = b.input("x", (1, 3, 8, 8)).conv(w1, pads=1, name="one").relu().conv(w2, bias, pads=1, name="two")
    b.output("y", x.global_average_pool().reshape((1, 17)).matmul(b.constant(matrix, "head")))
    return b, {"one.W": w1, "two.W": w2, "two.B": bias, "head": matrix}


@pytest.mark.parametrize("external_nbytes", [1 << 30, 0])
def test_formats_come_back(external_nbytes: int, tmp_path: Path) -> None:
    b, weights = built()
    write(b, tmp_path / "net.onnx", external_nbytes=external_nbytes)
    found = bl.load_tensors(tmp_path / "net.onnx")
    for name, tensor in weights.items():
        assert found[name].memory_format == tensor.memory_format
        assert found[name].desc.format_tag == tensor.desc.format_tag
        np.testing.assert_array_equal(found[name].numpy(), tensor.numpy())
        assert found[name].padding_is_zero()
    proto = onnx.load(tmp_path / "net.onnx", load_external_data=False)
    stated = {
        each.name: [(entry.key, entry.value) for entry in each.metadata_props] for each in proto.graph.initializer
    }
    assert {name: each for name, each in stated.items() if each} == {
        "one.W": [(KEY, "nhwc")],
        "two.W": [(KEY, "OIhw8i8o")],
        "head": [(KEY, "ba")],
    }


def test_other_runtimes_and_sessions_read_the_same_values(tmp_path: Path) -> None:
    b, _ = built()
    bl.save(b, tmp_path / "net.onnx")
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    [theirs] = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    for source in (b, tmp_path / "net.onnx"):
        np.testing.assert_allclose(np.asarray(bl.load(source)(x)), theirs, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
def test_a_reloaded_format_leads_an_eager_convolution(tmp_path: Path) -> None:
    b, _ = built()
    bl.save(b, tmp_path / "net.onnx")
    x = bl.zeros((1, 3, 8, 8))
    assert bl.conv(x, bl.load_tensors(tmp_path / "net.onnx")["one.W"], pads=1).memory_format == "channels_last"


def test_models_of_other_tools_have_row_major_weights(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    b = bl.Builder()
    b.output("y", b.input("x", (1, 3, 2, 2)) + array)
    proto = b.to_onnx()
    proto.graph.initializer[0].metadata_props.add(key="theirs", value="nhwc")
    onnx.save(proto, tmp_path / "net.onnx")
    [found] = bl.load_tensors(tmp_path / "net.onnx").values()
    assert found.memory_format == "contiguous_format"
    np.testing.assert_array_equal(found.numpy(), array)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nChw9x", "add_0.B: no format tag"),
        ("nCw8c", "add_0.B: .*dimensions"),
        ("nChw1073741824c", "add_0.B: blocks of .* at most 4096"),
        ("", "add_0.B: no format tag"),
    ],
)
def test_damaged_formats_are_refused_where_they_are_read(text: str, message: str, tmp_path: Path) -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 3, 2, 2)) + np.zeros((1, 3, 2, 2), np.float32))
    proto = b.to_onnx()
    proto.graph.initializer[0].metadata_props.add(key=KEY, value=text)
    onnx.save(proto, tmp_path / "net.onnx")
    with pytest.raises(bl.ModelError, match=message):
        bl.load_tensors(tmp_path / "net.onnx")
    assert bl.load(tmp_path / "net.onnx")(np.ones((1, 3, 2, 2), np.float32)).shape == (1, 3, 2, 2)


def test_files_of_neither_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, world")
    with pytest.raises(bl.ModelError, match="not an ONNX model"):
        bl.load_tensors(tmp_path / "text")
