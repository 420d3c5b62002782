"""Files that are altered, cut short or replaced while a session has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout.tensor import tensor_file
from tests import nets
from tests.model.protos import make_model

IMAGE = nets.random_input((2, 3, 14, 14))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved session."""
    path = tmp_path / "net.session"
    bl.load(nets.residual()).save(path)
    return path


def test_a_session_that_was_read_needs_its_file_no_more(saved: Path) -> None:
    expected = bl.load(saved)(IMAGE)
    session = bl.load(saved, mapped=False)
    assert session.memory().mapped_nbytes == 0 < session.memory().packed_nbytes
    with saved.open("r+b") as file:
        file.write(bytes(1000))
        file.truncate(1000)
    np.testing.assert_array_equal(session(IMAGE), expected)
    with pytest.raises(bl.ModelError):
        bl.load(saved)


def test_a_session_that_is_mapped_keeps_a_file_that_is_replaced(saved: Path) -> None:
    session = bl.load(saved)
    expected = session(IMAGE)
    bl.load(nets.mobile()).save(saved)
    np.testing.assert_array_equal(session(IMAGE), expected)
    session.save(saved)
    np.testing.assert_array_equal(bl.load(saved)(IMAGE), expected)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_that_is_replaced_while_it_is_opened_is_the_old_one(
    *, mapped: bool, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bl.load(saved)(IMAGE)
    bl.load(nets.mobile()).save(tmp_path / "other.session")
    really = tensor_file._parsed

    def replacing(text: str | bytes) -> dict[str, object]:
        if isinstance(text, bytes):
            (tmp_path / "other.session").replace(saved)
        return really(text)

    monkeypatch.setattr(tensor_file, "_parsed", replacing)
    np.testing.assert_array_equal(bl.load(saved, mapped=mapped)(IMAGE), expected)


def test_a_file_that_is_cut_short_while_it_is_read_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = tensor_file._parsed

    def truncating(text: str | bytes) -> dict[str, object]:
        os.truncate(saved, saved.stat().st_size - 64)
        return really(text)

    monkeypatch.setattr(tensor_file, "_parsed", truncating)
    with pytest.raises(bl.ModelError, match=r"net\.session: .*truncated while it was read"):
        bl.load(saved, mapped=False)


# Weights beside a model.


def alter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def replace(path: Path) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(b"another one")
    beside.replace(path)


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A model with a matrix in another file, large enough to be mapped, and free extents."""
    shape = (512, 600)
    (tmp_path / "weights.bin").write_bytes(nets.random_input(shape).tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "weights.bin", "length": str(4 * 512 * 600)}.items():
        tensor.external_data.add(key=key, value=value)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", shape[0])})
    model.graph.initializer.append(tensor)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("change", [alter, truncate])
def test_weights_that_were_altered_make_no_further_plan(change: Callable[[Path], None], beside: Path) -> None:
    session = bl.load(beside)
    x = nets.random_input((2, 512))
    expected = session(x)
    change(beside.with_name("weights.bin"))
    np.testing.assert_array_equal(session(x), expected)
    with pytest.raises(bl.ModelError, match=r"weights\.bin was altered since .*model\.onnx was loaded.*load it anew"):
        session(nets.random_input((3, 512)))
    np.testing.assert_array_equal(session(x), expected)


@pytest.mark.parametrize("change", [replace, Path.unlink])
def test_weights_that_were_replaced_are_still_at_hand(change: Callable[[Path], None], beside: Path) -> None:
    session = bl.load(beside)
    x = nets.random_input((4, 512))
    expected = session(x)
    change(beside.with_name("weights.bin"))
    np.testing.assert_allclose(session(x[:3]), expected[:3], rtol=1e-4, atol=1e-3)
