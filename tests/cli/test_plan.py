"""``blocklayout plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.show.words import wrapped
from tests import nets, quantised
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, S64, model_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_the_plan_is_that_of_a_session(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    options = (tmp_path / "chain.onnx", "--layout", "nhwc", "--threads", 2)
    session = bl.load(tmp_path / "chain.onnx", layout="nhwc", threads=2)
    verdict, *hint = cli.ok("plan", *options).split("\n\n")
    assert verdict == str(session.verdict())
    assert hint == [f"--steps shows its {len(session.plan.steps)} steps, --top 10 the longest, --why the reasons\n"]
    shown = cli.ok("plan", *options, "--steps")
    assert shown.startswith(f"{verdict}\n\nplan of ")
    assert [*filter(None, wrapped(str(session.plan)).splitlines())] == shown.splitlines()[6:]


def test_the_steps_that_take_longest_are_shown_first(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    plan = bl.load(tmp_path / "chain.onnx", layout="per-op", threads=1).plan
    out = cli.ok("plan", tmp_path / "chain.onnx", "--layout", "per-op", "--threads", 1, "--top", 2)
    costs = [*(step.cost_ns for step in plan.steps), *(entry.cost_ns for entry in plan.entries)]
    costs.sort(reverse=True)
    rows = [line for line in out.splitlines() if line.split() and line.split()[0].isdecimal() and "->" in line]
    assert [row.split()[-1] for row in rows] == [f"{cost / 1000:,.1f}" for cost in costs[:2]]


def test_json_is_the_plan_itself(cli: Command, tiny: Path) -> None:
    out = cli.ok("plan", tiny, "--json", "--threads", 1)
    assert bl.Plan.from_json(out) == bl.load(tiny, threads=1, shapes={"x": (1, 3, 8, 8)}).plan


def test_a_tag_is_a_policy(cli: Command, tiny: Path) -> None:
    done = cli("plan", tiny, "--layout", "nChw8c")  # which may tell that no kernel of this CPU has it
    assert done.status == 0, done
    assert done.out.splitlines()[0].startswith("best"), done
    assert "nChw8c" in done.out, done


def test_a_format_by_its_name_is_a_policy(cli: Command, tiny: Path) -> None:
    for name, policy in (("channels_last", "nhwc"), ("channels_first", "plain"), ("contiguous_format", "plain")):
        plan = bl.Plan.from_json(cli.ok("plan", tiny, "--layout", name, "--json"))
        assert plan.policy == policy
        assert bl.load(tiny, layout=name, shapes={"x": (1, 3, 8, 8)}).plan.policy == policy
    assert bl.load(tiny, layout="blocked8", shapes={"x": (1, 3, 8, 8)}).plan.policy == "blocked8"
    assert [
        row["policy"]
        for row in cli("run", tiny, "--layout", "channels_last,nhwc", "--rounds", 1, "--json").json["runs"]
    ] == ["nhwc"]


def test_without_a_model_it_is_that_of_the_embedded_one(cli: Command) -> None:
    assert "plan of digits" in cli.ok("plan", "--steps")


def test_a_range_is_planned_for_its_largest_extents(cli: Command, tmp_path: Path) -> None:
    onnx.save(nets.free_model(), tmp_path / "free.onnx")
    options = ("--shape", "x=1x3x8..12x8..16", "--threads", 1)
    plan = bl.Plan.from_json(cli.ok("plan", tmp_path / "free.onnx", *options, "--json"))
    assert dict(plan.inputs)["x"].dims == (1, 3, 12, 16)
    assert plan.ranges == (("x", ((1, 1), (3, 3), (8, 12), (8, 16))),)
    np.save(tmp_path / "x.npy", nets.random_input((1, 3, 9, 9)))
    run = ("run", tmp_path / "free.onnx", *options, "--input")
    assert "1x24x9x9" in cli.ok(*run, f"x={tmp_path / 'x.npy'}")
    np.save(tmp_path / "x.npy", nets.random_input((1, 3, 13, 9)))
    assert "axis 2 must be 8 to 12" in cli(*run, f"x={tmp_path / 'x.npy'}").refusal


def test_shapes_reach_the_plan(cli: Command, tiny: Path) -> None:
    plan = bl.Plan.from_json(cli.ok("plan", tiny, "--shape", "x=5x3x8x8", "--json"))
    assert dict(plan.inputs)["x"].dims == (5, 3, 8, 8)


def test_a_plan_is_saved_and_used_again(cli: Command, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    out = cli.ok("plan", tiny, "--shape", "x=5x3x8x8", "--layout", "nhwc", "--save", file)
    assert cli.ok("plan", tiny, "--plan", file) == out
    assert "nhwc" in cli.ok("run", tiny, "--plan", file, "--rounds", 1)


def test_a_session_is_saved_for_instruction_sets(cli: Command, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "tiny.session"
    out = cli.ok("plan", tiny, "--threads", 1, "--save-session", file, "--targets", dnnl.isa())
    assert out.startswith(f"{bl.load(file).verdict()}\n")
    assert "give some of sse41, avx" in cli("plan", tiny, "--save-session", file, "--targets", "mmx").refusal
    assert "--targets is for --save-session" in cli("plan", tiny, "--targets", dnnl.isa()).refusal


def test_a_saved_plan_brings_the_formats_of_its_border(cli: Command, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    out = cli.ok("plan", tiny, "--io-layout", "x=nhwc", "--shape", "x=2x8x8x3", "--save", file)
    assert cli.ok("plan", tiny, "--plan", file) == out


def test_a_saved_plan_serves_a_network_of_the_zoo(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    out = cli.ok("plan", "zoo:squeezenet1_1", "--shape", "x=1x3x64x64", "--save", file)
    assert cli.ok("plan", "zoo:squeezenet1_1", "--plan", file) == out


def test_the_model_is_written_with_the_layouts_of_the_plan(cli: Command, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.onnx"
    cli.ok("plan", tiny, "--shape", "x=5x3x8x8", "--layout", "nhwc", "--export", file)
    assert "blocklayout.channels_last" in {node.domain for node in onnx.load(file).graph.node}
    feed = {"x": np.ones((5, 3, 8, 8), np.float32)}
    np.testing.assert_allclose(bl.load(file).run(None, feed)[0], bl.load(tiny).run(None, feed)[0], atol=1e-4)
    assert "cannot write" in cli("plan", tiny, "--export", tmp_path / "none" / "out.onnx").refusal


def test_a_plan_that_does_not_fit_is_one_line(cli: Command, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    cli.ok("plan", tiny, "--threads", 1, "--save", file)
    assert "threads=1, and threads=2" in cli("plan", tiny, "--plan", file, "--threads", 2).refusal
    assert "layout='nhwc'" in cli("run", tiny, "--plan", file, "--layout", "nhwc").refusal
    assert "which says x=1x3x8x8, does not fit: the model has no input 'x'" in cli("plan", "--plan", file).refusal
    assert "belong to a MODEL" in cli("run", "--plan", file).refusal
    assert "no plan can be read" in cli("plan", tiny, "--plan", tmp_path / "none.json").refusal
    assert "cannot be saved" in cli("plan", tiny, "--save", tmp_path / "none" / "plan.json").refusal


def test_why_is_the_explanation(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.residual(), tmp_path / "net.onnx")
    out = cli.ok("plan", tmp_path / "net.onnx", "--why", "--threads", 2)
    text = wrapped(bl.load(tmp_path / "net.onnx", threads=2).plan.explain())
    assert out.endswith(f"\n\n{text}\n")
    assert "runner-up" in out


def test_force_answers_what_if(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    out = cli.ok("plan", tmp_path / "chain.onnx", "--force", "conv1=nChw8c", "--why")
    assert "without conv1=nChw8c" in out
    told = cli("plan", tmp_path / "chain.onnx", "--force", "conv9=nChw8c").refusal
    assert "the closest are conv" in told


def test_pins_are_given_by_operator_and_pattern(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    out = cli.ok(
        "plan", tmp_path / "chain.onnx", "--pin", "Conv=nhwc", "--pin", "*2=nChw8c", "--expect", "conv0=nhwc", "--why"
    )
    assert "without conv0=nhwc" not in out
    assert "Conv=nhwc" in out
    told = cli("plan", tmp_path / "chain.onnx", "--pin", "Cnov=nhwc").refusal
    assert "the closest are Conv" in told


def test_precision_is_given_by_operator(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    assert "f32, Conv in f32," in cli.ok("plan", tmp_path / "chain.onnx", "--precision", "Conv=f32", "--steps")
    assert cli.ok("run", tmp_path / "chain.onnx", "--precision", "Conv=f32", "--rounds", 1)
    told = cli("plan", tmp_path / "chain.onnx", "--precision", "Conv=fp32").refusal
    assert "precision Conv=fp32: activations are computed in one of" in told


def test_expectations_and_losses_are_refused_in_one_line(cli: Command, tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "chain.onnx")
    told = cli("plan", tmp_path / "chain.onnx", "--layout", "nhwc", "--expect", "conv1=nChw8c").refusal
    assert "it comes as nhwc" in told
    assert cli.ok("plan", tmp_path / "chain.onnx", "--on-layout-loss", "raise")


def test_tuning_is_asked_for(cli: Command, tiny: Path) -> None:
    assert "best" in cli.ok("plan", tiny, "--tune", "measure", "--tune-seconds", "0.2")
    assert "positive number of seconds" in cli("plan", tiny, "--tune-seconds", "0").refusal


def test_of_a_model_in_pieces_every_piece_is_shown(cli: Command, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    onnx.save(model_of([*PLACES, NODE("Cast", ["p"], ["y"], to=F32)], {"x": IMAGE}), path)
    shape = ("--shape", "x=1x3x8x8")
    for option in (("--steps",), ("--why",)):
        shown = cli.ok("plan", path, *shape, *option)
        assert all(text in shown for text in ("net, piece 1", "nz by numpy -> p: node 'nz'", "net, piece 3"))
    facts = cli("plan", path, "--json", *shape).json
    assert ([each["node"] for each in facts["cut"]], len(facts["plans"])) == (["nz"], 1)
    assert "nz" in cli.ok("profile", path, *shape, "--runs", 1)
    assert "plain" in cli.ok("run", path, *shape, "--rounds", 1)
    assert "there is no plan of the whole" in cli("plan", path, *shape, "--save", tmp_path / "p.json").refusal


def test_of_a_model_that_numpy_computes_its_pieces_are_shown(cli: Command, tmp_path: Path) -> None:
    onnx.save(model_of([NODE("NonZero", ["x"], ["y"], name="nz")], {"x": IMAGE}, {"y": S64}), tmp_path / "places.onnx")
    shown = cli.ok("plan", tmp_path / "places.onnx", "--shape", "x=1x3x8x8")
    assert "nz by numpy -> y" in shown
    assert "nz" in cli.ok("profile", tmp_path / "places.onnx", "--shape", "x=1x3x8x8", "--runs", 1)


def test_of_pieces_the_steps_that_take_longest_are_shown(cli: Command, tmp_path: Path) -> None:
    onnx.save(model_of([*PLACES, NODE("Cast", ["p"], ["y"], to=F32)], {"x": IMAGE}), tmp_path / "cut.onnx")
    shown = cli.ok("plan", tmp_path / "cut.onnx", "--shape", "x=1x3x8x8", "--top", 1)
    assert shown.count("computed by") >= 1


def test_bytes_are_told_of(cli: Command, tmp_path: Path) -> None:
    onnx.save(quantised.model_of(quantised.chain), tmp_path / "chain.onnx")
    for command in (("plan", "--steps"), ("plan", "--why"), ("profile",), ("show", "--out", tmp_path / "page.html")):
        out = cli.ok(command[0], tmp_path / "chain.onnx", *command[1:])
        assert command[0] == "show" or ":u8" in out
    assert "u8" in (tmp_path / "page.html").read_text()
