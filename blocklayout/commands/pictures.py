"""``run --image``: a picture as the input of a classifier, and the classes that it names; Pillow reads the file."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.commands.feeds import asked_shapes
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InputError
from blocklayout.loading.signature import signature_of
from blocklayout.model import OnnxModel
from blocklayout.regular_file import open_regular
from blocklayout.zoo import ZOO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from PIL.Image import Image

    from blocklayout.model import Graph

EXAMPLES = "docs/examples/detect_objects.py and docs/examples/read_text.py show how boxes and text are read"

BORDERS = {"crop": 1 / 16, "fill": 0.0}
"""Share of a picture that ``--fit`` cuts off at each side, before the rest is cut to the proportions of the input."""

PIXELS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "unit": ((0.0,), (1.0,)),
    "signed": ((0.5,), (0.5,)),
    "bytes": ((0.0,), (1 / 255,)),
}
"""Means that are taken from pixels of 0 to 1, and deviations that the rest is divided by, in the order R, G, B."""

NOMINAL_RANGES = {"NominalRange_0_255": "bytes", "Normalized_0_1": "unit", "Normalized_1_1": "signed"}
"""Values of ``Image.NominalPixelRange``. Source: ONNX, MetadataProps.md."""

CLASSIFY = "classify"
"""The task that ultralytics writes into a classifier's metadata."""

RANDOM = "random weights, so that the classes it names mean nothing"
N_EDGES = 4
"""Numbers of a box."""

SIDE = 224
"""Height and width of an input where neither the model nor its metadata says any."""


def add_fitting(group: argparse._ArgumentGroup) -> None:
    """``--fit``, ``--pixels`` and ``--order``."""
    group.add_argument(
        "--fit",
        choices=("crop", "fill", "stretch"),
        help="crop: the middle 7/8 of its shorter side, as ImageNet's classifiers are evaluated (default for 3 "
        "channels); fill: the middle, its shorter side whole; stretch: all of it, its proportions lost (default for 1)",
    )
    group.add_argument(
        "--pixels",
        metavar="VALUES",
        help="imagenet: less ImageNet's means over its deviations (default for 3 channels); unit: 0 to 1 (default for "
        "1 channel); signed: -1 to 1; bytes: 0 to 255 (default for integers); or means/deviations of pixels of 0 to 1 "
        "in the order R,G,B, such as 0.48,0.46,0.41/0.27,0.26,0.28",
    )
    group.add_argument("--order", choices=("rgb", "bgr"), help="order of the channels (default: rgb)")


def fed_picture(args: argparse.Namespace, opened: OnnxModel | Graph) -> tuple[np.ndarray, dict[str, Any]]:
    """The array of ``--image``, and for JSON how it was made and the name of its input.

    An InputError where there is no picture, no input for one, other inputs are not fed, or an option does not fit.
    """
    metadata = _metadata(opened)
    name, dtype, declared = _image_input(args, opened)
    is_last = declared[-3] not in (1, 3)
    *batch, height, width, channels = declared if is_last else (*declared[:-3], *declared[-2:], declared[-3])
    sides = _literal(metadata.get("imgsz"), list)
    is_usual = not sides or len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides)
    usual_height, usual_width = (SIDE, SIDE) if is_usual else sides
    size = (width if isinstance(width, int) else usual_width, height if isinstance(height, int) else usual_height)
    fit, pixels, order = _choices(args, metadata, channels, dtype)
    means, deviations = (np.float32(255 * np.array(each)) for each in pixels_of(pixels))
    if means.size not in (1, channels):
        raise InputError(f"--pixels {pixels}: {name} has {channels} channel, and these are of 3; give such as unit")
    if dtype == "u8" and pixels != "bytes":
        raise InputError(f"--pixels {pixels}: {name} takes integers (u8), which are bytes as they are")
    image = _opened(args.image)
    values = (_fitted(image.convert("L" if channels == 1 else "RGB"), size, fit) - means) / deviations
    values = values[..., ::-1] if order == "bgr" else values
    values = values if is_last else values.transpose(2, 0, 1)
    extents = (*(each if isinstance(each, int) else 1 for each in batch), *values.shape)
    done = {"input": name, "extents": extents, "fit": fit, "pixels": pixels, "order": order}
    return np.broadcast_to(values, extents).astype(to_numpy(dtype)), {"file": args.image, "size": image.size} | done


