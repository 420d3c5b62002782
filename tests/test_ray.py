"""Models over Ray Datasets, on a cluster of two nodes on this machine; skipped where Ray is not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.plan.costs.store import CostStore, cost_store_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of which it has many

ray = pytest.importorskip("ray", reason="Ray is not installed")
ray_data = pytest.importorskip("ray.data", reason="Ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")

STORE_NBYTES = 100 << 20  # the least that Ray takes is 75 MiB
N_ROWS = 1003


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A node with one CPU, whose cache folder it has; tests add others."""
    cache = tmp_path_factory.mktemp("cache")
    variables = {"BLOCKLAYOUT_CACHE_DIR": str(cache), "RAY_USAGE_STATS_ENABLED": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        made = cluster_utils.Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE_NBYTES},
        )
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
        ray_data.DataContext.get_current().enable_progress_bars = False
        made.cache = cache
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a free first extent."""
    b = bl.Builder("small")
    x = b.input("x", (1, 3, 16, 16))
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3), dtype=np.float32)
    b.output("y", x.conv(weights, pads=1).relu().global_average_pool().flatten())
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    bl.save(b, path)
    made = onnx.load(path)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del made.graph.value_info[:]
    onnx.save(made, path)
    return path


def images(n: int = N_ROWS) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((n, 3, 16, 16), dtype=np.float32)


def rows(n: int = N_ROWS, n_blocks: int = 10) -> Any:
    """The images in blocks, with their numbers."""
    items = [{"number": number, "x": image} for number, image in enumerate(images(n))]
    return ray_data.from_items(items, override_num_blocks=n_blocks)


def expected(model: Path) -> np.ndarray:
    with bl.load(model, threads=1) as session:
        return np.asarray(session.run(None, {"x": images()})[0])


@pytest.mark.usefixtures("cluster")
def test_every_row_has_its_answer_in_order(model: Path) -> None:
    answers = bl.ray.map_batches(rows(), model, keep=["number"]).take_all()
    assert [row["number"] for row in answers] == list(range(N_ROWS))
    np.testing.assert_allclose(np.stack([row["y"] for row in answers]), expected(model), atol=1e-5)
    assert set(answers[0]) == {"number", "y"}


def test_a_node_that_is_lost_loses_no_row(cluster: Any, model: Path) -> None:
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE_NBYTES)
    answers = []
    for row in bl.ray.map_batches(rows(), model, batch_size=8).iter_rows():
        answers.append(row)
        if len(answers) == N_ROWS // 10:
            cluster.remove_node(node, allow_graceful=False)
    assert [row["number"] for row in answers] == list(range(N_ROWS))
    np.testing.assert_allclose(np.stack([row["y"] for row in answers]), expected(model), atol=1e-5)


@pytest.mark.slow
def test_nodes_that_come_and_go_lose_none_of_10000_images(cluster: Any, tmp_path: Path) -> None:
    n = 10_000
    b = bl.Builder("deep")
    y = b.input("x", (25, 3, 16, 16))
    rng = np.random.default_rng(0)
    for n_channels in (3, *[64] * 11):
        weights = rng.standard_normal((64, n_channels, 3, 3), dtype=np.float32)
        y = y.conv(weights * np.float32((2 / weights[0].size) ** 0.5), pads=1).relu()
    b.output("y", y.global_average_pool().flatten())
    path = tmp_path / "deep.onnx"
    bl.save(b, path)
    alive: list[tuple[Any, Path]] = []
    n_killed = 0

    def add_node() -> None:
        folder = tmp_path / f"node {n_killed + len(alive)}"
        variables = {"BLOCKLAYOUT_CACHE_DIR": str(folder)}
        node = cluster.add_node(num_cpus=1, object_store_memory=STORE_NBYTES, env_vars=variables)
        alive.append((node, folder))

    add_node()
    add_node()
    numbers, outputs = [], []
    for row in bl.ray.map_batches(rows(n, 100), path, batch_size=25, keep=["number"]).iter_rows():
        numbers.append(row["number"])
        outputs.append(row["y"])
        if len(numbers) % 1000:
            continue
        working = [each for each in alive if any(each[1].glob("ray/*.session"))]
        if working:
            cluster.remove_node(working[0][0], allow_graceful=False)
            alive.remove(working[0])
            n_killed += 1
            add_node()
    for node, _ in alive:
        cluster.remove_node(node)
    assert n_killed >= 2
    assert numbers == list(range(n))
    images_in_turn = images(n).reshape(-1, 25, 3, 16, 16)
    with bl.load(path, threads=1) as session:
        wanted = np.concatenate([session.run(None, {"x": batch})[0] for batch in images_in_turn])
    np.testing.assert_allclose(np.stack(outputs), wanted, atol=1e-4)


@pytest.mark.usefixtures("cluster")
def test_actors_make_the_rows_of_steps_that_ask_for_as_many_cpus(model: Path) -> None:
    def made(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return batch | {"x": images()[batch["number"]]}

    numbers = ray_data.from_items([{"number": number} for number in range(N_ROWS)], override_num_blocks=10)
    answers = bl.ray.map_batches(numbers.map_batches(made), model, keep=["number"]).materialize()
    assert "MapBatches(made)->MapBatches(_Mapper)" in answers.stats()  # one step, in one process
    found = answers.take_all()
    assert [row["number"] for row in found] == list(range(N_ROWS))
    np.testing.assert_allclose(np.stack([row["y"] for row in found]), expected(model), atol=1e-5)


IDLE = """
import os, time
import ray
import blocklayout as bl

