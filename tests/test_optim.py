"""Optimisers against their formulas, and PyTorch's where it is installed, in every layout."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.recording import Entry, recording
from tests.dnnl.running import assert_padding_is_zero
from tests.eager.gradients import LAYOUTS, Array, in_layout, random

DIMS = (20, 18, 3, 3)
N_STEPS = 4
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (bl.optim.SGD, {"rate": 0.1}),
    "decay": (bl.optim.SGD, {"rate": 0.1, "weight_decay": 0.2}),
    "momentum": (bl.optim.SGD, {"rate": 0.1, "momentum": 0.9, "weight_decay": 0.2}),
    "nesterov": (bl.optim.SGD, {"rate": 0.1, "momentum": 0.8, "nesterov": True}),
    "adamw": (bl.optim.AdamW, {"rate": 0.01}),
    "adamw, other betas": (bl.optim.AdamW, {"rate": 0.1, "betas": (0.5, 0.8), "weight_decay": 0.3, "epsilon": 1e-3}),
}


def by_formula(make: Any, p: Array, grads: list[Array], rate: float, **numbers: Any) -> Array:
    """In double precision."""
    p = p.astype(np.float64)
    decay, betas = numbers.get("weight_decay"), numbers.get("betas", (0.9, 0.999))
    mean = square = velocity = np.zeros_like(p)
    for step, grad in enumerate(grads, start=1):
        if make is bl.optim.SGD:
            g = grad + (decay or 0) * p
            momentum = numbers.get("momentum", 0)
            velocity = momentum * velocity + g
            p = p - rate * (g + momentum * velocity if numbers.get("nesterov") else velocity)
        else:
            p = p * (1 - rate * (0.01 if decay is None else decay))
            mean = betas[0] * mean + (1 - betas[0]) * grad
            square = betas[1] * square + (1 - betas[1]) * grad**2
            root = np.sqrt(square / (1 - betas[1] ** step)) + numbers.get("epsilon", 1e-8)
            p = p - rate * mean / (1 - betas[0] ** step) / root
    return p


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_follow_the_formula_in_every_layout(name: str, layout: str) -> None:
    make, numbers = OPTIMIZERS[name]
    array, grads = random(*DIMS), [random(*DIMS, seed=seed) for seed in range(1, N_STEPS + 1)]
    learned: Any = {"w": in_layout(array, layout), "b": [bl.as_tensor(array[0, :, 0, 0].copy())]}
    desc, optimizer = learned["w"].desc, make(learned, **numbers)
    for grad in grads:
        optimizer.step({"w": in_layout(grad, layout), "b": [bl.as_tensor(grad[0, :, 0, 0].copy())]})
    expected = by_formula(make, array, grads, **numbers)
    w, b = learned["w"], learned["b"][0]
    assert w.desc == desc
    assert_padding_is_zero(w.desc, w.buffer)
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b.numpy(), expected[0, :, 0, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="compares with PyTorch")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_pytorch(name: str) -> None:
    import torch

    make, numbers = OPTIMIZERS[name]
    array, grads = random(*DIMS), [random(*DIMS, seed=seed) for seed in range(1, N_STEPS + 1)]
    own, theirs = bl.from_array(array), torch.nn.Parameter(torch.from_numpy(array.copy()))
    optimizer = make(own, **numbers)
    names = {"rate": "lr", "epsilon": "eps"}
    there = getattr(torch.optim, make.__name__)(
        [theirs], **{names.get(key, key): value for key, value in numbers.items()}
    )
    for grad in grads:
        optimizer.step(bl.as_tensor(grad))
        theirs.grad = torch.from_numpy(grad)
        there.step()
    np.testing.assert_allclose(own.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_a_state_goes_on_in_another_layout(name: str) -> None:
    make, numbers = OPTIMIZERS[name]
    array, grad = random(*DIMS), random(*DIMS, seed=1)
    first, second = ({"w": in_layout(array, layout)} for layout in ("plain", "blocked16"))
    done = make(first, **numbers)
    for _ in range(3):
        done.step({"w": bl.as_tensor(grad)})
    again = make(second, **numbers)
    again.step({"w": in_layout(grad, "channels_last")})  # brought into the parameter's layout
    again.load_state_dict(done.state_dict())
    assert again.n_steps == 3
    second["w"][...] = first["w"]
    done.step({"w": bl.as_tensor(grad)})
    again.step({"w": bl.as_tensor(grad)})
    np.testing.assert_allclose(second["w"].numpy(), first["w"].numpy(), rtol=1e-6)
    with pytest.raises(bl.InputError, match=r"the state is of other parameters.*'w'"):
        again.load_state_dict({"n_steps": 3})


def test_masters_add_up_what_few_bits_would_lose() -> None:
    w = bl.reorder(np.ones((2, 18, 4, 4), np.float32), "nChw8c").astype("bf16")
    optimizer = bl.optim.SGD([w], 1e-3)
    for _ in range(8):
        optimizer.step([bl.ones_like(w)])  # each by less than half a bit
    assert w.dtype == "bf16"
    assert float(w[0, 0, 0, 0]) == 0.9921875
    np.testing.assert_allclose(optimizer.state["master"]["[0]"].numpy(), 0.992, rtol=1e-6)
    assert_padding_is_zero(w.desc, w.buffer)


def test_a_loss_scale_skips_what_overflows_and_follows() -> None:
    w = bl.ones((4,))
    optimizer, scale = bl.optim.SGD([w], 0.5), bl.optim.LossScale(8, interval=2)
    for factor, is_done, value in ((1, True, 8), (np.inf, False, 4), (1, True, 4), (1, True, 8), (np.nan, False, 4)):
        with bl.record() as tape:
            loss = (w * factor).sum()
        assert scale.step(optimizer, tape.gradients(loss, [w], grad=scale.grad(loss))) == is_done
        assert scale.value == value
    assert (scale.n_skipped, optimizer.n_steps) == (2, 3)
    assert w.numpy().tolist() == [1 - 3 * 0.5] * 4


def test_a_recorder_is_told_before_bytes_change() -> None:
    w = bl.ones((4,))
    told: list[tuple[Entry, list[float]]] = []
    optimizer = bl.optim.SGD([w], 0.5, momentum=0.9)
    with recording(lambda entry: told.append((entry, w.numpy().tolist()))):
        optimizer.step([bl.ones((4,))])
    [(entry, before)] = told
    assert before == [1, 1, 1, 1]
    assert w.numpy().tolist() == [0.5] * 4
    assert (entry.function, entry.results, entry.attrs["optimizer"]) == ("sgd_update", (), optimizer)
    assert entry.operands[0] is w
    assert entry.operands[2] is optimizer.state["velocity"]["[0]"]


def test_wrong_arguments_are_named() -> None:
    w = bl.ones((4,))
    read_only = bl.as_tensor(np.broadcast_to(np.float32(1), (4,)).copy())
    read_only.buffer.flags.writeable = False
    cases: list[tuple[Any, str]] = [
        (lambda: bl.optim.SGD([w], -1), r"SGD: rate is -1; give a finite number of at least 0"),
        (lambda: bl.optim.SGD([w], "x"), r"SGD: rate is 'x'; give a number"),  # type: ignore[arg-type]
        (lambda: bl.optim.SGD([w], 1, momentum=1), r"SGD: momentum is 1; give a finite number of at least 0, below 1"),
        (lambda: bl.optim.SGD([w], 1, nesterov=True), "SGD: nesterov needs a momentum"),
        (lambda: bl.optim.SGD({"a": np.ones(3)}, 1), r"SGD: parameters\['a'\] is ndarray; give dense Tensors of f32"),
        (lambda: bl.optim.SGD([bl.ones((4, 4))[:, :2]], 1), r"SGD: parameters\[0\] is f32 4x2 .*; give dense Tensors"),
        (lambda: bl.optim.SGD([read_only], 1), r"SGD: parameters\[0\] cannot be written to; give a clone\(\)"),
        (lambda: bl.optim.AdamW([w], betas=(0.9,)), "AdamW: betas is"),  # type: ignore[arg-type]
        (lambda: bl.optim.AdamW([w], betas=(0.9, 2)), r"AdamW: betas\[1\] is 2"),
        (lambda: bl.optim.SGD([w], 1).step([w, w]), r"SGD: gradients have another structure .*\[1\]"),
        (lambda: bl.optim.SGD([w], 1).step([bl.ones((3,))]), r"SGD: gradients\[0\] is f32 3 a; its parameter is f32 4"),
        (lambda: bl.optim.LossScale(0), "LossScale: value is 0; give a number between 0 and inf"),
    ]
    for call, rule in cases:
        with pytest.raises(bl.InputError, match=f"^{rule}"):
            call()
