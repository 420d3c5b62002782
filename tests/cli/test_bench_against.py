"""``blocklayout bench --against``: other runtimes, each in its process, in turn."""

from __future__ import annotations

import json
import os
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout.commands.against import contest as contest_module
from blocklayout.commands.against import pytorch, worker
from blocklayout.commands.against.contest import Competitor, Contest, Result, check_agreement, save_feeds
from blocklayout.commands.against.runtimes import RUNTIMES, Runtime, chosen_runtimes
from blocklayout.commands.feeds import n_images
from blocklayout.timing import Spread
from tests import nets
from tests.loading.test_carried_layouts import STEP, feed, looped
from tests.show.records import record_of

if TYPE_CHECKING:
    from tests.cli.command import Command


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_module, "TURN_NS", 1e6)


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
def test_runtimes_are_compared(cli: Command, tiny: Path, tmp_path: Path) -> None:
    short = ("--rounds", 2, "--threads", 1, "--json", "--html", tmp_path / "bench.html")
    told = json.loads(cli.ok("bench", tiny, "--against", "onnxruntime", *short))
    ours, saved, theirs = told["results"]
    assert [ours["name"], saved["name"], theirs["name"]] == ["blocklayout", "blocklayout (saved)", "onnxruntime"]
    assert ours["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0, "values": [1.0, 1.0]}
    assert saved["difference"] == 0
    assert theirs["difference"] < 1e-4
    assert (told["disagree"], told["failures"]) == ([], [])
    for row in told["results"]:
        assert min(row["time_ms"]["low"], row["first_s"], row["resident_nbytes"], row["peak_nbytes"]) > 0
    ratios, times, *_ = record_of(tmp_path / "bench.html")["charts"]
    assert [row["name"] for row in ratios["rows"]] == [row["name"] for row in told["results"]]
    assert [row["values"] for row in times["rows"]] == [row["time_ms"]["values"] for row in told["results"]]


def test_networks_of_the_zoo_and_the_embedded_one_are_written_for_others(cli: Command) -> None:
    others = ("--against", "onnxruntime" if find_spec("onnxruntime") else "all", "--rounds", 1)
    assert "ms/image" not in cli.ok("bench", *others)
    assert "ms/image" in cli.ok("bench", "zoo:m3", "--shape", "x=2x1x4000", *others)


def test_a_saved_session_holds_what_a_run_plans(tmp_path: Path) -> None:
    """As of the body of a loop, which is planned as it runs."""
    onnx.save(looped(STEP), tmp_path / "model.onnx")
    save_feeds(feed(), tmp_path / "feeds.npz")
    files = [str(tmp_path / name) for name in ("model.onnx", "feeds.npz", "model.session")]
    assert worker.main(["save", *files, "1", "f32"]) == 0
    expected = bl.load(files[0]).run(None, feed())
    for given, wanted in zip(bl.load(files[2]).run(None, feed()), expected, strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-5)


def test_what_cannot_be_compared_is_one_line(cli: Command, tiny: Path) -> None:
    assert "no runtime 'tvm'; there are onnxruntime, openvino" in cli("bench", tiny, "--against", "tvm").refusal
    assert "leave out --policies" in cli("bench", tiny, "--against", "all", "--policies", "nhwc").refusal
    if find_spec("onnxruntime"):
        assert "cannot be asked for bf16" in cli("bench", tiny, "--against", "onnxruntime", "--dtype", "bf16").refusal


def contest(tmp_path: Path, **more: np.ndarray) -> Contest:
    path = tmp_path / "chain.onnx"
    bl.save(nets.chain(), path)
    session = bl.load(path)
    return Contest(path, nets.feed_of(session) | more, 1, "f32", 1, lambda _: None)


def test_ours_has_to_run(tmp_path: Path) -> None:
    with pytest.raises(bl.UnsupportedError, match=r"blocklayout cannot run this model: .*no input 'z'"):
        contest(tmp_path, z=np.ones(3, np.float32)).run([RUNTIMES["blocklayout"]])


def test_a_peer_that_fails_says_why_and_the_others_run(tmp_path: Path) -> None:
    outcome = contest(tmp_path).run([RUNTIMES["blocklayout"], Runtime("tvm", "json", "numpy", no_runtime)])
    assert [result.name for result in outcome.results] == ["blocklayout"]
    [failure] = outcome.failures
    assert failure.reason == "tvm cannot run this model: KeyError: 'tvm'"


def no_runtime(*_: object) -> Any:
    raise NotImplementedError


@pytest.mark.skipif(find_spec("onnx2torch") is None, reason="onnx2torch is not installed")
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_pytorch_computes_the_same(tmp_path: Path) -> None:
    outcome = contest(tmp_path).run([RUNTIMES["blocklayout"], RUNTIMES["torch"]])
    assert not outcome.failures
    assert check_agreement(outcome.results, "f32") == []


@pytest.mark.skipif(find_spec("onnx2torch") is None, reason="onnx2torch is not installed")
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_pytorch_computes_what_its_converter_cannot_read(tmp_path: Path) -> None:
    torch = import_module("torch")
    pytorch.import_converter(torch)
    b = bl.Builder()
    x = b.input("x", (2, 8))
    b.output("y", (b.op("Gelu", x) + b.op("Gelu", x, approximate="tanh")).clip(hi=0.5))
    bl.save(b, tmp_path / "model.onnx")
    feeds = {"x": nets.random_input((2, 8))}
    [theirs] = pytorch.open_eager(torch, str(tmp_path / "model.onnx"), 1, "f32")(feeds)
    [ours] = bl.load(b).run(None, feeds)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_time_per_image_is_over_the_batch(tmp_path: Path) -> None:
    one = contest(tmp_path)
    assert n_images(one.feeds) == 1
    assert n_images({"x": np.ones((16, 3), np.float32)}) == 16
    assert n_images({"x": np.ones((16, 3)), "n": np.ones(())}) == 1
    assert n_images({"n": np.ones(())}) == 1


def test_denormals_are_refused(tmp_path: Path) -> None:
    with pytest.raises(bl.InputError, match="denormals"):
        contest(tmp_path, z=np.full(3, 1e-40, np.float32)).run([])


def test_whoever_is_not_in_turn_sleeps(tmp_path: Path) -> None:
    run = contest(tmp_path)
    save_feeds(run.feeds, tmp_path / "feeds.npz")
    with Competitor(run, RUNTIMES["blocklayout"], tmp_path / "ours") as competitor:
        competitor.take_turn()
        assert competitor.times[0] > 0
        pid = competitor._process.pid
        deadline = time.monotonic() + 10
        while _state(pid) != "T" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert _state(pid) == "T"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]


def test_disagreement_is_told() -> None:
    one = Spread(1.0, 1.0, 1.0)
    rows = [Result("a", "1", one, one, one, 1.0, 1, 1, value) for value in (0.0, 0.5, float("nan"))]
    assert [text.split(" by ")[0] for text in check_agreement(rows, "f32")] == ["a differs from blocklayout"] * 2


def test_what_is_not_installed_is_left_out_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Runtime("openvino", "no_such_module", "openvino", RUNTIMES["openvino"].open)
    monkeypatch.setitem(RUNTIMES, "openvino", absent)
    assert absent not in chosen_runtimes(["all"], "f32")
    with pytest.raises(bl.InputError, match="pip install openvino"):
        chosen_runtimes(["openvino"], "f32")
    torch = RUNTIMES["torch"]._replace(needs=("no_such_module",))
    monkeypatch.setitem(RUNTIMES, "torch", torch)
    with pytest.raises(bl.InputError, match="torch is not installed: pip install torch no_such_module"):
        chosen_runtimes(["torch"], "f32")
