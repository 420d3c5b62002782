"""A saved session computes what the first one did, without the model; what is damaged or does not fit is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors import safe_open

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl.memory import ALIGNMENT
from blocklayout.loading.saved_session import VERSION
from blocklayout.tensor.tensor_file import open_tensors
from tests import nets

NETS: dict[str, Callable[[], bl.Builder]] = {
    "chain": nets.chain,
    "odd": lambda: nets.residual(channels=17, batch=3),
    "mobile": nets.mobile,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved session of a small network."""
    path = tmp_path / "net.bl"
    bl.load(nets.residual()).save(path)
    return path


def of_any_batch() -> onnx.ModelProto:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 16, 8, 8)).conv(np.ones((16, 16, 3, 3), np.float32), pads=1))
    proto = b.to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("layout", ["auto", "blocked", "nhwc"])
def test_it_computes_the_same(name: str, layout: str, tmp_path: Path) -> None:
    session = bl.load(NETS[name](), layout=layout)
    session.save(tmp_path / "net.bl")
    again = bl.load(tmp_path / "net.bl")
    assert again.plan == session.plan
    assert (again.get_inputs(), again.get_outputs()) == (session.get_inputs(), session.get_outputs())
    feed = nets.feed_of(session)
    np.testing.assert_array_equal(again.run(None, feed)[0], session.run(None, feed)[0])


