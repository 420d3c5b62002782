"""Several Tensors in one safetensors file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import blocklayout as bl
from tests import nets
from tests.tensor.tensors import DTYPES, FORMATS, numbered, tensors

KEY = "blocklayout.tensors"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A state dict: weights in blocks and channels-last, and a vector."""
    path = tmp_path / "state.safetensors"
    state = {
        "conv.weight": numbered((32, 17, 3, 3), "OIhw8i8o"),
        "stem.weight": numbered((8, 3, 3, 3), "channels_last"),
        "conv.bias": numbered((32,)),
    }
    bl.save(state, path)
    return path


@settings(max_examples=15)
@given(st.dictionaries(st.text(max_size=8), tensors(), max_size=4))
def test_values_types_names_and_formats_come_back(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, bl.Tensor]
) -> None:
    path = tmp_path_factory.mktemp("files") / "state.safetensors"
    bl.save(state, path)
    again = bl.load_tensors(path)
    assert list(again) == list(state)
    for name, tensor in state.items():
        assert (again[name].shape, again[name].dtype) == (tensor.shape, tensor.dtype)
        assert again[name].desc.format_tag == tensor.desc.format_tag
        assert again[name].memory_format == tensor.clone().memory_format
        np.testing.assert_array_equal(again[name].numpy(), tensor.numpy())
        assert again[name].padding_is_zero()
        assert again[name].buffer.flags.writeable


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_in_every_format(dtype: str, tmp_path: Path) -> None:
    shapes = ((2, 17, 3, 2), (1, 1, 1, 1), (0, 3, 2, 2))
    state = {f"{tag} {shape}": numbered(shape, tag, dtype) for tag in FORMATS for shape in shapes}
    bl.save(state, tmp_path / "state.safetensors")
    for name, again in bl.load_tensors(str(tmp_path / "state.safetensors")).items():
        assert again.desc == state[name].desc
        assert (again.desc.tag, again.memory_format) == (state[name].desc.tag, state[name].memory_format)
        np.testing.assert_array_equal(again.numpy(), state[name].numpy())


def test_other_tools_read_logical_values_whatever_the_format(file: Path) -> None:
    read = load_file(file)
    for name, tensor in bl.load_tensors(file).items():
        assert read[name].shape == tensor.shape
        np.testing.assert_array_equal(read[name], tensor.numpy())
    with safe_open(file, "numpy") as opened:
        formats = json.loads(opened.metadata()[KEY])["formats"]
    assert formats == {"conv.weight": "OIhw8i8o", "stem.weight": "nhwc", "conv.bias": "a"}


def test_files_of_other_tools_are_row_major(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    save_file({"w": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "steps": np.array(7)}, path, {"format": "np"})
    read = bl.load_tensors(path)
    assert {name: (each.dtype, each.shape, each.memory_format) for name, each in read.items()} == {
        "w": ("f32", (2, 3, 4), "contiguous_format"),
        "steps": ("s64", (1,), "contiguous_format"),
    }
    assert read["w"][1, 2, 3] == 23


def test_arrays_are_in_the_format_of_their_strides(tmp_path: Path) -> None:
    array = np.arange(120, dtype=np.float32).reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)
    bl.save({"x": array}, tmp_path / "x.safetensors")
    assert bl.load_tensors(tmp_path / "x.safetensors")["x"].memory_format == "channels_last"


