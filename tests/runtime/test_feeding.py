"""What a session takes, what it refuses, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests import nets

SHAPE = (2, 17, 12, 12)


@pytest.fixture(scope="module")
def session() -> bl.Session:
    return bl.load(nets.chain(batch=2))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return nets.random_input(SHAPE)


@pytest.fixture(scope="module")
def expected(session: bl.Session, x: np.ndarray) -> np.ndarray:
    return np.asarray(session.run(None, {"x": x})[0])


def _read_only(x: np.ndarray) -> np.ndarray:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def _misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(np.float32).reshape(x.shape)
    view[...] = x
    return view


def _sliced(x: np.ndarray) -> np.ndarray:
    big = np.full((x.shape[0], x.shape[1], x.shape[2], 2 * x.shape[3]), np.nan, np.float32)
    big[..., ::2] = x
    return big[..., ::2]


ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "row-major": lambda x: x,
    "channels last": lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "fortran order": np.asfortranarray,
    "every second column": _sliced,
    "negative strides": lambda x: np.ascontiguousarray(x[:, ::-1, :, ::-1])[:, ::-1, :, ::-1],
    "big-endian": lambda x: x.astype(">f4"),
    "read-only": _read_only,
    "misaligned": _misaligned,
    "a blocked Tensor": lambda x: bl.reorder(x, "nChw8c"),
    "a channels-last Tensor": lambda x: bl.reorder(x, "nhwc"),
    "a plain Tensor": lambda x: bl.reorder(x, "nchw"),
}


@pytest.mark.parametrize("layout", ["auto", "nhwc", "blocked", "plain", "per-op"])
@pytest.mark.parametrize("kind", ARRAYS)
def test_any_strides_give_the_same_result(kind: str, layout: str, x: np.ndarray, expected: np.ndarray) -> None:
    session = bl.load(nets.chain(batch=2), layout=layout)
    fed = ARRAYS[kind](x)
    before = np.array(fed)
    result = session.run(None, {"x": fed})[0]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(np.array(fed), before, "inputs are never written")


def test_a_fitting_array_is_read_where_it_is(x: np.ndarray) -> None:
    session = bl.load(nets.chain(batch=2), layout="nhwc")
    entry = session.plan.entries[0]
    assert entry.is_reorder
    [kept] = session._book._plans.values()
    session.run(None, {"x": ARRAYS["channels last"](x)})
    assert not kept.workspaces[0]._entry_reorders, "no reorder was even made"


def test_a_broadcast_array_is_right(session: bl.Session) -> None:
    row = nets.random_input((1, 17, 1, 12))
    fed = np.broadcast_to(row, SHAPE)
    np.testing.assert_allclose(
        session.run(None, {"x": fed})[0], session.run(None, {"x": fed.copy()})[0], rtol=1e-5, atol=1e-5
    )


def test_torch_tensors_are_taken(session: bl.Session, x: np.ndarray, expected: np.ndarray) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = torch.from_numpy(x).contiguous(memory_format=torch.channels_last).requires_grad_()
    np.testing.assert_allclose(session.run(None, {"x": tensor})[0], expected, rtol=1e-5, atol=1e-5)


def test_outputs_are_fresh_arrays(session: bl.Session, x: np.ndarray) -> None:
    first = session.run(None, {"x": x})[0]
    kept = first.copy()
    second = session.run(None, {"x": -x})[0]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    assert first.flags.writeable
    assert first.flags.c_contiguous


def test_a_session_can_be_called(session: bl.Session, x: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(session(x), expected)
    with pytest.raises(bl.InputError, match="takes 1 inputs"):
        session(x, x)


def test_batch_zero_gives_empty_outputs() -> None:
    session = bl.load(nets.chain(batch=0))
    assert session.run(None, {"x": np.empty((0, 17, 12, 12), np.float32)})[0].shape == (0, 17, 12, 12)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "wrong name": ({"z": np.zeros(SHAPE, np.float32)}, "no input 'z'; its inputs are x"),
    "missing": ({}, "missing input x"),
    "wrong rank": ({"x": np.zeros((2, 17, 12), np.float32)}, "rank 4 .*got rank 3"),
    "wrong extent": ({"x": np.zeros((2, 18, 12, 12), np.float32)}, "axis 1 must be 17"),
    "float64": ({"x": np.zeros(SHAPE)}, r"\.astype\('float32'\)"),
    "integers": ({"x": np.zeros(SHAPE, np.int64)}, r"float32, got int64"),
    "text": ({"x": np.array(["a"])}, r"\.astype\('float32'\)"),
    "an object": ({"x": object()}, "expected an array"),
    "a Tensor of another type": ({"x": bl.reorder(np.zeros(SHAPE, np.int32), "nchw")}, "float32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(session: bl.Session, case: str) -> None:
    feed, message = REFUSED[case]
    with pytest.raises(bl.InputError, match=message):
        session.run(None, feed)


def test_an_unknown_output_is_refused(session: bl.Session, x: np.ndarray) -> None:
    with pytest.raises(bl.InputError, match="no output 'nope'; it has y"):
        session.run(["nope"], {"x": x})


def test_a_failed_run_leaves_the_session_usable(session: bl.Session, x: np.ndarray, expected: np.ndarray) -> None:
    with pytest.raises(bl.InputError):
        session.run(None, {"x": x.astype(np.float64)})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_nothing_of_the_caller_is_kept(session: bl.Session) -> None:
    import sys

    fed = nets.random_input(SHAPE)
    before = sys.getrefcount(fed)
    result = session.run(None, {"x": fed})[0]
    assert sys.getrefcount(fed) == sys.getrefcount(result) == before
