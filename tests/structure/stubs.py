"""Writes the stubs of packages whose names are made or fetched when the program runs: type checkers read those."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blocklayout.eager.functions import Shown
from tests.structure.tree import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

OPERATORS = ("blocklayout.eager", "blocklayout.eager.backward")
PACKAGES = ("blocklayout", "blocklayout.dnnl", "blocklayout.ir", "blocklayout.model", "blocklayout.plan", *OPERATORS)

HEAD = '''"""Generated: ``pytest tests/structure --update-golden`` writes it."""

'''
TYPES = """from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from blocklayout.tensor import Tensor

_Operand: TypeAlias = Tensor | ArrayLike
_Extents: TypeAlias = int | Sequence[int]

"""
WORDS = {
    "Operand | None": "_Operand | None",
    "Operand": "_Operand",
    "Addend": "_Operand",
    "Exponent": "_Operand",
    "Vector": "_Operand",
    "Comparand": "_Operand",
    **dict.fromkeys(("Extents", "Pads", "Axes"), "_Extents"),
    **dict.fromkeys(("Extents | None", "Axes | None"), "_Extents | None"),
    **dict.fromkeys(("Axis", "Count"), "int"),
    "NotNegative": "float",
    "Self": "Tensor",
    "tuple[Self, ...]": "tuple[Tensor, ...]",
}


def path_of(package: str) -> Path:
    """Where a package's stub lies."""
    path = PACKAGE.parent.joinpath(*package.split("."))
    return path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")


def stub_of(package: str) -> str:
    """A package's public names: imports of those that are written somewhere, signatures of those that are made."""
    module = importlib.import_module(package)
    public = all_of(package)
    names = sorted(set(public) - {"__version__"})
    made = [name for name in names if home_of(module, name) == package and is_made(getattr(module, name))]
    imports = [f"from {home_of(module, name)} import {name} as {name}\n" for name in names if name not in made]
    constants = ["__version__: str\n"] if "__version__" in public else []
    listed = ["__all__: list[str]\n"] if hasattr(module, "__all__") else []
    defined = [line for name in made for line in definition(name, getattr(module, name))]
    return "".join([HEAD, TYPES if made else "", *sorted(imports), "\n", *listed, *constants, *defined])


def is_made(thing: Any) -> bool:
    """Whether it is a function that no file defines."""
    return isinstance(getattr(thing, "__wrapped__", None), Shown)


def home_of(module: Any, name: str) -> str:
    """The module to import a name from."""
    if home := vars(module).get("_HOMES", {}).get(name):
        return str(home)
    if module.__name__ == "blocklayout":
        is_package = name in vars(module)["_MODULES"]
        return "blocklayout" if is_package else next(each for each in OPERATORS if name in all_of(each))
    thing = getattr(module, name)
    return module.__name__ if is_made(thing) else str(thing.__module__)


def all_of(package: str) -> list[str]:
    """A package's public names."""
    module = importlib.import_module(package)
    names: list[str] = module._public_names() if package == "blocklayout" else module.__all__
    return names


def definition(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    yield f"\ndef {name}("
    kinds = [each.kind for each in signature.parameters.values()]
    star = kinds.index(inspect.Parameter.KEYWORD_ONLY) if inspect.Parameter.KEYWORD_ONLY in kinds else None
    shown = [parameter(each) for each in signature.parameters.values()]
    yield ", ".join(shown if star is None else [*shown[:star], "*", *shown[star:]])
    yield f") -> {WORDS[signature.return_annotation]}:\n"
    yield f'    """{str(function.__doc__).partition(chr(10))[0]}"""\n'


def parameter(each: inspect.Parameter) -> str:
    annotation = WORDS.get(each.annotation, each.annotation)
    if each.kind is each.VAR_KEYWORD:
        return f"**{each.name}: {annotation}"
    if each.default is each.empty:
        return f"{each.name}: {annotation}"
    is_infinite = isinstance(each.default, float) and math.isinf(each.default)
    return f"{each.name}: {annotation} = {'...' if is_infinite else repr(each.default)}"
