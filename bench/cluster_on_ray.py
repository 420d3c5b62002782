"""Jobs on Ray's own test cluster, for bench/cluster.py: what they cost, and how long they take.

The driver's costs are those of jobs whose actors sleep, so that they leave it the CPU. They are seconds computed by two
threads that share Python's lock: one runs Ray Data's loop, the other fetches what is told of blocks. They are fitted
over the steps of this loop. What thousands of actors cost for each block is measured by names of actors that are not
there, in the table that Ray Data goes through for each block. How long blocks are on their way is measured by the
clock, in a job of two actors, which do not compete for CPUs.

This reads what Ray keeps to itself; names are those of Ray 2.60.
"""
# ruff: noqa: SLF001

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import product
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import ray
import ray.data
from ray.cluster_utils import Cluster as RayCluster
from ray.data._internal.execution import streaming_executor, streaming_executor_state
from ray.data._internal.execution.interfaces.physical_operator import DataOpTask
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator
from ray.data.context import DEFAULT_ACTOR_MAX_TASKS_IN_FLIGHT_TO_MAX_CONCURRENCY_FACTOR

import blocklayout as bl
from bench.cluster import Cluster, Costs, Job, simulate
from blocklayout import zoo
from blocklayout.commands.environment import describe_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODEL = "resnet50"
BATCH_SIZE = 32
N_ACTORS, N_BLOCKS = 8, 300
N_ABSENT = 10_000
"""Names of actors that are not there."""
QUARTILES = 1.349
"""How far apart those of a normal distribution are, in standard deviations."""


def environment() -> dict[str, Any]:
    """The machine, and Ray's version."""
    return describe_environment(1) | {"ray": metadata.version("ray"), "model": f"{MODEL}, 224x224"}