def test_neither_the_model_nor_onnx_is_needed(file: Path) -> None:
    script = (
        "import sys, numpy as np, blocklayout as bl\n"
        f"session = bl.load({str(file)!r})\n"
        "[info] = session.get_inputs()\n"
        "session.run(None, {info.name: np.ones(info.shape, np.float32)})\n"
        "assert not {'onnx', 'google.protobuf', 'safetensors'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_others_can_read_the_file(file: Path) -> None:
    with safe_open(file, "numpy") as opened:
        names = list(opened.keys())
        assert names
        assert json.loads(opened.metadata()["blocklayout"])["version"] == VERSION
    tensors = open_tensors(file).tensors
    assert set(tensors) == set(names)
    assert all(tensor.ctypes.data % ALIGNMENT == 0 and not tensor.flags.writeable for tensor in tensors.values())


def test_plans_share_their_weights(tmp_path: Path) -> None:
    session = bl.load(of_any_batch(), layout="nhwc")
    feeds = [{"x": np.full((n, 16, 8, 8), n, np.float32)} for n in (1, 3)]
    expected = [session.run(None, feed)[0] for feed in feeds]
    session.save(tmp_path / "net.bl")
    assert len(open_tensors(tmp_path / "net.bl").tensors) == 1
    again = bl.load(tmp_path / "net.bl")
    for feed, array in zip(feeds, expected, strict=True):
        np.testing.assert_array_equal(again.run(None, feed)[0], array)
    with pytest.raises(bl.PlanError, match="no plan for x 2x16x8x8: load the model itself"):
        again.run(None, {"x": np.ones((2, 16, 8, 8), np.float32)})


def test_constants_contents_and_formats_come_back(tmp_path: Path) -> None:
    b = bl.Builder()
    x = b.input("x", (1, 8, 6, 6))
    b.output("y", x.relu())
    b.output("c", b.op("Identity", b.constant(np.arange(3, dtype=np.int64))))
    session = bl.load(b, io_layout={"x": "nhwc", "y": "nChw8c"})
    session.save(tmp_path / "net.bl")
    again = bl.load(tmp_path / "net.bl", io_layout={"x": "nhwc", "y": "nChw8c"})
    image = np.random.default_rng(0).standard_normal((1, 6, 6, 8), dtype=np.float32)
    y, c = again.run(None, {"x": image})
    assert y.desc.layout == session.run(["y"], {"x": image})[0].desc.layout
    np.testing.assert_array_equal(y.numpy(), np.maximum(image, 0).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(c, np.arange(3))


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_plain_steps_run(tmp_path: Path) -> None:
    b = bl.Builder()
    b.output("y", b.op("Tan", b.input("x", (2, 3))))
    bl.load(b).save(tmp_path / "net.bl")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(bl.load(tmp_path / "net.bl")(x), np.tan(x), rtol=1e-6)


def test_without_a_plan_there_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(bl.PlanError, match="no plan yet"):
        bl.load(of_any_batch()).save(tmp_path / "net.bl")
    with pytest.raises(bl.PlanError, match="cannot be saved as"):
        bl.load(nets.chain()).save(tmp_path / "none" / "net.bl")
    assert not list(tmp_path.iterdir())


def test_it_runs_in_streams_as_wide_as_its_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.bl"
    bl.load(nets.chain(), streams=2, threads=2).save(path)
    feed = {"x": nets.random_input((1, 17, 12, 12))}
    expected = bl.load(path).run(None, feed)[0]
    for threads in (2, 3):
        with bl.load(path, streams=2, threads=threads) as session:
            futures = [session.submit(feed) for _ in range(6)]
            assert all(np.array_equal(future.result()[0], expected) for future in futures)
    with pytest.raises(bl.PlanError, match=r"threads=1, and threads=2 is asked for for each of 2 streams"):
        bl.load(path, streams=2, threads=4)
    monkeypatch.setattr(dnnl, "default_threads", lambda: 3)
    bl.load(nets.chain(), threads=3).save(path)
    with pytest.raises(bl.PlanError, match=r"for 3 threads, and for 6 in 2 streams; this process may use 3.*threads=6"):
        bl.load(path, streams=2)
    with bl.load(path, streams=2, threads=6) as session:
        np.testing.assert_allclose(session.submit(feed).result()[0], expected, rtol=1e-4, atol=1e-4)


def test_a_saved_plan_says_how_wide_streams_are(tmp_path: Path) -> None:
    path = tmp_path / "net.plan"
    bl.load(nets.chain(), streams=2, threads=2).plan.save(path)
    with bl.load(nets.chain(), streams=2, threads=2, plan=path) as session:
        assert session.plan.n_threads == 1
    with pytest.raises(bl.PlanError, match="asked for for each of 2 streams"):
        bl.load(nets.chain(), streams=2, threads=4, plan=path)


# What does not fit.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "nhwc"}, "layout='nhwc' is asked for"),
        ({"threads": 7}, "threads=7 is asked for"),
        ({"dtype": "bf16"}, "dtype='bf16' (is asked for|needs a CPU)"),
        ({"pin": {"stem": "chwn"}}, "stem=chwn is asked for"),
        ({"expect": {"nothing": "nhwc"}}, "nothing"),
    ],
)
def test_other_terms_are_refused(file: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((bl.PlanError, bl.UnsupportedError), match=message):
        bl.load(file, **arguments)


def test_another_library_or_machine_is_refused_or_planned_anew(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dnnl, "version", lambda: (3, 9, 9))
    with pytest.raises(bl.PlanError, match=r"net\.bl: the plan was made with oneDNN 3\.2\.\d; this is oneDNN 3\.9\.9"):
        bl.load(file)
    with pytest.raises(bl.PlanError, match=r"3\.9\.9"):
        bl.load(file, on_misfit="replan")  # of what?
    with pytest.warns(bl.PlanMisfitWarning, match=r"3\.9\.9"):
        session = bl.load(file, on_misfit="replan", original=nets.residual())
    assert session.plan.library == "3.9.9"


# What is damaged.


def damaged(file: Path, change: Callable[[bytearray], object]) -> Path:
    contents = bytearray(file.read_bytes())
    change(contents)
    file.write_bytes(contents)
    return file


def test_every_byte_that_is_missing_is_missed(file: Path) -> None:
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for length in {9, 100, len(whole) - 1, *rng.integers(9, len(whole), 30).tolist()}:
        file.write_bytes(whole[:length])
        with pytest.raises(bl.ModelError):
            bl.load(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(bl.ModelError, match="truncated, or longer"):
        bl.load(file)


def test_a_changed_weight_is_found_unless_nobody_looks(file: Path) -> None:
    damaged(file, lambda contents: contents.__setitem__(-100, contents[-100] ^ 1))
    with pytest.raises(bl.ModelError, match="damaged: its checksum is not"):
        bl.load(file)
    bl.load(file, verify=False)


def test_no_change_of_the_header_crashes(file: Path) -> None:
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(1)
    n_refused = 0
    for place in rng.integers(0, 8 + length, 300):
        contents = bytearray(whole)
        contents[place] ^= 1 << int(rng.integers(0, 7))
        file.write_bytes(contents)
        try:
            session = bl.load(file)
            session.run(None, nets.feed_of(session))
        except bl.BlockLayoutError:
            n_refused += 1
    assert n_refused > 250  # spaces that fill the header up say nothing


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version":8}', '"version":10}', "it is of version 10, and 8 is read"),
        ('"version":8}', '"version":6}', "it is of version 6, and 8 is read: save it again"),
        ('"inputs":[{', '"inputs":[{"more":1,', "plan"),
    ],
)
def test_other_versions_are_refused(file: Path, old: str, new: str, message: str) -> None:
    tensors = open_tensors(file)
    text = tensors.text.replace(old, new, 1)
    assert text != tensors.text
    from blocklayout.tensor.tensor_file import write_tensors

    held = {name: np.array(tensor) for name, tensor in tensors.tensors.items()}
    write_tensors(file, text, held)
    if message == "plan":
        bl.load(file)  # fields that nobody knows say nothing
    else:
        with pytest.raises(bl.ModelError, match=message):
            bl.load(file)


