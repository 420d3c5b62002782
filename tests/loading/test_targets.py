"""A session file for several instruction sets: each CPU takes its own, lower ones are made apart, others merged in."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.loading.saved_session import plans_of, read_parts, record_of
from blocklayout.tensor.tensor_file import open_tensors, write_tensors
from tests import nets
from tests.loading.test_saved_sessions import of_any_batch
from tests.ops import test_control_flow

LOWEST = "sse41"
TARGETS = tuple(dict.fromkeys((LOWEST, dnnl.isa())))
FUTURE = "avx10_1_512"
"""An instruction set that no CPU here has, nor the library."""

OTHER_MACHINE = """
import pickle, sys
import numpy as np
import blocklayout as bl
for path, feeds, outputs in pickle.load(sys.stdin.buffer):
    session = bl.load(path)
    assert {plan.isa for plan in session.plans} == {"sse41"}, path
    for feed, output in zip(feeds, outputs, strict=True):
        np.testing.assert_allclose(session.run(None, feed)[0], output, rtol=1e-4, atol=1e-4)
"""

needs_others = pytest.mark.skipif(dnnl.isa() == LOWEST, reason="there is no lower instruction set than this CPU's")


def saved(path: Path, source: Any = None) -> Path:
    """A session for this CPU."""
    with bl.load(source or nets.residual(), threads=1, tune="model") as session:
        session.save(path)
    return path


def reshaping() -> onnx.ModelProto:
    """A convolution, whose weights have a default, and a Reshape to extents that are fed."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Reshape", ["c", "s"], ["y"])]
    given = {
        "x": (TensorProto.FLOAT, (1, 3, 8, 8)),
        "w": (TensorProto.FLOAT, (8, 3, 3, 3)),
        "s": (TensorProto.INT64, (2,)),
    }
    inputs = [helper.make_tensor_value_info(name, *each) for name, each in given.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")]
    graph = helper.make_graph(nodes, "reshaping", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def moved(file: Path, path: Path, isa: str = FUTURE) -> Path:
    """A session as another machine would have written it."""
    tensors = open_tensors(file)
    record = json.loads(tensors.text)
    for each in record["plans"]:
        each["plan"]["config"]["isa"] = isa
    write_tensors(path, json.dumps(record), {name: np.array(array) for name, array in tensors.tensors.items()})
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A session for this CPU, and one for those of the future, which packs the same weights but for the first."""
    own = saved(tmp_path / "own")
    other = moved(own, tmp_path / "other")
    tensors = open_tensors(other)
    held = {name: np.array(array) for name, array in tensors.tensors.items()}
    held[next(iter(held))][:4] ^= 1
    write_tensors(other, tensors.text, held)
    bl.merge_sessions([own, other], tmp_path / "net.session")
    return tmp_path / "net.session"


def place(file: Path, name: str) -> int:
    """The first byte of a tensor in a file."""
    contents = file.read_bytes()
    length = int.from_bytes(contents[:8], "little")
    return 8 + length + int(json.loads(contents[8 : 8 + length])[name]["data_offsets"][0])


def flip(file: Path, at: int) -> None:
    contents = bytearray(file.read_bytes())
    contents[at] ^= 1
    file.write_bytes(contents)


def changed(file: Path, change: Any) -> None:
    """Change what a file says of its sessions, checksums and all."""
    tensors = open_tensors(file)
    record = json.loads(tensors.text)
    change(record)
    write_tensors(file, json.dumps(record), {name: np.array(array) for name, array in tensors.tensors.items()})


def check(session: bl.Session) -> None:
    with bl.load(nets.residual(), threads=1, tune="model") as first:
        feed = nets.feed_of(first)
        np.testing.assert_array_equal(session.run(None, feed)[0], first.run(None, feed)[0])


# What is made here.


def test_each_cpu_takes_its_own_plans(tmp_path: Path, tree_environ: dict[str, str]) -> None:
    rng = np.random.default_rng(0)
    loop = test_control_flow.CASES["Loop"]
    batches = [{"x": rng.standard_normal((n, 16, 8, 8), dtype=np.float32)} for n in (1, 3)]
    x = rng.standard_normal((1, 3, 8, 8), dtype=np.float32)
    deciding = [{"x": x, "s": np.array([1, -1])}, {"x": x, "s": np.array([2, -1])}]
    cases: list[tuple[Any, Sequence[Any], dict[str, Any]]] = [
        (reshaping(), [*deciding, deciding[0] | {"w": -np.ones((8, 3, 3, 3), np.float32)}], {}),
        (of_any_batch(), batches, {}),
        (loop.model(), loop.feeds[:1], {"feeds": loop.feeds[:1]}),
    ]
    told = []
    for number, (model, feeds, options) in enumerate(cases):
        path = tmp_path / f"{number}.session"
        with bl.load(model, threads=1, tune="model") as session:
            outputs = [session.run(None, feed)[0] for feed in feeds]
            session.save(path, targets=TARGETS, **options)
        with bl.load(path) as again:
            assert {plan.isa for plan in again.plans} == {dnnl.isa()}
            assert all(np.array_equal(again.run(None, feed)[0], y) for feed, y in zip(feeds, outputs, strict=True))
        told.append((path, feeds, outputs))
    assert len(list(tmp_path.iterdir())) == len(cases)
    subprocess.run(
        [sys.executable, "-c", OTHER_MACHINE],
        input=pickle.dumps(told),
        env=tree_environ | {"ONEDNN_MAX_CPU_ISA": LOWEST.upper()},
        check=True,
        timeout=120,
    )


def test_proofs_ranges_and_own_targets_come_along(tmp_path: Path) -> None:
    ranges = {"x": ((1, 4), 16, 8, 8)}
    with bl.load(of_any_batch(), threads=1, tune="model", shapes=ranges, batching=(4, 1)) as session:
        session.warm_up()
        session.save(tmp_path / "net.session", targets=TARGETS)
    records = {isa: record_of(part) for isa, part in read_parts(tmp_path / "net.session")}
    assert tuple(records) == TARGETS
    assert len({(record.signature.rows, record.signature.inputs) for record in records.values()}) == 1
    assert len({frozenset(each.shapes for each in record.plans) for record in records.values()}) == 1
    assert all({each.plan.isa for each in plans_of(record)} == {isa} for isa, record in records.items())
    with bl.load(tmp_path / "net.session", batching=(4, 1)) as again:
        assert again.submit({"x": np.ones((16, 8, 8), np.float32)}).result()[0].shape == (16, 8, 8)


@needs_others
def test_what_another_process_says_is_said_here(tmp_path: Path) -> None:
    b = bl.Builder()
    b.output("y", b.op("Det", b.input("x", (2, 3, 3))))
    with pytest.warns(bl.PlainKernelWarning), bl.load(b, threads=1, tune="model") as session:
        pass
    with pytest.warns(
        bl.PlainKernelWarning,
        match=r"target sse41: .*no primitive computes",
    ):
        session.save(tmp_path / "net.session", targets=(LOWEST,))


@needs_others
@pytest.mark.needs_bf16
def test_what_another_instruction_set_cannot_is_refused(tmp_path: Path) -> None:
    with (
        bl.load(nets.chain(), dtype="bf16", threads=1, tune="model") as session,
        pytest.raises(bl.UnsupportedError, match="target sse41: dtype='bf16' needs"),
    ):
        session.save(tmp_path / "net.session", targets=(LOWEST,))
    assert not list(tmp_path.iterdir())


@needs_others
def test_what_no_other_process_can_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.session"
    with bl.load(nets.chain(), pin=lambda _: None, threads=1) as session:
        with pytest.raises(bl.PlanError, match="functions decide pins"):
            session.save(path, targets=(LOWEST,))
        session.save(path, targets=(dnnl.isa(),))  # nor has any to
    loop = test_control_flow.CASES["Loop"]
    with bl.load(loop.model(), threads=1) as session:
        session.run(None, loop.feeds[0])
        with pytest.raises(bl.PlanError, match=r"the model is in pieces, .* give feeds="):
            session.save(path, targets=(LOWEST,))


@pytest.mark.parametrize("targets", [LOWEST, (), (LOWEST, LOWEST), ("mmx",), 3, (["avx2"],)])
def test_targets_are_names_of_instruction_sets(targets: Any, tmp_path: Path) -> None:
    with bl.load(nets.chain()) as session, pytest.raises(bl.InputError, match="give some of sse41, avx, avx2,"):
        session.save(tmp_path / "net.session", targets=targets)


def test_nothing_is_packed_for_what_this_cpu_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bl.load(nets.chain()) as session:
        monkeypatch.setattr(dnnl, "has_isa", lambda isa: isa != "avx512_core_amx")
        with pytest.raises(bl.UnsupportedError, match=r"target avx512_core_amx: .* bl\.merge_sessions"):
            session.save(tmp_path / "net.session", targets=("avx512_core_amx",))


def test_a_saved_session_makes_no_plans_for_others(file: Path) -> None:
    with bl.load(file) as session, pytest.raises(bl.PlanError, match="load the model to plan for others"):
        session.save(file, targets=TARGETS)


# What is in the file.


def test_weights_that_are_alike_are_there_once(file: Path) -> None:
    n_own = len(open_tensors(file.with_name("own")).tensors)
    names = open_tensors(file).tensors
    assert len(names) == n_own + 1 + 2  # one that differs, and the records
    assert [isa for isa, _ in read_parts(file)] == [dnnl.isa(), FUTURE]


@pytest.mark.parametrize("mapped", [True, False])
def test_nothing_of_others_is_read(file: Path, *, mapped: bool) -> None:
    [differs] = [name for name in open_tensors(file).tensors if name.startswith(f"{FUTURE}/")]
    for name in (FUTURE, differs):
        flip(file, place(file, name))
    with bl.load(file, mapped=mapped) as session:
        check(session)
    with pytest.raises(bl.ModelError, match="damaged: its checksum is not"):
        bl.merge_sessions([file], file.with_name("again"))


def test_where_nothing_fits_both_sides_are_named(file: Path) -> None:
    parts = [moved(file.with_name("own"), file.with_name(isa), isa) for isa in (FUTURE, "avx10_2")]
    bl.merge_sessions(parts, file)
    with pytest.raises(
        bl.PlanError, match=rf"net\.session: .* for CPUs with {FUTURE}, avx10_2; this one runs {dnnl.isa()}"
    ):
        bl.load(file)
    with (
        pytest.warns(bl.PlanMisfitWarning, match=FUTURE),
        bl.load(file, on_misfit="replan", original=nets.residual(), threads=1, tune="model") as session,
    ):
        check(session)


# Several files.


def test_files_of_several_are_merged_again_and_in_place(file: Path) -> None:
    bl.merge_sessions([moved(file.with_name("own"), file.with_name("third"), "avx10_2"), file], file)
    assert [isa for isa, _ in read_parts(file)] == ["avx10_2", dnnl.isa(), FUTURE]
    with bl.load(file) as session:
        check(session)


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (lambda own, path: moved(own, path, dnnl.isa()), bl.InputError, "another one of the files is for CPUs with"),
        (lambda _, path: moved(saved(path, nets.chain()), path), bl.PlanError, "differ in their models, inputs"),
        (lambda own, path: path.write_bytes(own.read_bytes()[:-64]), bl.ModelError, "truncated"),
        (lambda own, path: path.write_bytes(b"\0" + own.read_bytes()), bl.ModelError, "truncated|header"),
        (lambda _, path: bl.zeros((2, 3)).save(path), bl.ModelError, "not a session"),
        (lambda _, path: path.unlink(missing_ok=True), bl.ModelError, "no session can be read from"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(other: Any, error: Any, message: str, tmp_path: Path) -> None:
    own, path = saved(tmp_path / "own"), tmp_path / "other"
    other(own, path)
    with pytest.raises(error, match=message):
        bl.merge_sessions([own, path], tmp_path / "net.session")
    assert not (tmp_path / "net.session").exists()


@pytest.mark.parametrize("sources", [(), "net.session", Path("net.session")])
def test_several_files_are_given_as_a_list(sources: Any, tmp_path: Path) -> None:
    with pytest.raises(bl.InputError, match="sources: give the paths of saved sessions"):
        bl.merge_sessions(sources, tmp_path / "net.session")


def test_a_file_that_cannot_be_written_is_told(file: Path) -> None:
    with pytest.raises(bl.PlanError, match="cannot be saved as"):
        bl.merge_sessions([file], file.with_name("none") / "net.session")


# What is damaged.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.pop("targets"), "targets: it is missing"),
        (lambda record: record.update(targets=5), "targets: Expected"),
        (lambda record: record["targets"][dnnl.isa()].update(record="none"), "there is no tensor none"),
        (lambda record: record["targets"][dnnl.isa()]["tensors"].popitem(), "there is no tensor"),
        (lambda record: record["targets"][dnnl.isa()]["tensors"].update(more="none"), "there is no tensor none"),
        (lambda record: record["targets"][dnnl.isa()].update(record=f"{FUTURE}"), f"for CPUs with {FUTURE}"),
        (
            lambda record: record["targets"][dnnl.isa()].update(
                record=next(iter(record["targets"][dnnl.isa()]["tensors"].values()))
            ),
            "no text|not a session of this version",
        ),
        (lambda record: record["targets"].update({"__metadata__": record["targets"][dnnl.isa()]}), "not a session"),
        (lambda record: record.update(targets={}), "for CPUs with no instruction set"),
        (lambda record: record.update(version=7), "not a session of this version|of version 7"),
    ],
)
def test_what_it_says_of_its_sessions_is_checked(change: Any, message: str, file: Path) -> None:
    changed(file, change)
    with pytest.raises((bl.ModelError, bl.PlanError), match=message):
        bl.load(file)


def test_a_damaged_record_is_found_even_if_nobody_compares_weights(file: Path) -> None:
    flip(file, place(file, dnnl.isa()) + 20)
    with pytest.raises(bl.ModelError, match="damaged: its checksum is not"):
        bl.load(file, verify=False)


@pytest.mark.parametrize("mapped", [True, False])
def test_every_byte_that_is_missing_is_missed(file: Path, *, mapped: bool) -> None:
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for length in {9, 100, len(whole) - 1, *rng.integers(9, len(whole), 20).tolist()}:
        file.write_bytes(whole[:length])
        with pytest.raises(bl.ModelError):
            bl.load(file, mapped=mapped)
