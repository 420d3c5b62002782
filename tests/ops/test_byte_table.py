"""Tables of bytes: the primitive in every layout that it takes, and the function in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.ir import Lowered, NodeInfo, Problem, Refusal, TensorInfo, Value, Wish
from blocklayout.ops.eltwise import ByteTable
from tests.dnnl.running import Array, execute

SHAPE = (2, 16, 3, 5)
TABLE = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)


def accepted(src: str = "u8", table: Array | None = TABLE) -> Lowered | Refusal:
    values = Value("x", SHAPE, src), Value("table", (256,), "s8", table)
    return ByteTable.accept(NodeInfo("tested", "ByteTable", {}, values, (Value("y", SHAPE, "s8"),), 21))


@pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")
@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8", "blocked16"])
@pytest.mark.parametrize("src", ["u8", "s8"])
def test_every_layout(src: str, layout: str) -> None:
    lowered = accepted(src)
    assert isinstance(lowered, Lowered)
    info, table, dst = TensorInfo(SHAPE, src), TensorInfo((256,), "s8"), TensorInfo(SHAPE, "s8")
    recipe = lowered.operator.lower(Problem({"src": info}, {"table": table}, dst, 2), Wish(layout, layout), dnnl.Attr())
    assert recipe is not None
    [step] = recipe.steps
    assert isinstance(step.spec, dnnl.Spec)
    x = np.random.default_rng(1).integers(0, 256, SHAPE).astype(np.uint8).view({"u8": np.uint8, "s8": np.int8}[src])
    found = execute(step.spec, {"src": x, "table": lowered.constants["table"]})["dst"]
    np.testing.assert_array_equal(found, TABLE[x.view(np.uint8)])
    in_numpy = ByteTable.in_numpy(NodeInfo("tested", "ByteTable", {}, (), (), 21))
    assert in_numpy is not None
    in_numpy(x, TABLE, out=(out := np.empty(SHAPE, np.int8)))
    np.testing.assert_array_equal(out, found)


def test_padding_would_not_stay_zero() -> None:
    lowered, info = accepted(), TensorInfo((2, 17, 3, 5), "u8")
    assert isinstance(lowered, Lowered)
    problem = Problem({"src": info}, {"table": TensorInfo((256,), "u8")}, info, 2)
    assert lowered.operator.lower(problem, Wish("blocked16", "blocked16"), dnnl.Attr()) is None


def test_numbers_and_tables_of_run_time_are_refused() -> None:
    assert isinstance(accepted("f32"), Refusal)
    assert isinstance(accepted(table=None), Refusal)
