"""``zoo:NAME`` in place of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

SMALL = ("zoo:squeezenet1_1", "--shape", "x=2x3x32x31")


def test_a_network_of_the_zoo_is_run(cli: Command) -> None:
    told = cli("run", *SMALL, "--rounds", 1, "--json").json
    assert [output["shape"] for output in told["outputs"]] == [[2, 1000]]


def test_its_plan_is_shown(cli: Command) -> None:
    assert "fire9.conv3" in cli.ok("plan", *SMALL, "--steps")


def test_its_policies_are_compared(cli: Command) -> None:
    told = cli("bench", *SMALL, "--policies", "nhwc", "--rounds", 1, "--json").json
    assert [row["policy"] for row in told["policies"]] == ["auto", "nhwc"]


def test_without_a_shape_it_has_its_usual_size(cli: Command) -> None:
    told = cli("run", "zoo:dcgan_generator", "--rounds", 1, "--json").json
    assert [output["shape"] for output in told["outputs"]] == [[1, 3, 64, 64]]


def test_an_array_decides_its_size(cli: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 100, 2, 1), np.float32))
    told = cli("run", "zoo:dcgan_generator", "--input", f"x={tmp_path / 'x.npy'}", "--rounds", 1, "--json").json
    assert [output["shape"] for output in told["outputs"]] == [[1, 3, 80, 64]]


def test_extents_are_in_the_order_of_the_border(cli: Command) -> None:
    options = ("--shape", "x=1x32x31x3", "--io-layout", "x=nhwc", "--rounds", 1, "--json")
    assert cli("run", "zoo:squeezenet1_1", *options).status == 0


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("zoo:resnet500",), "the closest are resnet50, "),
        (("zoo:",), "the closest are "),
        (("zoo:resnet18", "--shape", "y=1x3x32x32"), "one input, x, usually 1x3x224x224"),
        (("zoo:resnet18", "--shape", "x=1x1x32x32"), "3 channels are fixed, and what was given is x 1x1x32x32"),
        (("zoo:bert_base", "--shape", "x=1x1x32"), "number of dimensions is fixed, and what was given is x 1x1x32"),
        (("zoo:resnet18", "--shape", "x=32x32"), "number of dimensions"),
        (("zoo:unet", "--shape", "x=1x1x64x64"), "unet cannot take"),
    ],
)
def test_what_there_is_not_is_refused(cli: Command, argv: tuple[str, ...], told: str) -> None:
    assert told in cli("plan", *argv).refusal
