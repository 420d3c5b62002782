"""Wrong arguments of a session's methods: one error that names the argument, the rule and what would be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests import nets

X = np.zeros((1, 3, 8, 8), np.float32)
LAST = np.zeros((1, 8, 8, 3), np.float32)


def relus() -> bl.Builder:
    b = bl.Builder()
    x = b.input("x", (1, 3, 8, 8))
    b.output("scores", x.relu())
    b.output("z", x.tanh())
    return b


MODELS: dict[str, Callable[[], Any]] = {"fixed extents": relus, "free extents": nets.free_model}

WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a list": (lambda s: s.run(None, [X]), r"feed is a list; give a mapping by name, such as \{'x': array\}"),
    "an array": (lambda s: s.run(None, X), "feed is a ndarray"),
    "an array alone": (lambda s: s.run(X), r"run\(None, \{'x': x\}\), .*; session\(x\) takes arrays alone"),
    "nothing": (lambda s: s.run(None, None), "feed is a NoneType"),
    "a string": (lambda s: s.run(None, "x"), "feed is a str"),
    "a set": (lambda s: s.run(None, {"x"}), "feed is a set"),
    "a list that is submitted": (lambda s: s.submit([X]), "feed is a list"),
    "a list that is profiled": (lambda s: s.profile([X]), "feed is a list"),
    "runs of another type": (lambda s: s.profile({"x": X}, n_runs="a"), "n_runs='a': give an integer"),
    "a name that is no string": (lambda s: s.run(None, {0: X}), "the model has no input 0; its inputs are x"),
    "rows of several lengths": (lambda s: s.run(None, {"x": [[1.0], [1.0, 2.0]]}), "input 'x': cannot read list"),
    "a list of integers": (lambda s: s.run(None, {"x": [1, 2]}), "input 'x' is float32, got int64: convert it"),
    "no array": (lambda s: s.run(None, {"x": None}), "input 'x': expected an array"),
    "objects": (lambda s: s.run(None, {"x": X.astype(object)}), "input 'x' is float32, got object"),
    "complex numbers": (lambda s: s.run(None, {"x": X.astype(complex)}), "input 'x' is float32, got complex128"),
    "output_names of one name": (lambda s: s.run("scores", {"x": X}), "output_names is 'scores'; give a list of names"),
    "output_names of a number": (lambda s: s.run(3, {"x": X}), "output_names is a int; give a list of names"),
    "output_names and feed in the other order": (lambda s: s.run({"x": X}, None), "output_names is a dict"),
    "output_names of lists": (lambda s: s.run([["y"]], {"x": X}), r"the model has no output \['y'\]"),
    "out as a list": (lambda s: s.run(None, {"x": X}, out=[X]), "out is a list; give a mapping by name"),
    "out as an array": (lambda s: s.run(None, {"x": X}, out=X), "out is a ndarray"),
    "out as a list that is submitted": (lambda s: s.submit({"x": X}, out=[X]), "out is a list"),
    "extents without a name": (lambda s: s.prepare((1, 3, 8, 8)), "shapes is a tuple"),
    "one extent": (lambda s: s.prepare({"x": 8}), "the shape of input 'x' must be integers"),
    "fractions": (lambda s: s.plan_for({"x": (1, 3, 8.5, 8)}), "the shape of input 'x' must be integers"),
    "a path that is none": (lambda s: s.save(3), "path=3: give the path of a file"),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", WRONG)
def test_one_error_names_the_argument(model: str, case: str) -> None:
    call, told = WRONG[case]
    session = bl.load(MODELS[model]())
    session(X)
    with pytest.raises(bl.BlockLayoutError, match=told):
        call(session)


@pytest.mark.parametrize("model", MODELS)
def test_channels_last_for_an_input_with_channels_first_is_told_of_io_layout(model: str) -> None:
    told = r"axis 1 must be 3; its channels are last: give array.transpose\(0, 3, 1, 2\), .* io_layout={'x': 'nhwc'}"
    with pytest.raises(bl.InputError, match=told):
        bl.load(MODELS[model]())(LAST)
    with pytest.raises(bl.InputError, match=r"its channels are last: give Tensor.permute\(0, 3, 1, 2\)$"):
        bl.load(MODELS[model]())(bl.from_array(LAST))
    bl.load(MODELS[model](), io_layout={"x": "nhwc"})(LAST)
    bl.load(MODELS[model]())(LAST.transpose(0, 3, 1, 2))


def test_channels_first_for_an_input_with_channels_last_is_told() -> None:
    session = bl.load(relus(), io_layout={"x": "nhwc"})
    told = r"its channels are first: give array.transpose\(0, 2, 3, 1\), or load without io_layout for it"
    with pytest.raises(bl.InputError, match=told):
        session(X)


def test_other_extents_are_told_nothing_of_channels() -> None:
    with pytest.raises(bl.InputError, match=r"axis 2 must be 8$"):
        bl.load(relus())(np.zeros((1, 3, 9, 8), np.float32))
