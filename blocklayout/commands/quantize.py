"""``blocklayout quantize``: a QDQ model of one in f32, calibrated with the files in a folder."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.atomic_write import replacing
from blocklayout.commands import pictures
from blocklayout.commands.feeds import load_array, open_model
from blocklayout.commands.options import add_json, add_named, named_extents, nbytes, positive, seconds
from blocklayout.errors import InputError
from blocklayout.model import signature
from blocklayout.plan.precision import PrecisionReport
from blocklayout.quantizing.budget import METRICS
from blocklayout.quantizing.quantize import OLDEST_OPSET, quantize
from blocklayout.quantizing.recipe import QuantizationRecipe
from blocklayout.show.output import file_name, put, say, say_json, shown_progress
from blocklayout.show.precision import verdict
from blocklayout.zoo import ZOO

if TYPE_CHECKING:
    from blocklayout.model import Graph, OnnxModel

PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif"}
ARRAYS = {".npy", ".npz"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "In FOLDER, each .npy file is a feed of a model with one input, each .npz file has arrays by input name, and "
        "pictures are fed as run --image does. What recipes say: docs/how-to/quantise.md."
    )
    parser.add_argument("model", metavar="MODEL", help="an ONNX file in f32, or zoo:resnet50 and its like")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="calibration data, some hundred files")
    parser.add_argument("--recipe", metavar="FILE", help="a .json or .toml file that says what is quantised, and how")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="the file to write (default: MODEL-int8.onnx here); OUT.recipe.json beside",
    )
    parser.add_argument(
        "--samples", type=positive, metavar="N", help="take so many files, evenly chosen (default: all)"
    )
    parser.add_argument(
        "--max-error",
        type=_max_error,
        metavar="E",
        help="how far outputs may be from the model's, by --metric; any: whatever it is (default: the recipe's, 0.1)",
    )
    parser.add_argument(
        "--metric",
        choices=tuple(METRICS),
        help="rms, over that of the outputs (default), or disagreement: share of rows with another largest element",
    )
    parser.add_argument(
        "--dtype", choices=("f32", "bf16"), default="f32", help="data type of what is not quantised (default: f32)"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="that it will be run on (default: all)")
    parser.add_argument(
        "--picture", metavar="SVG", help="measure each layer's own error, and draw time against error there"
    )
    add_named(parser, "--shape", named_extents, "1x3x224x224", "extents of an input that pictures are fed to")
    pictures.add_fitting(parser.add_argument_group("for pictures (defaults are the model's, else usual)"))
    parser.add_argument("--limit-memory", type=nbytes, metavar="SIZE", help="bytes such as 500M or 2G it may take")
    parser.add_argument("--limit-seconds", type=seconds, metavar="S", help="how long it may take")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    args.input, args.io_layout = [], []
    recipe = QuantizationRecipe.of(Path(args.recipe) if args.recipe else None)
    stated = {"max_error": args.max_error, "metric": args.metric}
    recipe = recipe.model_copy(update={name: each for name, each in stated.items() if each is not None})
    if args.picture is not None and recipe.max_error == "any":
        raise InputError("--picture: --max-error any has no choice to draw")
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        is_old = opened.opset < OLDEST_OPSET and not args.model.startswith(ZOO)
        source = args.model if is_old else opened  # the file is what can be converted
        feeds = Folder(args, opened)
        how: Any = {"dtype": args.dtype, "threads": args.threads, "measures_all": args.picture is not None}
        quantized = quantize(source, feeds, recipe, **how, progress=tell)
    target = Path(args.output or file_name(f"{Path(args.model.removeprefix(ZOO)).stem}-int8", ".onnx"))
    beside = target.with_name(f"{target.name}.recipe.json")
    contents = quantized.SerializeToString()
    _write(target, contents)
    report = PrecisionReport.of(quantized)
    if report is not None:
        found = {"max_error": "any", "exceptions": {**recipe.exceptions, **dict.fromkeys(report.left, "f32")}}
        recipe = recipe.model_copy(update=found)
    _write(beside, f"{recipe.model_dump_json(indent=2)}\n".encode())
    if args.picture is not None and report is not None:
        report.save(args.picture)
    n_pairs = Counter(node.op_type for node in quantized.graph.node)["QuantizeLinear"]
    if args.json:
        say_json({"file": str(target), "recipe": str(beside), "nbytes": len(contents), "n_quantized": n_pairs})
        return
    put(f"{target}, {len(contents) / 1e6:.3g} MB: {n_pairs} values are quantised, ranges seen on {len(feeds)} files\n")
    put(f"{beside}: the recipe, which --recipe takes\n")
    if report is not None:
        say(str(report) if args.picture else verdict(report))


def _max_error(text: str) -> float | str:
    try:
        if text == "any" or float(text) > 0:
            return text if text == "any" else float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: give a number above 0, or any")


def _write(target: Path, contents: bytes) -> None:
    try:
        with replacing(target) as path:
            path.write_bytes(contents)
    except OSError as error:
        raise InputError(f"--output: cannot write {target}: {error.strerror or error}") from error


class Folder:
    """The files of ``--data`` as feeds, in the order of their names; an InputError where there are none."""

    def __init__(self, args: argparse.Namespace, opened: OnnxModel | Graph) -> None:
        self._args, self._opened = args, opened
        folder = Path(args.data)
        if not folder.is_dir():
            raise InputError(f"--data: {folder} is no folder")
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in ARRAYS | PICTURES)
        if not files:
            raise InputError(f"--data: {folder} has neither .npy or .npz files nor pictures")
        n_taken = min(args.samples or len(files), len(files))
        self._files = [files[number * len(files) // n_taken] for number in range(n_taken)]

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for path in self._files:
            try:
                yield self._feed(path)
            except InputError as error:  # of functions that serve --image and --input
                raise InputError(str(error).replace("--image", "--data", 1)) from error

    def _feed(self, path: Path) -> dict[str, np.ndarray]:
        if path.suffix.lower() in PICTURES:
            array, done = pictures.fed_picture(
                argparse.Namespace(**{**vars(self._args), "image": str(path)}), self._opened
            )
            return {done["input"]: array}
        if path.suffix.lower() == ".npz":
            return _arrays_of(path)
        [first, *others] = signature(self._opened).inputs
        if others:
            raise InputError(f"--data: {path} is one array, and the model has several inputs; give .npz files")
        array = load_array(first.name, str(path), f"--data {path}")
        is_single = first.extents is not None and array.ndim == len(first.extents) - 1
        return {first.name: array[None] if is_single else array}


def _arrays_of(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"--data {path}: no arrays as numpy.savez writes them: {error}") from None