@contextmanager
def on_nodes(n_nodes: int, n_cpus: int = 1) -> Iterator[RayCluster]:
    """Ray's test cluster on this machine, with a cache folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"BLOCKLAYOUT_CACHE_DIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        options = {"num_cpus": n_cpus, "object_store_memory": 1 << 30}
        cluster = RayCluster(initialize_head=True, head_node_args=options | {"include_dashboard": False})
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
            for number in range(1, n_nodes):
                cluster.add_node(**options, resources={f"node{number}": 1})
            cluster.wait_for_nodes()
            ray.data.DataContext.get_current().enable_progress_bars = False
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


@dataclass
class Task:
    """A block, as the driver sees it: see :class:`Watched`."""

    made_s: float
    found_s: float = 0.0
    found_step: int = 0
    n_steps: int = 0
    has_ended: bool = False


class Watched:
    """A job as it is computed: steps of the driver's loop, and what is told of its blocks.

    Attributes:
        begin_s: By the clock, as all other times are since then.
        steps: For each the seconds computed by the loop's thread and by the one that fetches, and how many actors there
            are, blocks were handed out, actors were asked for, and names were known.
        handed_out_s: From the begin until the first block was handed out.
        cpu_s: Of each block, in the order of rows, by all threads of its actor.
        seconds: From the begin to the end.
        rows_per_s: While the second half of the rows came.
        known_s: From the begin until the driver knew which CPUs there are.
        started_s: When it gave each actor its first chance of a block.
        tasks: Of each block, in the order of rows, when it was handed out and found done, whether its end was known
            then, and in how many further steps the driver was told of it.
        refs: Its blocks.
    """

    def __init__(self, dataset: Any, n_absent: int = 0, burden_s: float = 0.0) -> None:
        """Compute it.

        Args:
            dataset: The job.
            n_absent: Names of actors that are not there.
            burden_s: Seconds that the driver is held up for each block besides.
        """
        self._n_absent, self._burden_s = n_absent, burden_s
        self._before = (0, 0)
        self.steps: list[tuple[float, ...]] = []
        self.handed_out_s = self.seconds = self.known_s = 0.0
        self.started_s: list[float] = []
        self.tasks: list[Task] = []
        self.begin_s = time.perf_counter()
        original = streaming_executor.StreamingExecutor._scheduling_loop_step

        def step(executor: Any, topology: Any) -> bool:
            begin = self._computed(executor)
            goes_on = original(executor, topology)
            self._note(topology, self._computed(executor) - begin)
            if not self.known_s and executor._resource_manager.get_global_limits().cpu:
                self.known_s = self._now()
            return bool(goes_on)

        with (
            patch.object(streaming_executor.StreamingExecutor, "_scheduling_loop_step", step),
            patch.multiple(DataOpTask, **self._noting_tasks()),
        ):
            self._run(dataset)

    def _now(self) -> float:
        return time.perf_counter() - self.begin_s

    def _noting_tasks(self) -> dict[str, Any]:
        """Methods of Ray Data's tasks that note what happens to them."""
        init, on_data_ready, produce_block = DataOpTask.__init__, DataOpTask.on_data_ready, DataOpTask.produce_block

        def made(task: Any, *args: Any, **options: Any) -> None:
            init(task, *args, **options)
            if self._burden_s:
                time.sleep(self._burden_s)
            task.noted = Task(self._now())  # there, as nobody else may keep it, and with it an actor
            self.tasks.append(task.noted)

        def found(task: Any, *args: Any) -> int:
            nbytes = on_data_ready(task, *args)
            if nbytes:
                task.noted.found_s, task.noted.found_step = self._now(), len(self.steps)
                task.noted.has_ended = task.is_drained()
            return int(nbytes)

        def told(task: Any, *args: Any) -> int:
            task.noted.n_steps = len(self.steps) - task.noted.found_step
            return int(produce_block(task, *args))

        return {"__init__": made, "on_data_ready": found, "produce_block": told}

    def _run(self, dataset: Any) -> None:
        stats: list[Any] = []
        came: list[tuple[int, float]] = []
        self.refs: list[Any] = []
        for bundle in dataset.iter_internal_ref_bundles():
            stats += [entry.metadata for entry in bundle.blocks]
            self.refs += bundle.block_refs
            self.seconds = self._now()
            came.append((sum(each.num_rows for each in stats), self.seconds))
        self.rows_per_s = second_half_per_s(came)
        self.cpu_s = [each.exec_stats.cpu_time_s for each in stats]

    @staticmethod
    def _computed(executor: Any) -> float:
        """Seconds of both threads."""
        thread = getattr(executor._metadata_fetcher, "_thread", None)
        if not thread or not thread.is_alive():
            return time.thread_time()
        return time.thread_time() + time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def _note(self, topology: Any, seconds: float) -> None:
        operators = [each for each in topology if isinstance(each, ActorPoolMapOperator)]
        pool, metrics = operators[0]._actor_pool, operators[0].metrics
        if self._n_absent and pool.num_running_actors() and len(pool._actor_to_logical_id) < self._n_absent:
            pool._actor_to_logical_id |= {f"absent {number}": f"{number:036}" for number in range(self._n_absent)}
        n_real = pool.current_size()
        now = (metrics.num_tasks_submitted, n_real)
        submitted, created = now[0] - self._before[0], max(0, n_real - self._before[1])
        if now[0] and not self.handed_out_s:
            self.handed_out_s = self._now()
        self._before = now
        self.started_s += [self._now()] * (pool.num_running_actors() - len(self.started_s))
        n_names = len(pool._actor_to_logical_id)
        self.steps.append((seconds, pool.num_running_actors(), submitted, created, n_names))


def second_half_per_s(came: Sequence[tuple[int, float]]) -> float:
    """Rows a second, of numbers of rows and when so many were there."""
    n_rows, end_s = came[-1]
    n_half, half_s = next(each for each in came if each[0] >= n_rows / 2)
    return (n_rows - n_half) / (end_s - half_s) if end_s > half_s else math.inf


class Sleeping:
    """In the place of a session."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The rows, later: which process slept, from when, until when."""
        begin = time.perf_counter()
        time.sleep(self._seconds)
        return {"slept": np.array([[os.getpid(), begin, time.perf_counter()]] * len(batch["x"]))}


def sleeping(n_actors: int, n_blocks: int, seconds: float) -> Any:
    """A job of blocks of one small row, whose actors sleep."""
    rows = ray.data.from_items([{"x": number} for number in range(n_blocks)], override_num_blocks=n_blocks)
    answers = rows.map_batches(
        Sleeping, fn_constructor_args=(seconds,), batch_size=1, num_cpus=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=n_actors),
    )  # fmt: skip
    answers.context.execution_options.preserve_order = True
    return answers


def computing(n_blocks: int, block_rows: int) -> Any:
    """A job of random images, in blocks in the store of the first node."""
    image = np.random.default_rng(0).standard_normal((block_rows, 3, 224, 224), dtype=np.float32)
    rows = ray.data.from_numpy([image] * n_blocks)
    return bl.ray.map_batches(rows, model(), columns={"x": "data"}, keep=(), batch_size=BATCH_SIZE)


