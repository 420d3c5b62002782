"""Arrays that another thread changes while a session runs on them: indices, counts and extents among them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import blocklayout as bl
from fuzz.choices import INTEGERS, Choices

SUMMARY = "arrays changed during a run"
NBYTES, SECONDS = 64 << 20, 5.0


def _model(op_type: str, inputs: dict[str, tuple[tuple[int, ...], str]], **attributes: Any) -> bytes:
    """A model of one node; the extents of its result are for who reads it to find out."""
    kinds = {"f32": TensorProto.FLOAT, "s64": TensorProto.INT64}
    graph = helper.make_graph(
        [helper.make_node(op_type, [*inputs], ["y"], **attributes)],
        op_type,
        [helper.make_tensor_value_info(name, kinds[dtype], shape) for name, (shape, dtype) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    if op_type in ("NonZero", "NonMaxSuppression"):
        graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    return content


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    del folder
    x, image, one = ((64, 16), "f32"), ((1, 16, 32, 32), "f32"), ((1,), "s64")
    models = [
        _model("Gather", {"x": x, "i": ((4096,), "s64")}),
        _model("GatherElements", {"x": x, "i": ((64, 16), "s64")}),
        _model("GatherND", {"x": x, "i": ((512, 2), "s64")}),
        _model("ScatterElements", {"x": x, "i": ((64, 16), "s64"), "u": x}),
        _model("ScatterND", {"x": x, "i": ((256, 2), "s64"), "u": ((256,), "f32")}),
        _model("MaxUnpool", {"x": image, "i": ((1, 16, 32, 32), "s64")}, kernel_shape=[2, 2], strides=[2, 2]),
        _model("OneHot", {"i": ((4096,), "s64"), "d": one, "v": ((2,), "f32")}),
        _model("ReverseSequence", {"x": ((32, 8, 4), "f32"), "i": ((8,), "s64")}),
        _model("Slice", {"x": x, "a": one, "b": one}),
        _model("Reshape", {"x": x, "s": ((2,), "s64")}),
        _model("Tile", {"x": x, "s": ((2,), "s64")}),
        _model("Expand", {"x": x, "s": ((2,), "s64")}),
        _model("TopK", {"x": x, "k": one}),
        _model("ConstantOfShape", {"s": ((2,), "s64")}),
        _model("CumSum", {"x": x, "a": ((), "s64")}),
        _model("NonZero", {"x": x}),
        _model("RoiAlign", {"x": image, "r": ((64, 4), "f32"), "i": ((64,), "s64")}, output_height=4, output_width=4),
        _model("NonMaxSuppression", {"b": ((1, 64, 4), "f32"), "s": ((1, 2, 64), "f32"), "k": one}),
        _model("GridSample", {"x": image, "g": ((1, 32, 32, 2), "f32")}),
        _model("Conv", {"x": image, "w": ((16, 16, 3, 3), "f32")}),
        _model("LSTM", {"x": ((8, 2, 4), "f32"), "w": ((1, 32, 4), "f32"), "r": ((1, 32, 8), "f32")}, hidden_size=8),
    ]
    sessions: dict[int, Any] = {}

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        number = choices.below(len(models))
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            session = sessions.get(number) or bl.load(models[number], tune="model", threads=1, max_plans=2)
            sessions[number] = session
            feeds = {
                info.name: np.ones(tuple(int(extent or 1) for extent in info.shape), _numpy(info.dtype))
                for info in session.get_inputs()
            }
            over = threading.Event()
            wild = [choices.pick(INTEGERS) for _ in range(4)]
            spoiler = threading.Thread(target=_spoil, args=(feeds, wild, over))
            spoiler.start()
            try:
                with np.errstate(all="ignore"):
                    for _ in range(4):
                        session.run(None, feeds)
            finally:
                over.set()
                spoiler.join()

    return attempt


def _numpy(dtype: str) -> np.dtype[Any]:
    from blocklayout.dtypes import to_numpy

    return to_numpy(dtype)


def _spoil(feeds: dict[str, np.ndarray], wild: list[int], over: threading.Event) -> None:
    with np.errstate(all="ignore"):
        while not over.is_set():
            for value in (1, *wild, 0):
                for array in feeds.values():
                    array.reshape(-1)[::7] = value
