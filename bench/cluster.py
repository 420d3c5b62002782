"""What does it cost that one driver coordinates a job of many nodes, and from how many nodes on does it limit them?

``blocklayout.ray.map_batches`` is simulated: on each node as many actors as its CPUs allow, one session that the first
of them makes, blocks of rows handed out by one driver, answers in order, nodes that are lost and come back. What all of
it takes was measured by ``--calibrate`` on Ray's own test cluster, and is kept in bench/cluster.json. Each number of
nodes gets as many rows as its CPUs would compute in ``--minutes`` if nothing were ever lost; then it is told how much
of the time is lost to what:

- *last blocks*: some CPUs have nothing left while others compute their last block;
- *start-up*: processes start, one actor of each node makes a session, the others wait for it and map it;
- *coordination*: the driver hands out blocks too late, or they wait for its network;
- *stragglers*: blocks differ by chance, nodes are not alike, and some are slow;
- *failures*: nodes are lost with what they were computing, and with answers that waited for earlier ones.

The driver is *saturated* where it cannot hand out blocks as fast as they are computed: more nodes do not help then, but
larger blocks do.

    python bench/cluster.py
    python bench/cluster.py --nodes 1,1000 --blocks 128,1024 --threads 16 --from driver --to driver
    python bench/cluster.py --calibrate bench/cluster.json
    python bench/cluster.py --calibrate bench/cluster.json --part driver
    python bench/cluster.py --validate 2,4,8
    python bench/cluster.py --validate 8 --asleep 0.5 --burden 0.05
    python bench/cluster.py --validate 1 --asleep 0

``--calibrate`` and ``--validate`` take Ray, and a machine that does nothing else; the simulation takes neither. Jobs
are validated by actors that sleep in the place of a network, so that a few CPUs do for many of them; their starts are
not, since these take CPUs: they are simulated as they were measured.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
from collections import deque
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from bench.records import add_files, keep, read_measured, write_page
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import numbers, positive, seconds
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CALIBRATION = Path(__file__).with_name("cluster.json")
NODES = (1, 2, 10, 100, 300, 1000, 3000)
PARTS = ("driver", "actors", "network")
ASLEEP = (0.05, 0.2, 0.5)
"""Seconds of blocks in jobs that are validated."""
LOSSES = ("last blocks", "start-up", "coordination", "stragglers", "failures")


@dataclass(frozen=True)
class Costs:
    """What was measured; all times in seconds.

    Attributes:
        poll_s: How long a step of the driver's loop waits for blocks that are not done.
        step_s: A step of this loop besides.
        actor_s: The same for each actor, which it looks at in each step.
        task_s: To hand out a block and to take its answer.
        task_actor_s: The same for each actor, all of which it counts for each block.
        create_s: To ask for an actor.
        n_in_flight: Blocks that an actor has at most: one that it computes, others that wait there.
        prompt_share: Of steps, those in which what is told of answers is fetched at once, not for the next step.
        end_s: From an answer until the driver can know that no other of this block follows.
        known_s: From the begin until the driver knows which CPUs there are, and asks for all actors but the first.
        start_s: An actor, from when it is asked for until it takes blocks.
        session_s: To make a node's session.
        map_s: To open the session that another actor has made.
        block_s: An actor's for a block besides its batches.
        block_spread: Standard deviation of the logarithm of this.
        arrive_s: From when a block is handed out to an idle actor until it begins.
        batch_s: A batch, rows in and answers out.
        spread: Standard deviation of the logarithm of the time of a block's batches.
        byte_s: A byte from one node's memory to another's.
        batch_size: Rows of a batch.
        row_nbytes: Of what comes in.
        answer_nbytes: Of what goes out, for each row.
    """

    poll_s: float
    step_s: float
    actor_s: float
    task_s: float
    task_actor_s: float
    create_s: float
    n_in_flight: int
    prompt_share: float
    end_s: float
    known_s: float
    start_s: float
    session_s: float
    map_s: float
    block_s: float
    block_spread: float
    arrive_s: float
    batch_s: float
    spread: float
    byte_s: float
    batch_size: int
    row_nbytes: int
    answer_nbytes: int

    def without_coordination(self) -> Costs:
        """A driver that does everything at once."""
        loop = ("poll_s", "step_s", "actor_s", "task_s", "task_actor_s")
        waits = ("end_s", "block_s", "arrive_s", "byte_s")
        return replace(self, **dict.fromkeys((*loop, *waits), 0), prompt_share=1)

    def without_start(self) -> Costs:
        """Actors and sessions that are there."""
        return replace(self, create_s=0, known_s=0, start_s=0, session_s=0, map_s=0)


@dataclass(frozen=True)
class Cluster:
    """Nodes, and what befalls them.

    Attributes:
        n_nodes: All alike but for their speeds.
        n_actors: Of each node.
        node_spread: How much slower nodes are than the one that costs were measured on: the logarithm's absolute value
            is normally distributed with this standard deviation.
        slow_share: Nodes of which all blocks take ``slow_factor`` times as long.
        slow_factor: How slow these are.
        mtbf_s: Mean time until a node is lost, seconds; 0 where none ever is.
        back_s: From when it is lost until another takes its place, its actors not started.
        byte_s: The driver's network, seconds a byte in each direction.
        started_s: When each actor took blocks in a job that was measured; by default it follows from costs.
    """

    n_nodes: int
    n_actors: int = 1
    node_spread: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 3.0
    mtbf_s: float = 0.0
    back_s: float = 0.0
    byte_s: float = 0.0
    started_s: tuple[float, ...] = ()

    def without_stragglers(self) -> Cluster:
        """Nodes that are alike."""
        return replace(self, node_spread=0.0, slow_share=0.0)


@dataclass(frozen=True)
class Job:
    """Rows to be mapped.

    Attributes:
        n_rows: All of them.
        block_rows: Rows of a block, the last one may have fewer. What is handed out together is one block here.
        is_from_driver: Whether rows are in the driver's memory, and go through its network.
        is_to_driver: Whether answers are.
        n_stages: Tasks that a block takes: one, or one each to read it, to map it and to write it.
    """

    n_rows: int
    block_rows: int
    is_from_driver: bool = False
    is_to_driver: bool = False
    n_stages: int = 1


@dataclass(frozen=True)
class Outcome:
    """A job that is done.

    Attributes:
        seconds: From its begin until all answers are there.
        delivered: Numbers of blocks, as their answers came out.
        delivered_at: When each did, seconds.
        n_redone: Blocks that were handed out, perhaps done, and lost.
        n_waiting: Most blocks that were done and waited for earlier ones.
        driver_share: Share of the time in which the driver was busy.
        n_lost: Nodes that were lost.
    """

    seconds: float
    delivered: tuple[int, ...]
    delivered_at: tuple[float, ...]
    n_redone: int
    n_waiting: int
    driver_share: float
    n_lost: int


@dataclass
class _Actor:
    node: int
    free_at: float = 0.0
    is_asked: bool = False
    is_ready: bool = False
    has_session: bool = False


@dataclass(frozen=True)
class _Answer:
    """A block that the driver has found done.

    Attributes:
        number: Of the actor.
        block: Number of the block.
        ended_at: When the driver can know that no other follows.
        has_ended: Whether it could when it found it.
    """

    number: int
    block: int
    ended_at: float
    has_ended: bool


class _Simulation:
    """One job. The driver's loop is followed step by step, the actors by when they are done with what they have."""

    def __init__(self, cluster: Cluster, job: Job, costs: Costs, seed: int) -> None:
        self._cluster, self._job, self._costs = cluster, job, costs
        n_nodes = range(cluster.n_nodes)
        self._chances = [np.random.default_rng((seed, node)) for node in n_nodes]  # its own, however many there are
        self._slowness = [self._drawn_slowness(node) for node in n_nodes]
        n_blocks = math.ceil(job.n_rows / job.block_rows)
        noise = np.random.default_rng((seed, 1 << 31, n_blocks)).normal(size=(2, n_blocks))
        spreads = np.array([[costs.block_spread], [costs.spread]])
        factors = np.exp(spreads * noise - spreads**2 / 2)  # of mean 1
        self._block_s = factors[0] * costs.block_s + factors[1] * self._batches_s(n_blocks)
        self._actors = [_Actor(node) for _ in range(cluster.n_actors) for node in n_nodes]
        self._tasks = [deque[int]() for _ in self._actors]
        self._session_at: dict[int, float] = {}
        self._epoch = [0] * cluster.n_nodes
        self._events: list[tuple[float, int, str, int, int, int]] = []
        self._n_events = 0
        self._todo = deque(range(n_blocks))
        self._with_room = [deque[int]() for _ in range(costs.n_in_flight)]  # actors, by how many blocks they have
        self._done_on: dict[int, int] = {}  # the node of each block that waits for earlier ones
        self._delivered: list[int] = []
        self._n_blocks, self._n_redone, self._n_waiting, self._n_lost = n_blocks, 0, 0, 0
        self._delivered_at: list[float] = []
        self._in_at = self._out_at = 0.0  # when the driver's network is free, in both directions
        self._last_done = 0.0
        self._n_ready = self._n_in_hand = 0  # actors that take blocks, and blocks that they have
        self._down: set[int] = set()  # actors whose node was lost, until they take blocks again
        self._is_known = not costs.known_s  # whether all actors are asked for
        self._found: list[_Answer] = []  # those that wait for what is told of them
        self._ending: list[_Answer] = []  # those that wait for their end only
        self._prompt = np.random.default_rng((seed, 1 << 31))

    def _drawn_slowness(self, node: int) -> float:
        cluster, chances = self._cluster, self._chances[node]
        factor = cluster.slow_factor if chances.random() < cluster.slow_share else 1.0
        return float(factor * math.exp(cluster.node_spread * abs(chances.normal())))

    def _batches_s(self, n_blocks: int) -> np.ndarray:
        """What each block's batches take an actor, without chance."""
        job, costs = self._job, self._costs
        n_rows = np.full(n_blocks, job.block_rows)
        n_rows[-1] = job.n_rows - job.block_rows * (n_blocks - 1)
        return np.ceil(n_rows / costs.batch_size) * costs.batch_s

    def run(self) -> Outcome:
        """From the first actor that is asked for to the last answer."""
        costs, now, busy = self._costs, 0.0, 0.0
        for number in range(len(self._actors) if self._is_known else 1):
            now += costs.create_s
            self._start(number, now)
        busy += now
        for node in range(self._cluster.n_nodes):
            self._draw_loss(node, 0.0)
        while len(self._delivered) < self._n_blocks:
            self._take(self._ended(self._happened(now), now), now)
            end = self._ask(self._hand_out(now))
            busy += end - now
            now = self._woken(end)
        return Outcome(
            self._out_at,
            tuple(self._delivered),
            tuple(self._delivered_at),
            self._n_redone,
            self._n_waiting,
            busy / max(now, 1e-12),
            self._n_lost,
        )

    def _woken(self, end: float) -> float:
        """When the next step begins: when all that is awaited is there, or after some time."""
        ends = [each.ended_at for each in self._found + self._ending]
        if not self._costs.poll_s:
            known = [self._costs.known_s] if self._costs.known_s > end else []
            return max(end, min([*ends, *known, *(at for at, *_ in self._events[:1])], default=end))
        all_there = math.inf if self._down else max([*ends, self._last_done])
        return max(end, min(end + self._costs.poll_s, all_there))

    def _push(self, at: float, what: str, which: int, epoch: int, block: int = -1) -> None:
        self._n_events += 1
        heapq.heappush(self._events, (at, self._n_events, what, which, epoch, block))

    def _start(self, number: int, at: float) -> None:
        node = self._actors[number].node
        self._actors[number].is_asked = True
        ready_at = self._cluster.started_s[number] if self._cluster.started_s else at + self._costs.start_s
        self._last_done = max(self._last_done, ready_at)
        self._push(ready_at, "ready", number, self._epoch[node])

    def _draw_loss(self, node: int, now: float) -> None:
        if self._cluster.mtbf_s:
            wait_s = float(self._chances[node].exponential(self._cluster.mtbf_s))
            self._push(now + wait_s, "lost", node, self._epoch[node])

    def _happened(self, now: float) -> list[tuple[int, int, float]]:
        """Actors and blocks that were done by now, and when; all else that happened is reckoned with."""
        found = []
        while self._events and self._events[0][0] <= now:
            at, _, what, which, epoch, block = heapq.heappop(self._events)
            node = which if what in ("lost", "back") else self._actors[which].node
            if epoch != self._epoch[node]:
                continue  # it was lost before
            if what == "done":
                found.append((which, block, at))
            elif what == "ready":
                self._ready(which, at)
            elif what == "lost":
                self._lose(node, at)
            else:
                self._draw_loss(node, at)
                for number in self._actors_of(node):
                    self._start(number, at)
        return found

    def _ready(self, number: int, at: float) -> None:
        """An actor takes blocks: first those that it had when its node was lost."""
        actor = self._actors[number]
        actor.is_ready, actor.free_at = True, at
        self._n_ready += 1
        self._down.discard(number)
        for block in self._tasks[number]:
            self._compute(number, block, at)
        if len(self._tasks[number]) < self._costs.n_in_flight:
            self._with_room[len(self._tasks[number])].append(number)

    def _lose(self, node: int, at: float) -> None:
        """A node with all that was there."""
        self._n_lost += 1
        self._epoch[node] += 1
        self._session_at.pop(node, None)
        for number in self._actors_of(node):
            self._n_ready -= self._actors[number].is_ready
            self._actors[number].is_asked = True  # with the node that takes this one's place
            self._actors[number].is_ready = self._actors[number].has_session = False
            self._n_redone += len(self._tasks[number])
        self._down.update(self._actors_of(node))
        self._found = [each for each in self._found if each.number not in self._down]
        self._ending = [each for each in self._ending if each.number not in self._down]
        again = sorted(block for block, where in self._done_on.items() if where == node)
        for block in reversed(again):
            del self._done_on[block]
            self._todo.appendleft(block)
        self._n_redone += len(again)
        self._push(at + self._cluster.back_s, "back", node, self._epoch[node])

    def _actors_of(self, node: int) -> range:
        """Numbers of a node's actors."""
        return range(node, len(self._actors), self._cluster.n_nodes)

    def _ended(self, done: Sequence[tuple[int, int, float]], now: float) -> Iterator[tuple[int, int]]:
        """Actors and blocks that the driver knows all of: the answer, what is told of it, and that it was the last."""
        costs = self._costs
        ended = [each for each in self._ending if each.ended_at <= now]
        self._ending = [each for each in self._ending if each.ended_at > now]
        told = self._found
        ends = [(number, block, at + costs.end_s) for number, block, at in done]
        self._found = [_Answer(number, block, end, end <= now) for number, block, end in ends]
        if costs.prompt_share >= 1 or self._prompt.random() < costs.prompt_share:
            told, self._found = told + self._found, []
        self._ending += [each for each in told if not each.has_ended]
        ended += [each for each in told if each.has_ended]
        return ((each.number, each.block) for each in ended)

    def _take(self, found: Iterable[tuple[int, int]], now: float) -> None:
        """Blocks that are done make room; their answers leave in order."""
        for number, block in found:
            if block not in self._tasks[number] or not self._actors[number].is_ready:
                continue  # its node was lost since
            self._tasks[number].remove(block)
            self._n_in_hand -= 1
            self._done_on[block] = self._actors[number].node
            self._with_room[len(self._tasks[number])].append(number)
        while (block := len(self._delivered)) in self._done_on:
            del self._done_on[block]
            self._delivered.append(block)
            nbytes = self._job.is_to_driver * self._n_rows(block) * self._costs.answer_nbytes
            self._out_at = max(self._out_at, now) + nbytes * self._cluster.byte_s
            self._delivered_at.append(self._out_at)
        self._n_waiting = max(self._n_waiting, len(self._done_on))

    def _hand_out(self, now: float) -> float:
        """Blocks to the actors that have fewest; when the driver is done with it."""
        costs, n_actors = self._costs, len(self._actors)
        at = now + costs.step_s + n_actors * costs.actor_s
        for n_tasks, actors in enumerate(self._with_room):
            while self._todo and actors and not self._is_held():
                number = actors.popleft()
                if len(self._tasks[number]) != n_tasks or not self._actors[number].is_ready:
                    continue  # it has come by others since, or is lost
                at += self._job.n_stages * (costs.task_s + n_actors * costs.task_actor_s)
                block = self._todo.popleft()
                self._tasks[number].append(block)
                self._n_in_hand += 1
                self._compute(number, block, self._arrival(block, at))
                if n_tasks + 1 < costs.n_in_flight:
                    self._with_room[n_tasks + 1].append(number)
        return at

    def _is_held(self) -> bool:
        """Whether the driver waits, with no more than one block, until it knows what memory there is for answers."""
        return not self._is_known and self._n_in_hand > 0 and bool(self._delivered)

    def _ask(self, now: float) -> float:
        """For all actors, once the driver knows where; when it has done so."""
        if not self._is_known and now >= self._costs.known_s and self._n_ready:
            self._is_known = True
            for number, actor in enumerate(self._actors):
                if not actor.is_asked:
                    now += self._costs.create_s
                    self._start(number, now)
        return now

    def _arrival(self, block: int, at: float) -> float:
        """When a block is in the memory of the node that it is handed out to."""
        nbytes = self._n_rows(block) * self._costs.row_nbytes
        if self._job.is_from_driver:
            self._in_at = at = max(self._in_at, at) + nbytes * self._cluster.byte_s
        return at + nbytes * self._costs.byte_s

    def _compute(self, number: int, block: int, at: float) -> None:
        actor = self._actors[number]
        begin = max(at + self._costs.arrive_s, actor.free_at)
        if not actor.has_session:
            begin = self._opened(actor.node, begin)
            actor.has_session = True
        actor.free_at = begin + float(self._block_s[block]) * self._slowness[actor.node]
        self._last_done = max(self._last_done, actor.free_at)
        self._push(actor.free_at, "done", number, self._epoch[actor.node], block)

    def _opened(self, node: int, begin: float) -> float:
        """When an actor has the session that the first of its node makes."""
        if node not in self._session_at:
            self._session_at[node] = begin + self._costs.session_s * self._slowness[node]
            return self._session_at[node]
        return max(begin, self._session_at[node]) + self._costs.map_s * self._slowness[node]

    def _n_rows(self, block: int) -> int:
        return min(self._job.block_rows, self._job.n_rows - block * self._job.block_rows)


