"""Benchmarks run at their smallest size; what they measure is not looked at."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from blocklayout import dnnl
from tests.bench.running import run_bench
from tests.show.records import record_of

PICTURE = ("--picture", "picture.svg") if find_spec("matplotlib") else ()
PAGE = ("--html", "page.html")


def is_picture(path: Path) -> bool:
    """Whether a file is one of our pictures: text in it is text, and no clock shows in it."""
    text = path.read_text(encoding="utf-8")
    return "<svg" in text and "<text" in text and "<dc:date>" not in text


def charts(folder: Path) -> dict[str, list[str]]:
    """Names of the rows of each chart of the page that a benchmark wrote, by its title."""
    record = record_of(folder / "page.html")
    assert record["command"].startswith("python bench/")
    assert record["environment"]["cpu"]
    return {chart["title"]: [row["name"] for row in chart["rows"]] for chart in record["charts"]}


def test_policies(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    short = ("--models", "digits", "--rounds", "1", "--json", str(path))
    what = ("--policies", "plain,per-op", "--isa", "avx2", "--threads", "1")
    done = run_bench("policies.py", *short, *what, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert [row["policy"] for row in result["policies"]] == ["auto", "plain", "per-op"]
    assert charts(tmp_path)["Time of a run"] == ["auto f32", "plain f32", "per-op f32"]
    assert result["environment"]["isa"] in done.stdout
    if find_spec("onnxruntime"):
        assert all(row["error"] < 1e-5 for row in result["policies"])


def test_an_unknown_model_is_refused(tree_environ: dict[str, str], tmp_path: Path) -> None:
    done = run_bench("policies.py", "--models", "lenet", environ=tree_environ, folder=tmp_path)
    assert done.returncode == 2
    assert "resnet50" in done.stderr


def test_planner(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "planner.json"
    short = ("--models", "digits", "--batches", "1", "--rounds", "1", "--tune-seconds", "0.2", "--threads", "1")
    done = run_bench("planner.py", *short, "--json", str(path), *PAGE, *PICTURE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert set(result["policies"]) == {"auto", "any", "blocked", "nhwc", "plain", "per-op"}
    assert "within 2 %" in done.stdout
    assert charts(tmp_path)["Time over auto's in the same round"] == [*result["policies"]]


def test_planner_of_first_loads_takes_and_leaves_no_plan(tree_environ: dict[str, str], tmp_path: Path) -> None:
    environ = tree_environ | {"BLOCKLAYOUT_CACHE_DIR": str(tmp_path / "cache")}
    short = ("--models", "digits", "--batches", "1", "--rounds", "1", "--tune", "cached", "--threads", "1")
    done = run_bench("planner.py", *short, environ=environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "within 2 %" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_peers(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    short = ("--models", "m3", "--size", "4000", "--rounds", "1", "--threads", "1", "--json", str(path))
    others = ("--against", "onnxruntime" if find_spec("onnxruntime") else "all")
    done = run_bench("peers.py", *short, *others, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    again = run_bench("peers.py", "--measured", str(path), *PAGE, *PICTURE, environ=tree_environ, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    [contest] = json.loads(path.read_text())["contests"]
    assert [row["name"] for row in contest["results"]][:2] == ["blocklayout", "blocklayout (saved)"]
    assert contest["failures"] == []
    assert all(row["difference"] < 1e-3 for row in contest["results"])
    assert charts(tmp_path)["Time of a run"] == [row["name"] for row in contest["results"]]
    assert not PICTURE or is_picture(tmp_path / "picture.svg")
    if find_spec("onnxruntime"):
        assert "geometric mean over 1 networks" in done.stdout


def test_eager(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "eager.json"
    short = ("--sizes", "16x8", "--rounds", "1", "--against", "none", "--threads", "1", "--json", str(path))
    done = run_bench("eager.py", *short, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert [row["name"] for row in result["rows"]] == ["blocked", "channels last", "plain"]
    assert [row["n_events"] for row in result["rows"]] == [0, 0, 0]
    assert charts(tmp_path)["Time of the chain"] == ["blocked", "channels last", "plain"]


@pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")
def test_torch_layers(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--layers", "8x8x3x6", "--batches", "1", "--rounds", "1")
    done = run_bench("torch_layers.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split("8x8x3x6")[1].split()[0] for line in done.stdout.splitlines() if "8x8x3x6" in line] == [
        *("inference", "inference,", "training")
    ]


def test_calls(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    short = ("--rounds", "1", "--networks", "m3", "--seconds", "0.01", "--json", str(path))
    done = run_bench("calls.py", *short, *PAGE, environ=tree_environ | {"COLUMNS": "200"}, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["rows"]
    ours = [row["name"] for row in rows if "bare_us" in row["turns"][0]]
    assert ours == ["ReLU, Session.run", "ReLU, bl.relu", "reorder, bl.reorder"]
    assert "over the primitive" in done.stdout
    assert {"us", "before_us", "behind_us"} == rows[-1]["turns"][0].keys()
    assert charts(tmp_path)["Time over that of the primitive alone"] == ours


def test_throughput(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "throughput.json"
    short = ("--models", "squeezenet1_1", "--size", "32", "--rounds", "1", "--json", str(path))
    done = run_bench("throughput.py", *short, *PAGE, "--threads", "2", environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [contest] = json.loads(path.read_text())["contests"]
    assert contest["results"][0]["name"] == "blocklayout x2"
    assert charts(tmp_path)["Images a second"] == [row["name"] for row in contest["results"]]
    assert all(row["difference"] < 1e-3 for row in contest["results"])


def test_solving(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "solving.json"
    short = ("--kernels", "30,60", "--graphs", "3", "--json", str(path))
    done = run_bench("solving.py", *short, *PAGE, *PICTURE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert [row["n_kernels"] for row in result["curve"]] == [30, 60]
    assert result["graphs"]["wrong"] == 0
    assert charts(tmp_path) == {"Seconds to solve": ["30 kernels", "60 kernels"]}


def test_operators(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "operators.json"
    short = ("--families", "softmax,layer norm,inner", "--sizes", "16x4", "--rounds", "1", "--threads", "1")
    done = run_bench(
        "operators.py", *short, *PICTURE, *PAGE, "--json", str(path), environ=tree_environ, folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["operators"]
    assert len(rows) == 3
    assert all([*row["layouts"]][:2] == ["plain", "nhwc"] and row["layouts"]["nhwc"]["impl"] for row in rows)
    assert "microseconds" in done.stdout
    assert {"16x4 plain", "16x4 nhwc"} <= {
        name.removesuffix(" ref") for name in charts(tmp_path)["Time of an operator"]
    }


def test_operators_are_classed(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "operators.json"
    short = ("--families", "pixel,relu", "--sizes", "64x4", "--rounds", "1", "--threads", "1", "--json", str(path))
    done = run_bench("operators.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    layouts = {row["family"]: row["layouts"] for row in record["operators"]}
    assert {*layouts} == {"pixel shuffle", "pixel unshuffle", "relu", "prelu"}
    assert all(each["impl"] for each in (*layouts["pixel shuffle"].values(), *layouts["pixel unshuffle"].values()))
    assert [*record["classes"]] == ["faster than", "as fast as", "slower than"]
    assert "channels-last as fast as row-major: " in done.stdout


def test_gain(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "gain.json"
    short = ("--models", "m3", "--size", "4000", "--rounds", "1", "--tune", "model", "--threads", "1")
    done = run_bench("gain.py", *short, "--json", str(path), environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert {*result["others"]} == {"plain", "per-op", "nhwc"}
    assert "geometric mean" in done.stdout


def test_gains_measured_in_parts_are_one_table(tree_environ: dict[str, str], tmp_path: Path) -> None:
    times = {"time_ms": {"median": 2.0, "low": 1.0, "high": 3.0}, "ratio": {"median": 1.5, "low": 1.4, "high": 1.6}}
    for number, name in enumerate(("first_net", "second_net")):
        result = {"model": name, "auto": times, "others": dict.fromkeys(("plain", "per-op", "nhwc"), times)}
        record = {"environment": {"cpu": "a CPU"}, "command": "python bench/gain.py", "results": [result]}
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    done = run_bench(
        "gain.py", "--measured", "0.json", "1.json", *PICTURE, *PAGE, environ=tree_environ, folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "first_net" in done.stdout
    assert "second_net" in done.stdout
    assert "over plain: +50% (geometric mean); at least +26% in 2 of 2" in done.stdout
    assert charts(tmp_path)["Time over auto's in the same round"] == 2 * ["plain", "per-op", "nhwc"]
    assert not PICTURE or is_picture(tmp_path / "picture.svg")


def test_prepacking(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "prepacking.json"
    short = ("--models", "squeezenet1_1", "--size", "32", "--rounds", "1", "--threads", "1", "--json", str(path))
    done = run_bench("prepacking.py", *short, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert [*result["ratios"]] == ["each run", "session", "mapped"]
    assert result["difference"] == 0.0
    assert charts(tmp_path)["Time of a run"] == ["each run", "session", "mapped"]
    assert "packed MB" in done.stdout


def test_measuring(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "measuring.json"
    short = ("--models", "m3", "--size", "4000", "--policies", "nhwc", "--runs", "1", "--threads", "1")
    what = ("--in-turn", "64", "--json", str(path), *PICTURE)
    done = run_bench("measuring.py", *short, *what, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert [each["source"] for each in result["agreement"]] == ["64 in turn", "estimated"]
    assert len(result["steps"]) == result["n_steps"] > 3
    assert [*charts(tmp_path).values()] == [["64 in turn", "estimated"]]


def test_neighbours(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "neighbours.json"
    short = ("--models", "m3", "--size", "4000", "--rounds", "1", "--seconds", "0.01", "--threads", "2")
    what = ("--layout", "plain", "--spin-counts", "1000", "--peers", "onnxruntime", "--json", str(path))
    done = run_bench("neighbours.py", *short, *what, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert {"team", "libgomp 1000"} <= {*result["ms"]["alone"]}
    assert all({"team", "libgomp 1000"} <= {*of} for row, of in result["ms"].items() if row != "after onnxruntime")
    assert "of half the machine" in done.stdout
    assert "libgomp 1000" in charts(tmp_path)["m3: time of a run"]


def test_first_result(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "first.json"
    short = ("--models", "m3", "--size", "4000", "--rounds", "1", "--threads", "1", "--json", str(path))
    done = run_bench("first_result.py", *short, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    assert [*result["seconds"]][-3:] == ["first load", "second load", "saved session"]
    assert result["ratios"]["second load"]["median"] > 0
    assert charts(tmp_path)["From the import to the first result"] == [*result["seconds"]]


@pytest.mark.skipif(
    not all(map(find_spec, ("torch", "torchvision", "onnx2torch", "onnxscript"))), reason="PyTorch is not all there"
)
def test_torch_door(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--models", "squeezenet1_1", "--size", "32", "--rounds", "1", "--threads", "1", "--json", "out.json")
    ways = ["torch.compile", "nothing", "bl.compile", "bl.load"]  # inductor takes a compiler, and half a minute
    done = run_bench("torch_door.py", *short, "--ways", ",".join(ways), environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [*result["ms"]] == ways
    assert all(each["difference"] < 1e-5 for each in result["first"].values())
    assert done.stdout.count("geometric mean") == 2


@pytest.mark.skipif(not dnnl.has_bf16(), reason="this CPU computes nothing in bf16")
@pytest.mark.skipif(not all(map(find_spec, ("torch", "onnx2torch"))), reason="PyTorch is not all there")
def test_bf16_error(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--models", "squeezenet1_1,crnn", "--size", "32", "--draws", "1", "--threads", "1", "--json", "out.json")
    done = run_bench("bf16_error.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    errors = [each["errors"] for each in json.loads((tmp_path / "out.json").read_text())["results"]]
    assert [[*each] for each in errors] == [["ours", "direct", "module", "autocast"], ["ours", "direct"]]
    assert all(0 < error < 0.05 for ways in errors for [error] in ways.values())
    assert "crnn, module: " in done.stderr


def test_upsampling(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--sizes", "8x4", "--rounds", "1", "--threads", "1", "--json", str(tmp_path / "upsampling.json"), *PAGE)
    done = run_bench("upsampling.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads((tmp_path / "upsampling.json").read_text())["results"]
    assert [*result["ratios"]] == ["merged", "apart", "auto"]
    assert all(names == ["merged", "apart", "auto"] for names in charts(tmp_path).values())


def test_training_step(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--models", "resnet10", "--size", "32", "--batch", "2", "--rounds", "1", "--json", "out.json", *PAGE)
    done = run_bench("training_step.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads((tmp_path / "out.json").read_text())["results"]
    assert result["losses"][0] > result["losses"][2] > 0
    assert charts(tmp_path)["Time of a step"] == [*result["ms"]]


def test_extents(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--models", "m3", "--sizes", "4000", "--batches", "2", "--json", "out.json", *PAGE)
    done = run_bench("extents.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "geometric mean" in done.stdout
    [row] = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["batch"] == 2
    assert row["session_s"] >= 0
    assert row["primitives_s"] > 0
    assert [*charts(tmp_path).values()] == [["m3"], ["chosen", "taken"], ["session", "primitives"]]


def test_soak(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--minutes", "0.1", "--only", "ran,saved,forked", "--variants", "1", "--seed", "3", "--json", "out.json")
    done = run_bench("soak.py", *short, environ=tree_environ, folder=tmp_path)
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["wrong"] == {}, done.stderr
    assert {*record["counts"]} == {"ran", "saved", "forked"}
    assert record["growth"]["heap MiB"] < 1  # what the library never frees is made once
    assert "again: python bench/soak.py --minutes 0.1 --seed 3 --variants 1 --only ran,saved,forked\n" in done.stdout
    assert "] " in done.stdout.splitlines()[0]


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_ray_scaling(tree_environ: dict[str, str], tmp_path: Path) -> None:
    short = ("--models", "squeezenet1_1", "--size", "32", "--batch", "2", "--images", "16", "--rounds", "1")
    done = run_bench("ray_scaling.py", *short, "--json", "out.json", *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [*result["per_s"]["all"]] == ["session alone", "1 node", "2 nodes"]
    assert "2 nodes over 1" in done.stdout
    assert len(charts(tmp_path)["Rate"]) == 6


def test_default(tree_environ: dict[str, str], tmp_path: Path) -> None:
    small = ("--models", "m3", "--size", "4000", "--dtypes", "f32", "--rounds", "1", "--loads", "1", "--busy")
    others = ("--policies", "nhwc,plain", "--seconds", "0.01", "--threads", "1", "--json", "out.json", *PAGE)
    done = run_bench("default.py", *small, *others, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads((tmp_path / "out.json").read_text())["results"]
    assert result["best"] in ("nhwc", "plain")
    assert {"nhwc 0", "nhwc 1", "plain 0", "default 0"} <= set(result["times_ns"])
    assert result["reports"]["default 0"]["raced"]
    assert "of 1 medians of loads" in done.stdout
    assert [*charts(tmp_path)] == ["Time of default loads over that of the best uniform policy"]


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime quantises")
def test_int8(tree_environ: dict[str, str], tmp_path: Path) -> None:
    small = ("--models", "squeezenet1_1", "--size", "32", "--files", "qdq", "--calibration", "1", "--images", "1")
    others = ("--rounds", "1", "--threads", "1", "--against", "onnxruntime", "--folder", "files", "--json", "out.json")
    done = run_bench("int8.py", *small, *others, *PAGE, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads((tmp_path / "out.json").read_text())["results"]
    of_qdq = {each["runtime"]: each for each in result["standings"] if each["form"] == "qdq"}
    assert [*of_qdq] == ["blocklayout", "onnxruntime", "onnxruntime, unfused"]
    assert all(of_qdq[name]["time_ms"]["median"] > 0 for name in ("blocklayout", "onnxruntime"))
    assert of_qdq["blocklayout"]["at_each"]["most"] <= 1
    assert of_qdq["blocklayout"]["error"] < 0.1
    assert "steps" in of_qdq["blocklayout"]["plan"]
    assert len([*(tmp_path / "files").iterdir()]) == 2
    assert [*charts(tmp_path)][-1] == "Time of a run"
    assert "qdq: more than a quantum away at some quantisation: none of 1" in done.stdout


@pytest.mark.skipif(find_spec("uvicorn") is None, reason="the extra serve is not installed")
def test_serve(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "serve.json"
    short = ("--requests", "40", "--kills", "5", "--clients", "4", "--repeats", "10", "--json", str(path))
    done = run_bench("serve.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(path.read_text())["results"]
    load = result["load"]
    assert (load["right"] + load["refused"], load["killed"], load["lost"], load["left"]) == (35, 5, 0, 0)
    assert {"run_p50_ms", "overhead_p99_ms"} <= {*result["overhead"]}


def test_kernels(tree_environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    short = ("--networks", "shufflenet_v2_x0_5", "--rounds", "1", "--threads", "1", "--json", str(path))
    done = run_bench("kernels.py", *short, environ=tree_environ, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [network] = json.loads(path.read_text())["networks"]
    assert all(row["us"][0]["median"] > 0 and row["gb_per_s"] > 0 and row["n"] > 0 for row in network["layers"])
    assert bool(network["layers"]) == ("over it" in done.stdout)
