"""Text drawn on images, turned and disturbed: inputs of networks that read, with labels that are exact.

Fonts are those inside of the wheel of ``matplotlib``. A sample follows from its seed alone, so that every process draws
the same.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL import Image, ImageFont

FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral", "STIXGeneralBol")
"""Files of ``matplotlib``; those of other scripts and symbols are left out."""

MEAN, DEVIATION = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
"""Of ImageNet's channels, by which inputs of the orientation network are normalised."""

LINE_HEIGHT = 48
BLUR, NOISE = 0.07, 60.0


class Sample(NamedTuple):
    """An input and its label.

    Attributes:
        image: A batch of one. Shape (1, 3, height, width), channels blue, green, red.
        label: Index of the class, or the text; ``None`` where there is neither.
    """

    image: np.ndarray
    label: int | str | None


class Ink(NamedTuple):
    """How a text looks."""

    font: ImageFont.FreeTypeFont
    text: tuple[int, int, int]
    paper: tuple[int, int, int]


@cache
def words() -> tuple[str, ...]:
    """English words of three to nine letters, out of Python's own help texts."""
    from pydoc_data.topics import topics

    return tuple(sorted({word for text in topics.values() for word in re.findall(r"\b[A-Za-z][a-z]{2,8}\b", text)}))


@cache
def font_folder() -> Path:
    """The folder of fonts.

    Raises:
        ModuleNotFoundError: ``matplotlib`` is not installed.
    """
    spec = find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the fonts are those of matplotlib, which is not installed")
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


def orientation(seed: int, size: tuple[int, int]) -> Sample:
    """A page turned clockwise by a quarter ``label`` times; cropped and scaled as the network's own package does."""
    from PIL import Image

    generator = np.random.default_rng((seed, 0))
    label = int(generator.integers(4))
    page = disturbed(drawn_page(generator, *generator.integers(300, 900, 2)), generator)
    page = page.rotate(-90 * label, expand=True)
    height, width = size
    scale = 256 / 224 * max(height / page.height, width / page.width)
    page = page.resize((round(page.width * scale), round(page.height * scale)), Image.Resampling.LANCZOS)
    left, top = (page.width - width) // 2, (page.height - height) // 2
    pixels = np.asarray(page.crop((left, top, left + width, top + height)), np.float32)[..., ::-1] / 255
    return Sample(as_input((pixels - MEAN) / DEVIATION), label)


def direction(seed: int, size: tuple[int, int]) -> Sample:
    """A line of text, upside down where ``label`` is 1."""
    generator = np.random.default_rng((seed, 1))
    label = int(generator.integers(2))
    line, _ = drawn_line(generator, size[1] / size[0])
    return Sample(padded(disturbed(line, generator).rotate(180 * label), size), label)


def recognition(seed: int, size: tuple[int, int]) -> Sample:
    """A line of text; ``label`` is the text."""
    generator = np.random.default_rng((seed, 2))
    line, text = drawn_line(generator, size[1] / size[0])
    return Sample(padded(disturbed(line, generator), size), text)


def detection(seed: int, size: tuple[int, int]) -> Sample:
    """A page."""
    generator = np.random.default_rng((seed, 3))
    page = disturbed(drawn_page(generator, *size), generator)
    return Sample(padded(page, size), None)


def drawn_page(generator: np.random.Generator, height: int, width: int) -> Image.Image:
    """Lines of words from the top to the bottom, with paragraphs and a ragged right edge."""
    from PIL import Image, ImageDraw

    ink = drawn_ink(generator, int(generator.integers(14, 40)))
    page = Image.new("RGB", (int(width), int(height)), ink.paper)
    draw = ImageDraw.Draw(page)
    margin, pitch = int(generator.integers(8, 40)), round(ink.font.size * generator.uniform(1.2, 1.8))
    for top in range(margin, int(height) - margin - pitch, pitch):
        if generator.random() < 0.15:
            continue
        fill = generator.uniform(0.3, 1.0) if generator.random() < 0.3 else 1.0
        line = ""
        while draw.textlength(line, ink.font) < (width - 2 * margin) * fill - 4 * ink.font.size:
            line += f"{generator.choice(words())} "
        draw.text((margin, top), line, ink.text, ink.font)
    return page


def drawn_line(generator: np.random.Generator, aspect: float) -> tuple[Image.Image, str]:
    """A word, a number, or one behind the other, no wider than so many heights; and the text."""
    from PIL import Image, ImageDraw

    ink = drawn_ink(generator, LINE_HEIGHT)
    word, number = str(generator.choice(words())), str(generator.integers(10, 100_000))
    text = (word, number, word + number, word.upper())[generator.integers(4)]
    left, top, right, bottom = ink.font.getbbox(text)
    edge = int(generator.integers(3, 12))
    while text and (right - left + 2 * edge) / (bottom - top + 2 * edge) > aspect:
        text = text[:-1]
        left, top, right, bottom = ink.font.getbbox(text)
    line = Image.new("RGB", (int(right - left) + 2 * edge, int(bottom - top) + 2 * edge), ink.paper)
    ImageDraw.Draw(line).text((edge - left, edge - top), text, ink.text, ink.font)
    return line, text


def drawn_ink(generator: np.random.Generator, size: int) -> Ink:
    """A font of a size in pixels, and dark on light or light on dark."""
    from PIL import ImageFont

    name = str(generator.choice(FONTS))
    dark, light = (drawn_colour(generator, *bounds) for bounds in ((0, 100), (160, 256)))
    text, paper = (dark, light) if generator.random() < 0.8 else (light, dark)
    return Ink(ImageFont.truetype(str(font_folder() / f"{name}.ttf"), size), text, paper)


def drawn_colour(generator: np.random.Generator, least: int, end: int) -> tuple[int, int, int]:
    """A colour whose parts are in a range."""
    red, green, blue = generator.integers(least, end, 3).tolist()
    return red, green, blue


def disturbed(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Tilted by up to two degrees, blurred, and with noise of its own strength."""
    from PIL import Image, ImageFilter

    paper = image.getpixel((0, 0))
    tilted = image.rotate(generator.uniform(-2, 2), Image.Resampling.BICUBIC, fillcolor=paper)
    blurred = tilted.filter(ImageFilter.GaussianBlur(generator.uniform(0, BLUR) * min(32, image.height)))
    noise = generator.normal(0, generator.uniform(0, NOISE), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(blurred) + noise, 0, 255).astype(np.uint8))


def padded(image: Image.Image, size: tuple[int, int]) -> np.ndarray:
    """Scaled to the height and, at most, the width; in -1..1, and 0 to the right of the image."""
    from PIL import Image

    height, width = size
    own_width = min(width, -(-image.width * height // image.height))
    pixels = np.asarray(image.resize((own_width, height), Image.Resampling.BILINEAR), np.float32)[..., ::-1]
    result = np.zeros((height, width, 3), np.float32)
    result[:, :own_width] = pixels / 127.5 - 1
    return as_input(result)


def as_input(pixels: np.ndarray) -> np.ndarray:
    """Channels before rows, in a batch of one."""
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