def test_every_byte_that_is_missing_or_changed_is_missed(file: Path) -> None:
    whole = file.read_bytes()
    before = {name: tensor.numpy() for name, tensor in bl.load_tensors(file).items()}
    rng = np.random.default_rng(0)
    for length in (0, 5, 100, len(whole) - 1, *rng.integers(9, len(whole), 20).tolist()):
        file.write_bytes(whole[:length])
        with pytest.raises(bl.ModelError, match=r"state\.safetensors"):
            bl.load_tensors(file)
    for place in (*range(8), *rng.integers(0, len(whole), 60), *rng.integers(8, 500, 100)):
        contents = bytearray(whole)
        contents[place] ^= 1 << int(rng.integers(0, 7))
        file.write_bytes(contents)
        try:
            found = bl.load_tensors(file)
        except bl.ModelError:
            continue
        for name, tensor in found.items():  # what came through is a name, or a format
            assert any(np.array_equal(tensor.numpy(), each) for each in before.values()), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; this package reads 1"),
        ({"formats": {}}, "does not describe each tensor"),
        ({"formats": {"w": 3}}, "does not describe each tensor"),
        ({"crc32": {"w": "x"}}, "does not describe each tensor"),
        ({"crc32": {"w": 1}}, "tensor w is damaged: its checksum is not 1"),
        ({"formats": {"w": "nChw9x"}}, "tensor w: no format tag"),
        ({"formats": {"w": "nCw8c"}}, "tensor w: .*dimensions"),
        ({"formats": {"w": "nChw1073741824c"}}, "tensor w: blocks of .* files have at most 4096"),
    ],
)
def test_other_headers_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    array = np.zeros((1, 3, 2, 2), np.float32)
    bl.save({"w": array}, path)
    with safe_open(path, "numpy") as opened:
        record = json.loads(opened.metadata()[KEY])
    save_file({"w": array}, path, {KEY: json.dumps(record | change)})
    with pytest.raises(bl.ModelError, match=rf"state\.safetensors: .*{message}"):
        bl.load_tensors(path)


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "[" * 100_000, '{"version": 1}', '"formats"'])
def test_metadata_of_any_kind_is_refused(text: str, tmp_path: Path) -> None:
    save_file({"w": np.zeros(2)}, tmp_path / "x", {KEY: text})
    with pytest.raises(bl.ModelError, match=r"the header is damaged|of version"):
        bl.load_tensors(tmp_path / "x")


@pytest.mark.parametrize(
    ("dtype", "shape", "message"),
    [("F8_E4M3", [8], "tensor w: .*float8"), ("C64", [1], "tensor w: .*complex64"), ("U8", [1] * 7 + [8], "")],
)
def test_types_that_no_tensor_has_are_named(dtype: str, shape: list[int], message: str, tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, 8]}}).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    if not message:
        assert bl.load_tensors(tmp_path / "x")["w"].ndim == 8
        return
    with pytest.raises(bl.ModelError, match=message):
        bl.load_tensors(tmp_path / "x")


def test_ranks_that_no_tensor_has_are_named(tmp_path: Path) -> None:
    save_file({"w": np.zeros((1,) * 13)}, tmp_path / "x")
    with pytest.raises(bl.ModelError, match=r"tensor w: .*13 dimensions"):
        bl.load_tensors(tmp_path / "x")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"__metadata__": np.zeros(2)}, "other than '__metadata__'"),
        ({3: np.zeros(2)}, "a string other than .*, not 3"),
        ({"\ud800": np.zeros(2)}, "UTF-8"),
        ({"w": "text"}, "w: "),
        ({"w": np.zeros(2, np.complex64)}, "w: .*complex64"),
    ],
)
def test_what_cannot_be_saved_is_named(state: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(bl.InputError, match=message):
        bl.save(state, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_blocks_that_could_not_be_read_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(bl.LayoutError, match="8192 elements"):
        bl.save({"w": bl.zeros((1, 3), memory_format="aB8192b")}, tmp_path / "x")


def test_a_file_is_whole_or_as_before(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(bl.ModelError, match=r"no Tensors can be saved as .*state\.safetensors: No space left"):
        bl.save({"x": bl.zeros((3,))}, file)
    monkeypatch.undo()
    assert len(bl.load_tensors(file)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(bl.ModelError, match=r"no such file: .*none"):
        bl.load_tensors(tmp_path / "none")
    with pytest.raises(bl.ModelError, match="directory"):
        bl.load_tensors(tmp_path)
    with pytest.raises(bl.ModelError, match=r"saved as .*: No such file"):
        bl.save({}, tmp_path / "none" / "x")
    (tmp_path / "text").write_text("hello, world")
    with pytest.raises(bl.ModelError, match="not an ONNX model"):
        bl.load_tensors(tmp_path / "text")


def test_files_are_told_apart(file: Path, tmp_path: Path) -> None:
    bl.zeros((2,)).save(tmp_path / "x.tensor")
    bl.load(nets.chain()).save(tmp_path / "net.session")
    for other in ("x.tensor", "net.session"):
        with pytest.raises(bl.ModelError, match=r"one Tensor, or a session: bl\.Tensor\.load or bl\.load"):
            bl.load_tensors(tmp_path / other)
    for load in (bl.Tensor.load, bl.load):
        with pytest.raises(bl.ModelError, match=r"bl\.load_tensors reads other safetensors files"):
            load(file)
