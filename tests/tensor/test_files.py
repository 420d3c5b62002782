"""Tensors in files."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from safetensors import safe_open

import blocklayout as bl
from blocklayout.tensor.tensor_file import open_tensors, write_tensors
from tests import nets
from tests.tensor.tensors import DTYPES, FORMATS, numbered, tensors


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved Tensor with padding."""
    path = tmp_path / "x.tensor"
    numbered((2, 17, 5, 4), "nChw8c").save(path)
    return path


@settings(max_examples=40)
@given(tensors())
def test_a_file_keeps_values_and_format(tmp_path_factory: pytest.TempPathFactory, tensor: bl.Tensor) -> None:
    path = tmp_path_factory.mktemp("files") / "x.tensor"
    tensor.save(path)
    again = bl.Tensor.load(path)
    assert (again.shape, again.dtype) == (tensor.shape, tensor.dtype)
    assert again.desc.format_tag == tensor.desc.format_tag
    assert again.memory_format == tensor.clone().memory_format
    np.testing.assert_array_equal(again.numpy(), tensor.numpy())
    assert again.padding_is_zero()
    assert again.buffer.flags.writeable


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_every_type_and_format_comes_back(memory_format: str, dtype: str, tmp_path: Path) -> None:
    for shape in ((2, 17, 3, 2), (1, 1, 1, 1), (0, 3, 2, 2)):
        tensor = numbered(shape, memory_format, dtype)
        bl.save(tensor, tmp_path / "x.tensor")
        again = bl.Tensor.load(str(tmp_path / "x.tensor"))
        assert again.desc == tensor.desc
        assert (again.desc.tag, again.memory_format) == (tensor.desc.tag, tensor.memory_format)
        np.testing.assert_array_equal(again.numpy(), tensor.numpy())


def test_a_view_takes_no_more_than_its_elements(tmp_path: Path) -> None:
    tensor = numbered((64, 16, 8, 8), "nChw8c")
    tensor[:1, 8:].save(tmp_path / "x.tensor")
    assert (tmp_path / "x.tensor").stat().st_size < 8 * 8 * 8 * 4 + 1000


def test_what_is_written_is_not_copied(tmp_path: Path) -> None:
    bytes_of = {str(n): np.zeros(n, np.uint8) for n in (1_000_001, 64, 0)}
    tracemalloc.start()
    write_tensors(tmp_path / "x.tensor", "text", bytes_of)
    _, peak_nbytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_nbytes < 500_000
    again = open_tensors(tmp_path / "x.tensor")
    again.verify()
    assert {name: each.nbytes for name, each in again.tensors.items()} == {"1000001": 1_000_064, "64": 64, "0": 0}


def test_others_can_read_the_file(file: Path) -> None:
    with safe_open(file, "numpy") as opened:
        told = json.loads(opened.metadata()["blocklayout"])
        raw = opened.get_tensor("tensor")
    assert told["desc"] == {"dims": [2, 17, 5, 4], "dtype": "f32", "tag": "nChw8c"}
    np.testing.assert_array_equal(raw.view(np.float32)[:960], bl.Tensor.load(file).physical())


def test_every_byte_that_is_missing_or_changed_is_missed(file: Path) -> None:
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for length in (0, 5, 100, len(whole) - 1, *rng.integers(9, len(whole), 20).tolist()):
        file.write_bytes(whole[:length])
        with pytest.raises(bl.ModelError, match=r"x\.tensor: "):
            bl.Tensor.load(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(bl.ModelError, match="truncated, or longer"):
        bl.Tensor.load(file)
    n_refused = 0
    for place in rng.integers(0, len(whole), 200):
        contents = bytearray(whole)
        contents[place] ^= 1 << int(rng.integers(0, 7))
        file.write_bytes(contents)
        try:
            assert bl.Tensor.load(file)[1, 16, 4, 3] == numbered((2, 17, 5, 4))[1, 16, 4, 3]
        except bl.ModelError:
            n_refused += 1
    assert n_refused > 190  # spaces that fill the header up say nothing


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 1', '"version": 2', "version 2; this package reads 1"),
        ('"kind": "tensor"', '"kind": "matrix"', "holds no Tensor"),
        ("nChw8c", "nChw9x", "no format tag"),
        ("[2, 17, 5, 4]", "[2, 17, 5, 400]", "does not hold"),
        ("[2, 17, 5, 4]", "[2, 17, 5]", "dimensions"),
        ("[2, 17, 5, 4]", '"2"', "integers"),
        ("[2, 17, 5, 4]", "7", "integers"),
        ('"f32"', '"f64"', "does not hold"),
        ('"f32"', "[]", r"no data type \[\]"),
        ('"tag": "nChw8c"', '"tag": 3', "layout"),
        ('"desc": {', '"desc": 3, "more": {', "no descriptor"),
    ],
)
def test_other_headers_are_refused(file: Path, old: str, new: str, message: str) -> None:
    held = open_tensors(file)
    text = held.text.replace(old, new)
    assert text != held.text
    write_tensors(file, text, {name: np.array(tensor) for name, tensor in held.tensors.items()})
    with pytest.raises(bl.ModelError, match=message):
        bl.Tensor.load(file)


def test_a_file_is_whole_or_as_before(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(bl.ModelError, match=r"no Tensor can be saved as .*x\.tensor: No space left"):
        bl.zeros((3,)).save(file)
    monkeypatch.undo()
    assert bl.Tensor.load(file).shape == (2, 17, 5, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tensor"]


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(bl.ModelError, match=r"read from .*none\.tensor: No such file"):
        bl.Tensor.load(tmp_path / "none.tensor")
    with pytest.raises(bl.ModelError, match=r"saved as .*: No such file"):
        bl.save(bl.zeros((2,)), tmp_path / "none" / "x.tensor")
    with pytest.raises(bl.ModelError, match="folder"):
        bl.zeros((2,)).save(tmp_path)
    (tmp_path / "text").write_text("hello, world")
    with pytest.raises(bl.ModelError, match="truncated, or no such file"):
        bl.Tensor.load(tmp_path / "text")


def test_sessions_and_tensors_are_told_apart(file: Path, tmp_path: Path) -> None:
    with pytest.raises(bl.ModelError, match=r"x\.tensor: the file holds a Tensor, not a session: bl\.Tensor\.load"):
        bl.load(file)
    bl.load(nets.chain()).save(tmp_path / "net.session")
    with pytest.raises(bl.ModelError, match=r"net\.session: the file holds no Tensor; bl\.load"):
        bl.Tensor.load(tmp_path / "net.session")