def model() -> bytes:
    """A network of the zoo with a free batch."""
    proto = zoo.build(MODEL, batch=1).to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return bytes(proto.SerializeToString())


def measured(parts: Sequence[str]) -> dict[str, Any]:
    """Costs, by their names: those of the driver, of actors and of the network between nodes."""
    costs: dict[str, Any] = {
        "poll_s": streaming_executor_state.WAIT_FOR_TASK_COMPLETION_TIMEOUT_S,
        "n_in_flight": DEFAULT_ACTOR_MAX_TASKS_IN_FLIGHT_TO_MAX_CONCURRENCY_FACTOR,
        "batch_size": BATCH_SIZE,
        "row_nbytes": 4 * 3 * 224 * 224,
        "answer_nbytes": 4 * 1000,
    }
    if "driver" in parts:
        costs |= drivers_costs()
    if "actors" in parts:
        costs |= actors_costs()
    if "network" in parts:
        costs["byte_s"] = byte_s()
    return costs


def drivers_costs() -> dict[str, float]:
    """Of a step, an actor and a block: fitted over steps that handed out blocks, in jobs whose actors sleep."""
    steps: list[tuple[float, ...]] = []
    jobs = ((3 * N_ACTORS, 0.5, 0), (N_ACTORS, 0.02, 0), (1, 0.02, 0), (N_ACTORS, 0.02, N_ABSENT))
    with on_nodes(1, 3 * N_ACTORS):
        for n_actors, sleep_s, n_absent in jobs:
            steps += Watched(sleeping(n_actors, N_BLOCKS, sleep_s), n_absent).steps
        on_the_way = delays(Watched(sleeping(2, N_BLOCKS, 0.05)))
    groups = defaultdict(list)
    for seconds, *what in steps:
        if what[1] and not what[2]:
            groups[tuple(what)].append(seconds)
    weights = np.sqrt([len(each) for each in groups.values()])
    quiet = np.array([np.percentile(each, 25) for each in groups.values()])  # other work on the machine adds to others
    columns = np.stack([columns_of(*what) for what in groups])
    fitted, *_ = np.linalg.lstsq(columns * weights[:, None], quiet * weights, rcond=None)
    created = [(seconds - columns_of(*what) @ fitted) / what[2] for seconds, *what in steps if what[2] > 1]
    step_s, actor_s, task_s, name_s, task_name_s = (max(0.0, float(each)) for each in fitted)
    return {
        "step_s": step_s,
        "actor_s": actor_s + name_s,
        "task_s": task_s,
        "task_actor_s": task_name_s,
        "create_s": max(0.0, statistics.median(created)),
        **on_the_way,
    }


def delays(done: Watched) -> dict[str, float]:
    """What a block takes besides its batches, on its way and there; actors and driver read the same clock.

    The driver finds an answer some time after the actor has made it, and knows its end if it does so somewhat later.
    """
    slept = np.array([row for block in ray.get(done.refs) for row in block["slept"].to_pylist()])
    times = slept[:, 1:] - done.begin_s
    last_end: dict[float, float] = {}
    gaps, arrivals = [], []
    for (process, *_), (begin, end), task in zip(slept, times, done.tasks, strict=True):
        if process in last_end and task.made_s < last_end[process]:
            gaps.append(begin - last_end[process])
        else:
            arrivals.append(begin - task.made_s)
        last_end[process] = end
    ages = np.array([task.found_s for task in done.tasks]) - times[:, 1]
    has_ended = np.array([task.has_ended for task in done.tasks])
    visible_s = np.percentile(ages[~has_ended], 10)
    end_s = min(ages, key=lambda age: np.sum(has_ended != (ages >= age)))
    block_s, low_s, high_s = (float(each) for each in np.percentile(gaps, (50, 25, 75)))
    return {
        "block_s": block_s,
        "block_spread": math.log(high_s / low_s) / QUARTILES,
        "arrive_s": max(0.0, float(np.median(arrivals) + visible_s - block_s)),
        "end_s": max(0.0, float(end_s - visible_s)),
        "prompt_share": float(np.mean([task.n_steps == 0 for task in done.tasks])),
    }


def columns_of(n_actors: float, n_tasks: float, _: float, n_names: float) -> np.ndarray:
    """What a step's seconds are a sum over."""
    return np.array([1.0, n_actors, n_tasks, n_names, n_names * n_tasks])


