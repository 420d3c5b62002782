"""The declarations: what is committed is what they generate, and what they say is what the headers say."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi

ROOT = Path(__file__).resolve().parents[2]
DEVEL = "onednn-devel-cpu-gomp"
OUR_OWN = "bl_"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cdefs_build", ROOT / "cdefs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def declarations(build: ModuleType) -> str:
    text = "\n".join(path.read_text(encoding="utf-8") for path in build.declaration_paths())
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def prototypes_in(text: str) -> list[str]:
    without_macros = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    without_types = re.sub(r"typedef [^;{]*(\{[^}]*\}[^;]*)?;", "", without_macros)
    return [f"{' '.join(statement.split())};" for statement in without_types.split(";") if statement.strip()]


def name_of(prototype: str) -> str:
    match = re.search(r"(\w+)\(", prototype)
    assert match is not None
    return match[1]


def macros_in(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)$", text, flags=re.MULTILINE)}


def enumerators() -> dict[str, int]:
    types = [ffi.typeof(name) for name in ffi.list_types()[0]]
    return {name: value for type_ in types if type_.kind == "enum" for name, value in type_.relements.items()}


def structs() -> dict[str, Any]:
    types = {name: ffi.typeof(name) for name in ffi.list_types()[0]}
    return {name: type_ for name, type_ in types.items() if type_.kind == "struct" and not name.startswith(OUR_OWN)}


def header_folder() -> Path:
    try:
        files = metadata.files(DEVEL) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the headers of {DEVEL}")
    for file in files:
        if file.as_posix().endswith("oneapi/dnnl/dnnl.h"):
            path = Path(str(file.locate()))
            if path.is_file():
                return path.resolve().parents[2]
    pytest.skip(f"{DEVEL} is installed without its headers")


def compiler_says(source: str) -> str:
    """What gcc has against ``source`` behind the real headers; empty if nothing."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    headers = (
        "#include <stddef.h>\n#include <oneapi/dnnl/dnnl.h>\n#include <oneapi/dnnl/dnnl_debug.h>\n#include <omp.h>\n"
    )
    command = [gcc, "-fsyntax-only", "-x", "c", "-std=c11", "-I", str(header_folder()), "-"]
    done = subprocess.run(command, input=headers + source, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_the_generated_module_is_up_to_date(build: ModuleType) -> None:
    assert build.TARGET.read_text(encoding="utf-8") == build.generate(), "run 'python cdefs/build.py'"


def test_every_prototype_is_the_headers(declarations: str) -> None:
    prototypes = prototypes_in(declarations)
    assert len(prototypes) > 80
    assert compiler_says("\n".join(prototypes)) == ""


def test_every_constant_is_the_headers(declarations: str) -> None:
    constants = enumerators() | macros_in(declarations)
    assert len(constants) > 200
    checks = [f'_Static_assert({name} == {value}, "{name}");' for name, value in constants.items()]
    assert compiler_says("\n".join(checks)) == ""


def test_every_struct_is_the_headers() -> None:
    found = structs()
    assert set(found) == {"dnnl_exec_arg_t", "dnnl_version_t"}
    checks = [f'_Static_assert(sizeof({name}) == {ffi.sizeof(name)}, "{name}");' for name in found]
    checks += [
        f'_Static_assert(offsetof({name}, {field}) == {info.offset}, "{name}.{field}");'
        for name, type_ in found.items()
        for field, info in type_.fields
    ]
    assert compiler_says("\n".join(checks)) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        "dnnl_status_t dnnl_memory_destroy(dnnl_engine_t memory);",
        "int dnnl_memory_desc_get_size(const_dnnl_memory_desc_t desc);",
        '_Static_assert(dnnl_f32 == 2, "dnnl_f32");',
    ],
)
def test_the_compiler_sees_a_wrong_declaration(wrong: str) -> None:
    assert "error" in compiler_says(wrong)


def test_the_library_has_every_function(declarations: str) -> None:
    c_library = library.load()
    for prototype in prototypes_in(declarations):
        assert callable(getattr(c_library, name_of(prototype)))


def test_no_declaration_is_made_twice(declarations: str) -> None:
    names = [name_of(prototype) for prototype in prototypes_in(declarations)]
    assert len(names) == len(set(names))
