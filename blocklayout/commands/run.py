"""``blocklayout run``: a model once, also on a picture, or the embedded one in every policy on images it never saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dnnl
from blocklayout.commands import pictures
from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import open_model, open_with_plan
from blocklayout.commands.options import add_details, add_model_options, add_plan_file, load_options, policies, positive
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import InputError
from blocklayout.plan import POLICIES
from blocklayout.show.comparison import Measurement, say_agreement, say_comparison, say_layouts
from blocklayout.show.output import print_table, say, say_json, shown_progress
from blocklayout.show.verdict import say_details, say_verdict
from blocklayout.show.words import kib, spread
from blocklayout.zoo import digits

if TYPE_CHECKING:
    import argparse

    from blocklayout.model import Graph, OnnxModel

OUTPUT_HEADER = ("output", "type", "shape", "smallest", "mean", "largest")
N_BEST = 5
PICTURE_OPTIONS = ("labels", "fit", "pixels", "order")
DIGITS_HEADER = ("layout", "dtype", "right", "images/s", "ratio", "least-most", "reorders", "KiB moved")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "Without MODEL, the embedded digit classifier is run on its held-out images in every layout policy."
    add_model_options(parser)
    parser.add_argument(
        "--layout", type=policies, metavar="POLICY[,POLICY]", help="policies or oneDNN tags to run with"
    )
    parser.add_argument("--dtype", choices=PRIMITIVE_FLOATS, help="data type of the activations inside")
    add_plan_file(parser)
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="measurements of each (default: 5)")
    parser.add_argument(
        "--image", metavar="FILE", help="a picture to feed to a classifier, and to classify; without MODEL, a digit"
    )
    group = parser.add_argument_group("with --image (defaults are the model's, else usual; all of it is printed)")
    group.add_argument(
        "--labels", metavar="FILE", help="names of the classes, one a line (default: those in the model's metadata)"
    )
    pictures.add_fitting(group)
    add_details(parser, "show the N steps that take longest; with --image, as many classes (default: 5)")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    for option in PICTURE_OPTIONS if args.image is None else ():
        if getattr(args, option) is not None:
            raise InputError(f"--{option} belongs to --image: it is about a picture")
    if args.model is None and args.image is None:
        run_digits(args)
    else:
        run_model(args)


def run_model(args: argparse.Namespace) -> None:
    """Run a model with each of the policies, and print its outputs and their times; a classifier's best classes.

    An InputError where ``--image`` is no picture, or the model takes none or is no classifier.
    """
    picture: dict[str, Any] = {}
    names: list[str] = []

    def feeds_of(opened: OnnxModel | Graph) -> dict[str, np.ndarray]:
        names.extend(pictures.class_names(args, opened))
        array, done = pictures.fed_picture(args, opened)
        picture.update(done)
        return {done["input"]: array}

    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened, feeds, plan = open_with_plan(args, None if args.image is None else feeds_of)
        race = Race(opened, feeds, args.threads, args.rounds, tell, load_options(args))
        usual, dtype = ("auto", args.dtype or "f32") if plan is None else (None, args.dtype)
        verdict, measurements = race.run([Contender(policy, dtype, plan) for policy in args.layout or (usual,)])
    outputs = [output_facts(name, array) for name, array in measurements[0].outputs.items()]
    rule, best = pictures.best_classes(measurements[0].outputs, names, args.top or N_BEST) if picture else ("", [])
    if args.json:
        weights = {"weights": "random"} if pictures.has_random_weights(args) else {}
        classified = {"picture": picture, "answer": {"rule": rule, "classes": best} | weights} if picture else {}
        environment = describe_environment(measurements[0].plan.n_threads)
        runs = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, **classified, "outputs": outputs, "runs": runs})
        return
    say_verdict(verdict.timed(measurements))
    say("")
    if picture:
        say(f"{pictures.feed_text(picture)}\n")
        print_table(("class", "score"), [(each["name"], f"{each['score']:.4f}") for each in best], text_columns=(0,))
        say(f"score: {rule}")
        say(f"{args.model} has {pictures.RANDOM}\n" if pictures.has_random_weights(args) else "")
    else:
        print_table(OUTPUT_HEADER, [_output_row(output) for output in outputs], text_columns=(0, 1, 2))
        say("")
    say_comparison(measurements)
    args.top = None if picture else args.top
    say_details(args, measurements[0].plans)


def output_facts(name: str, array: np.ndarray) -> dict[str, Any]:
    """An output in numbers; there are none of an empty one, and none that is not finite."""
    wide = array.astype(np.float64)
    facts: dict[str, Any] = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    with np.errstate(invalid="ignore"):  # a mean of infinities
        numbers = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()} if wide.size else {}
    return facts | {key: float(number) for key, number in numbers.items()}


def _output_row(output: dict[str, Any]) -> tuple[str, ...]:
    shape = "x".join(map(str, output["shape"])) or "scalar"
    numbers = (f"{output[key]:.6g}" if key in output else "-" for key in ("min", "mean", "max"))
    return (output["name"], output["dtype"], shape, *numbers)


def _score(measurement: Measurement, labels: np.ndarray) -> dict[str, Any]:
    n_right = int(np.count_nonzero(measurement.outputs["probabilities"].argmax(axis=1) == labels))
    accuracy = {"n_right": n_right, "n_images": len(labels), "accuracy": n_right / len(labels)}
    return accuracy | {"images_per_second": len(labels) / measurement.time_ms.median * 1000}


def run_digits(args: argparse.Namespace) -> None:
    """Run the embedded model in every policy, and print how each did; an InputError of options for other models."""
    if args.input or args.shape or args.io_layout or args.plan:
        rule = "--input, --shape, --io-layout and --plan belong to a MODEL"
        raise InputError(f"{rule}: the embedded one is fed its own images")
    images, labels = digits.held_out()
    dtypes = (args.dtype,) if args.dtype else ("f32", "bf16") if dnnl.has_bf16() else ("f32",)
    with shown_progress("reading the embedded model", is_quiet=args.json) as tell:
        race = Race(open_model(args), {"image": images}, args.threads, args.rounds, tell, load_options(args))
        races = [race.run([Contender(policy, dtype) for policy in args.layout or POLICIES]) for dtype in dtypes]
    verdict, measurements = races[0][0], [each for _, of_dtype in races for each in of_dtype]
    scores = [_score(measurement, labels) for measurement in measurements]
    environment = describe_environment(measurements[0].plan.n_threads)
    missing_isa = None if args.dtype else dnnl.missing_isa("bf16")
    missing = [f"bf16 {missing_isa}"] if missing_isa else []
    if args.json:
        rows = [measurement.to_dict() | score for measurement, score in zip(measurements, scores, strict=True)]
        say_json({"environment": environment, "policies": rows, "not_run": missing})
        return
    say_verdict(verdict.timed(measurements))
    say(
        f"\ndigit classifier, {len(labels)} held-out images in one batch\n"
        f"{environment['n_threads']} threads, {environment['isa']}, oneDNN {environment['oneDNN']}\n"
    )
    print_table(DIGITS_HEADER, map(_digits_row, measurements, scores), text_columns=(0, 1))
    first = measurements[0].plan
    say(f"\nratio: time over {first.policy}'s in the same round, median, least and most; moved: by reorders")
    say_agreement(measurements)
    say_layouts(measurements)
    for line in missing:
        say(line)
    say_details(args, measurements[0].plans)


def _digits_row(measurement: Measurement, score: dict[str, Any]) -> tuple[str, ...]:
    plan = measurement.plan
    return (
        plan.policy,
        plan.dtype,
        f"{score['accuracy']:.2%}",
        f"{score['images_per_second']:,.0f}",
        *spread(measurement.ratio),
        str(len(plan.reorders)),
        kib(plan.reorder_nbytes),
    )
