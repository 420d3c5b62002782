"""The recipe of a quantisation: which operators, which scales, and where it is otherwise."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blocklayout.errors import InputError, did_you_mean
from blocklayout.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

Operator = Literal[
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "Add",
    "Mul",
    "Concat",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
]
Observer = Literal["minmax", "mean-minmax", "percentile", "mse", "entropy"]
Granularity = Literal["channel", "tensor"]
Percentile = Annotated[float, Field(gt=50, le=100)]

_STRICT = ConfigDict(extra="forbid", frozen=True)


class Otherwise(BaseModel):
    """Choices for some nodes in place of the recipe's own.

    Attributes:
        weights: Scales of their weights.
        activations: Observer of the values that they write.
        percentile: Of that observer.
    """

    model_config = _STRICT

    weights: Granularity | None = None
    activations: Observer | None = None
    percentile: Percentile | None = None


class QuantizationRecipe(BaseModel):
    """How a model is quantised; in Python, or as JSON or TOML.

    Attributes:
        operators: Types of operators whose operands are quantised. A product needs constant weights, a sum and a
            concatenation computed operands.
        weights: One scale for each output channel of weights, or one for the whole; always of signed bytes around 0.
        depthwise: Scales of the values that depthwise convolutions alone read, likewise: ranges of their channels are
            often very different. Those of channels cover all that was seen.
        activations: How the range of a value follows from calibration. ``minmax``: the least and the largest number;
            ``mean-minmax``: the means of those of each feed; ``percentile``: the bound that this share of magnitudes
            lies within; ``mse``: that with the least squared error; ``entropy``: that with the least Kullback-Leibler
            divergence of the bytes' distribution from the numbers'.
        percentile: Of the observer of that name.
        zero_point: ``zero``: unsigned bytes for values that are never negative, signed bytes for others, zero point 0
            for both, with which kernels are the fastest; ``any``: unsigned bytes over the range that was seen.
        equalisation: Whether weights on both sides of a channel between two layers get like ranges before all else.
        bias_correction: Whether biases make up for the mean error that quantised weights and inputs cause.
        max_error: How far outputs may be from the model's on the calibration data, by ``metric``; then only layers are
            quantised that make it faster on this machine, and as many as fit. ``any``: all are, whatever the error.
        metric: ``rms``: the root mean square of the differences over that of the outputs; ``disagreement``: the share
            of rows of the first output whose largest element is another.
        exceptions: By name of a node or value, by pattern of names or by type of operator: ``f32``, or other choices.
            A name precedes a pattern, a pattern a type.

    Example:
        >>> recipe = QuantizationRecipe(activations="percentile", percentile=99.9, exceptions={"fc": "f32"})
        >>> QuantizationRecipe.of(recipe.model_dump_json()) == recipe
        True
    """

    model_config = _STRICT

    operators: tuple[Operator, ...] = tuple(each for each in get_args(Operator) if each != "Mul")
    weights: Granularity = "channel"
    depthwise: Granularity = "channel"
    activations: Observer = "mse"
    percentile: Percentile = 99.99
    zero_point: Literal["zero", "any"] = "zero"
    equalisation: bool = False
    bias_correction: bool = True
    max_error: Annotated[float, Field(gt=0)] | Literal["any"] = 0.1
    metric: Literal["rms", "disagreement"] = "rms"
    exceptions: dict[str, Literal["f32"] | Otherwise] = Field(default_factory=dict)

    @classmethod
    def of(cls, source: QuantizationRecipe | Mapping[str, Any] | str | os.PathLike[str] | None) -> Self:
        """A recipe by its fields, by JSON, or by a ``.json`` or ``.toml`` file; ``None`` is the default.

        Raises:
            InputError: No such file, text of another form, or a field that is wrong, by name.
        """
        if isinstance(source, cls):
            return source
        given: Any = {} if source is None else source
        origin = ""
        if isinstance(source, str | os.PathLike) and not str(source).lstrip().startswith("{"):
            given, origin = _contents_of(Path(source)), f"{source}: "
        if not isinstance(given, str | Mapping):
            raise InputError(f"recipe: {type(source).__name__}; give a recipe, its fields, JSON, or a file's path")
        with _explained(origin):
            return cls.model_validate_json(given) if isinstance(given, str) else cls.model_validate(given)

    def otherwise(self, names: Iterable[str], op_type: str) -> Literal["f32"] | Otherwise:
        """The exception that holds for something of these names, written by an operator of this type."""
        given, names = self.exceptions, [*names]
        patterns = [key for key in given if any(fnmatchcase(name, key) for name in names)]
        found = [name for name in names if name in given] or patterns or [key for key in given if key == op_type]
        return given[found[0]] if found else Otherwise()

    def check_names(self, names: Iterable[str], op_types: Iterable[str]) -> None:
        """An InputError of an exception that selects nothing; types of operators that are quantised may be absent."""
        known = [*names]
        types = {*op_types, *get_args(Operator)}
        for key in self.exceptions:
            if key not in types and not any(fnmatchcase(name, key) or name == key for name in known):
                said = f"exceptions: {key!r} is no node, value or operator of the model, and matches none"
                raise InputError(f"recipe: {said}{did_you_mean(key, [*known, *types])}")


@contextmanager
def _explained(origin: str) -> Iterator[None]:
    """Turns errors of validation into an InputError of one line that names the fields."""
    try:
        yield
    except ValidationError as error:
        fields: dict[str, list[str]] = {}
        for each in error.errors(include_url=False):
            place = ".".join(str(part) for part in each["loc"] if part not in _OF_UNIONS)
            fields.setdefault(place, []).append(_said(each))
        deepest = {place: said for place, said in fields.items() if not any(f"{place}." in other for other in fields)}
        text = "; ".join(f"{place}: {' or '.join(said)}" if place else said[0] for place, said in deepest.items())
        raise InputError(f"recipe: {origin}{text}") from None


_OF_UNIONS = ("literal['f32']", "literal['any']", "constrained-float", "Otherwise")


def _said(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        fields = {*QuantizationRecipe.model_fields, *Otherwise.model_fields}
        return f"no such field{did_you_mean(str(error['loc'][-1]), fields)}"
    message = error["msg"][:1].lower() + error["msg"][1:]
    return f"{message}, not {error['input']!r}" if error["loc"] else message


def _contents_of(path: Path) -> str | dict[str, Any]:
    """The text of a JSON file, or the fields of a TOML file."""
    if path.suffix not in (".json", ".toml"):
        raise InputError(f"recipe: {path} is neither a .json nor a .toml file")
    try:
        with open_regular(path) as file:
            text: str = file.read().decode()
        return tomllib.loads(text) if path.suffix == ".toml" else text
    except OSError as error:
        raise InputError(f"recipe: {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"recipe: {path}: no UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: no TOML: {error}") from None
