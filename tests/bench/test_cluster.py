"""Laws of simulated jobs on many nodes; nothing is run on any."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import cluster as bench
from bench.cluster import Cluster, Costs, Job, simulate
from tests.show.records import record_of

if TYPE_CHECKING:
    from pathlib import Path

COSTS = Costs(
    poll_s=0.1, step_s=0.001, actor_s=1e-4, task_s=1e-3, task_actor_s=1e-6, create_s=0.01, n_in_flight=2,
    prompt_share=0.2, end_s=2e-3, known_s=1.5, start_s=1.0, session_s=0.7, map_s=0.1, block_s=0.01, block_spread=0.3,
    arrive_s=1e-3, batch_s=0.5, spread=0.2, byte_s=1e-9,
    batch_size=8, row_nbytes=100_000, answer_nbytes=1000,
)  # fmt: skip
FREE = replace(COSTS, spread=0.0).without_coordination().without_start()
ALL_COSTS = st.sampled_from([COSTS, FREE, COSTS.without_start(), replace(COSTS, n_in_flight=1, prompt_share=1.0)])


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Up to 60 blocks."""
    block_rows = draw(st.integers(1, 40))
    n_rows = draw(st.integers(1, 60 * block_rows))
    return Job(n_rows, block_rows, draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([1, 3])))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to six nodes, which may be unlike each other, and lost."""
    return Cluster(
        draw(st.integers(1, 6)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([0.0, 0.3])),
        draw(st.sampled_from([0.0, 0.5])),
        mtbf_s=draw(st.sampled_from([0.0, 10.0, 30.0])),
        back_s=draw(st.sampled_from([0.0, 1.0, 20.0])),
        byte_s=draw(st.sampled_from([0.0, 1e-7])),
    )


def n_blocks(job: Job) -> int:
    return math.ceil(job.n_rows / job.block_rows)


@given(clusters(), jobs(), ALL_COSTS, st.integers(0, 9))
def test_every_block_is_delivered_once_and_in_order_whatever_is_lost(
    cluster: Cluster, job: Job, costs: Costs, seed: int
) -> None:
    outcome = simulate(cluster, job, costs, seed)
    assert outcome.delivered == tuple(range(n_blocks(job)))
    assert outcome.n_lost or not outcome.n_redone


def test_nodes_are_lost_with_what_they_had() -> None:
    outcome = simulate(Cluster(3, 2, mtbf_s=10.0, back_s=1.0), Job(2000, 8), COSTS)
    assert outcome.n_lost > 3
    assert outcome.n_redone > 3


@given(clusters(), jobs(), ALL_COSTS, st.integers(0, 9))
def test_the_same_seed_gives_the_same(cluster: Cluster, job: Job, costs: Costs, seed: int) -> None:
    assert simulate(cluster, job, costs, seed) == simulate(cluster, job, costs, seed)


def test_another_seed_gives_another() -> None:
    assert simulate(Cluster(2), Job(100, 8), COSTS, 0) != simulate(Cluster(2), Job(100, 8), COSTS, 1)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 60), st.integers(1, 4))
def test_without_losses_only_the_last_blocks_leave_cpus_idle(
    n_nodes: int, n_actors: int, n_blocks: int, n_batches: int
) -> None:
    job = Job(n_blocks * n_batches * FREE.batch_size, n_batches * FREE.batch_size)
    cluster = Cluster(n_nodes, n_actors)
    n_turns = math.ceil(n_blocks / (n_nodes * n_actors))
    assert simulate(cluster, job, FREE).seconds == pytest.approx(n_turns * n_batches * FREE.batch_s)
    _, shares = bench.losses(cluster, job, FREE)
    idle = 1 - n_blocks / (n_turns * n_nodes * n_actors)
    assert shares == pytest.approx(dict.fromkeys(bench.LOSSES, 0.0) | {"last blocks": idle}, abs=1e-9)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 60), st.sampled_from([0.0, 0.5]))
def test_another_node_makes_nothing_slower(n_nodes: int, n_actors: int, n_blocks: int, spread: float) -> None:
    costs = replace(FREE, spread=spread, n_in_flight=1)
    fewer, more = (Cluster(n, n_actors) for n in (n_nodes, n_nodes + 1))
    job = Job(n_blocks * 8, 8)
    assert simulate(more, job, costs).seconds <= simulate(fewer, job, costs).seconds * (1 + 1e-9)


@given(clusters(), jobs(), st.integers(0, 9))
def test_losses_and_work_are_all_of_the_time(cluster: Cluster, job: Job, seed: int) -> None:
    outcome, shares = bench.losses(cluster, job, COSTS, seed)
    assert sum(shares.values()) == pytest.approx(1 - bench.ideal_s(cluster, job, COSTS) / outcome.seconds)
    assert shares["last blocks"] >= -1e-9
    assert shares["start-up"] > 0


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_driver_saturates_where_blocks_take_as_long_as_all_of_them_are_handed_out(share: float) -> None:
    costs = replace(FREE, poll_s=1e-3, task_s=0.025)
    block_rows = 16  # two batches, 1 s
    assert bench.most_actors(costs, 1.0) == pytest.approx(40)
    n_actors = round(share * 40)
    outcome = simulate(Cluster(n_actors), Job(2000 * block_rows, block_rows), costs)
    assert 2000 / outcome.seconds == pytest.approx(min(n_actors / 1.0, 1 / 0.025), rel=0.05)
    assert outcome.driver_share == pytest.approx(min(share, 1.0), rel=0.05)


@given(st.integers(20, 60), st.sampled_from([0.0, 1e-3]), st.sampled_from([0.0, 1e-5]), st.sampled_from([1, 3]))
def test_looking_at_actors_saturates_it_sooner(
    n_actors: int, actor_s: float, task_actor_s: float, n_stages: int
) -> None:
    free = replace(FREE, batch_s=1e-6)
    costs = replace(free, poll_s=1e-6, task_s=2e-3, actor_s=actor_s, task_actor_s=task_actor_s, prompt_share=0.0)
    outcome = simulate(Cluster(n_actors), Job(40 * n_actors * 8, 8, n_stages=n_stages), costs)
    least_s = bench.least_block_s(costs, n_actors, n_stages)
    assert n_actors * 40 / outcome.seconds == pytest.approx(n_actors / least_s, rel=0.1)
    assert bench.most_actors(costs, least_s, n_stages) == pytest.approx(n_actors)


def test_one_actor_works_alone_until_the_driver_knows_the_cluster() -> None:
    costs = replace(FREE, known_s=5.0, start_s=1.0)
    alone, together = (simulate(Cluster(n), Job(60 * 8, 8), costs) for n in (1, 6))
    for outcome in (alone, together):
        assert sum(at <= 5.0 for at in outcome.delivered_at) == 4.0 / costs.batch_s
    assert sum(at <= 6.0 for at in together.delivered_at) == 5.0 / costs.batch_s
    assert sum(at <= 8.0 for at in together.delivered_at) == (5.0 + 6 * 2.0) / costs.batch_s


def test_the_driver_asks_for_others_while_the_first_block_is_computed() -> None:
    costs = replace(FREE, known_s=5.0, start_s=1.0, batch_s=10.0)
    assert simulate(Cluster(2), Job(3 * 8, 8), costs).seconds == pytest.approx(21.0)
    assert simulate(Cluster(1), Job(3 * 8, 8), costs).seconds == pytest.approx(31.0)


def test_actors_start_when_they_are_said_to() -> None:
    outcome = simulate(Cluster(2, started_s=(0.5, 3.0)), Job(9 * 8, 8), FREE)
    assert outcome.delivered_at == pytest.approx([1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 3.5, 4.0, 4.0])


@pytest.mark.parametrize("end_s", [0.0, 0.05])
def test_an_actor_gets_another_block_once_the_end_of_its_answer_is_known(end_s: float) -> None:
    costs = replace(FREE, poll_s=0.1, n_in_flight=1, prompt_share=0.0, end_s=end_s)
    assert simulate(Cluster(1), Job(10 * 8, 8), costs).seconds == pytest.approx(10 * (costs.batch_s + end_s))


def test_short_blocks_leave_actors_idle_where_the_driver_waits_for_all_of_them() -> None:
    costs = replace(FREE, poll_s=0.1, prompt_share=0.0, block_s=0.01, block_spread=0.5, batch_s=0.05)
    short, long = (
        simulate(Cluster(8), Job(800 * 8, 8), replace(costs, batch_s=batch_s)).seconds / (100 * (batch_s + 0.01))
        for batch_s in (0.05, 1.0)
    )
    assert short > 1.1
    assert long < 1.05


def test_the_drivers_network_is_a_limit() -> None:
    job, cluster = Job(4000, 8, is_from_driver=True), Cluster(50, byte_s=1e-6)
    assert bench.most_rows_per_s(FREE, cluster, job) == pytest.approx(10)
    assert 4000 / simulate(cluster, job, FREE).seconds == pytest.approx(10, rel=0.05)
    assert bench.losses(cluster, job, FREE)[1]["coordination"] > 0.9
    assert bench.most_rows_per_s(FREE, cluster, replace(job, is_from_driver=False)) == math.inf


def test_the_table_of_the_kept_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--json", str(tmp_path / "cluster.json"), "--html", str(tmp_path / "page.html"))
    assert bench.main(["--nodes", "1,3", "--minutes", "0.5", "--blocks", "24,64", "--cpus", "2", *files]) == 0
    results = json.loads((tmp_path / "cluster.json").read_text())["results"]
    assert [(row["n_nodes"], row["block_rows"]) for row in results] == [(1, 24), (3, 24), (1, 64), (3, 64)]
    assert [row["task_rows"] for row in results] == [48, 48, 64, 64]  # a batch of 32 rows at least, and whole blocks
    assert all(0 < row["efficiency"] < 1 for row in results)
    assert "blocks of 64 rows" in capsys.readouterr().out
    [chart] = record_of(tmp_path / "page.html")["charts"]
    assert [row["name"] for row in chart["rows"]] == 2 * ["1 nodes", "3 nodes"]