def simulate(cluster: Cluster, job: Job, costs: Costs, seed: int = 0) -> Outcome:
    """A job on a cluster; the same for the same seed."""
    return _Simulation(cluster, job, costs, seed).run()


def most_actors(costs: Costs, block_s: float, n_stages: int = 1) -> float:
    """Actors for which the driver is busy all the time, if each takes a block of so many seconds after the other.

    A block costs the driver so much, and so much for each actor that there is; and all actors are looked at twice, or
    once where all is told promptly, while each of them is done with the blocks that it can have.
    """
    looks_s = (2 - costs.prompt_share) * costs.actor_s / costs.n_in_flight
    linear_s, square_s = n_stages * costs.task_s + looks_s, n_stages * costs.task_actor_s
    if not square_s:
        return block_s / linear_s if linear_s else math.inf
    return (math.sqrt(linear_s**2 + 4 * square_s * block_s) - linear_s) / (2 * square_s)


def least_block_s(costs: Costs, n_actors: int, n_stages: int = 1) -> float:
    """Seconds of a block for which the driver is busy all the time; nor is any shorter than two steps of it hide."""
    looks_s = (2 - costs.prompt_share) * costs.actor_s / costs.n_in_flight
    busy_s = n_actors * (n_stages * (costs.task_s + n_actors * costs.task_actor_s) + looks_s)
    step_s = costs.poll_s + costs.step_s + n_actors * costs.actor_s
    return max(busy_s, (2 - costs.prompt_share) * step_s / costs.n_in_flight)


