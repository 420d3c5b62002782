"""Pictures as arrays that networks take; Pillow reads and writes the files."""

from __future__ import annotations

import ast
from contextlib import nullcontext
from math import ceil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, to_builtins

from blocklayout.commands.feeds import asked_shapes
from blocklayout.commands.findings import Frame, may_be_text
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InputError
from blocklayout.loading.signature import signature_of
from blocklayout.model import OnnxModel
from blocklayout.regular_file import open_regular

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from PIL.Image import Image

    from blocklayout.commands.answers import Answer
    from blocklayout.model import Graph
    from blocklayout.runtime import InputInfo

FITS = {
    "crop": "the middle 7/8 of its shorter side, as ImageNet's classifiers are evaluated",
    "fill": "the middle, its shorter side whole",
    "line": "as high as the input and at its left, the mean of pixels beside it",
    "pad": "all of it, grey beside it",
    "stretch": "all of it, its proportions lost",
}
"""How a picture comes to the extents of an input."""

FITTED = {"pad": "padded with grey", "stretch": "stretched", "line": "padded at the right"}

PIXELS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "unit": ((0.0,), (1.0,)),
    "signed": ((0.5,), (0.5,)),
    "bytes": ((0.0,), (1 / 255,)),
}
"""Means that are taken from pixels of 0 to 1, and deviations that the rest is divided by, in the order R, G, B."""

NOMINAL_RANGES = {"NominalRange_0_255": "bytes", "Normalized_0_1": "unit", "Normalized_1_1": "signed"}
"""Values of ``Image.NominalPixelRange``. Source: ONNX, MetadataProps.md."""

GREY = 114  # beside padded pictures, as YOLO networks were trained with
LARGEST = 640
GRID = 32
"""An input of free extents is as large as the picture, at most the one, in multiples of the other."""
CLASSIFIED = 224
DIRECTION = (48, 192)
"""Height and width, where they are free, of a line that a classifier says the direction of: those of PP-OCR's."""
LINE = (48, 320)
"""Height, where it is free, and least width of a line of text, as PP-OCR's networks were trained with."""
PAGE_SIDES = (736, 2000)
"""Least shorter and greatest longer side of a page whose text is sought, the first before the second."""
LONGEST_PAGE = 8
"""Of the shorter side: a longer page keeps a shorter one."""
DIFFERENT_DEPTHS = ("I", "F", "I;")


class Preparation(Struct, frozen=True):
    """How a picture becomes an input.

    Attributes:
        name: The input.
        dtype: Its data type.
        extents: Those of the array, in the caller's order.
        is_channels_last: Where its channels are.
        fit: One of :data:`FITS`.
        pixels: Means and deviations as in :data:`PIXELS`, by name.
        order: ``rgb``, ``bgr`` or ``grey``.
        origins: Where each choice comes from, by name.
    """

    name: str
    dtype: str
    extents: tuple[int, ...]
    is_channels_last: bool
    fit: str
    pixels: str
    order: str
    origins: Mapping[str, str]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the input."""
        height, width = self.extents[-3:-1] if self.is_channels_last else self.extents[-2:]
        return width, height

    def array(self, fitted: Image, width: int) -> np.ndarray:
        """The input's array of a picture of its extents, in which it fills columns up to ``width``."""
        mean, deviation = (255 * np.array(each, np.float32) for each in pixels_of(self.pixels))
        values = (np.atleast_3d(np.asarray(fitted, np.float32)) - mean) / deviation
        if self.fit == "line":
            values[:, width:] = 0
        values = values[..., ::-1] if self.order == "bgr" else values
        values = values if self.is_channels_last else values.transpose(2, 0, 1)
        return np.broadcast_to(values, self.extents).astype(to_numpy(self.dtype))

    def frame(self, picture: tuple[int, int]) -> Frame:
        """Where a picture of this width and height lies in the input."""
        (width, height), (picture_width, picture_height) = self.size, picture
        ratios = width / picture_width, height / picture_height
        if self.fit == "line":
            shown = min(width, ceil(picture_width * ratios[1]))
            return Frame(picture, self.size, (shown, height), (0, 0), self.is_channels_last)
        zooms = {"pad": min(ratios), "fill": max(ratios), "crop": max(ratios) * 8 / 7}
        zoom = zooms.get(self.fit)
        resized = (width, height) if zoom is None else tuple(max(1, int(side * zoom + 1e-6)) for side in picture)
        left, top = round((width - resized[0]) / 2), round((height - resized[1]) / 2)
        return Frame(picture, self.size, (resized[0], resized[1]), (left, top), self.is_channels_last)


