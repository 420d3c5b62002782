"""The command in this process, and models to give it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from blocklayout.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    Extents = Sequence[int | str | None]


@dataclass(frozen=True)
class Done:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=refuse_constant)

    @property
    def refusal(self) -> str:
        """The one line it refused with."""
        assert self.status == 2, self
        assert self.out == "", self
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith("\n"), self.err
        assert "Traceback" not in self.err, self.err
        return self.err.strip()


@dataclass(frozen=True)
class Command:
    """Runs ``blocklayout`` and catches what it prints."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *argv: object) -> Done:
        self.capsys.readouterr()
        try:
            status = main([str(word) for word in argv])
        except SystemExit as exited:
            status = int(exited.code or 0)
        captured = self.capsys.readouterr()
        return Done(status, captured.out, captured.err)

    def ok(self, *argv: object) -> str:
        """What it prints when all is well."""
        done = self(*argv)
        assert done.status == 0, done
        assert done.err == "", done
        return done.out


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def conv_model(shape: Extents = ("N", 3, 8, 8), op_type: str = "Relu", domain: str = "") -> onnx.ModelProto:
    """A convolution of a free batch, and an element-wise operator."""
    weights = np.random.default_rng(0).standard_normal((9, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1, 1, 1, 1]),
        helper.make_node(op_type, ["c"], ["y"], "second", domain=domain),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def saved(model: onnx.ModelProto, path: Path) -> Path:
    """The model's file."""
    path.write_bytes(model.SerializeToString())
    return path
