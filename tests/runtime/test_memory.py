"""What a session holds, and what it lets go."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout.errors import ModelError
from blocklayout.model import tensors
from tests import nets

SHAPE = (1, 3, 16, 16)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(nets.free_model(), path)
    return path


def test_the_weights_of_a_file_are_let_go_once_they_are_packed(model_path: Path) -> None:
    session = bl.load(model_path)
    unplanned = session.memory()
    assert unplanned.originals_nbytes > unplanned.packed_nbytes == 0
    session.run(None, {"x": np.ones(SHAPE, np.float32)})
    held = session.memory()
    assert held.mapped_nbytes == 0 < held.packed_nbytes
    assert held.originals_nbytes < tensors.MIN_NBYTES  # small ones stay


def test_they_are_read_again_for_another_plan(model_path: Path) -> None:
    x = nets.random_input((2, *SHAPE[1:]))
    expected = bl.load(model_path.read_bytes())(x)
    session = bl.load(model_path, shapes={"x": SHAPE})
    model_path.unlink()  # it stays open
    np.testing.assert_array_equal(session(x), expected)
    assert session.memory().n_plans == 2
    assert session.memory().originals_nbytes < tensors.MIN_NBYTES


def test_another_file_under_its_name_is_another_model(model_path: Path) -> None:
    session = bl.load(model_path, shapes={"x": SHAPE})
    model_path.rename(model_path.with_suffix(".old"))
    model_path.write_bytes(b"something else")
    assert session(nets.random_input((2, *SHAPE[1:]))).shape[0] == 2


def test_a_file_that_was_altered_is_refused(model_path: Path) -> None:
    session = bl.load(model_path, shapes={"x": SHAPE})
    with model_path.open("ab") as file:
        file.write(b"x")
    session(nets.random_input(SHAPE))
    with pytest.raises(ModelError, match=r"model\.onnx was altered since it was loaded.*load it anew"):
        session(nets.random_input((2, *SHAPE[1:])))


def test_weights_from_elsewhere_stay_where_they_are(model_path: Path) -> None:
    session = bl.load(model_path.read_bytes(), shapes={"x": SHAPE})
    assert session.memory().originals_nbytes > 0


def test_packed_weights_of_a_saved_session_are_mapped(model_path: Path, tmp_path: Path) -> None:
    made = bl.load(model_path, shapes={"x": SHAPE})
    made.save(tmp_path / "model.session")
    held = bl.load(tmp_path / "model.session").memory()
    assert held.mapped_nbytes == held.packed_nbytes >= made.memory().packed_nbytes > 0
    assert "mapped from a file" in str(held)


def test_what_is_held_adds_up() -> None:
    session = bl.load(nets.chain())
    held = session.memory()
    plan = session.plan
    assert (held.n_plans, held.n_workspaces) == (1, 1)
    assert held.arena_nbytes == plan.arena_nbytes >= held.arena_lower_bound == plan.arena_lower_bound
    parts = (held.originals_nbytes, held.packed_nbytes, held.arena_nbytes, held.scratchpad_nbytes)
    assert held.nbytes == sum(parts)
    assert held.process_peak_nbytes >= held.process_nbytes
    assert "packed weights" in str(held)


def test_a_session_that_goes_closes_its_file(model_path: Path) -> None:
    def is_open() -> bool:
        return any(link.exists() and link.resolve() == model_path for link in Path("/proc/self/fd").iterdir())

    session = bl.load(model_path)
    assert is_open()
    del session
    gc.collect()
    assert not is_open()
