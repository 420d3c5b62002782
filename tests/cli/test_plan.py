"""``blocklayout plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blocklayout as bl
from tests import nets

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_the_plan_is_that_of_a_session(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    out = cli.ok("plan", tmp_path / "chain.onnx", "--layout", "nhwc", "--threads", 2)
    assert out == f"{bl.load(tmp_path / 'chain.onnx', layout='nhwc', threads=2).plan}\n"


def test_json_is_the_plan_itself(cli: Command, tiny: Path) -> None:
    out = cli.ok("plan", tiny, "--json", "--threads", 1)
    assert bl.Plan.from_json(out) == bl.load(tiny, threads=1, shapes={"x": (1, 3, 8, 8)}).plan


def test_a_tag_is_a_policy(cli: Command, tiny: Path) -> None:
    assert "nChw8c" in cli.ok("plan", tiny, "--layout", "nChw8c")


def test_without_a_model_it_is_that_of_the_embedded_one(cli: Command) -> None:
    assert cli.ok("plan").startswith("plan of digits")


def test_shapes_reach_the_plan(cli: Command, tiny: Path) -> None:
    plan = bl.Plan.from_json(cli.ok("plan", tiny, "--shape", "x=5x3x8x8", "--json"))
    assert dict(plan.inputs)["x"].dims == (5, 3, 8, 8)
