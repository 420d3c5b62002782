"""``blocklayout run``: a model once, also on a picture, or the embedded one in every policy on images it never saw."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout import dnnl
from blocklayout.commands import findings, pictures, reading
from blocklayout.commands.answers import Boxes, Classes
from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import open_model, open_with_plan
from blocklayout.commands.options import (
    add_model_options,
    add_plan_file,
    fraction,
    load_options,
    pixels,
    positive,
    ratio,
    words,
)
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import InputError
from blocklayout.plan import POLICIES
from blocklayout.show.comparison import Measurement, say_agreement, say_comparison, say_layouts
from blocklayout.show.output import print_table, say, say_json, shown_progress
from blocklayout.show.words import kib
from blocklayout.zoo import digits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from blocklayout.commands.pictures import Picture
    from blocklayout.model import Graph, OnnxModel
    from blocklayout.plan import Plan

OUTPUT_HEADER = ("output", "type", "shape", "smallest", "mean", "largest")
PICTURE_OPTIONS = ("save", "then", "turn", "labels", "fit", "pixels", "order", "threshold", "unclip", "top")
NOT_WITH_DATA = ("image", "input", "plan", "then", "turn")
UNKNOWN = (
    "the outputs are no classes, boxes, mask or text in a known form; to candidates of YOLO the names of all classes "
    "belong, and to text all characters, an empty line for none (--labels)"
)
DIGITS_HEADER = ("layout", "dtype", "right", "images/s", "ratio", "least-most", "reorders", "KiB moved")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "Without MODEL, the embedded digit classifier is run on its held-out images in every layout policy."
    add_model_options(parser)
    parser.add_argument("--layout", type=words, metavar="POLICY[,POLICY]", help="policies or oneDNN tags to run with")
    parser.add_argument("--dtype", choices=PRIMITIVE_FLOATS, help="data type of the activations inside")
    add_plan_file(parser)
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="measurements of each (default: 5)")
    parser.add_argument(
        "--image", metavar="FILE", help="a picture to feed, and to say what is in it; without MODEL, a digit"
    )
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="a folder of pictures, also such as s3://bucket/folder: all are fed, by Ray; takes --save FOLDER, for the "
        "answers",
    )
    parser.add_argument("--ray", default="local", metavar="ADDRESS", help="the cluster for --data (default: local)")
    parser.add_argument(
        "--batch", type=positive, metavar="N", help="pictures of one run for --data (default: the model's, else 32)"
    )
    group = parser.add_argument_group("with --image (defaults are the model's, else usual; all of it is printed)")
    group.add_argument("--save", metavar="FILE", help="write the picture there with its classes, boxes, mask or text")
    group.add_argument(
        "--then", metavar="MODEL", help="cut out the boxes that are found, and read or classify each with this one"
    )
    group.add_argument(
        "--turn",
        metavar="MODEL",
        help="turn boxes first whose best class by this one is the second: upside down",
    )
    group.add_argument("--labels", metavar="FILE", help="names of the classes or characters, one a line; of --then's")
    group.add_argument(
        "--fit",
        choices=tuple(pictures.FITS),
        help="; ".join(f"{name}: {meaning}" for name, meaning in pictures.FITS.items())
        + " (default: crop for classifiers of 3 channels, line for readers of text, else stretch)",
    )
    group.add_argument(
        "--pixels",
        type=pixels,
        metavar="VALUES",
        help="imagenet: less ImageNet's means over its deviations (default for 3 channels); unit: 0 to 1 (default for "
        "1 channel); signed: -1 to 1 (default for text); bytes: 0 to 255 (default for integers); or means/deviations "
        "of pixels of 0 to 1 in the order R,G,B, such as 0.48,0.46,0.41/0.27,0.26,0.28",
    )
    group.add_argument("--order", choices=("rgb", "bgr"), help="order of the channels (default: rgb; for text bgr)")
    group.add_argument("--threshold", type=fraction, metavar="SCORE", help="least score of a box (default: 0.5)")
    group.add_argument(
        "--unclip",
        type=ratio,
        metavar="RATIO",
        help="read a map as boxes around its regions, as text detectors are, each moved outwards by RATIO of its area "
        "over its perimeter (default: 1.6 with --then; else a map is a mask)",
    )
    group.add_argument("--top", type=positive, metavar="N", help="how many classes to tell (default: 5)")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.turn is not None and args.then is None:
        raise InputError("--turn belongs to --then: it is about the boxes that are read")
    if args.data is not None:
        for option in NOT_WITH_DATA:
            if getattr(args, option) not in (None, []):
                raise InputError(f"--{option} is not for --data, which feeds pictures alone, and to one model")
        from blocklayout.commands.dataset import run_data

        run_data(args)
        return
    if args.image is not None:
        run_picture(args)
        return
    for option in PICTURE_OPTIONS:
        if getattr(args, option) is not None:
            raise InputError(f"--{option} belongs to --image: it is about a picture")
    if args.model is None:
        run_digits(args)
    else:
        run_model(args)


def run_model(args: argparse.Namespace) -> None:
    """Run a model with each of the policies, and print its outputs and their times.

    Raises:
        BlockLayoutError: The model, what it is fed, or a policy is wrong, or cannot run here.
    """
    measurements = _measured(args)
    outputs = [output_facts(name, array) for name, array in measurements[0].outputs.items()]
    environment = describe_environment(measurements[0].plan.n_threads)
    if args.json:
        runs = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, "outputs": outputs, "runs": runs})
        return
    print_table(OUTPUT_HEADER, [_output_row(output) for output in outputs], text_columns=(0, 1, 2))
    say("")
    say_comparison(measurements)


def run_picture(args: argparse.Namespace) -> None:
    """Run a model on a picture, and print what is in it, what was done to it, and the time.

    Raises:
        InputError: No picture, a model that takes none, or nothing to draw into it.
        BlockLayoutError: As :func:`run_model`.
    """
    pictures.check_pillow()
    if args.save is not None:
        pictures.check_target(args.save)
    read: list[Picture] = []

    def feeds_of(opened: OnnxModel | Graph) -> dict[str, np.ndarray]:
        read.append(pictures.read_picture(args, opened))
        return read[0].feeds

    measurements = _measured(args, feeds_of)
    [picture] = read
    outputs = measurements[0].outputs
    question = findings.Question.asked(args, picture.frame, picture.names)
    answer = question.answer(outputs)
    facts = [output_facts(name, array) for name, array in outputs.items()]
    shapes = ", ".join(f"{fact['name']} {'x'.join(map(str, fact['shape']))}" for fact in facts)
    told = picture.told
    if args.then is not None:
        if not isinstance(answer, Boxes):
            raise InputError(f"--then {args.then}: {args.model or 'the embedded model'} finds no boxes ({shapes})")
        with shown_progress(f"reading {args.then}", is_quiet=args.json) as tell:
            answer, first = reading.read_boxes(args, picture, answer, question.threshold, tell)
        told += f"\n{first}" if first else ""
    if args.labels is not None and isinstance(answer, Classes) and len(answer.names) != answer.scores.size:
        counts = f"{len(answer.names)} names, and the model has {answer.scores.size} classes"
        raise InputError(f"--labels {args.labels}: {counts}; give a line for each")
    if args.save is not None:
        if answer is None:
            raise InputError(f"--save {args.save}: nothing to draw: {UNKNOWN} ({shapes})")
        pictures.save_annotated(picture, answer, args.save)
    if args.json:
        environment = describe_environment(measurements[0].plan.n_threads)
        found = {"picture": picture.facts(), "answer": {"kind": None} if answer is None else answer.facts()}
        runs = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, **found, "outputs": facts, "runs": runs})
        return
    say(f"{told}\n")
    if answer is None:
        say(f"{UNKNOWN}:")
        print_table(OUTPUT_HEADER, [_output_row(fact) for fact in facts], text_columns=(0, 1, 2))
    else:
        print_table(*answer.table())
        say(answer.rule)
    say("")
    say_comparison(measurements)


def _measured(
    args: argparse.Namespace, more: Callable[[OnnxModel | Graph], dict[str, np.ndarray]] | None = None
) -> list[Measurement]:
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened, feeds, plan = open_with_plan(args, more)
        race = Race(opened, feeds, args.threads, args.rounds, tell, load_options(args))
        return race.run(_model_contenders(args, plan))


def _model_contenders(args: argparse.Namespace, plan: Plan | None) -> list[Contender]:
    if plan is not None:
        return [Contender(policy, args.dtype, plan) for policy in args.layout or (None,)]
    return [Contender(policy, args.dtype or "f32") for policy in args.layout or ("auto",)]


def output_facts(name: str, array: np.ndarray) -> dict[str, Any]:
    """An output in numbers; those of nothing, and what is not finite, are left open."""
    wide = array.astype(np.float64)
    facts: dict[str, Any] = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    with np.errstate(invalid="ignore"):  # a mean of infinities
        numbers = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()} if wide.size else {}
    return facts | {key: float(number) for key, number in numbers.items()}


def _output_row(output: dict[str, Any]) -> tuple[str, ...]:
    shape = "x".join(map(str, output["shape"])) or "scalar"
    numbers = (f"{output[key]:.6g}" if key in output else "-" for key in ("min", "mean", "max"))
    return (output["name"], output["dtype"], shape, *numbers)


class Score(Struct, frozen=True):
    """How a contender did on the images."""

    measurement: Measurement
    n_right: int
    n_images: int

    @property
    def images_per_second(self) -> float:
        """All images in one run."""
        return self.n_images / self.measurement.time_ms.median * 1000

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        accuracy = {"n_right": self.n_right, "n_images": self.n_images, "accuracy": self.n_right / self.n_images}
        return self.measurement.to_dict() | accuracy | {"images_per_second": self.images_per_second}

    def row(self) -> tuple[str, ...]:
        """For the table."""
        plan = self.measurement.plan
        return (
            plan.policy,
            plan.dtype,
            f"{self.n_right / self.n_images:.2%}",
            f"{self.images_per_second:,.0f}",
            f"{self.measurement.ratio.median:.2f}",
            f"{self.measurement.ratio.low:.2f}-{self.measurement.ratio.high:.2f}",
            str(len(plan.reorders)),
            kib(plan.reorder_nbytes),
        )


def run_digits(args: argparse.Namespace) -> None:
    """Run the embedded model in every policy, and print how each did.

    Raises:
        InputError: Options that only fit a model of the caller's.
        BlockLayoutError: No such policy, or nothing can run here.
    """
    if args.input or args.shape or args.io_layout or args.plan:
        rule = "--input, --shape, --io-layout and --plan belong to a MODEL"
        raise InputError(f"{rule}: the embedded one is fed its own images")
    images, labels = digits.held_out()
    contenders = _digits_contenders(args)
    with shown_progress("reading the embedded model", is_quiet=args.json) as tell:
        race = Race(open_model(args), {"image": images}, args.threads, args.rounds, tell, load_options(args))
        measurements = chain.from_iterable(map(race.run, contenders))
        scores = [_score(measurement, labels) for measurement in measurements]
    environment = describe_environment(scores[0].measurement.plan.n_threads)
    missing_isa = None if args.dtype else dnnl.missing_isa("bf16")
    missing = [f"bf16 {missing_isa}"] if missing_isa else []
    if args.json:
        rows = [score.to_dict() for score in scores]
        say_json({"environment": environment, "policies": rows, "not_run": missing})
        return
    _print_digits(scores, environment, missing)


def _digits_contenders(args: argparse.Namespace) -> list[list[Contender]]:
    """Those that are measured in turn: of each data type."""
    dtypes = (args.dtype,) if args.dtype else ("f32", "bf16") if dnnl.has_bf16() else ("f32",)
    return [[Contender(policy, dtype) for policy in args.layout or POLICIES] for dtype in dtypes]


def _score(measurement: Measurement, labels: np.ndarray) -> Score:
    answers = measurement.outputs["probabilities"].argmax(axis=1)
    return Score(measurement, int(np.count_nonzero(answers == labels)), len(labels))


def _print_digits(scores: list[Score], environment: dict[str, Any], missing: list[str]) -> None:
    measurements = [score.measurement for score in scores]
    say(
        f"digit classifier, {scores[0].n_images} held-out images in one batch\n"
        f"{environment['n_threads']} threads, {environment['isa']}, oneDNN {environment['oneDNN']}\n"
    )
    print_table(DIGITS_HEADER, [score.row() for score in scores], text_columns=(0, 1))
    first = measurements[0].plan
    say(f"\nratio: time over {first.policy}'s in the same round, median, least and most; moved: by reorders")
    say_agreement(measurements)
    say_layouts(measurements)
    for line in missing:
        say(line)
