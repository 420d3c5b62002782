"""``zoo:NAME`` in place of a model in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import zoo

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"shapes": {"x": (2, 3, 32, 31)}, "tune": "model"}


def test_a_network_is_loaded_at_its_usual_size() -> None:
    with bl.load("zoo:m3", tune="model") as session:
        assert session.get_inputs()[0].shape == zoo.info("m3").shape


def test_shapes_decide_its_size() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 32, 31), dtype=np.float32)
    with (
        bl.load("zoo:squeezenet1_1", **SMALL) as named,
        bl.load(zoo.build("squeezenet1_1", batch=2, size=(32, 31)), tune="model") as built,
    ):
        np.testing.assert_array_equal(named(x), built(x))


def test_shapes_are_in_the_order_of_the_border() -> None:
    with bl.load("zoo:squeezenet1_1", shapes={"x": (1, 32, 31, 3)}, io_layout={"x": "nhwc"}, tune="model") as session:
        assert session(np.zeros((1, 32, 31, 3), np.float32)).shape == (1, 1000)


def test_it_serves_and_is_replaced() -> None:
    with bl.Served("zoo:squeezenet1_1", **SMALL) as served:
        served.replace("zoo:squeezenet1_0")
        assert served.session.plan.model == "squeezenet1_0"


def test_it_takes_the_place_of_a_saved_session_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "saved").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with (
        pytest.warns(bl.PlanMisfitWarning),
        bl.load(tmp_path / "saved", original="zoo:squeezenet1_1", on_misfit="replan", **SMALL) as session,
    ):
        assert session.plan.model == "squeezenet1_1"


def test_it_is_exported(tmp_path: Path) -> None:
    with bl.load("zoo:squeezenet1_1", layout="nhwc", **SMALL) as session:
        bl.export("zoo:squeezenet1_1", tmp_path / "last.onnx", session.plan)
    with bl.load(tmp_path / "last.onnx", tune="model") as session:
        assert session.get_inputs()[0].shape == (2, 3, 32, 31)


def test_it_is_quantised() -> None:
    noise = np.random.default_rng(0).random(zoo.info("squeezenet1_1").shape, np.float32)
    quantised = bl.quantize("zoo:squeezenet1_1", [noise], {"max_error": "any"})
    assert any(node.op_type == "QuantizeLinear" for node in quantised.graph.node)


@pytest.mark.parametrize(
    ("name", "shapes", "error", "told"),
    [
        ("zoo:resnet500", None, bl.ModelError, "the zoo has no network 'resnet500'; the closest are resnet50, "),
        ("zoo:", None, bl.ModelError, "the closest are "),
        ("zoo:resnet18", {"y": (1, 3, 32, 32)}, bl.InputError, "one input, x, usually 1x3x224x224"),
        ("zoo:resnet18", {"x": (1, 1, 32, 32)}, bl.InputError, "3 channels are fixed"),
        ("zoo:resnet18", {"x": (1, 3, 32, (32, 64))}, bl.InputError, "one set of extents"),
        ("zoo:resnet18", {"x": 5}, bl.InputError, "the shape of input 'x' is 5"),
        ("zoo:resnet18", {"x": (-1, 3, 32, 32)}, bl.InputError, "no extent can be negative"),
        ("zoo:unet", {"x": (1, 1, 64, 64)}, bl.ModelError, "unet cannot take"),
    ],
)
def test_what_there_is_not_is_refused(
    name: str, shapes: dict[str, Any] | None, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        bl.load(name, shapes=shapes)
