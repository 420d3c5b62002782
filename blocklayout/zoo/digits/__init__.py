"""A small trained classifier of handwritten digits, the images it was trained on, and held-out ones.

The network takes ``image``, f32 of shape (N, 1, 8, 8) with pixels scaled to 0..1 and N free, and
returns ``probabilities``, f32 of shape (N, 10). It has a residual sum, a concatenation, normalisations
that are not folded, and 17, 33 and 49 channels, which fill no block of 8 or 16. It gets 450 of the
454 held-out images right (99.12 %); ``bench/train_digits.py`` made it and says how.

Source: the images are from "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak,
UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49, licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/), as carried by scikit-learn's ``load_digits``. The
selection is ours; the pixels are unchanged.
"""

from __future__ import annotations

import io
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def model_bytes() -> bytes:
    """The network as a serialised ONNX model, 97 KiB.

    Example:
        >>> import onnx
        >>> model = onnx.load_from_string(model_bytes())
        >>> model.graph.node[0].name
        'stem/conv'
    """
    return resources.files(__name__).joinpath("digits.onnx").read_bytes()


def held_out() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images the network was not trained on, and the digits they show.

    Returns:
        Images of shape (454, 1, 8, 8), 0 (paper) to 1 (ink), and labels of shape (454,), 0 to 9.

    Example:
        >>> images, labels = held_out()
        >>> images.shape, float(images.min()), float(images.max()), int(labels[0])
        ((454, 1, 8, 8), 0.0, 1.0, 0)
    """
    return _read("held_out.npz")


def trained_on() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images the network was trained on, and the digits they show; otherwise as :func:`held_out`.

    Example:
        >>> images, labels = trained_on()
        >>> images.shape, labels.shape
        ((1343, 1, 8, 8), (1343,))
    """
    return _read("trained_on.npz")


def _read(file: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    import numpy as np

    packed = resources.files(__name__).joinpath(file).read_bytes()
    with np.load(io.BytesIO(packed)) as arrays:
        return arrays["images"].astype(np.float32) / 16, arrays["labels"].astype(np.int64)
