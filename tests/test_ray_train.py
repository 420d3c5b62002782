"""Training on workers of Ray Train, on this machine; skipped where Ray is not installed."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of which it has many

ray = pytest.importorskip("ray", reason="Ray is not installed")
ray_train = pytest.importorskip("ray.train", reason="Ray Train is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
collective = pytest.importorskip("ray.train.collective", reason="Ray Train is not installed")
trainers = pytest.importorskip("ray.train.v2.api.data_parallel_trainer", reason="Ray Train is not installed")

N_WORKERS = 2
N_STEPS = 4
BATCH = 12
LAYOUTS = {"plain": "oihw", "channels last": "ohwi", "blocks of 8": "OIhw8i8o", "blocks of 16": "OIhw16i16o"}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A node for each worker."""
    node = {"num_cpus": 1, "object_store_memory": 100 << 20}  # the least that Ray takes is 75 MiB
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
        made = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        for _ in range(N_WORKERS - 1):
            made.add_node(**node)
        ray.init(address=made.address, log_to_driver=False, logging_level="error")
        yield
        ray.shutdown()
        made.shutdown()


def drawn(layout: str) -> dict[str, Any]:
    """Weights to begin with: 5 channels, which fill no block."""
    rng = np.random.default_rng(0)
    weights = {"first": (5, 3, 3, 3), "second": (5, 5, 3, 3), "head": (4, 5, 1, 1)}
    learned = {name: rng.standard_normal(dims, np.float32) / 3 for name, dims in weights.items()}
    return {name: bl.reorder(each, "oihw" if name == "head" else layout) for name, each in learned.items()}


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(step + 1)
    return rng.standard_normal((BATCH, 3, 6, 6), np.float32), rng.integers(0, 4, BATCH)


