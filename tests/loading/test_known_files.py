"""A file that was loaded before is run from its bytes and a remembered plan, and answers the same to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import zoo
from blocklayout.model.model_file import ModelFile
from blocklayout.model.origins import FileBytes, origins_of, scaled
from blocklayout.plan.costs import store as cost_store
from blocklayout.plan.plan_store import DIGEST_NBYTES, checksum, plan_store_path
from tests import nets

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def n_looked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the network of a file was looked at."""
    looked: list[None] = []
    prop: Any = ModelFile.model

    def counting(file: ModelFile) -> Any:
        if file._model is None:
            looked.append(None)
        return prop.fget(file)

    monkeypatch.setattr(ModelFile, "model", property(counting))
    return lambda: len(looked)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with weights that lie in its file as they are, scaled, transposed, and computed."""
    rng = np.random.default_rng(0)
    b = bl.Builder("mixed")
    x = b.input("x", (1, 16, 8, 8))
    y = x.conv(nets.he(rng, 32, 16, 3, 3), pads=1).batch_norm(*rng.uniform(0.5, 2, (4, 32)).astype(np.float32)).relu()
    y = y.conv(nets.he(rng, 32, 4, 3, 3), pads=1, group=8) + rng.standard_normal((32, 1, 1)).astype(np.float32)
    y = b.op("Flatten", b.op("GlobalAveragePool", y))
    b.output("y", b.op("Gemm", y, rng.standard_normal((64, 32)).astype(np.float32), transB=1))
    b.output("known", b.op("Transpose", rng.standard_normal((40, 30)).astype(np.float32), perm=(1, 0)))
    bl.save(b, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def feed_of(session: bl.Session) -> dict[str, np.ndarray]:
    return nets.feed_of(session)


def outputs(session: bl.Session) -> list[np.ndarray]:
    return session.run(None, feed_of(session))


def assert_same(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_second_load_does_not_look_at_the_network(path: Path, n_looked: Callable[[], int]) -> None:
    first = bl.load(path)
    assert n_looked() == 1
    second = bl.load(path)
    assert n_looked() == 1
    assert second.plan == first.plan
    assert (second.get_inputs(), second.get_outputs()) == (first.get_inputs(), first.get_outputs())
    assert_same(outputs(second), outputs(first))
    assert second.memory().originals_nbytes == 0


@pytest.mark.parametrize(
    ("name", "variant", "dtype"),
    [
        ("resnet18", {"blocks": (2, 1)}, "f32"),
        ("mobilenet_v2", {"stacks": ((1, 16, 1, 1), (6, 24, 2, 2))}, "f32"),
        ("convnext_tiny", {"blocks": (1, 1), "channels": (24, 40)}, "f32"),
        pytest.param(
            *("mobilenet_v2", {"stacks": ((1, 16, 1, 1), (6, 24, 2, 2))}, "bf16"), marks=pytest.mark.needs_bf16
        ),
    ],
)
def test_networks_answer_the_same(
    name: str, variant: dict[str, Any], dtype: str, tmp_path: Path, n_looked: Callable[[], int]
) -> None:
    bl.save(zoo.build(name, size=64, **variant), tmp_path / "model.onnx")
    first = bl.load(tmp_path / "model.onnx", dtype=dtype)
    second = bl.load(tmp_path / "model.onnx", dtype=dtype)
    assert n_looked() == 1
    assert_same(outputs(second), outputs(first))


def test_another_process_takes_neither_onnx_nor_what_plans(path: Path, tree_environ: dict[str, str]) -> None:
    text = (
        "import sys, blocklayout as bl, numpy as np; s = bl.load(sys.argv[1]); s(np.ones((1, 16, 8, 8), np.float32));"
        "print(*(name for name in sys.modules if name.split('.')[0] == 'onnx'"
        " or name.startswith(('blocklayout.model.passes', 'blocklayout.ops', 'blocklayout.plan.solving'))))"
    )
    command = [sys.executable, "-c", text, str(path)]
    told = [subprocess.run(command, check=True, capture_output=True, text=True, env=tree_environ) for _ in range(2)]
    assert told[0].stdout.split()
    assert told[1].stdout.split() == []


def test_other_contents_are_another_model(path: Path, n_looked: Callable[[], int]) -> None:
    right = outputs(bl.load(path))
    proto = onnx.load(path)
    proto.graph.initializer[0].raw_data = np.negative(
        np.frombuffer(proto.graph.initializer[0].raw_data, np.float32)
    ).tobytes()
    status = path.stat()
    onnx.save(proto, path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not np.array_equal(outputs(bl.load(path))[0], right[0])
    assert n_looked() == 2


def test_the_same_contents_elsewhere_are_the_same_model(path: Path, n_looked: Callable[[], int]) -> None:
    bl.load(path)
    bl.load(path.rename(path.with_name("other.onnx")))
    assert n_looked() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "nhwc"},
        {"threads": 1},
        {"recipes": {"winograd": False}},
        {"io_layout": {"x": "nhwc"}},
        {"tune": "model"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_other_options_are_another_load(options: dict[str, Any], path: Path, n_looked: Callable[[], int]) -> None:
    bl.load(path, threads=2)
    bl.load(path, **options)
    assert n_looked() == 2


def test_nothing_is_remembered_for_the_model_alone(path: Path, n_looked: Callable[[], int]) -> None:
    bl.load(path, tune="model")
    assert not plan_store_path().exists()
    bl.load(path, tune="model")
    assert n_looked() == 2


def test_other_extents_take_the_network(tmp_path: Path, n_looked: Callable[[], int]) -> None:
    onnx.save(nets.free_model(), tmp_path / "model.onnx")
    x, wide = nets.random_input((1, 3, 16, 16)), nets.random_input((20, 3, 16, 16))  # too many to take x's layouts
    first = bl.load(tmp_path / "model.onnx")
    right = first(x), first(wide)
    assert n_looked() == 2  # its weights were let go between
    again = bl.load(tmp_path / "model.onnx")
    assert_same([again(x)], [right[0]])
    assert n_looked() == 2
    assert_same([again(wide)], [right[1]])
    assert n_looked() == 2
    again(nets.random_input((3, 3, 16, 16)))
    assert n_looked() == 3
    assert again.memory().n_plans == 3
    assert bl.load(tmp_path / "model.onnx").get_inputs()[0].shape == first.get_inputs()[0].shape


def test_extents_are_remembered_apart(tmp_path: Path, n_looked: Callable[[], int]) -> None:
    onnx.save(nets.free_model(), tmp_path / "model.onnx")
    for _ in range(2):
        for batch in (1, 2):
            bl.load(tmp_path / "model.onnx", shapes={"x": (batch, 3, 16, 16)})
    assert n_looked() == 2


def test_weights_in_other_files_are_read_each_time(tmp_path: Path) -> None:
    proto = nets.free_model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    x = nets.random_input((1, 3, 16, 16))
    before = bl.load(tmp_path / "model.onnx")(x)
    weights = np.fromfile(tmp_path / "weights", np.float32)
    (weights * 2).tofile(tmp_path / "weights")
    assert not np.array_equal(bl.load(tmp_path / "model.onnx")(x), before)


def test_expectations_are_held_against_what_is_known(path: Path) -> None:
    name = bl.load(path).plan.results[0].name
    with pytest.raises(bl.PlanError, match="nChw4c"):
        bl.load(path, expect={name: "ab"} | {name: "nChw4c"})


def test_a_plan_that_was_forgotten_is_made_anew(path: Path, n_looked: Callable[[], int]) -> None:
    right = outputs(bl.load(path))
    largest = max(plan_store_path().iterdir(), key=lambda file: file.stat().st_size)
    largest.unlink()
    assert_same(outputs(bl.load(path)), right)
    assert n_looked() == 2


def test_damage_is_told_and_the_network_looked_at(path: Path, n_looked: Callable[[], int]) -> None:
    right = outputs(bl.load(path))
    for file in plan_store_path().iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bl.PlanStoreWarning)
        assert_same(outputs(bl.load(path)), right)
    assert n_looked() == 2


def test_origins_make_each_view_and_product_again() -> None:
    file = FileBytes(4096, np.uint8)
    file[:] = np.random.default_rng(0).integers(0, 255, 4096)
    weights = np.frombuffer(file.data[3:1539], np.float16).astype(np.float32)  # of its own
    inside = np.frombuffer(file.data[1:3073], np.int32).reshape(8, 4, 24)
    product = scaled(inside.astype(np.float32), np.ones(24))
    lying = scaled(np.frombuffer(file.data[:1536], np.int16).reshape(4, 192), np.full((4, 1), 0.3))
    arrays = {
        "own": weights,
        "inside": inside,
        "moved": inside.transpose(2, 0, 1)[::2, 1:],
        "product of its own": product,
        "lying": lying.T[5:, ::3],
        "backwards": inside[::-1],
        "empty": inside[:0],
    }
    found = origins_of(arrays)
    assert found is not None
    kinds = {name: type(origin).__name__ for name, origin in found.items()}
    assert [kinds[name] for name in ("inside", "moved", "lying")] == ["Part", "Part", "Product"]
    assert {kinds[name] for name in ("own", "product of its own", "backwards", "empty")} == {"Copy"}
    for name, array in arrays.items():
        made = found[name].array(file.data)
        np.testing.assert_array_equal(made, array)
        assert made.dtype == array.dtype


def test_what_would_take_too_much_room_is_not_kept() -> None:
    assert origins_of({"large": np.zeros(5 << 20, np.uint8)}) is None


def _beyond(known: dict[str, Any]) -> None:
    """A constant that lies behind the end of the file."""
    next(each for each in known["constants"].values() if each["type"] == "Part")["offset"] = 1 << 40


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("demanded", _beyond, "does not lie in"),
        ("demanded", lambda known: known["constants"].popitem(), "for other extents of"),
        ("steps", lambda plan: plan["entries"][0].update(input="z"), "inputs or outputs differ"),
        ("steps", lambda plan: plan["results"][0].update(name="z"), "inputs or outputs differ"),
        ("steps", lambda plan: plan["steps"][0]["operands"][0][1].update(buffer=999), "buffer is 999"),
    ],
)
def test_what_does_not_fit_is_told_and_made_anew(
    field: str, change: Any, message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_store, "_reported", set())
    right = outputs(bl.load(path))
    for file in plan_store_path().iterdir():
        table, kept = msgspec.msgpack.decode(file.read_bytes()[DIGEST_NBYTES:])
        if field in kept:
            change(kept)
            body = msgspec.msgpack.encode((table, kept))
            file.write_bytes(checksum(file.stem, body) + body)
    with pytest.warns(bl.PlanStoreWarning, match=message):
        assert_same(outputs(bl.load(path)), right)