class Picture(Struct, frozen=True):
    """A picture read for a model.

    Attributes:
        path: Its file.
        image: As Pillow has it, in RGB.
        names: Those of classes, as far as they are known.
    """

    path: str
    image: Image
    preparation: Preparation
    frame: Frame
    names: Sequence[str]

    @property
    def told(self) -> str:
        """All that was done to it, and who said so."""
        done, frame = self.preparation, self.frame
        cut = FITTED.get(done.fit, "cut to its middle")
        mean, deviation = pixels_of(done.pixels)
        pixels = f"{done.pixels} pixels" if done.pixels in PIXELS else f"pixels less {mean} over {deviation}"
        by = ", ".join(f"{choice} by {origin}" for choice, origin in done.origins.items())
        return (
            f"{self.path}, {_by(frame.picture)}: resized to {_by(frame.resized)}, {cut} ({done.fit}), {done.order}, "
            f"{pixels}; fed to {done.name}, {_by(done.extents)} ({by})"
        )

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        chosen: dict[str, Any] = to_builtins(self.preparation)
        return {"file": self.path, "size": self.frame.picture, "resized": self.frame.resized} | chosen

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The array of the model's input."""
        from PIL import Image

        image = self.image.convert("L" if self.preparation.order == "grey" else "RGB")
        fitted = Image.new(image.mode, self.frame.size, (GREY,) * len(image.getbands()))
        fitted.paste(image.resize(self.frame.resized, Image.Resampling.BILINEAR), self.frame.corner)
        return {self.preparation.name: self.preparation.array(fitted, self.frame.resized[0])}


def check_pillow() -> None:
    """Refuse pictures where nothing reads them.

    Raises:
        InputError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401 - asked for, not used
    except ImportError:
        raise InputError(
            "--image: Pillow reads pictures, and is not installed: pip install 'blocklayout[image]'"
        ) from None


def endings() -> list[str]:
    """Of the names of files that Pillow reads, without the dot."""
    from PIL import Image

    return sorted(ending[1:] for ending, name in Image.registered_extensions().items() if name in Image.OPEN)


def check_target(path: str) -> None:
    """Refuse a file name whose ending says no format.

    Raises:
        InputError: Pillow writes no such files.
    """
    from PIL import Image

    formats = Image.registered_extensions()
    if formats.get(Path(path).suffix.lower()) not in Image.SAVE:
        raise InputError(f"--save {path}: its ending says no format that Pillow writes; give one such as .png or .jpg")


def read_picture(args: argparse.Namespace, opened: OnnxModel | Graph) -> Picture:
    """The picture of ``--image``, prepared for a model.

    Raises:
        InputError: No file, no picture, or an input that is no image.
    """
    return picture_of(args, opened, args.image, opened_picture(f"--image {args.image}", args.image))


def picture_of(
    args: argparse.Namespace, opened: OnnxModel | Graph, title: str, image: Image, size: tuple[int, int] | None = None
) -> Picture:
    """A picture prepared for a model, whose free extents follow from ``size``, by default the picture's own.

    Raises:
        InputError: An input that is no image, or names that cannot be read.
    """
    preparation, names = preparation_of(args, opened, size or image.size)
    return Picture(title, image.convert("RGB"), preparation, preparation.frame(image.size), names)


def opened_picture(title: str, file: str | IO[bytes]) -> Image:
    """A picture from a file, the right way up.

    Raises:
        InputError: No file, or no picture; the message begins with ``title``.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with open_regular(file) if isinstance(file, str) else nullcontext(file) as stream, Image.open(stream) as image:
            if image.mode.startswith(DIFFERENT_DEPTHS):
                raise InputError(f"{title}: {image.mode} pixels; save it with 8 bits a channel")
            return ImageOps.exif_transpose(image)
    except FileNotFoundError:
        raise InputError(f"{title}: no such file") from None
    except UnidentifiedImageError:
        raise InputError(f"{title}: no picture of a format that Pillow reads") from None
    except OSError as error:
        raise InputError(f"{title}: {error.strerror or error}") from None
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{title}: {error}") from None


