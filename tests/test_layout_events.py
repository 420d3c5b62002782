"""Watches: what they keep, whom they tell, and that nothing remains switched on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import blocklayout as bl
from blocklayout.layout_events import EventKind, carry, is_watched, report, report_step
from tests.here import line_here

if TYPE_CHECKING:
    from blocklayout.layout_events import WatchMode

PLAIN, LAST = bl.MemoryDesc((1, 3, 2, 2), "f32", "nchw"), bl.MemoryDesc((1, 3, 2, 2), "f32", "nhwc")


def move(kind: EventKind = "reorder") -> None:
    report(kind, "mover (Move)", [PLAIN], LAST, nbytes=2048, ns=1500, reason="somebody reads nhwc")


def test_what_is_seen_is_kept_with_its_place() -> None:
    with bl.watch("record") as w:
        line = line_here() + 1
        report("copy", "numpy", [])
        move()
    [here, event] = w
    assert (here.file, here.line) == (__file__, line)
    assert (event.kind, event.operator, event.inputs, event.result) == ("reorder", "mover (Move)", (PLAIN,), LAST)
    assert (event.nbytes, event.ns, event.reason) == (2048, 1500, "somebody reads nhwc")


def test_the_words_name_all_of_it() -> None:
    with bl.watch("record") as w:
        move()
    assert str(w.events[0]) == (
        "reorder in mover (Move): somebody reads nhwc "
        "(f32 1x3x2x2 nchw strides (12, 4, 2, 1) -> f32 1x3x2x2 nhwc; 2048 bytes, 1.5 us)"
    )


def test_nothing_is_kept_outside_of_blocks() -> None:
    watch = bl.watch("record")
    move()
    with watch:
        assert is_watched()
    move()
    assert not is_watched()
    assert len(watch) == 0


@pytest.mark.parametrize("kind", ["reorder", "copy", "loss"])
def test_warn_warns_of_each(kind: EventKind) -> None:
    with bl.watch() as w, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        move(kind)
        move(kind)  # from the same line
    assert len(seen) == len(w) == 2
    assert {warning.filename for warning in seen} == {__file__}
    assert {warning.category for warning in seen} == {bl.WatchWarning}
    assert str(seen[0].message).startswith(f"{kind} in mover")


def test_record_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with bl.watch("record") as w:
            move()
    assert len(w) == 1


def test_raise_raises_and_keeps() -> None:
    with bl.watch("raise") as w, pytest.raises(bl.WatchError, match=r"test_layout_events.py:\d+: reorder in mover"):
        move()
    assert len(w) == 1


def test_another_mode_is_refused() -> None:
    with pytest.raises(bl.InputError, match="warn, raise, record"):
        bl.watch("print")  # type: ignore[arg-type]


@pytest.mark.parametrize("only", ["loss", ("loss",), ["copy", "loss"]])
def test_a_watch_of_some_kinds_sees_no_others(only: Any) -> None:
    with bl.watch("raise", only=only) as strict, bl.watch("record", only="reorder") as other:
        move("reorder")
        with pytest.raises(bl.WatchError, match=r"loss in mover .*f32 1x3x2x2 nchw strides \(12, 4, 2, 1\)"):
            move("loss")
    assert [event.kind for event in strict] == ["loss"]
    assert [event.kind for event in other] == ["reorder"]
    move("loss")  # nothing remains switched on


def test_what_is_raised_for_counts_only_what_is_watched_for() -> None:
    def moves() -> None:
        move("reorder")
        move("loss")
        move("copy")

    with bl.watch("raise", only="loss"), pytest.raises(bl.WatchError, match="loss in mover") as raised:
        carry(moves)()
    assert "more)" not in str(raised.value)


def test_a_warning_watch_of_other_kinds_leaves_a_loss_its_own_warning() -> None:
    with bl.watch(only="copy"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        report("loss", "mover", [LAST], PLAIN, always_warns=True)
        move("reorder")
    assert [warning.category for warning in seen] == [bl.LayoutLossWarning]


@pytest.mark.parametrize("only", ["los", "step", (), ["loss", 1], 5, {"loss"}])
def test_other_kinds_are_refused(only: Any) -> None:
    with pytest.raises(bl.InputError, match="reorder, copy, loss"):
        bl.watch(only=only)


def test_steps_are_asked_for_by_truth() -> None:
    with pytest.raises(bl.InputError, match="steps is 1"):
        bl.watch(steps=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["warn", "raise", "record"])
def test_steps_are_kept_and_never_told(mode: WatchMode) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with bl.watch(mode, only="loss", steps=True) as w, bl.watch(mode) as without:
            report_step("mover", [PLAIN], LAST, 1500, "reorder", "jit:uni")
    [step] = w
    assert (step.kind, step.primitive, step.implementation, step.ns) == ("step", "reorder", "jit:uni", 1500)
    assert w.table().splitlines()[-1] == "1 step (1.50 µs)"
    assert json.loads(w.to_json())["events"][0]["implementation"] == "jit:uni"
    assert not len(without)


def test_an_error_inside_switches_it_off() -> None:
    w = bl.watch("raise")
    with contextlib.suppress(bl.WatchError), w:
        move()
    with contextlib.suppress(ZeroDivisionError), w:
        _ = 1 // 0
    assert not is_watched()
    move()
    assert len(w) == 1


def test_blocks_nest() -> None:
    with bl.watch("record") as outer:
        with bl.watch("record") as inner:
            move()
        move("copy")
    assert [event.kind for event in outer] == ["reorder", "copy"]
    assert [event.kind for event in inner] == ["reorder"]


@pytest.mark.parametrize("modes", [("raise", "record"), ("record", "raise"), ("warn", "raise")])
def test_the_strictest_of_nested_blocks_counts(modes: tuple[WatchMode, WatchMode]) -> None:
    with bl.watch(modes[0]) as outer, bl.watch(modes[1]) as inner, pytest.raises(bl.WatchError):
        move()
    assert outer.events == inner.events
    assert len(inner) == 1


def test_a_watch_that_is_entered_again_goes_on() -> None:
    w = bl.watch("record")
    with w:
        move()
    with w, w:
        move("copy")
    with w:
        with w:
            pass
        move("loss")
    assert [event.kind for event in w] == ["reorder", "copy", "loss"]
    assert not is_watched()


def test_threads_are_not_seen() -> None:
    with bl.watch("record") as w:
        thread = threading.Thread(target=move)
        thread.start()
        thread.join()
    assert len(w) == 0


def test_two_threads_watch_beside_each_other_even_by_the_same_watch() -> None:
    are_in, both = threading.Barrier(2), bl.watch("record")

    def watched() -> tuple[int, bool]:
        with both, bl.watch("record") as own:
            are_in.wait(timeout=30)
            move()
            are_in.wait(timeout=30)
        return len(own), is_watched()

    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(watched) for _ in range(2)]
    assert [future.result() for future in ended] == [(1, False)] * 2
    assert len(both) == 2


def test_tasks_belong_to_the_block_they_start_in() -> None:
    async def later(go_on: asyncio.Event) -> None:
        await go_on.wait()
        move()

    async def main() -> int:
        go_on = asyncio.Event()
        with bl.watch("record") as w:
            task = asyncio.create_task(later(go_on))
        move()  # the block is over for whoever opened it
        go_on.set()
        await task
        return len(w)

    assert asyncio.run(main()) == 1


def test_what_is_carried_is_told_where_it_came_from() -> None:
    with bl.watch("record") as w:
        carried, line = carry(move), line_here()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(carried).result()
        assert not pool.submit(is_watched).result()
    assert [(event.file, event.line) for event in w] == [(__file__, line)]


def test_what_is_carried_ends_before_it_raises() -> None:
    ended = []

    def moves() -> None:
        move()
        move("copy")
        ended.append(True)

    with bl.watch("raise") as w, pytest.raises(bl.WatchError, match=r"reorder in mover .*and 1 more"):
        carry(moves)()
    assert ended
    assert len(w) == 2


def test_an_error_of_what_is_carried_is_not_hidden() -> None:
    def fails() -> None:
        move()
        raise KeyError("own")

    with bl.watch("raise") as w, pytest.raises(KeyError, match="own"):
        carry(fails)()
    assert len(w) == 1


def test_some_losses_are_warned_of_where_nobody_watches() -> None:
    with pytest.warns(bl.LayoutLossWarning, match="loss in mover"):
        report("loss", "mover", [LAST], PLAIN, always_warns=True)


def test_the_table_has_a_row_for_each_and_totals() -> None:
    with bl.watch("record") as w:
        move()
        report("reorder", "other", [PLAIN, LAST], None, nbytes=1024)
        report("loss", "mover", [LAST], bl.MemoryDesc((12,)), reason="because " * 20)
    lines = w.table().splitlines()
    assert lines[0].split() == ["kind", "operator", "where", "inputs,", "result,", "reason", "KiB", "us"]
    assert lines[1].startswith("reorder  mover (Move)  test_layout_events.py:")
    assert lines[1].split()[4:] == ["f32", "1x3x2x2", "nchw", "2.0", "1.5"]
    below = [line.strip() for line in lines[2:5]]
    assert below[0].endswith("strides (12, 4, 2, 1)")
    assert below[1:] == ["-> nhwc", "somebody reads nhwc"]
    assert lines[-1] == "2 reorders (3.0 KiB, 1.50 µs), 1 loss"
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_a_table_of_nothing_says_so() -> None:
    assert bl.watch().table() == "nothing was moved or lost"


def test_json_has_all_of_it() -> None:
    with bl.watch("record") as w:
        move()
    data = json.loads(w.to_json(indent=1))
    assert data == w.to_dict()
    assert data["totals"] == {"reorder": {"n": 1, "nbytes": 2048, "ns": 1500}}
    [event] = data["events"]
    assert event["inputs"][0]["strides"] == [12, 4, 2, 1]
    assert (event["result"]["layout"], event["file"]) == ("nhwc", __file__)


def test_a_notebook_shows_the_table() -> None:
    with bl.watch("record") as w:
        report("copy", "a < b", [PLAIN])
    assert "a &lt; b" in w._repr_html_()
    assert repr(w) == "<Watch 'record': 1 events>"