def gradients(learned: dict[str, Any], images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """The loss and what it asks of the weights: means over the images."""
    x = bl.as_tensor(images)
    first = bl.conv(x, learned["first"], pads=1)
    active = bl.relu(first)
    second = bl.conv(active, learned["second"], pads=1) + active
    pooled = bl.global_average_pool(second)
    shares = bl.softmax(bl.inner_product(pooled, learned["head"], np.zeros(4, np.float32))).numpy()
    loss = -np.log(shares[range(len(labels)), labels]).mean()
    grad = (shares - np.eye(4, dtype=np.float32)[labels]) / np.float32(len(labels))
    of_head = bl.inner_product_backward(grad, pooled, learned["head"])
    grad = bl.global_average_pool_backward(of_head.data, second)
    of_second = bl.conv_backward(grad, active, learned["second"], pads=1)
    grad = bl.relu_backward(of_second.data + grad, first)
    of_first, _ = bl.conv_backward_weights(grad, x, learned["first"], pads=1)
    return {
        "loss": loss,
        "first": of_first,
        "second": of_second.weights,
        "head": of_head.weights,
    }


def trained(layout: str, part: slice, mean: Callable[[Any], Any]) -> dict[str, Any]:
    """What some steps on a part of each batch make of the weights, and the loss of each step."""
    learned = drawn(layout)
    losses = []
    for step in range(N_STEPS):
        images, labels = batch(step)
        found = mean(gradients(learned, images[part], labels[part]))
        losses.append(found["loss"].numpy()[0])
        for name, weights in learned.items():
            assert found[name].desc == weights.desc
            assert found[name].padding_is_zero()
            weights.physical()[:] -= np.float32(0.5) * found[name].physical()
    return {"losses": bl.as_tensor(np.array(losses)), **learned}


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except bl.BlockLayoutError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def mismatches(rank: int) -> list[Any]:
    """Pairs of tensors that differ between the workers."""
    ones = np.ones((2, 5, 3, 3), np.float32)
    return [
        {"same": ones, "weight": bl.from_array(ones, ("nchw", "nChw8c")[rank])},
        {"weight": bl.from_array(ones[: 2 - rank])},
        {"weight": bl.from_array(ones).astype(("f32", "bf16")[rank])},
        {"weight": ones, "bias": ones} if rank else {"weight": ones},
        [ones] * (rank + 1),
    ]


def loop(config: dict[str, str]) -> None:
    """All that two workers do and find, in files of each; then one dies, and both are started once more."""
    rank = ray_train.get_context().get_world_rank()
    folder = Path(config["folder"]) / str(rank)
    if folder.exists():
        (folder / "late.json").write_text(json.dumps(lateness(rank)), "utf-8")
        return
    folder.mkdir()
    half = BATCH // N_WORKERS
    for name, layout in LAYOUTS.items():
        weights = trained(layout, slice(rank * half, (rank + 1) * half), bl.ray.all_reduce)
        bl.save(weights, folder / f"{name}.safetensors")
    values = [np.array([1, 2, -3, 4], np.float32) + rank, bl.full((7,), 2**rank, "bf16"), bl.full((3,), rank, "f16")]
    means = [each.astype("f32").numpy().tolist() for each in bl.ray.all_reduce(values)]
    part = bl.ray.all_reduce([bl.full((2, 16, 3, 3), rank, memory_format="nChw8c")[:, :8]])[0]
    told = [refusal(partial(bl.ray.all_reduce, each)) for each in mismatches(rank)]
    (folder / "found.json").write_text(json.dumps({"means": means, "part": str(part.desc), "told": told}), "utf-8")
    bl.ray.all_reduce([])
    if rank == 1:
        os._exit(1)
    bl.ray.all_reduce([])


def lateness(rank: int) -> list[str]:
    """What both are told when one comes too late, and afterwards."""
    told = [refusal(lambda: bl.ray.all_reduce([]))]
    if rank == 0:
        told.append(refusal(lambda: bl.ray.all_reduce([], seconds=0.5)))
    collective.barrier()
    return [*told, refusal(lambda: bl.ray.all_reduce([]))]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two workers leave: a folder of each."""
    folder = tmp_path_factory.mktemp("workers")
    trainers.DataParallelTrainer(
        loop,
        train_loop_config={"folder": str(folder)},
        scaling_config=ray_train.ScalingConfig(num_workers=N_WORKERS),
        run_config=ray_train.RunConfig(
            storage_path=str(folder), name="run", failure_config=ray_train.FailureConfig(max_failures=1)
        ),
    ).fit()
    return folder


@pytest.fixture(scope="module")
def found(results: Path) -> list[Any]:
    return [json.loads((results / str(rank) / "found.json").read_text("utf-8")) for rank in range(N_WORKERS)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_workers_learn_what_one_does(results: Path, name: str) -> None:
    alone = trained(LAYOUTS[name], slice(None), lambda each: {name: bl.as_tensor(each[name]) for name in each})
    together = bl.load_tensors(results / "0" / f"{name}.safetensors")
    for each, expected in alone.items():
        np.testing.assert_allclose(together[each].numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert np.ptp(alone["losses"].numpy()) > 0.01


@pytest.mark.parametrize("name", LAYOUTS)
def test_all_workers_have_the_same_bits(results: Path, name: str) -> None:
    first, second = (bl.load_tensors(results / str(rank) / f"{name}.safetensors") for rank in range(N_WORKERS))
    assert all(np.array_equal(first[each].physical(), second[each].physical()) for each in first)


def test_floating_point_of_each_type_has_a_mean(found: list[Any]) -> None:
    assert found[0]["means"] == [[1.5, 2.5, -2.5, 4.5], [1.5] * 7, [0.5] * 3]
    assert found[1]["means"] == found[0]["means"]


def test_a_view_with_holes_keeps_its_format(found: list[Any]) -> None:
    assert found[0]["part"] == "f32 2x8x3x3 nChw8c"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "weight is f32 2x5x3x3 nchw on worker 0, and f32 2x5x3x3 nChw8c on worker 1"),
        (1, "weight is f32 2x5x3x3 nchw on worker 0, and f32 1x5x3x3 nchw on worker 1"),
        (2, "weight is f32 2x5x3x3 nchw on worker 0, and bf16 2x5x3x3 nchw on worker 1"),
        (3, "bias is missing on worker 0, and f32 2x5x3x3 nchw on worker 1"),
        (4, "tensor 1 is missing on worker 0, and f32 2x5x3x3 nchw on worker 1"),
    ],
    ids=["layout", "extents", "type", "name", "number"],
)
def test_tensors_that_differ_are_told_by_all(found: list[Any], number: int, said: str) -> None:
    for each in found:
        assert each["told"][number].startswith(f"InputError: all_reduce: {said}")


def test_workers_are_started_anew_when_one_dies_and_a_late_one_is_told(results: Path) -> None:
    first, second = (json.loads((results / str(rank) / "late.json").read_text("utf-8")) for rank in range(N_WORKERS))
    late = "DeadlineExceededError: all_reduce: no call by worker 1 within 0.5 s; all workers must call it equally often"
    assert first == ["none", late, late]
    assert second == ["none", late]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (np.ones(3, np.float32), "give a list of Tensors, or a mapping by name"),
        ({1: np.ones(3)}, "1 is no name"),
        ({"count": np.arange(3)}, "count is s64 3 a; give f32, bf16, f16"),
        (["text"], "tensor 0"),
    ],
    ids=["array", "name", "integers", "text"],
)
def test_what_has_no_mean_is_told(tensors: Any, said: str) -> None:
    with pytest.raises(bl.InputError, match=said):
        bl.ray.all_reduce(tensors)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), True, "5"])
def test_no_time_to_wait_is_told(seconds: Any) -> None:
    with pytest.raises(bl.InputError, match="seconds="):
        bl.ray.all_reduce([], seconds=seconds)


def test_only_workers_have_others() -> None:
    with pytest.raises(bl.UnsupportedError, match="train_loop_per_worker"):
        bl.ray.all_reduce([])