def preparation_of(
    args: argparse.Namespace, opened: OnnxModel | Graph, size: tuple[int, int]
) -> tuple[Preparation, list[str]]:
    """How pictures become the input of a model, and names of its classes: by options, its metadata, or defaults.

    Args:
        args: The command's.
        opened: The model.
        size: Width and height, where nothing says any.

    Raises:
        InputError: No input is an image, others are not fed, names cannot be read, or an option does not fit.
    """
    metadata = opened.metadata if isinstance(opened, OnnxModel) else {}
    names = read_names(args.labels) if args.labels and not args.then else names_in(metadata)
    inputs, outputs = signature_of(opened, dict(args.io_layout))
    info, declared = _image_input(inputs, args)
    is_last = _is_channels_last(declared)
    channels = declared[-1 if is_last else -3]
    use = _use_of([output.shape or () for output in outputs], names, args)
    height = declared[-3 if is_last else -2]
    extents, size_origin = _settled(declared, is_last, _image_size(metadata, use, height, size))
    is_yolo = {"names", "stride"} <= metadata.keys()  # as ultralytics exports
    origin = "--shape" if info.name in dict(args.shape) else size_origin
    fits = {"line": "line", "classifier": "crop" if channels == 3 else "stretch"}
    yolo_fit = ("fill" if use == "classifier" else "pad", "metadata") if is_yolo else None
    fit, fit_origin = _first(args.fit, None, yolo_fit or (fits.get(use, "stretch"), "default"))
    nominal = NOMINAL_RANGES.get(metadata.get("Image.NominalPixelRange", ""), "unit" if is_yolo else None)
    is_text = use in ("line", "page", "direction")
    usual_pixels = "signed" if is_text else "imagenet" if channels == 3 else "unit"
    pixels, pixels_origin = _first(args.pixels, nominal, ("bytes" if info.dtype == "u8" else usual_pixels, "default"))
    stated_order = {"Bgr8": "bgr", "Rgb8": "rgb"}.get(metadata.get("Image.BitmapPixelFormat", ""))
    grey = ("grey", "its one channel")
    usual_order = ("bgr" if is_text else "rgb", "default")
    order, order_origin = grey if channels == 1 else _first(args.order, stated_order, usual_order)
    if len(pixels_of(pixels)[0]) not in (1, channels):
        raise InputError(
            f"--pixels {pixels}: {info.name} has {channels} channel, and these are of 3; give such as unit"
        )
    if info.dtype == "u8" and pixels != "bytes":
        raise InputError(f"--pixels {pixels}: {info.name} takes integers (u8), which are bytes as they are")
    origins = {"size": origin, "fit": fit_origin, "pixels": pixels_origin, "order": order_origin}
    return Preparation(info.name, info.dtype, extents, is_last, fit, pixels, order, origins), names


def _first(option: str | None, stated: str | None, usual: tuple[str, str]) -> tuple[str, str]:
    """The option, else the metadata's choice, else the usual one; and which of these it was."""
    if option is not None:
        return option, "option"
    return (stated, "metadata") if stated is not None else usual


def _image_input(inputs: Sequence[InputInfo], args: argparse.Namespace) -> tuple[InputInfo, tuple[Any, ...]]:
    """The input that is an image, and its extents as far as they are known."""
    given = asked_shapes(args)
    fed = {name for name, _ in args.input}
    shapes = {info.name: given.get(info.name, info.shape) for info in inputs if info.name not in fed}
    images = [info for info in inputs if info.name in shapes and _is_image(shapes[info.name], info)]
    if not images:
        text = ", ".join(f"{info.name} is {info.dtype} {_by(shapes.get(info.name, info.shape))}" for info in inputs)
        raise InputError(
            f"--image: no input left to feed is an image ({text}); one has 1 or 3 channels, first or last, of floats "
            "or u8: --shape settles extents that the model leaves open"
        )
    others = [name for name in shapes if name != images[0].name]
    if others:
        raise InputError(f"--image is fed to {images[0].name}; feed {', '.join(others)} by --input NAME=FILE.npy, too")
    return images[0], tuple(shapes[images[0].name] or ())


def _is_image(shape: Sequence[Any] | None, info: InputInfo) -> bool:
    if shape is None or len(shape) not in (3, 4) or info.dtype not in ("f32", "f16", "bf16", "f64", "u8"):
        return False
    return 0 not in shape and (shape[-3] in (1, 3) or shape[-1] in (1, 3))


def _is_channels_last(extents: Sequence[Any]) -> bool:
    return extents[-3] not in (1, 3)


def _use_of(shapes: Sequence[Sequence[Any]], names: Sequence[str], args: argparse.Namespace) -> str:
    """A network's use, by its outputs: ``classifier``, ``direction``, ``line`` or ``page`` of text, or ``other``."""
    shape = shapes[0]
    if len(shape) in (2, 4) and all(extent == 1 for extent in shape[2:]):
        return "direction" if args.fit == "line" else "classifier"
    if may_be_text(shapes, names):
        return "line"
    is_sought = args.then is not None or args.unclip is not None
    return "page" if is_sought and len(shape) == 4 and 1 in (shape[1], shape[3]) else "other"