def _constant_of(plan: dict[str, Any]) -> int:
    """The largest constant: whatever is put to it fits."""
    places = [place for place, buffer in enumerate(plan["buffers"]) if buffer["kind"] == "constant"]
    return max(places, key=lambda place: int(plan["buffers"][place]["nbytes"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan["buffers"][0].update(offset=2**50), r"buffers\.0"),
        (lambda plan: plan["buffers"][0].update(offset=-64), r"buffers\.0"),
        (lambda plan: plan.update(arena_nbytes=64), "buffers"),
        (lambda plan: plan.update(arena_nbytes=2**60), "arena_nbytes"),
        (lambda plan: plan["steps"][0].update(scratchpad_nbytes=2**40), "scratchpad_nbytes"),
        (lambda plan: plan["results"][0].update(buffer=999), r"results\.scores\.buffer"),
        (lambda plan: plan["results"][0].update(shape=[-1, 10]), r"results\.scores\.shape"),
        (lambda plan: plan["results"][0].update(shape=[1, 1]), r"results\.scores\.shape"),
        (
            lambda plan: plan["entries"][0].update(buffer=_constant_of(plan)),
            r"entries\..*of kind constant; it must be entry",
        ),
        (lambda plan: plan["results"][0].update(buffer=_constant_of(plan)), r"results\..*of kind constant; it must be"),
        (lambda plan: plan.update(inputs=[]), "inputs or outputs differ"),
        (lambda plan: plan["steps"][0]["operands"][0][1].update(buffer=-1), r"steps\.0"),
    ],
)
def test_a_plan_that_reaches_too_far_is_refused(
    file: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    from blocklayout.tensor.tensor_file import write_tensors

    tensors = open_tensors(file)
    told = json.loads(tensors.text)
    change(told["plans"][0]["plan"])
    held = {name: np.array(tensor) for name, tensor in tensors.tensors.items()}
    write_tensors(file, json.dumps(told), held)
    with pytest.raises(bl.PlanError, match=message):
        bl.load(file)


def test_several_processes_share_the_pages(file: Path) -> None:
    session = bl.load(file)
    session.run(None, nets.feed_of(session))
    smaps = Path("/proc/self/smaps").read_text(encoding="utf-8")
    mapping = next(part for part in smaps.split("VmFlags:") if str(file) in part)
    lines = mapping[mapping.index(str(file)) :].splitlines()
    private = {line.split()[0]: int(line.split()[1]) for line in lines[1:] if line.endswith("kB")}
    assert private["Private_Dirty:"] == 0
    del session
    assert os.access(file, os.R_OK)
