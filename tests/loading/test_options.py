"""Options of ``load`` are refused where they are given, also where plans are made at the first run."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.api import LoadOptions
from blocklayout.loading.options import Options, PlanningOptions
from tests import nets

MODELS: dict[str, Callable[[], Any]] = {"fixed extents": nets.chain, "free extents": nets.free_model}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "f16x"}, r"dtype='f16x': activations are computed in one of f32, .*did you mean"),
    ({"dtype": "int8"}, "dtype='int8': activations are computed in one of"),
    ({"dtype": np.int8}, "activations are computed in one of"),
    ({"dtype": 32}, "dtype=32: activations"),
    ({"dtype": ["f32"]}, "dtype=.*activations"),
    ({"layout": "blocks"}, "no layout policy 'blocks': .*did you mean 'blocked'"),
    ({"layout": "NHWC"}, "no layout policy 'NHWC': .*spelled 'nhwc'"),
    ({"layout": 3}, "layout=3: give the name of a policy"),
    ({"layout": ["nhwc"]}, "layout=.*give the name of a policy"),
    ({"threads": "2"}, "threads='2': give a positive number"),
    ({"threads": True}, "threads=True"),
    ({"streams": 2.0}, "streams=2.0"),
    ({"max_plans": "8"}, "max_plans='8'"),
    ({"shapes": (1, 3, 8, 8)}, "shapes=.*give a mapping by name, such as"),
    ({"shapes": {3: (1, 3, 8, 8)}}, "shapes: 3 is no name"),
    ({"shapes": {"x": "1x3x8x8"}}, "must be integers such as"),
    ({"io_layout": "nhwc"}, "io_layout='nhwc': give a mapping by name, such as {'x': 'nhwc'}"),
    ({"io_layout": {"x": 3}}, "io_layout: 'x' wants the name of a format"),
    ({"pin": ["nhwc"]}, "pin=.*give a mapping by name"),
    ({"pin": {"conv0": 3}}, "pin: 'conv0': 3: give texts, or None for no such demand"),
    ({"expect": "nhwc"}, "expect='nhwc': give a mapping by name"),
    ({"expect": {"conv0": ""}}, "expect: 'conv0': '': give texts, or None for no such demand"),
    ({"precision": {"conv0": "f32x"}}, "precision conv0=f32x: activations are computed in .*did you mean 'f32'"),
    ({"on_layout_loss": "warning"}, "on_layout_loss='warning': give 'warn' or 'raise'; did you mean 'warn'"),
    ({"on_layout_loss": True}, "on_layout_loss=True"),
    ({"tune": "mesure"}, "tune='mesure': give .*did you mean 'measure'"),
    ({"tune_seconds": "1"}, "tune_seconds='1': give a positive number of seconds"),
    ({"tune_seconds": True}, "tune_seconds=True"),
    ({"tune_seconds": float("nan")}, "tune_seconds=nan"),
    ({"plan": 3}, "plan=3: give a Plan, or the path"),
    ({"on_misfit": "rplan"}, "on_misfit='rplan': give 'raise' or 'replan'; did you mean 'replan'"),
    ({"denormals": None}, "denormals=None: give 'flush' or 'keep'"),
    ({"recipes": "no"}, "recipes='no': give a mapping by name"),
    ({"recipes": {"winogard": False}}, "recipes='winogard': give .*did you mean 'winograd'"),
    ({"recipes": {"winograd": "no"}}, r"recipes\['winograd'\]='no': give True or False"),
    ({"verify": None}, "verify=None: give True or False"),
    ({"mapped": 1}, "mapped=1: give True or False"),
    ({"check": "pading"}, "check='pading': give one of 'padding', .*did you mean 'padding'"),
    ({"progress": "yes"}, "progress='yes': give a function"),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("option", "told"), WRONG, ids=[str(option) for option, _ in WRONG])
def test_a_wrong_option_is_refused_by_load(model: str, option: dict[str, Any], told: str) -> None:
    with pytest.raises(bl.BlockLayoutError, match=told):
        bl.load(MODELS[model](), **option)


def test_a_saved_session_refuses_them_too(tmp_path: Path) -> None:
    bl.load(nets.chain()).save(tmp_path / "chain.session")
    for option, told in (({"dtype": "f16x"}, "dtype='f16x'"), ({"recipes": {"winograd": "no"}}, "give True or False")):
        with pytest.raises(bl.BlockLayoutError, match=told):
            bl.load(tmp_path / "chain.session", **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["f32", "float32", np.float32, np.dtype(np.float32)])
def test_a_data_type_is_named_or_given_as_numpys(dtype: Any) -> None:
    assert bl.load(nets.chain(), dtype=dtype).plan.dtype == "f32"


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_bf16_is_refused_by_load_where_the_cpu_has_none(dtype: Any) -> None:
    if dnnl.has_bf16():
        assert bl.load(nets.chain(), dtype=dtype).plan.dtype == "bf16"
        return
    with pytest.raises(bl.UnsupportedError, match="needs a CPU with AVX-512"):
        bl.load(nets.free_model(), dtype=dtype)


def test_options_have_the_keywords_of_load_and_their_defaults() -> None:
    of_load, of_options = (
        {name: each.default for name, each in signature(function).parameters.items()}
        for function in (bl.load, Options.of)
    )
    del of_load["source"], of_load["original"]  # files: no options
    assert of_options == of_load


def test_the_types_of_keywords_are_those_of_load() -> None:
    """``bl.Served`` and ``bl.compile`` hand them on, and editors complete them."""
    listed = {name: each.__forward_arg__ for name, each in LoadOptions.__annotations__.items()}
    _, *keywords = signature(bl.load).parameters.values()
    assert listed == {each.name: each.annotation for each in keywords}
    assert {*PlanningOptions.__annotations__} <= {*signature(Options.of).parameters}
