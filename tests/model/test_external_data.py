"""Weights in other files: mapped where they are large, and never from outside of the model's home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout.errors import ModelError
from blocklayout.model import read
from tests.model.protos import make_model

GIB = 1 << 30


def _tensor(name: str, shape: tuple[int, ...], location: str, offset: int = 0) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": 4 * int(np.prod(shape))}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _matmul(path: Path, shape: tuple[int, int], location: str = "weights.bin", offset: int = 0) -> Path:
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, shape[0])})
    model.graph.initializer.append(_tensor("w", shape, location, offset))
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("offset", [0, 4096, 4, 6])
@pytest.mark.parametrize("shape", [(8, 8), (512, 600)])
def test_a_session_runs_on_them(shape: tuple[int, int], offset: int, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (tmp_path / "weights.bin").write_bytes(bytes(offset) + weights.tobytes())
    x = np.ones((2, shape[0]), np.float32)
    output = bl.load(_matmul(tmp_path / "model.onnx", shape, offset=offset))(x)
    np.testing.assert_allclose(output, x @ weights, rtol=1e-4, atol=1e-3)


def test_large_ones_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(4 * 512 * 600))
    weights: Any = read(_matmul(tmp_path / "model.onnx", (512, 600))).constant("w")
    assert not weights.flags.writeable
    while weights is not None and not isinstance(weights, np.memmap):
        weights = weights.base
    assert weights is not None


def test_a_model_of_more_than_2_gib_takes_only_what_is_used(tmp_path: Path) -> None:
    with (tmp_path / "weights.bin").open("wb") as file:  # a hole: it takes no space on the disk
        file.truncate(3 * GIB)
        file.seek(2 * GIB + GIB // 2)
        file.write(np.arange(4 * 64, dtype=np.float32).tobytes())
    nodes = [
        helper.make_node("Constant", [], ["rows"], value_ints=[3, 0, 1, 2]),
        helper.make_node("Gather", ["w", "rows"], ["some"]),
        helper.make_node("Gather", ["v", "rows"], ["others"]),
        helper.make_node("Add", ["some", "others"], ["sum"]),
        helper.make_node("Mul", ["x", "sum"], ["y"]),
    ]
    model = make_model(nodes, {"x": (4, 64)})
    model.graph.initializer.append(_tensor("v", (GIB // 256, 64), "weights.bin"))
    model.graph.initializer.append(_tensor("w", (GIB // 512, 64), "weights.bin", 2 * GIB + GIB // 2))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    x = np.full((4, 64), 2, np.float32)
    expected = 2 * np.arange(4 * 64, dtype=np.float32).reshape(4, 64)[[3, 0, 1, 2]]
    np.testing.assert_array_equal(bl.load(tmp_path / "model.onnx")(x), expected)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside of the model's home."""
    path = tmp_path / "secret.bin"
    path.write_bytes(bytes(4 * 64))
    (tmp_path / "home").mkdir()
    return path


needs_links = pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links on this platform")


@needs_links
def test_a_link_does_not_lead_outside(secret: Path) -> None:
    home = secret.parent / "home"
    (home / "weights.bin").symlink_to(secret)
    with pytest.raises(ModelError, match=r"'w' lies in 'weights\.bin'; it must be a file beside the model"):
        read(_matmul(home / "model.onnx", (8, 8)))
    (home / "circle.bin").symlink_to(home / "circle.bin")
    with pytest.raises(ModelError, match=r"circle\.bin"):
        read(_matmul(home / "model.onnx", (8, 8), "circle.bin"))


@needs_links
def test_a_store_of_links_is_read(secret: Path) -> None:
    home, store = secret.parent / "home", secret.parent / "store"
    store.mkdir()
    _matmul(store / "1f00", (8, 8))
    secret.rename(store / "2e01")
    (home / "model.onnx").symlink_to(store / "1f00")
    (home / "weights.bin").symlink_to(store / "2e01")
    assert read(home / "model.onnx").shape("w") == (8, 8)


def test_a_directory_is_no_data(secret: Path) -> None:
    home = secret.parent / "home"
    (home / "weights.bin").mkdir()
    with pytest.raises(ModelError, match=r"'w'.*weights\.bin"):
        read(_matmul(home / "model.onnx", (8, 8)))


def test_what_onnx_saves_beside_is_read(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, 64)}, constants={"w": weights})
    onnx.save_model(model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    np.testing.assert_array_equal(read(tmp_path / "model.onnx").constant("w"), weights)