def most_rows_per_s(costs: Costs, cluster: Cluster, job: Job) -> float:
    """Rows that go through the driver's network, infinitely many where none do."""
    nbytes = max(job.is_from_driver * costs.row_nbytes, job.is_to_driver * costs.answer_nbytes)
    return 1 / (nbytes * cluster.byte_s) if nbytes and cluster.byte_s else math.inf


def losses(cluster: Cluster, job: Job, costs: Costs, seed: int = 0) -> tuple[Outcome, dict[str, float]]:
    """The job, and the share of its time that each of ``LOSSES`` takes, each beside those before it."""
    free = replace(costs, spread=0.0).without_coordination()
    safe = replace(cluster, mtbf_s=0.0)
    alike = safe.without_stragglers()
    near = replace(alike, byte_s=0.0)
    outcomes = [
        simulate(near, job, free.without_start(), seed),
        simulate(near, job, free, seed),
        simulate(alike, job, replace(costs, spread=0.0), seed),
        simulate(safe, job, costs, seed),
        simulate(cluster, job, costs, seed),
    ]
    times = [ideal_s(cluster, job, costs), *(each.seconds for each in outcomes)]
    shares = [(after - before) / times[-1] for before, after in pairwise(times)]
    return outcomes[-1], dict(zip(LOSSES, shares, strict=True))


