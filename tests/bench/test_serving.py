"""What the benchmark of serving tells beside times: the queue's part of the tail, and how late callers asked."""

from __future__ import annotations

import numpy as np
import pytest

from bench import serving


def test_a_queue_that_never_fills_has_no_tail() -> None:
    assert serving.least_ratio(np.arange(100.0), answer_s=0.5, n_streams=1) == pytest.approx(1)


@pytest.mark.parametrize("n_streams", [1, 2, 4])
def test_requests_that_come_at_once_wait_for_those_before(n_streams: int) -> None:
    due = np.zeros(100 * n_streams)
    waits = np.repeat(np.arange(1, 101), n_streams)
    expected = np.percentile(waits, 99) / np.percentile(waits, 50)
    assert serving.least_ratio(due, answer_s=0.5, n_streams=n_streams) == pytest.approx(expected)


def test_only_callers_that_are_free_ask_late() -> None:
    times, late = serving.at_load(lambda number: number, np.zeros(5), n_callers=1)  # all are due while it waits for one
    assert len(times) == 5
    assert len(late) == 1
    assert 0 <= late[0] <= times[0]