def feed_text(facts: Mapping[str, Any]) -> str:
    """A line that says how a picture is fed, by the facts of :func:`fed_picture`."""
    done = f"{facts['fit']}, {facts['order']}, {facts['pixels']} pixels"
    return f"{facts['file']}, {_by(facts['size'])}: {done}; fed to {facts['input']}, {_by(facts['extents'])}"


def _choices(args: argparse.Namespace, metadata: Mapping[str, str], channels: int, dtype: str) -> tuple[str, str, str]:
    """Cut, scale of pixels and order of channels: by options, the metadata, or defaults."""
    is_of_ultralytics = {"names", "stride"} <= metadata.keys()
    fit = args.fit or ("fill" if is_of_ultralytics else "crop" if channels == 3 else "stretch")
    usual = "bytes" if dtype == "u8" else "imagenet" if channels == 3 and not is_of_ultralytics else "unit"
    pixels = args.pixels or NOMINAL_RANGES.get(metadata.get("Image.NominalPixelRange", ""), usual)
    usual_order = "bgr" if metadata.get("Image.BitmapPixelFormat") == "Bgr8" else "rgb"
    return fit, pixels, "grey" if channels == 1 else args.order or usual_order


def _image_input(args: argparse.Namespace, opened: OnnxModel | Graph) -> tuple[str, str, Sequence[Any]]:
    """Name, data type and extents, as far as they are known, of the one input that is left for a picture."""
    given, fed = asked_shapes(args), dict(args.input)
    inputs = signature_of(opened, dict(args.io_layout))[0]
    left = [(info.name, info.dtype, given.get(info.name, info.shape)) for info in inputs if info.name not in fed]
    images = [(name, dtype, shape) for name, dtype, shape in left if shape is not None and _is_image(dtype, shape)]
    if not images:
        text = ", ".join(f"{name} is {dtype} {_by(shape)}" for name, dtype, shape in left)
        raise InputError(
            f"--image: no input left to feed is an image ({text}); one has 1 or 3 channels, first or last, of floats "
            "or u8: --shape settles extents that the model leaves open"
        )
    others = ", ".join(name for name, _, _ in left if name != images[0][0])
    if others:
        raise InputError(f"--image is fed to {images[0][0]}; feed {others} by --input NAME=FILE.npy, too")
    return images[0]


def _is_image(dtype: str, shape: Sequence[Any]) -> bool:
    is_of_images = len(shape) in (3, 4) and dtype in ("f32", "f16", "bf16", "f64", "u8")
    return is_of_images and 0 not in shape and (shape[-3] in (1, 3) or shape[-1] in (1, 3))


