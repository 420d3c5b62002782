"""Recurrent layers against loops in numpy: every cell and direction, states, strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import AnyDesc, MemoryDesc
from blocklayout.errors import InvalidArgumentsError
from tests.dnnl.running import Array, assert_close, execute, random

T, N, IC, OC = 5, 3, 7, 17
GATES = {"vanilla_rnn": 1, "vanilla_lstm": 4, "vanilla_gru": 3, "lbr_gru": 3, "vanilla_augru": 3, "lbr_augru": 3}


def layer(cell: str, sides: int = 1, **changes: Any) -> dnnl.Spec:
    gates = GATES[cell]
    arguments: dict[str, Any] = {
        "src": MemoryDesc((T, N, IC)),
        "weights": MemoryDesc((1, sides, IC, gates, OC)),
        "weights_iter": MemoryDesc((1, sides, OC, gates, OC)),
        "bias": MemoryDesc((1, sides, gates + cell.startswith("lbr"), OC)),
    }
    if cell.endswith("augru"):
        arguments["augru_attention"] = MemoryDesc((T, N, 1))
    return dnnl.rnn(**(arguments | changes), algorithm=cell, n_threads=1)


def given_to(spec: dnnl.Spec) -> dict[str, Array]:
    return {name: random(*desc.dims) / 8 for name, desc in spec.descs if not name.startswith("dst")}


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def expected(cell: str, given: dict[str, Array], side: int = 0) -> tuple[Array, Array, Array]:
    """The states of all steps, and the last state and cell state, of one direction; the second begins at the end."""
    w, r, b = (given[name][0, side].astype(np.float64) for name in ("weights", "weights_iter", "bias"))
    state, memory = (
        given[name][0, side] if name in given else np.zeros((N, OC)) for name in ("src_iter", "src_iter_c")
    )
    peep = given["weights_peephole"][0, side] if "weights_peephole" in given else np.zeros((3, OC))
    states = np.zeros((T, N, OC))
    for t in range(T)[:: -1 if side else 1]:
        x = [given["src"][t] @ w[:, gate] + b[gate] for gate in range(GATES[cell])]
        h = [state @ r[:, gate] for gate in range(GATES[cell])]
        if cell == "vanilla_rnn":
            state = np.tanh(x[0] + h[0])
        elif cell == "vanilla_lstm":
            into, forget = sigmoid(x[0] + h[0] + peep[0] * memory), sigmoid(x[1] + h[1] + peep[1] * memory)
            memory = forget * memory + into * np.tanh(x[2] + h[2])
            state = sigmoid(x[3] + h[3] + peep[2] * memory) * np.tanh(memory)
        else:
            update, reset = sigmoid(x[0] + h[0]), sigmoid(x[1] + h[1])
            if cell.endswith("augru"):
                update = update * (1 - given["augru_attention"][t])
            reached = reset * (h[2] + b[3]) if cell.startswith("lbr") else (reset * state) @ r[:, 2]
            state = update * state + (1 - update) * np.tanh(x[2] + reached)
        states[t] = state
    return states, state, memory


@pytest.mark.parametrize("cell", GATES)
def test_a_cell_computes_its_equations(cell: str) -> None:
    state = MemoryDesc((1, 1, N, OC))
    names = ["src_iter", "dst_iter", *(["src_iter_c", "dst_iter_c"] if cell == "vanilla_lstm" else [])]
    peepholes: dict[str, Any] = {"weights_peephole": MemoryDesc((1, 1, 3, OC))} if cell == "vanilla_lstm" else {}
    states: dict[str, Any] = dict.fromkeys(names, state)
    for spec in (layer(cell), layer(cell, **states, **peepholes)):
        given = given_to(spec)
        found = execute(spec, given)
        for name, right in zip(("dst", "dst_iter", "dst_iter_c"), expected(cell, given), strict=True):
            if name in found:
                assert_close(found[name].reshape(right.shape), right)


@pytest.mark.parametrize("cell", ["vanilla_rnn", "vanilla_lstm", "vanilla_gru", "lbr_gru"])
def test_both_directions_lie_side_by_side(cell: str) -> None:
    spec = layer(cell, 2, direction="bidirectional_concat")
    given = given_to(spec)
    assert_close(execute(spec, given)["dst"], np.concatenate([expected(cell, given, side)[0] for side in (0, 1)], -1))
    summed = layer(cell, 2, direction="bidirectional_sum")
    assert_close(execute(summed, given)["dst"], np.sum([expected(cell, given, side)[0] for side in (0, 1)], axis=0))


def test_sequences_may_come_first_and_weights_be_the_librarys() -> None:
    src, dst = (MemoryDesc((T, N, channels), "f32", "bac") for channels in (IC, OC))
    weights: dict[str, Any] = {"weights": AnyDesc((1, 1, IC, 4, OC)), "weights_iter": AnyDesc((1, 1, OC, 4, OC))}
    spec = layer("vanilla_lstm", src=src, dst=dst, **weights)
    given = given_to(spec)
    assert_close(execute(spec, given)["dst"], expected("vanilla_lstm", given)[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": AnyDesc((T, IC))}, "src has 2 dimensions; rnn takes 3"),
        ({"bias": AnyDesc((1, 1, 3, OC))}, r"bias has extents .*; a vanilla_lstm, .* makes them \(1, 1, 4, 17\)"),
        ({"weights_iter": AnyDesc((1, 1, OC, 4, 16))}, "weights_iter has extents"),
        ({"src_iter": AnyDesc((1, 1, N, OC))}, "src_iter goes with src_iter_c: give both or neither"),
        ({"direction": "backwards"}, "direction is 'backwards'; give one of unidirectional_left2right"),
        ({"weights": AnyDesc((2, 1, IC, 4, OC))}, "src has 7 channels; several layers make it 17"),
        ({"bias": AnyDesc((1, 1, 4, OC), "bf16")}, "bias is bf16"),
        ({"augru_attention": AnyDesc((T, N, 1))}, "augru_attention is no argument of it"),
    ],
)
def test_a_wrong_argument_is_named_with_its_rule(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=message):
        layer("vanilla_lstm", **changes)
    with pytest.raises(InvalidArgumentsError, match="give one of vanilla_rnn, vanilla_lstm"):
        dnnl.rnn(*(AnyDesc((1, 1, 1, 1, 1)),) * 4, algorithm="lstm")
    with pytest.raises(InvalidArgumentsError, match="activation is 'eltwise_elu'"):
        layer("vanilla_rnn", activation="eltwise_elu")
