"""ImageDecoder: the pixels of an encoded picture, which Pillow decodes."""

from __future__ import annotations

from io import BytesIO

import numpy as np

from blocklayout import ir
from blocklayout.errors import UnsupportedError

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""Pillow's, by the node's ``pixel_format``."""


class ImageDecoder(ir.Facts, frozen=True):
    """Height x width x channels of bytes; without elements where the stream is no picture, as ONNX has it."""

    op_types = ("ImageDecoder",)
    counts_elements = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        pixel_format = node.string_attr("pixel_format", tuple(_MODES))

        def decode(stream: np.ndarray) -> np.ndarray:
            try:
                from PIL import Image
            except ImportError:
                raise UnsupportedError(
                    f"node {node.name!r}: Pillow decodes pictures for ImageDecoder, and is not installed: "
                    "pip install 'blocklayout[image]'"
                ) from None
            mode = _MODES[pixel_format]
            try:
                with Image.open(BytesIO(stream.tobytes())) as image:
                    pixels = np.atleast_3d(np.asarray(image.convert(mode)))
            except Exception:  # noqa: BLE001 - readers of formats raise anything
                return np.zeros((0, 0, len(mode)), np.uint8)
            return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels

        return decode
