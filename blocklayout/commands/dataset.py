"""``blocklayout run --data``: a model on a folder of pictures, on as many machines as a Ray cluster has."""

from __future__ import annotations

import io
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from blocklayout import ray
from blocklayout.commands import pictures
from blocklayout.commands.feeds import ZOO, open_model, save_source
from blocklayout.commands.findings import Question
from blocklayout.commands.options import load_options
from blocklayout.errors import InputError
from blocklayout.loading.signature import signature_of
from blocklayout.show.output import say, say_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from blocklayout.commands.pictures import Preparation

BATCH_SIZE = 32

SIDE = 640
"""Of an input that leaves its extents free: all pictures are brought to one size."""

BESIDE = {"num_cpus": 0}
"""Reading and writing take no CPU from actors: with all of them taken, they would wait for one another. So they need a
bound, as many as there are CPUs; else each block would start a process of its own, which takes seconds of a CPU."""

TOLD = ("path", "width", "height", "answer")
"""Columns that no output may be named as."""


def run_data(args: argparse.Namespace) -> None:
    """Run a model on all pictures of a folder, and write its answers as Parquet.

    Raises:
        InputError: No folder to write to, several layouts, or a model that takes no pictures.
        UnsupportedError: Ray or Pillow is not installed.
        BlockLayoutError: The model cannot run.
    """
    pictures.check_pillow()
    if args.save is None:
        raise InputError("--data needs --save FOLDER: the answers are written there, as Parquet")
    if args.layout is not None and len(args.layout) > 1:
        raise InputError(f"--data runs in one layout, and --layout names {len(args.layout)}")
    data = ray.ray_data()
    opened = open_model(args)
    preparation, names = pictures.preparation_of(args, opened, (SIDE, SIDE))
    question = Question.asked(args, preparation.frame((SIDE, SIDE)), names)
    [declared] = [info.shape for info in signature_of(opened, {})[0] if info.name == preparation.name]
    is_free = (args.model or "").startswith(ZOO) or not isinstance((declared or [None])[0], int)
    batch_size = args.batch or (BATCH_SIZE if is_free else preparation.extents[0])
    [layout] = args.layout or (None,)
    threads = args.threads or 1
    options = {**load_options(args), "dtype": args.dtype, "layout": layout, "threads": threads}
    start = time.perf_counter()
    with ray.connected(args.ray), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        save_source(args.model, {preparation.name: (batch_size, *preparation.extents[1:])}, path)
        n_beside = ray.n_cpus()
        tasks = {"ray_remote_args": BESIDE, "concurrency": n_beside}
        beside = {"compute": data.TaskPoolStrategy(size=n_beside), **BESIDE}
        files = data.read_binary_files(args.data, include_paths=True, file_extensions=pictures.endings(), **tasks)
        # Actors of one thread prepare their own pictures: Ray joins steps that take the same CPUs without a bound.
        rows = files.map(_Prepared(preparation), **({"num_cpus": 1} if threads == 1 else beside))
        kept = ["path", "width", "height"]
        answers = ray.map_batches(rows, path, batch_size=batch_size, keep=kept, **options)
        told = answers.map(_Answered(preparation, question), **beside)
        told.write_parquet(args.save, mode="overwrite", **tasks)
        n_pictures = data.read_parquet(args.save, columns=["path"]).count()
        n_nodes = ray.n_nodes()
    seconds = time.perf_counter() - start
    if args.json:
        say_json(
            {"pictures": n_pictures, "seconds": seconds, "nodes": n_nodes, "batch": batch_size, "saved": args.save}
        )
        return
    rate = f"{n_pictures / seconds:,.1f} a second, with the start"
    say(f"{n_pictures:,} pictures on {n_nodes} nodes in {seconds:.1f} s ({rate}); answers in {args.save}")


class _Prepared:
    """A file's row as one of the model's."""

    def __init__(self, preparation: Preparation) -> None:
        self._preparation = preparation

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        image = pictures.opened_picture(f"--data {row['path']}", io.BytesIO(row["bytes"])).convert("RGB")
        frame = self._preparation.frame(image.size)
        picture = pictures.Picture(row["path"], image, self._preparation, frame, ())
        array = picture.feeds[self._preparation.name]
        width, height = image.size
        return {"path": row["path"], "width": width, "height": height, self._preparation.name: array[0]}


class _Answered:
    """A row of outputs with what they mean, as ``run --image --json`` has it; without, where that is not known."""

    def __init__(self, preparation: Preparation, question: Question) -> None:
        self._preparation = preparation
        self._question = question

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        outputs = {name: np.asarray(value)[None] for name, value in row.items() if name not in TOLD}
        frame = self._preparation.frame((row["width"], row["height"]))
        answer = replace(self._question, frame=frame).answer(outputs)
        return {**row, "answer": json.dumps({"kind": None} if answer is None else answer.facts())}
