"""An import points to a lower layer, but where a value asks for its text, and each foreign library has its place."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import TYPE_CHECKING

from tests.structure.tree import PACKAGE, ROOT, imports, modules, relative

if TYPE_CHECKING:
    from pathlib import Path

# Lowest first; what shares a level is in the order in which one may use the other.
LEVELS = (
    (
        *("errors", "resource_limits", "dtypes", "encoding", "atomic_write", "garbage", "lazy_names", "regular_file"),
        *("forking", "side_by_side", "timing"),
    ),
    ("layout",),
    ("dnnl",),
    ("ir", "layout_events", "recording", "value_checks", "operators", "tensor"),
    ("ops",),
    ("model",),
    ("plan",),
    ("show",),
    ("runtime", "serve", "session"),
    (
        "zoo",
        "loading",
        "eager",
        "torch",
        "api",
        "served",
        "optim",
        "ray",
        "quantizing",
        "__init__",
        "http",
        "commands",
        "cli",
        "__main__",
    ),
)
ORDER = [unit for level in LEVELS for unit in level]

ASKING = {"__repr__", "__str__", "_repr_html_", "explain", "table", "to_svg"}
"""Methods in which a value of a lower layer imports ``show/``, for its own text or picture, when asked for these."""

# Who may import what that is not ours, where design gives it a place.
HOMES = {
    "cffi": {"dnnl"},
    "_cffi_backend": {"dnnl"},
    "onnx": {"model", "zoo", "quantizing", "api"},  # api only to say what load takes
    "google": {"model", "http"},  # protobuf
    "grpc": {"http"},
    "rich": {"show"},
    "PIL": {"commands", "ops"},
    "ray": {"ray"},
    "torch": {"torch", "api"},  # likewise
    "pydantic": {"quantizing", "http"},
    "pydantic_core": {"quantizing", "http"},
    "pydantic_settings": {"http"},
    "fastapi": {"http"},
    "starlette": {"http"},
    "uvicorn": {"http"},
    "httptools": {"http"},
    "prometheus_client": {"http"},
}

# Modules whose distribution is called otherwise, or comes with another that is declared.
PROVIDED = {"google": "onnx", "pydantic_core": "pydantic", "_cffi_backend": "cffi", "PIL": "pillow", "grpc": "grpcio"}
PROVIDED |= {"starlette": "fastapi", "pydantic_settings": "pydantic-settings"}


def unit_of(path: Path) -> str:
    """The package or top-level module that a file belongs to: its place in the layers."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def unit_of_import(target: str) -> str:
    return [*target.split("."), "__init__"][1]


def test_every_module_has_a_level() -> None:
    homeless = {unit_of(path) for path in modules()} - set(ORDER)
    assert not homeless, f"no level for {homeless}: give each its place in LEVELS"


def test_imports_point_downwards() -> None:
    upward = [
        f"{relative(path)}:{found.line} imports {found.target}"
        for path in modules()
        for found in imports(path)
        if found.target.split(".")[0] == "blocklayout"
        and unit_of_import(found.target) != unit_of(path)
        and ORDER.index(unit_of_import(found.target)) > ORDER.index(unit_of(path))
        and not (unit_of_import(found.target) == "show" and found.function in ASKING)
    ]
    assert not upward, upward


def test_foreign_libraries_stay_in_their_place() -> None:
    strayed = [
        f"{relative(path)}:{found.line} imports {found.target}"
        for path in modules()
        for found in imports(path)
        if unit_of(path) not in HOMES.get(found.target.split(".")[0], {unit_of(path)})
    ]
    assert not strayed, strayed


def test_the_package_imports_only_what_it_depends_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + [
        each for extra in ("grpc", "image", "ray", "serve", "torch") for each in project["optional-dependencies"][extra]
    ]
    declared = {re.split("[>=[]", requirement)[0].strip() for requirement in requirements}
    of_the_user = {"pandas"}  # a frame is asked for by those who have it
    known = declared | of_the_user | sys.stdlib_module_names | {"blocklayout"}
    unknown = {
        f"{relative(path)}:{found.line} imports {found.target}"
        for path in modules()
        for found in imports(path)
        if PROVIDED.get(found.target.split(".")[0], found.target.split(".")[0]) not in known
    }
    assert not unknown, unknown


def test_peers_are_no_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    peers = ("onnxruntime", "openvino", "torch", "ray", "scikit-learn")
    assert not [requirement for requirement in project["dependencies"] if requirement.startswith(peers)]


def test_nobody_imports_an_implementation_of_ours() -> None:
    found = {
        f"{relative(path)}:{each.line}"
        for path in modules()
        for each in imports(path)
        if each.target.startswith("blocklayout.dnnl.own.")
    }
    assert not found, f"ask blocklayout.dnnl.own, which finds it: {found}"
