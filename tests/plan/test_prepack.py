"""Constants are packed several at a time, and come out as they do one by one."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import blocklayout as bl
from blocklayout.loading.from_model import constants_of
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import prepack
from blocklayout.plan.prepack import PackedWeights
from tests import nets


def with_threads(plan: bl.Plan, n_threads: int) -> bl.Plan:
    return replace(plan, config=replace(plan.config, n_threads=n_threads))


def test_threads_pack_the_same_bytes_as_one_by_one() -> None:
    net = nets.chain(convs=9)
    plan = bl.load(net, layout="blocked", tune="model").plan
    program = lower(legalize(simplify(net.to_graph())))
    one_by_one, together = (PackedWeights().pack(with_threads(plan, n), constants_of(program).pop) for n in (1, 4))
    assert one_by_one.keys() == together.keys() == {item.buffer for item in plan.constants}
    for buffer, array in one_by_one.items():
        np.testing.assert_array_equal(together[buffer], array)
        assert array.ctypes.data % 64 == 0


def test_an_original_is_let_go() -> None:
    net = nets.chain(convs=3)
    constants = constants_of(lower(legalize(simplify(net.to_graph()))))
    PackedWeights().pack(bl.load(net, tune="model").plan, constants.pop)
    assert constants == {}


@pytest.mark.parametrize("n_threads", [1, 4])
def test_an_error_names_the_constant(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nets.chain(convs=3)
    plan = bl.load(net, tune="model").plan
    constants = constants_of(lower(legalize(simplify(net.to_graph()))))
    name = plan.constants[0].constant
    packed = prepack._packed

    def failing(array: np.ndarray, desc: bl.MemoryDesc) -> np.ndarray:
        if array is broken:
            raise bl.DnnlError("no memory left")
        return packed(array, desc)

    broken = constants[name]
    monkeypatch.setattr(prepack, "_packed", failing)
    with pytest.raises(bl.DnnlError, match="no memory") as caught:
        PackedWeights().pack(with_threads(plan, n_threads), constants.pop)
    assert any(name in note for note in caught.value.__notes__)
