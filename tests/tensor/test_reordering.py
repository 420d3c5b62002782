"""Reorders: kept for the next time, told to whoever watches, and done by numpy where oneDNN does not."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.tensor import as_array, as_memory, as_tensor, reordering
from tests.tensor.tensors import numbered


@pytest.mark.usefixtures("no_garbage")
def test_a_second_reorder_makes_no_second_primitive() -> None:
    tensor = numbered((3, 19, 7, 5))
    tensor.reorder("nChw8c")
    before = dnnl.live_handles()
    made = [tensor.reorder("nChw8c") for _ in range(3)]
    assert dnnl.live_handles() == before
    assert all((each.numpy() == tensor.numpy()).all() for each in made)


def test_no_more_are_kept_than_said() -> None:
    for extent in range(1, 2 * reordering._MAX_IDLE):
        numbered((extent, 3)).reorder("ba")
    assert reordering._kept.cache_info().currsize == reordering._MAX_IDLE


def test_what_is_kept_holds_no_buffers() -> None:
    tensor = bl.zeros((2, 9, 3, 3))
    made = tensor.reorder("nChw8c")
    held = [weakref.ref(tensor.buffer.base), weakref.ref(made.buffer.base)]
    del tensor, made
    gc.collect()
    assert [each() for each in held] == [None, None]


def test_several_threads_have_one_each() -> None:
    tensors = [bl.full((2, 17, 6, 6), number) for number in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            made = [tensors[number].reorder("nChw8c", threads=threads) for threads in (1, 2)]
            wrong.extend(number for tensor in made if not (tensor.numpy() == number).all())

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not wrong


def test_reorder_is_the_method_too_and_always_moves() -> None:
    tensor = numbered((2, 17, 5, 4))
    np.testing.assert_array_equal(tensor.reorder("nhwc").physical(), bl.reorder(tensor, "nhwc").physical())
    assert not np.may_share_memory(tensor.reorder("nchw").buffer, tensor.buffer)
    assert tensor.reorder(bl.preserve_format).memory_format == "contiguous_format"
    with pytest.raises(bl.DnnlError, match="dst has extents"):
        bl.reorder(tensor, bl.MemoryDesc((2, 3)))


def test_tags_that_the_library_has_not_are_done_all_the_same() -> None:
    tensor = numbered((2, 17, 5, 4))
    made = bl.reorder(tensor, "aBcd5b")
    np.testing.assert_array_equal(made.numpy(), tensor.numpy())
    assert made.padding_is_zero()
    np.testing.assert_array_equal(made.astype("s64").to("nChw8c").numpy(), tensor.numpy())


def test_watches_are_told_of_what_moves() -> None:
    tensor = numbered((2, 17, 5, 4))
    with bl.watch("record") as seen:
        blocked = tensor.to("nChw8c")
        blocked.contiguous(bl.channels_last)
        bl.reorder(tensor, "chwn")
        tensor.clone(bl.channels_last)
    assert [event.operator for event in seen] == ["Tensor.to", "Tensor.contiguous", "reorder", "Tensor.clone"]
    assert {event.kind for event in seen} == {"reorder"}
    first = seen.events[0]
    assert first.inputs == (tensor.desc,)
    assert first.result == blocked.desc
    assert first.nbytes == tensor.nbytes + blocked.nbytes
    assert first.ns is not None
    assert first.ns > 0
    assert first.reason == "contiguous_format was brought into nChw8c"
    assert first.file == __file__


def test_watches_are_not_told_of_what_does_not() -> None:
    tensor = numbered((2, 1, 5, 4), "nhwc")
    with bl.watch("raise"):
        tensor.to(bl.contiguous_format)
        tensor.to(bl.channels_last)
        tensor.contiguous()
        tensor.permute(0, 2, 3, 1)
        tensor.clone()
        tensor.astype("bf16")
        np.asarray(tensor)
        np.from_dlpack(tensor)
        tensor.numpy()
        bl.zeros((0, 3)).to("ba")
        bl.from_array(np.zeros((2, 3)).T)
        tensor[1:, :, ::2] = 0


def test_watches_are_told_of_copies() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    blocked = numbered((2, 3), "aB8b")
    with bl.watch("record") as seen:
        as_array(array[::-1])
        as_array(array.astype(">f4"), "somebody")
        as_memory(np.lib.stride_tricks.sliding_window_view(array[0], 2))
        as_tensor(array[:, ::2])
        np.asarray(blocked)
    told = [(event.kind, event.operator) for event in seen]
    operators = ["as_array", "somebody", "as_memory", "as_tensor", "Tensor.__array__"]
    assert told == [("copy", operator) for operator in operators]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0)])
def test_a_dense_array_is_a_tensor_as_it_is(order: tuple[int, ...]) -> None:
    back = np.argsort(order)
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5).transpose(order).copy().transpose(back)
    tensor = as_tensor(array)
    assert np.shares_memory(tensor.buffer, array)
    assert tensor.desc.format_tag.order == order
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert as_tensor(tensor) is tensor