def _image_size(
    metadata: Mapping[str, str], use: str, height: object, size: tuple[int, int]
) -> tuple[tuple[int, int], str]:
    """Height and width where they are free, and why."""
    stated = _literal(metadata.get("imgsz"))
    if isinstance(stated, list) and len(stated) == 2 and all(isinstance(side, int) and side > 0 for side in stated):
        return (stated[0], stated[1]), "metadata"
    if use == "classifier":
        return (CLASSIFIED, CLASSIFIED), f"default of classifiers, {CLASSIFIED}"
    if use == "direction":
        return DIRECTION, "default of directions of lines"
    if use == "line":
        high = height if isinstance(height, int) else LINE[0]
        return (high, max(LINE[1], int(high * size[0] / size[1]))), f"its proportions, at least {LINE[1]} wide"
    if use == "page":
        least, most = PAGE_SIDES
        zoom = min(max(min(1.0, most / max(size)), least / min(size)), LONGEST_PAGE * least / max(size))
        rule = f"the picture's own in multiples of {GRID}, its shorter side at least {least}"
    else:
        zoom = min(1.0, LARGEST / max(size))
        rule = f"the picture's own in multiples of {GRID}, at most {LARGEST}"
    width, height = (max(GRID, round(int(side * zoom) / GRID) * GRID) for side in size)
    return (height, width), rule


def _settled(
    declared: Sequence[Any],
    is_last: bool,  # noqa: FBT001
    free: tuple[tuple[int, int], str],
) -> tuple[tuple[int, ...], str]:
    """Extents of the array, and where those of the image come from."""
    start = len(declared) - 3 + (not is_last)
    sides = {start: free[0][0], start + 1: free[0][1]}
    extents = tuple(each if isinstance(each, int) else sides.get(axis, 1) for axis, each in enumerate(declared))
    is_free = any(not isinstance(declared[axis], int) for axis in sides)
    return extents, free[1] if is_free else "model"


def pixels_of(text: str) -> tuple[Sequence[float], Sequence[float]]:
    """Means and deviations by name, or as ``0.48,0.46,0.41/0.27,0.26,0.28``.

    Raises:
        ValueError: The text says neither, or divides by zero.

    Example:
        >>> pixels_of("signed"), pixels_of("0.5,0.25,0/1")
        (((0.5,), (0.5,)), ((0.5, 0.25, 0.0), (1.0, 1.0, 1.0)))
    """
    if text in PIXELS:
        return PIXELS[text]
    means, deviations = (tuple(map(float, part.split(","))) for part in text.split("/"))
    n = max(len(means), len(deviations))
    means, deviations = (part * n if len(part) == 1 else part for part in (means, deviations))
    if (
        len(means) != len(deviations)
        or n not in (1, 3)
        or not all(deviations)
        or not np.isfinite(means + deviations).all()
    ):
        raise ValueError(text)
    return means, deviations


def read_names(path: str) -> list[str]:
    """The names of classes in a file, one a line.

    Raises:
        InputError: No such file, or no text.
    """
    try:
        with open_regular(path) as file:
            names = file.read().decode().splitlines()
    except OSError as error:
        raise InputError(f"--labels {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"--labels {path}: no UTF-8 text; give one name a line") from None
    if not names:
        raise InputError(f"--labels {path}: it is empty; give one name a line")
    return [name.strip() or name for name in names]  # a space is a character


def names_in(metadata: Mapping[str, str]) -> list[str]:
    r"""The names of classes in metadata, as ultralytics or PP-OCR write them; none where there are none.

    Example:
        >>> names_in({"names": "{0: 'cat', 1: 'dog'}"}), names_in({"names": "Ada"}), names_in({"character": "a\nb"})
        (['cat', 'dog'], [], ['a', 'b'])
    """
    if "character" in metadata:
        return metadata["character"].split("\n")
    names = _literal(metadata.get("names"))
    if isinstance(names, dict) and sorted(map(str, names)) == sorted(map(str, range(len(names)))):
        return [str(names.get(index, names.get(str(index)))) for index in range(len(names))]
    return [str(name) for name in names] if isinstance(names, list) else []


def _literal(text: str | None) -> Any:
    try:
        return ast.literal_eval(text or "None")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def save_annotated(picture: Picture, answer: Answer, path: str) -> None:
    """Write the picture with the answer drawn into it.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        answer.drawn(picture.image.copy()).save(path)
    except OSError as error:
        raise InputError(f"--save {path}: {error.strerror or error}") from None


def _by(extents: Sequence[Any] | None) -> str:
    return (
        "of no declared rank" if extents is None else "x".join("?" if each is None else str(each) for each in extents)
    )
