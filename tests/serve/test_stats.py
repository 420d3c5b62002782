"""Counts of what was submitted, and their text for Prometheus."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.serve.stats import BOUNDS_S, Histogram, Tally
from tests import gates, nets

FEED = {"x": nets.random_input(gates.SHAPE)}


LONG_AGO_NS = -(10**11)


def session_of_three() -> bl.Session:
    session = bl.load(nets.chain(convs=1), threads=1)
    for feed in (FEED, FEED, {}):
        session.submit(feed).exception()
    return session


def test_what_was_submitted_is_counted() -> None:
    stats = session_of_three().stats()
    assert (stats.finished, stats.failed, stats.cancelled, stats.overdue, stats.refused) == (2, 1, 0, 0, 0)
    assert stats.queue.n == stats.run.n == 2
    assert stats.run.total_s > 0
    assert stats.batches == {1: 3}
    assert stats.weights_nbytes > 0


def test_runs_that_were_not_submitted_are_not() -> None:
    session = bl.load(nets.chain(convs=1), threads=1)
    session.run(None, FEED)
    assert session._submissions is None
    assert session.stats().queue.n == 0


def test_it_prints_as_a_few_lines() -> None:
    shown = str(session_of_three().stats())
    assert re.fullmatch(
        r"2 finished, 1 failed, 0 cancelled, 0 overdue, 0 refused; 0 wait\n"
        r"  waited mean [\d.]+ ms, p99 up to [\d.]+ ms\n"
        r"  ran    mean [\d.]+ ms, p99 up to [\d.]+ ms\n"
        r"  batches 3 of 1\n"
        r"  arenas \d+ MiB, weights \d+ MiB",
        shown,
    ), shown
    assert str(bl.load(nets.chain(convs=1), threads=1).stats()).count("\n") == 1


@pytest.mark.parametrize("labels", [{}, {"model": 'a "quoted"\\ name\nof two lines', "version": "2"}])
def test_prometheus_reads_what_was_counted(labels: dict[str, str]) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = parser.text_string_to_metric_families(session_of_three().stats().prometheus(**labels))
    samples = {}
    for family in families:
        assert family.documentation
        for sample in family.samples:
            own = {name: value for name, value in sample.labels.items() if name not in labels}
            assert {**own, **labels} == sample.labels
            samples[sample.name, *own.values()] = sample.value
    assert samples["blocklayout_requests_total", "finished"] == 2
    assert samples["blocklayout_requests_total", "failed"] == 1
    assert samples["blocklayout_requests_waiting",] == 0
    assert samples["blocklayout_batches_total", "1"] == 3
    assert samples["blocklayout_memory_bytes", "weights"] > 0
    assert samples["blocklayout_run_seconds_count",] == samples["blocklayout_run_seconds_bucket", "+Inf"] == 2
    assert samples["blocklayout_queue_seconds_sum",] > 0


@pytest.mark.parametrize("name", ["le", "end", "__name", "a-b", "1st", "größe", ""])
def test_labels_that_prometheus_does_not_take_are_refused(name: str) -> None:
    with pytest.raises(bl.InputError, match="give a word"):
        session_of_three().stats().prometheus(**{name: "x"})


@given(times=st.lists(st.floats(0, 20), min_size=1))
def test_quantiles_are_bounds_of_as_many(times: list[float]) -> None:
    counts = np.histogram(times, [-1, *np.nextafter(BOUNDS_S, np.inf), np.inf])[0]
    histogram = Histogram(tuple(map(int, counts)), sum(times))
    for share in (0.5, 0.99, 1.0):
        bound = histogram.quantile(share)
        assert sum(time <= bound for time in times) >= share * len(times)


def test_threads_lose_no_count() -> None:
    tally = Tally()

    def count() -> None:
        for _ in range(500):
            tally.finish(LONG_AGO_NS, tally.begin(2))
            tally.fail(bl.StoppedError())

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = tally.stats(0, 0, 0)
    assert (stats.finished, stats.cancelled, stats.batches) == (4000, 4000, {2: 4000})
    assert stats.queue.counts[-1] == 4000
