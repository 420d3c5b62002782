"""``blocklayout show``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from blocklayout.commands import comparing
from blocklayout.plan import POLICIES
from blocklayout.show.output import file_name
from tests.cli.command import conv_model, saved
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, model_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


def test_a_page_is_written_where_one_asks_for_it(cli: Command, tiny: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert str(target) in cli.ok("show", tiny, "-o", target, "--runs", 1, "--threads", 1)
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_by_default_the_page_has_the_name_of_the_model_s_file(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = conv_model()
    model.graph.name = "main_graph"
    path = saved(model, tmp_path / "net.v1.onnx")
    monkeypatch.chdir(tmp_path)
    cli.ok("show", path, "--runs", 0)
    assert {each.name for each in tmp_path.iterdir()} == {"net.v1.onnx", "net.v1.html"}
    assert "<title>net.v1: layouts</title>" in (tmp_path / "net.v1.html").read_text(encoding="utf-8")


def test_by_default_a_page_is_written_over_that_of_the_same_model_alone(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        saved(conv_model(), tmp_path / folder / "net.onnx")
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "net.html"
    cli.ok("show", "one/net.onnx", "--runs", 0)
    first = page.read_text(encoding="utf-8")
    cli.ok("show", tmp_path / "one" / "net.onnx", "--runs", 0)
    again = page.read_text(encoding="utf-8")
    assert first != again
    for other in ("no page", "<html>", again):
        page.write_text(other, encoding="utf-8")
        assert "net.html is there already" in cli("show", "two/net.onnx", "--runs", 0).refusal
        assert page.read_text(encoding="utf-8") == other
    cli.ok("show", "two/net.onnx", "--runs", 0, "-o", page)


@pytest.mark.parametrize(
    "name", ["../up", "/tmp/root", "..", ".hidden", "", "a/../../b", "x" * 300, "ä" * 300, "\u202e\0\n", "-o"]
)
def test_no_name_of_a_model_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    safe = file_name(name, ".html")
    path = tmp_path / safe
    assert path.parent == tmp_path
    assert path.resolve().parent == tmp_path.resolve()
    assert not safe.startswith((".", "-"))
    assert safe.endswith(".html")
    assert all(character.isprintable() for character in safe)
    path.with_name(f".{safe}.12345678").touch()  # as it is called while it is written


def test_a_model_s_hostile_name_stays_in_the_folder(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = conv_model()
    model.graph.name = "../../<script>alert(1)</script>"
    path = saved(model, tmp_path / "model.onnx")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    cli.ok("show", path, "--runs", 0)
    [page] = folder.iterdir()
    assert "<script>alert" not in page.read_text(encoding="utf-8")
    assert {each.name for each in tmp_path.iterdir()} == {"model.onnx", "here"}


def test_json_has_what_the_page_has(cli: Command, tiny: Path) -> None:
    record = json.loads(cli.ok("show", tiny, "--json", "--runs", 2, "--pin", "first=nhwc"))
    assert record["profile"]["n_runs"] == 2
    assert record["plan"]["pins"][0]["wanted"] == "nhwc"
    assert record["plan"]["kernels"]


def test_without_runs_times_are_predicted(cli: Command, tiny: Path) -> None:
    record = json.loads(cli.ok("show", tiny, "--json", "--runs", 0))
    assert record["profile"] is None


def test_plans_of_other_policies_stand_beside(cli: Command, tiny: Path) -> None:
    record = json.loads(cli.ok("show", tiny, "--json", "--runs", 1, "--policies", "plain,auto,nhwc"))
    assert record["plan"]["policy"] == "auto"
    assert [other["plan"]["policy"] for other in record["others"]] == ["plain", "nhwc"]
    assert all(other["profile"]["steps"] for other in record["others"])


def test_policies_that_do_not_fit_into_memory_together_are_predicted(
    cli: Command, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "memory_nbytes", lambda: 1)
    record = json.loads(cli.ok("show", tiny, "--json", "--runs", 2))
    assert record["profile"]["n_runs"] == 2
    assert [other["profile"] for other in record["others"]] == [None] * 5
    assert all(other["predicted"]["steps"] for other in record["others"])


@pytest.mark.parametrize("asked", [(), ("--policies", "all")])
def test_all_policies_are_all_but_the_one_that_is_shown(cli: Command, tiny: Path, asked: tuple[str, ...]) -> None:
    record = json.loads(cli.ok("show", tiny, "--json", "--runs", 0, "--layout", "nhwc", *asked))
    policies = [other["plan"]["policy"] for other in record["others"]]
    assert policies == [policy for policy in POLICIES if policy != "nhwc"]
    alone = json.loads(cli.ok("show", tiny, "--json", "--runs", 0, "--layout", "nhwc", "--policies", "nhwc"))
    assert alone["others"] == []


def test_the_embedded_model_is_shown(cli: Command) -> None:
    assert json.loads(cli.ok("show", "--json", "--runs", 0))["plan"]["model"] == "digits"


def cut_model(folder: Path) -> Path:
    nodes = [*PLACES, NODE("Transpose", ["p"], ["pt"]), NODE("GatherND", ["c", "pt"], ["y"])]
    return saved(model_of(nodes, {"x": IMAGE}, {"y": F32}), folder / "cut.onnx")


def test_a_model_in_pieces_is_shown_piece_by_piece(cli: Command, tmp_path: Path) -> None:
    arguments = ("show", cut_model(tmp_path), "--shape", "x=1x3x8x8", "--runs", 1)
    assert len(json.loads(cli.ok(*arguments, "--json"))["pieces"]) == 3
    assert "--policies: the model is cut into 3 pieces" in cli(*arguments, "--json", "--policies", "plain").refusal
    assert "run.svg: the model is cut into 3 pieces" in cli(*arguments, "-o", tmp_path / "run.svg").refusal
    assert "--serve: the model is cut into 3 pieces" in cli(*arguments, "--serve").refusal


def test_what_cannot_be_done_is_one_line(cli: Command, tiny: Path, tmp_path: Path) -> None:
    assert "ends in .html" in cli("show", tiny, "-o", tmp_path / "page.pdf").refusal
    assert "no folder" in cli("show", tiny, "-o", tmp_path / "none" / "page.html").refusal
    assert "pin nonesuch=nhwc" in cli("show", tiny, "--pin", "nonesuch=nhwc", "-o", tmp_path / "page.html").refusal
    assert (
        "no layout policy 'nonesuch'"
        in cli("show", tiny, "--policies", "nonesuch", "-o", tmp_path / "page.html").refusal
    )
    assert "at least 0" in cli("show", tiny, "--runs", "many").refusal
    assert "--port is for --serve" in cli("show", tiny, "--port", 80).refusal
    for more in (("-o", tmp_path / "page.html"), ("--json",), ("--plan", tmp_path / "plan.json")):
        assert f"leave out {more[0]}" in cli("show", tiny, "--serve", *more).refusal
    assert "--port 70000" in cli("show", tiny, "--serve", "--runs", 0, "--port", 70_000).refusal
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.onnx"]


def test_it_serves_until_it_is_interrupted(tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "blocklayout", "show", str(tiny), "--serve", "--runs", "1", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert '"served":true' in answer.read().decode()
            base, token = address.split("?token=")
            body = json.dumps({"pins": {"first": "nhwc"}, "token": token}).encode()
            request = urllib.request.Request(f"{base}plan", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                made = json.loads(answer.read())
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "")
    assert [pin["wanted"] for pin in made["plan"]["pins"]] == ["nhwc"]
    assert made["profile"]["n_runs"] == made["in_turn"]["n_rounds"] == 1
    assert made["changes"].keys() == {"kernels", "reorders_gone", "reorders_new"}
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.onnx"]


def test_the_record_says_what_was_asked_for(cli: Command, tiny: Path) -> None:
    record = cli("show", str(tiny), "--runs", "0", "--threads", "1", "--json").json
    assert record["source"] == str(tiny)
    assert record["threads"] == 1
    assert record["profile"] is None
    assert [each["op_type"] for each in record["nodes"]]


def test_pins_are_in_the_record_with_the_kernel_that_has_them(cli: Command) -> None:
    shape = ("--shape", "x=1x3x64x64")
    options = ("--runs", "0", "--tune", "model", "--json")
    record = cli("show", "zoo:squeezenet1_1", *shape, "--pin", "fire2.conv1=nhwc", *options).json
    assert record["plan"]["pins"] == [{"key": "fire2.conv1", "wanted": "nhwc", "kernel": "fire2.conv1"}]
    assert record["shapes"] == [{"name": "x", "dims": [1, 3, 64, 64]}]
