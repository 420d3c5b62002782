"""``blocklayout run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

from blocklayout import dnnl
from blocklayout.plan import POLICIES
from tests.cli.command import saved

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_the_embedded_model_runs_in_every_policy(cli: Command) -> None:
    told = cli("run", "--rounds", 1, "--json", "--dtype", "f32").json
    assert [row["policy"] for row in told["policies"]] == list(POLICIES)
    for row in told["policies"]:
        assert row["accuracy"] >= 0.98
        assert row["difference"] < 1e-5
        assert row["images_per_second"] > 0
    by_policy = {row["policy"]: row for row in told["policies"]}
    assert by_policy["per-op"]["n_reorders"] >= by_policy["any"]["n_reorders"]
    if dnnl.isa() != "sse41":  # which has no blocked kernel for 17 channels
        assert by_policy["blocked"]["padding_multiply_adds"] > by_policy["plain"]["padding_multiply_adds"]
    assert by_policy["plain"]["layouts"].keys() <= {"nchw", "nc"}
    assert told["environment"]["isa"] == dnnl.isa()


def test_a_table_for_people_says_what_cannot_run(cli: Command) -> None:
    done = cli("run", "--rounds", 1, "--layout", "nhwc,nChw8c")  # which may be told that bf16 has no nChw8c here
    assert done.status == 0
    out = done.out
    assert "99." in out
    assert "nhwc" in out
    assert "bf16" in out
    if not dnnl.has_bf16():
        assert f"bf16 needs a CPU with AVX-512 (avx512_core); this one runs {dnnl.isa()}" in out


@pytest.mark.needs_bf16
def test_the_embedded_model_in_bf16(cli: Command) -> None:
    [row] = cli("run", "--rounds", 1, "--layout", "auto", "--dtype", "bf16", "--json").json["policies"]
    assert row["dtype"] == "bf16"
    assert row["accuracy"] >= 0.97


def test_the_embedded_model_takes_no_inputs(cli: Command) -> None:
    assert "MODEL" in cli("run", "--shape", "image=1x1x8x8").refusal


def test_a_model_on_random_data_is_repeatable(cli: Command, tiny: Path) -> None:
    first, second = (cli("run", tiny, "--rounds", 1, "--json").json for _ in range(2))
    assert first["outputs"] == second["outputs"]
    [output] = first["outputs"]
    assert (output["name"], output["dtype"], output["shape"]) == ("y", "float32", [1, 9, 8, 8])
    assert output["min"] == 0 < output["mean"] < output["max"]


def test_a_model_on_a_file(cli: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 8, 8), np.float32))
    [output] = cli("run", tiny, "--input", f"x={tmp_path / 'x.npy'}", "--rounds", 1, "--json").json["outputs"]
    assert (output["shape"], output["min"], output["max"]) == ([2, 9, 8, 8], 0, 0)


def test_what_is_not_finite_is_valid_json(cli: Command, tiny: Path, tmp_path: Path) -> None:
    image = np.zeros((1, 3, 8, 8), np.float32)
    image[0, 0, 4, 4] = np.inf  # once: differences of infinities are NaN, of which a Relu makes zeros
    np.save(tmp_path / "x.npy", image)
    done = cli("run", tiny, "--input", f"x={tmp_path / 'x.npy'}", "--rounds", 1, "--without", "winograd", "--json")
    assert done.json["outputs"][0]["max"] is None


def test_infinities_differ_in_no_known_way(cli: Command, tiny: Path, tmp_path: Path) -> None:
    image = np.zeros((1, 3, 8, 8), np.float32)
    image[0, 0, 4, 4] = np.inf
    np.save(tmp_path / "x.npy", image)
    out = cli.ok("run", tiny, "--input", f"x={tmp_path / 'x.npy'}", "--rounds", 1, "--layout", "plain,nhwc")
    assert "nan" in out


def test_a_batch_of_none(cli: Command, tiny: Path) -> None:
    out = cli.ok("run", tiny, "--shape", "x=0x3x8x8", "--rounds", 1)
    assert "0x9x8x8" in out


def test_several_layouts_are_compared(cli: Command, tiny: Path) -> None:
    runs = cli("run", tiny, "--layout", "plain,nhwc,nChw8c", "--rounds", 1, "--threads", 1, "--json").json["runs"]
    assert [run["policy"] for run in runs] == ["plain", "nhwc", "nChw8c"]
    assert all(run["difference"] < 1e-5 and run["n_threads"] == 1 for run in runs)


def test_a_model_for_people(cli: Command, tiny: Path) -> None:
    out = cli.ok("run", tiny, "--rounds", 1, "--shape", "x=2x3x8x8")
    assert "2x9x8x8" in out
    assert "auto" in out


def test_formats_at_the_border(cli: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 8, 8, 3), np.float32))
    options = ("--io-layout", "x=nhwc", "--io-layout", "y=nChw8c", "--json", "--rounds", 1)
    told = cli("run", tiny, "--input", f"x={tmp_path / 'x.npy'}", *options).json
    assert told["outputs"][0]["shape"] == [2, 9, 8, 8]
    assert "(N, 8, 8, 3)" in cli("run", tiny, "--shape", "x=1x3x8x8", *options[:2]).refusal
    assert "no input or output 'z'; there are x, y" in cli("plan", tiny, "--io-layout", "z=nhwc").refusal
    assert "such as x=nhwc" in cli("plan", tiny, "--io-layout", "nhwc").refusal


def test_contents_that_decide_extents_come_from_a_file(cli: Command, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "target"], ["y"])],
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 6)),
            helper.make_tensor_value_info("target", TensorProto.INT64, (2,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m")
    np.save(tmp_path / "target.npy", np.array([3, 4]))
    for command in ("run", "plan", "bench"):
        told = cli(command, model, "--input", f"target={tmp_path / 'target.npy'}", "--json").json
        assert told