def actors_costs() -> dict[str, float]:
    """Of an actor's start, its session and a batch: what its process computes, but its start by the clock."""
    with on_nodes(1):
        first = Watched(computing(16, 2 * BATCH_SIZE))
        second = Watched(computing(2, 2 * BATCH_SIZE))  # its session is there
    usual_s, from_s, to_s = (float(each) for each in np.percentile(first.cpu_s, (50, 25, 75)))
    return {
        "known_s": first.known_s,
        "start_s": second.handed_out_s,
        "session_s": max(first.cpu_s) - usual_s,
        "map_s": max(0.0, max(second.cpu_s) - usual_s),
        "batch_s": usual_s / 2,
        "spread": math.log(to_s / from_s) / QUARTILES,
    }


def byte_s() -> float:
    """Seconds for a byte from the memory of one node to another's."""
    with on_nodes(2):

        def fetched(refs: list[Any]) -> float:
            begin = time.perf_counter()
            ray.get(refs)
            return time.perf_counter() - begin

        there = ray.remote(resources={"node1": 1}, num_cpus=0)(fetched)
        image = np.random.default_rng(0).integers(0, 255, 100_000_000, dtype=np.uint8)
        times = [ray.get(there.remote([ray.put(image)])) for _ in range(4)]
    return float(min(times)) / image.nbytes


def validated(
    n_nodes: Sequence[int], asleep: Sequence[float], burden_s: float, costs: Costs
) -> Iterator[dict[str, Any]]:
    """Jobs that were measured, and the same simulated: of actors that sleep so many seconds a block, or of a network.

    Actors that sleep stand for nodes of one CPU each: they leave the CPU to the driver, however many there are. A
    driver that is held up for each block is as busy with few of them as others are with many. A network is computed on
    as many nodes as the machine has CPUs, by blocks that are simulated as long as they were.
    """
    n_cpus = len(os.sched_getaffinity(0))
    if any(asleep):
        with on_nodes(1, max(n_nodes)):
            for n, seconds in product(n_nodes, filter(None, asleep)):
                n_blocks = n * round(12 + 3 / seconds)
                done = Watched(sleeping(n, n_blocks, seconds), burden_s=burden_s)
                held_up = replace(costs, task_s=costs.task_s + burden_s)
                yield compared(f"asleep {seconds} s", n, n_blocks, 1, done, sleeping_costs(held_up, seconds))
    for n in n_nodes if not all(asleep) else ():
        if n > n_cpus:
            raise SystemExit(f"--asleep 0: {n} nodes compute on {n_cpus} CPUs; give as many at most")
        with on_nodes(n):
            done = Watched(computing(12 * n, BATCH_SIZE))
        as_measured = replace(costs, batch_s=statistics.median(done.cpu_s), spread=0.0)
        yield compared(MODEL, n, 12 * n, BATCH_SIZE, done, as_measured)


def sleeping_costs(costs: Costs, seconds: float) -> Costs:
    """Costs of a job whose actors sleep; an actor's for a block are the same."""
    return replace(
        costs, batch_s=seconds, session_s=0.0, map_s=0.0, batch_size=1, row_nbytes=0, answer_nbytes=0, spread=0.0
    )  # fmt: skip


def compared(name: str, n_nodes: int, n_blocks: int, block_rows: int, done: Watched, costs: Costs) -> dict[str, Any]:
    """A row of the table; means of jobs that were simulated with other chances."""
    started_s = (*done.started_s, *[math.inf] * n_nodes)[:n_nodes]  # some may have come too late
    cluster = Cluster(n_nodes, started_s=started_s)
    job = Job(n_blocks * block_rows, block_rows)
    outcomes = [simulate(cluster, job, costs, seed) for seed in range(10)]
    came = [[((number + 1) * block_rows, at) for number, at in enumerate(each.delivered_at)] for each in outcomes]
    return {
        "job": name,
        "n_nodes": n_nodes,
        "n_blocks": n_blocks,
        "measured": {"seconds": done.seconds, "rows_per_s": done.rows_per_s, "started_s": done.started_s},
        "simulated": {
            "seconds": statistics.mean(each.seconds for each in outcomes),
            "rows_per_s": statistics.mean(map(second_half_per_s, came)),
            "driver_share": statistics.mean(each.driver_share for each in outcomes),
        },
    }
