"""Transposes stand where they move the least bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.model import Builder, BuildValue
from blocklayout.model.passes.push_transposes import moved_nbytes
from tests.model.transposing import FIRST, LAST, SHAPE, n_transposes, op_types, pushed, vector


def insisting(b: Builder, x: BuildValue) -> BuildValue:
    y: BuildValue = b.op("CumSum", x, np.array(1))
    return y


GROWING: dict[str, Callable[[Builder, BuildValue], BuildValue]] = {
    "Resize": lambda b, x: b.op("Resize", x, None, np.array([1, 2, 2, 1], np.float32)),
    "Pad": lambda b, x: b.op("Pad", x, [0, 2, 2, 0, 0, 2, 2, 0]),
    "a larger operand": lambda b, x: b.op("ReduceMax", x, [1]) + vector(*x.shape),
    "Concat": lambda b, x: b.concat([x, vector(2, 6, 4, 5)], axis=3),
    "a wider type": lambda b, x: b.op("Cast", x, to=11),
}


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_is_turned_before(name: str) -> None:
    b = Builder()
    b.output("y", insisting(b, GROWING[name](b, b.input("x", SHAPE).max_pool(1).transpose(LAST))))
    after = pushed(b)
    assert n_transposes(after) == 1
    assert "Transpose" not in op_types(after)[-2:]


@pytest.mark.parametrize("name", sorted(GROWING.keys() - {"a larger operand", "a wider type"}))
def test_what_grows_is_passed_on_the_way_to_the_other(name: str) -> None:
    b = Builder()
    b.output("y", GROWING[name](b, b.input("x", SHAPE).transpose(LAST)).transpose(FIRST).global_average_pool())
    assert n_transposes(pushed(b)) == 0


def test_bytes_are_turned_before_they_become_floats() -> None:
    b = Builder()
    image = b.op("Cast", b.input("x", (1, 6, 4, 3), "u8"), to=1) * np.float32(1 / 255)
    b.output("y", image.transpose(FIRST).global_average_pool())
    assert op_types(pushed(b))[0] == "Transpose"


def test_a_value_that_several_insist_on_moves_once() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST)
    for index, each in enumerate((x.relu(), x.sigmoid(), x.tanh())):
        b.output(f"y{index}", insisting(b, each))
    assert n_transposes(pushed(b)) == 1


def test_one_branch_that_insists_does_not_hold_the_other() -> None:
    b = Builder()
    x = b.input("x", SHAPE).relu().transpose(LAST)
    b.output("y", insisting(b, x.sigmoid()))
    b.output("z", (x + vector(3)).transpose(FIRST).global_average_pool())
    after = pushed(b)
    assert n_transposes(after) == 1
    [pool] = [node for node in after.nodes if node.op_type == "GlobalAveragePool"]
    assert after.producers()[pool.inputs[0]].op_type == "Add"


def test_parts_of_one_image_are_cut_from_the_turned_one() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST)
    for start in range(3):
        b.output(f"y{start}", insisting(b, b.op("Slice", x, [start], [start + 4], [1])))
    assert n_transposes(pushed(b)) == 1


def test_a_small_part_is_cut_before_it_is_turned() -> None:
    b = Builder()
    b.output("y", insisting(b, b.op("Slice", b.input("x", SHAPE).transpose(LAST), [0], [1], [1])))
    assert op_types(pushed(b)) == ["Slice", "Transpose", "CumSum"]


def test_equal_transposes_of_one_value_are_one() -> None:
    b = Builder()
    x = b.input("x", SHAPE)
    b.output("y", insisting(b, x.transpose(LAST)))
    b.output("z", insisting(b, x.transpose(LAST)).relu())
    assert n_transposes(pushed(b)) == 1


def test_an_operand_of_lower_rank_is_turned_alone() -> None:
    b = Builder()
    x, table = b.input("x", SHAPE).transpose(LAST), b.input("t", (3, 4)).transpose((1, 0))
    b.output("y", (x + table).transpose(FIRST))
    assert moved_nbytes(pushed(b)) <= 2 * 12 * 4


def test_two_outputs_may_be_equal() -> None:
    b = Builder()
    x = b.input("x", SHAPE).max_pool(1)
    y, z = x.transpose(LAST), x.transpose(LAST)
    b.output("sum", insisting(b, y))
    b.output("z", z)
    b.output("y", y)
    assert n_transposes(pushed(b)) == 2


Step = Callable[["Sketch"], BuildValue]


class Sketch:
    """A network under construction, and the choices that make it."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.builder = Builder()
        self.values = [self.builder.input("x", data.draw(st.permutations((1, 2, 3, 4)), "extents"))]

    def pick(self) -> BuildValue:
        return self.data.draw(st.sampled_from(self.values[-4:]), "source")

    def axis(self, x: BuildValue) -> int:
        return self.data.draw(st.integers(0, len(x.shape) - 1), "axis")


def _transpose(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return x.transpose(tuple(sketch.data.draw(st.permutations(range(len(x.shape))), "perm")))


def _combine(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    alike = [value for value in sketch.values if _broadcast(x.shape, value.shape)]
    return x + sketch.data.draw(st.sampled_from(alike), "other")


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1], strict=False))


def _insist(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    y: BuildValue = sketch.builder.op("CumSum", x, np.array(sketch.axis(x)))
    return y


def _reduce(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    keepdims = len(x.shape) < 3 or sketch.data.draw(st.booleans(), "keepdims")
    y: BuildValue = sketch.builder.op("ReduceMean", x, [sketch.axis(x)], keepdims=int(keepdims))
    return y


def _concat(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return sketch.builder.concat([x, x.relu()], axis=sketch.axis(x))


def _merge(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    axis = sketch.axis(x)
    return x.reshape((*x.shape[:axis], -1, *x.shape[axis + 2 :])) if len(x.shape) > 2 else x.relu()


def _split(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    axis = sketch.axis(x)
    outer = 1 + (x.shape[axis] + 1) % 2
    return x.reshape((*x.shape[:axis], outer, -1, *x.shape[axis + 1 :])) if len(x.shape) < 6 else x.relu()


def _scale(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    return x * vector(*x.shape[sketch.axis(x) :])


STEPS: tuple[Step, ...] = (
    *[_transpose] * 4,
    *[_combine] * 2,
    *[_insist] * 2,
    _reduce,
    _concat,
    _merge,
    _split,
    _scale,
    lambda sketch: sketch.pick().sigmoid(),
)


@settings(max_examples=60)
@given(st.data())
def test_random_graphs_compute_the_same_and_move_no_more(data: st.DataObject) -> None:
    sketch = Sketch(data)
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=10), "steps"):
        if np.prod(sketch.values[-1].shape) < 2000:
            sketch.values.append(step(sketch))
    sketch.builder.output("y", sketch.values[-1])
    for index, value in enumerate(sketch.values[-3:-1]):
        if value is not sketch.values[0] and data.draw(st.booleans(), "also an output"):
            sketch.builder.output(f"y{index}", value)
    pushed(sketch.builder)