def _opened(path: str) -> Image:
    """The picture in a file, the right way up."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        rule = "Pillow reads pictures, and is not installed: pip install 'blocklayout[image]'"
        raise InputError(f"--image: {rule}") from None
    try:
        with open_regular(path) as file, Image.open(file) as image:
            if image.mode.startswith(("I", "F")):
                raise InputError(f"--image {path}: {image.mode} pixels; save it with 8 bits a channel")
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise InputError(f"--image {path}: no picture of a format that Pillow reads") from None
    except FileNotFoundError:
        raise InputError(f"--image {path}: no such file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"--image {path}: {getattr(error, 'strerror', None) or error}") from None


def _fitted(image: Image, size: tuple[int, int], fit: str) -> np.ndarray:
    """Pixels of 0 to 255. Shape (height, width, channels)."""
    from PIL import ImageOps
    from PIL.Image import Resampling

    if fit == "stretch":
        fitted = image.resize(size, Resampling.BILINEAR)
    else:
        fitted = ImageOps.fit(image, size, Resampling.BILINEAR, BORDERS[fit])
    return np.atleast_3d(np.asarray(fitted, np.float32))


def pixels_of(text: str) -> tuple[Sequence[float], Sequence[float]]:
    """Means and deviations by name, or as ``0.48,0.46,0.41/0.27,0.26,0.28``; an InputError of other texts.

    Example:
        >>> pixels_of("signed"), pixels_of("0.5,0.25,0/1")
        (((0.5,), (0.5,)), ([0.5, 0.25, 0.0], [1.0, 1.0, 1.0]))
    """
    if text in PIXELS:
        return PIXELS[text]
    try:
        means, deviations = np.broadcast_arrays(*(np.array(part.split(","), float) for part in text.split("/")))
    except ValueError:
        means = deviations = np.zeros(1)
    if means.size not in (1, 3) or not deviations.all() or not np.isfinite([means, deviations]).all():
        example = "means/deviations of 1 or 3 numbers, such as 0.48,0.46,0.41/0.27,0.26,0.28"
        raise InputError(f"--pixels {text}: give {', '.join(PIXELS)}, or {example}")
    return means.tolist(), deviations.tolist()


def class_names(args: argparse.Namespace, opened: OnnxModel | Graph) -> list[str]:
    """Names of a classifier's classes, by ``--labels`` or the model's metadata; an InputError where neither has any.

    An InputError as well where the metadata say that it does something else.
    """
    task = _metadata(opened).get("task", CLASSIFY)
    if task != CLASSIFY:
        raise InputError(f"--image: {args.model} is no classifier, by its metadata its task is to {task}; {EXAMPLES}")
    if args.labels is not None:
        return _labels(args.labels)
    names = _literal(_metadata(opened).get("names"), dict, list) if args.model else [*range(10)]  # digits
    if isinstance(names, dict):  # as ultralytics writes them
        by_number = {str(number): name for number, name in names.items()}
        names = [by_number[str(number)] for number in range(len(names)) if str(number) in by_number]
    if not names and has_random_weights(args):
        raise InputError(f"--image: {args.model} has {RANDOM}; give a trained model, or --labels FILE to see it run")
    if not names:
        rule = "a classifier has names of classes, in its metadata or by --labels FILE, one a line"
        raise InputError(f"--image: {args.model} does not say that it is one: {rule}; {EXAMPLES}")
    return [str(name) for name in names]


def has_random_weights(args: argparse.Namespace) -> bool:
    """Whether nothing trained the model: it is one of the zoo."""
    return args.model is not None and args.model.startswith(ZOO)


def _labels(path: str) -> list[str]:
    try:
        with open_regular(path) as file:
            names = file.read().decode().splitlines()
    except OSError as error:
        raise InputError(f"--labels {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"--labels {path}: no UTF-8 text; give one name a line") from None
    if not names:
        raise InputError(f"--labels {path}: it is empty; give one name a line")
    return [name.strip() for name in names]


def best_classes(outputs: Mapping[str, np.ndarray], names: Sequence[str], n: int) -> tuple[str, list[dict[str, Any]]]:
    """How scores come about, and for JSON the ``n`` best classes of the first image.

    An InputError where the first output has another number of scores than there are names, or is a detector's.
    """
    name, array = next(iter(outputs.items()))
    if array.ndim < 2 or not array.size or array[0].size != len(names):
        rule = f"{len(names)} names of classes, and the first output of a classifier has a number for each"
        raise InputError(f"--image: {name} is {_by(array.shape)}; there are {rule} (--labels); {EXAMPLES}")
    boxes = [other for other, each in outputs.items() if each.ndim > 1 and each.shape[-1] == N_EDGES]
    if max(array.shape[1:]) != len(names) or array.dtype.kind in "iub" or (boxes and len(outputs) > 1):
        said = f"{name} is {array.dtype} {_by(array.shape)}" + (f" beside boxes in {boxes[0]}" if boxes else "")
        raise InputError(f"--image: {said}, which are no scores of a classifier; {EXAMPLES}")
    scores, rule = array[0].ravel().astype(np.float64), f"{name} as it is"
    if not ((scores >= 0) & (scores <= 1 + 1e-3)).all():
        powers = np.exp(scores - scores.max())
        scores, rule = powers / powers.sum(), f"softmax of {name}"
    best = np.argsort(-scores, kind="stable")[:n].tolist()
    return rule, [{"class": each, "name": names[each], "score": float(scores[each])} for each in best]


def _metadata(opened: OnnxModel | Graph) -> Mapping[str, str]:
    return opened.metadata if isinstance(opened, OnnxModel) else {}


def _literal(text: str | None, *kinds: type) -> Any:
    """A value of these kinds that metadata has as Python writes it; ``None`` where it has none."""
    try:
        value = ast.literal_eval(text or "None")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, kinds) else None


def _by(extents: Sequence[Any] | None) -> str:
    return "x".join("?" if each is None else str(each) for each in extents) if extents is not None else "of free rank"