def ideal_s(cluster: Cluster, job: Job, costs: Costs) -> float:
    """Seconds if all actors did nothing but full batches, from the begin to the end."""
    return job.n_rows * costs.batch_s / (costs.batch_size * cluster.n_nodes * cluster.n_actors)


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, or measure; print tables, and write what is asked for."""
    args = parse(argv)
    if args.calibrate or args.validate:
        return measure(args)
    record = keep(args, read_measured(args, "results") or simulate_all(args))
    show(record)
    rows = [
        Row.of(f"{row['n_nodes']:,} nodes", [row["efficiency"]], f"blocks of {row['block_rows']} rows")
        for row in record["results"]
    ]
    charts = [Chart("Rows a second over those of full batches on all CPUs", "", rows, better="more")]
    write_page(args, record, "What it costs to coordinate many nodes", charts)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=numbers, default=NODES, help=f"by default {','.join(map(str, NODES))}")
    parser.add_argument("--cpus", type=positive, default=16, help="of a node (default: 16)")
    parser.add_argument("--batch-seconds", type=seconds, help="of another network, on one CPU; by default as measured")
    parser.add_argument("--threads", type=positive, default=1, help="CPUs of an actor, and as fast (default: 1)")
    parser.add_argument("--blocks", type=numbers, default=(256,), help="rows of a block (default: 256)")
    parser.add_argument("--task-rows", type=positive, default=1, help="handed out together at least; always a batch")
    parser.add_argument("--minutes", type=seconds, default=10.0, help="of work for each node (default: 10)")
    parser.add_argument("--stages", type=positive, default=1, help="tasks of a block: 3 if it is read and written")
    parser.add_argument("--from", dest="source", choices=("driver", "storage"), default="storage", help="of rows")
    parser.add_argument("--to", dest="sink", choices=("driver", "storage"), default="storage", help="of answers")
    parser.add_argument("--gbit", type=seconds, default=10.0, help="the driver's network, a second (default: 10)")
    parser.add_argument("--node-spread", type=float, default=0.05, help="of speeds, lognormal (default: 0.05)")
    parser.add_argument("--slow", type=float, default=0.01, help="share of nodes 3 times as slow (default: 0.01)")
    parser.add_argument("--mtbf-hours", type=float, default=200.0, help="until a node is lost, or 0 (default: 200)")
    parser.add_argument("--back-seconds", type=seconds, default=120.0, help="until another is there (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="of chance (default: 0)")
    parser.add_argument("--costs", metavar="FILE", default=str(CALIBRATION), help="what --calibrate wrote")
    parser.add_argument("--calibrate", metavar="FILE", help="measure on this machine what the simulation needs")
    parser.add_argument("--part", choices=PARTS, help="of it alone; all else stays as it is in FILE")
    parser.add_argument("--validate", type=numbers, metavar="NODES", help="run and simulate so many, with --costs")
    parser.add_argument("--asleep", type=float, action="append", metavar="SECONDS", help="of blocks; 0: of a network")
    parser.add_argument("--burden", type=float, default=0.0, metavar="SECONDS", help="that hold up the driver a block")
    add_files(parser)
    return parser.parse_args(argv)


def measure(args: argparse.Namespace) -> int:
    """Measure costs, or whole jobs beside those simulated."""
    if not find_spec("ray"):
        print("Ray is not installed: pip install 'blocklayout[ray]'", file=sys.stderr)
        return 1
    from bench import cluster_on_ray

    if args.calibrate:
        measured = cluster_on_ray.measured([args.part] if args.part else PARTS)
        known = asdict(read_costs(args.calibrate)[0]) if args.part else {}
        costs = Costs(**known | measured)
        write_json(args.calibrate, {"environment": cluster_on_ray.environment(), "costs": asdict(costs)})
        show_costs(costs)
    if args.validate:
        costs, environment = read_costs(args.calibrate or args.costs)
        results = list(cluster_on_ray.validated(args.validate, args.asleep or ASLEEP, args.burden, costs))
        keep(args, {"environment": environment, "results": results})
        show_validated(results)
    return 0


def read_costs(path: str) -> tuple[Costs, dict[str, Any]]:
    """What was measured, and on which machine."""
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    return Costs(**record["costs"]), record["environment"]


def simulate_all(args: argparse.Namespace) -> dict[str, Any]:
    """All numbers of nodes and rows of a block."""
    measured, environment = read_costs(args.costs)
    batch_s = (args.batch_seconds or measured.batch_s) / args.threads
    costs = replace(measured, batch_s=batch_s, session_s=measured.session_s / args.threads)
    results = [each for n_rows in args.blocks for each in scaled(args, costs, n_rows)]
    made = {"simulated_by": describe_environment(1), "environment": environment, "costs": asdict(costs)}
    return made | {"n_stages": args.stages, "results": results}


def scaled(args: argparse.Namespace, costs: Costs, block_rows: int) -> Iterator[dict[str, Any]]:
    """A row of the table for each number of nodes."""
    task_rows = block_rows * math.ceil(max(args.task_rows, costs.batch_size) / block_rows)
    for n_nodes in args.nodes:
        cluster = Cluster(
            n_nodes, max(1, args.cpus // args.threads), args.node_spread, args.slow, mtbf_s=3600 * args.mtbf_hours,
            back_s=args.back_seconds, byte_s=8e-9 / args.gbit,
        )  # fmt: skip
        per_s = n_nodes * cluster.n_actors * costs.batch_size / costs.batch_s
        n_rows = max(1, round(60 * args.minutes * per_s))
        job = Job(n_rows, task_rows, args.source == "driver", args.sink == "driver", args.stages)
        outcome, shares = losses(cluster, job, costs, args.seed)
        block_s = costs.block_s + math.ceil(task_rows / costs.batch_size) * costs.batch_s
        yield {
            "n_nodes": n_nodes,
            "n_actors": cluster.n_actors,
            "block_rows": block_rows,
            "task_rows": task_rows,
            "block_seconds": block_s,
            "rows_per_s": n_rows / outcome.seconds,
            "efficiency": n_rows / outcome.seconds / per_s,
            "losses": shares,
            "driver_share": outcome.driver_share,
            "n_lost": outcome.n_lost,
            "n_redone": outcome.n_redone,
            "waiting_nbytes": outcome.n_waiting * task_rows * costs.answer_nbytes / n_nodes,
            "driver_most_nodes": most_actors(costs, block_s, args.stages) / cluster.n_actors,
            "network_most_nodes": n_nodes * most_rows_per_s(costs, cluster, job) / per_s,
            "least_block_s": least_block_s(costs, n_nodes * cluster.n_actors, args.stages),
        }


def show(record: Mapping[str, Any]) -> None:
    """The tables."""
    costs = Costs(**record["costs"])
    show_costs(costs)
    for block_rows in dict.fromkeys(row["block_rows"] for row in record["results"]):
        rows = [row for row in record["results"] if row["block_rows"] == block_rows]
        first = rows[0]
        most = {"driver": first["driver_most_nodes"], "network": first["network_most_nodes"]}
        said = " and ".join(f"{n:,.0f} nodes saturate its {name}" for name, n in most.items() if n and n < math.inf)
        title = f"blocks of {block_rows} rows, {first['task_rows']} handed out together, {first['block_seconds']:.1f} s"
        title += f"; {first['n_actors']} actors a node"
        show_scaled(f"{title}; {said}", rows, costs)


def show_scaled(title: str, rows: Sequence[Mapping[str, Any]], costs: Costs) -> None:
    """A table of numbers of nodes."""
    header = ("nodes", "rows/s", "efficiency", *LOSSES, "nodes lost", "blocks redone", "saturated below")
    cells = [
        (
            f"{row['n_nodes']:,}",
            f"{row['rows_per_s']:,.0f}",
            f"{row['efficiency']:.1%}",
            *(f"{row['losses'][name]:.1%}" for name in LOSSES),
            str(row["n_lost"]),
            str(row["n_redone"]),
            f"{costs.batch_size * math.ceil(row['least_block_s'] / costs.batch_s):,} rows",
        )
        for row in rows
    ]
    print_table(header, cells, title=title, text_columns=())


def show_costs(costs: Costs) -> None:
    """What was measured."""
    named = {field.name: getattr(costs, field.name) for field in fields(costs)}
    print(", ".join(f"{name}={value:.4g}" for name, value in named.items()))


def show_validated(results: Sequence[Mapping[str, Any]]) -> None:
    """What was measured beside what was simulated."""
    header = ("job", "nodes", "blocks", "measured s", "simulated", "error", "then rows/s", "simulated", "error", "busy")
    cells = [
        (
            row["job"],
            str(row["n_nodes"]),
            str(row["n_blocks"]),
            *(f"{row[name]['seconds']:.2f}" for name in ("measured", "simulated")),
            f"{row['simulated']['seconds'] / row['measured']['seconds'] - 1:+.0%}",
            *(f"{row[name]['rows_per_s']:.1f}" for name in ("measured", "simulated")),
            f"{row['simulated']['rows_per_s'] / row['measured']['rows_per_s'] - 1:+.0%}",
            f"{row['simulated']['driver_share']:.0%}",
        )
        for row in results
    ]
    print_table(header, cells, title="whole jobs, rows a second in their second half, and the driver's load")


if __name__ == "__main__":
    sys.exit(main())
