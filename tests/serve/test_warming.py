"""Sessions whose first request takes no longer than others."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from tests import nets

SHAPE = (1, 17, 12, 12)


def of_any_batch() -> onnx.ModelProto:
    proto = nets.chain(convs=1).to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


def load(**options: Any) -> bl.Session:
    return bl.load(of_any_batch(), layout="nhwc", **{"threads": 1, **options})


@pytest.mark.usefixtures("no_garbage")
def test_a_warm_session_makes_nothing_more() -> None:
    with load() as session:
        session.warm_up()
        before, handles = session.memory(), bl.dnnl.live_handles()
        session.submit({"x": np.ones(SHAPE, np.float32)}).result()
        assert session.memory().n_workspaces == before.n_workspaces == 1
        assert bl.dnnl.live_handles() == handles
        assert session.stats().finished == 1


def test_every_stream_is_warm() -> None:
    with load(streams=3, threads=3) as session:
        session.warm_up()
        assert session.memory().n_workspaces == 3


def test_every_size_of_batches_is_planned() -> None:
    with load(batching=(6, 0.0)) as session:
        session.warm_up()
        assert sorted(dict(shapes)["x"][0] for shapes, _ in session._book.by_last_run()) == [1, 2, 4, 6]


def test_other_shapes_are_given() -> None:
    with bl.load(nets.free_model(), threads=1) as session:
        with pytest.raises(bl.InputError, match=r"extents of input 'x' are .*: give shapes="):
            session.warm_up()
        for size in (8, 9):
            session.warm_up({"x": (1, 3, size, size)})
        assert len(session.plans) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": {"z": SHAPE}}, "shapes: no input z; there are x"),
        ({"contents": {"z": 1}}, "contents: no input z"),
        ({"shapes": {"x": (1, "n", 12, 12)}}, "extents of input 'x'"),
        ({"shapes": {"x": (1, 18, 12, 12)}}, "axis 1 must be 17"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    with load(streams=2, threads=2) as session, pytest.raises(bl.InputError, match=message):
        session.warm_up(**arguments)


def test_several_may_warm_it_up_at_once() -> None:
    with load(streams=2, threads=2) as session:
        callers = [threading.Thread(target=session.warm_up) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(timeout=60)
        assert not any(caller.is_alive() for caller in callers)
        session.submit({"x": np.ones(SHAPE, np.float32)}).result()


def test_a_closed_session_is_not_warmed_up() -> None:
    session = load(streams=2, threads=2)
    session.close()
    with pytest.raises(bl.ClosedError):
        session.warm_up()