@ray.remote
class Busy:
    pass

@ray.remote(num_cpus=0)
def process():
    return os.getpid()

with bl.ray.connected("local"):
    busy = Busy.options(num_cpus=ray.cluster_resources()["CPU"]).remote()
    ray.get(busy.__ray_ready__.remote())
    found = ray.get(process.remote())
    time.sleep(3)
    os.kill(found, 0)
"""


def test_a_cluster_of_this_machine_keeps_processes_that_are_idle_for_a_moment() -> None:
    done = subprocess.run([sys.executable, "-c", IDLE], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("cluster")
def test_a_saved_session_for_several_instruction_sets_needs_no_model(model: Path, tmp_path: Path) -> None:
    with bl.load(model, shapes={"x": (32, 3, 16, 16)}, threads=1) as session:
        session.save(tmp_path / "small.session", targets=tuple({"sse41", dnnl.isa()}))
    answers = bl.ray.map_batches(rows().limit(40), tmp_path / "small.session", columns={"x": "x"}).take_all()
    np.testing.assert_allclose(np.stack([row["y"] for row in answers]), expected(model)[:40], atol=1e-5)


def spec_number(number: int) -> dnnl.Spec:
    """Of no model."""
    return dnnl.softmax(dnnl.MemoryDesc((1, number)), n_threads=1)


def test_what_a_node_has_measured_is_known_to_the_next_one(cluster: Any, model: Path, tmp_path: Path) -> None:
    own = cost_store_path()
    for number, path in enumerate((own, tmp_path / "first" / own.name, tmp_path / "second" / own.name), 1):
        CostStore(path).keep(spec_number(number), float(number))

    def measured(name: str) -> dict[bytes, float]:
        folder = tmp_path / name
        variables = {"BLOCKLAYOUT_CACHE_DIR": str(folder)}
        node = cluster.add_node(num_cpus=2, object_store_memory=STORE_NBYTES, env_vars=variables)
        assert bl.ray.map_batches(rows().limit(8), model, threads=2).count() == 8  # more threads than other nodes have
        cluster.remove_node(node, allow_graceful=False)
        return CostStore(folder / own.name).measured()

    assert sorted(measured("first").values()) == [1.0, 2.0]
    second = measured("second")
    assert sorted(second.values()) == [1.0, 2.0, 3.0]
    assert CostStore().measured() == second


@pytest.mark.usefixtures("cluster")
def test_a_node_does_without_costs_that_nobody_hands_out() -> None:
    costs = bl.ray.datasets._SharedCosts.of_this_machine()
    ray.kill(costs.keeper)
    costs.node = "another"
    ran = []
    with pytest.warns(bl.CostStoreWarning, match="not shared"), costs.known_here():
        ran.append("all the same")
    assert ran


def test_sessions_of_the_cluster_go(cluster: Any, model: Path) -> None:
    bl.ray.map_batches(rows().limit(8), model, batch_size=4).take_all()
    bl.ray.map_batches(rows().limit(8), model, batch_size=8).take_all()
    assert len(list((cluster.cache / "ray").glob("*.session"))) <= 2


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": {"x": "picture"}}, "the rows have no such column; they have number, x"),
        ({"columns": {"x": "number"}}, "x"),
        ({"keep": ["picture"]}, "keep=picture"),
        ({"layout": "zigzag"}, "zigzag"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told_when_it_is_computed(model: Path, options: Any, said: str) -> None:
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        bl.ray.map_batches(rows().limit(4), model, batch_size=4, **options).take_all()
    assert said in str(caught.value)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"threads": 0}, "threads=0"),
        ({"columns": "x"}, "columns"),
        ({"shapes": {"x": (1, 3, 16, 16)}}, "batch_size= says"),
        ({"model": "missing.onnx"}, "there is no file missing.onnx"),
    ],
    ids=str,
)
def test_wrong_arguments_are_told_at_once(model: Path, options: Any, said: str) -> None:
    with pytest.raises(bl.InputError, match=said):
        bl.ray.map_batches(rows(), **{"model": model, **options})


@pytest.mark.usefixtures("cluster")
def test_inside_of_a_connection_errors_of_actors_are_ours(model: Path) -> None:
    with pytest.raises(bl.BlockLayoutError, match=r"^[^\n]*zigzag"), bl.ray.connected("local"):
        bl.ray.map_batches(rows().limit(4), model, batch_size=4, layout="zigzag").take_all()
