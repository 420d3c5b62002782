"""Fenced blocks of a Markdown page, and how each kind is run."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

from blocklayout.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KINDS = {"python", "pycon", "console", "sh", "text", "json", "mermaid", "toml", "{toctree}"}
"""``python`` and ``pycon`` and ``console`` are run; ``sh`` is what .ci/run runs; the others are shown."""

COMPANIONS = {"torch": ("onnxscript",)}
"""What a package's own features need beside it: torch exports to ONNX with onnxscript."""

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        kind: The word behind the opening fence.
        line: Number of its first line of text.
    """

    page: str
    kind: str
    line: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in FENCE.finditer(text):
        yield Block(page, match["kind"].strip(), text.count("\n", 0, match.start()) + 2, match["text"])


def code_of(block: Block) -> str:
    """The Python in a block, without prompts and output."""
    if block.kind == "python":
        return block.text
    if block.kind == "pycon":
        return "".join(example.source for example in doctest.DocTestParser().get_examples(block.text))
    return ""


def absent_packages(block: Block) -> set[str]:
    """Packages that a block needs and this environment lacks."""
    found = set()
    for node in ast.walk(ast.parse(code_of(block))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    needed = found | {package for name in found for package in COMPANIONS.get(name, ())}
    return {name for name in needed if find_spec(name) is None}


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Execute a block as one script that goes on where the block before it stopped."""
    code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
    exec(code, names)


def run_pycon(block: Block, names: dict[str, Any]) -> None:
    """Run a block of ``>>>`` examples and compare what they print."""
    name = f"page:{block.line}"  # short, as tables that name lines of code would be cut otherwise
    test = doctest.DocTestParser().get_doctest(block.text, {}, name, block.page, block.line - 1)
    test.globs = names  # the parser would copy them, and the next block wants what this one makes
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    told: list[str] = []
    runner.run(test, out=told.append, clear_globs=False)
    assert runner.failures == 0, "".join(told)


def run_alone(block: Block, environ: Mapping[str, str], folder: Path) -> None:
    """Execute a block in a process of its own, with whatever its packages warn of."""
    assert block.kind == "python", f"{block.where}: a block that needs an optional package is a python block"
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=dict(environ),
        cwd=folder,
        timeout=120,
    )
    assert done.returncode == 0, f"{block.where}\n{done.stderr}"


def run_console(block: Block) -> None:
    """Run each ``$ blocklayout`` line, in this process and its present folder; where output is shown, compare it."""
    for command, shown in commands(block):
        words = shlex.split(command)
        assert words[0] == "blocklayout", f"{block.where}: only blocklayout's own commands are run: {command}"
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            status = main(words[1:])
        assert status == 0, f"{block.where}: {command}\n{err.getvalue()}"
        matches = doctest.OutputChecker().check_output(shown, out.getvalue(), FLAGS)
        assert not shown or matches, f"{block.where}: {command}\nshown:\n{shown}\ngot:\n{out.getvalue()}"


def commands(block: Block) -> list[tuple[str, str]]:
    """``(command, output shown)`` pairs of a console block; a trailing backslash continues a command."""
    text = block.text.replace("\\\n", "")
    assert text.startswith("$ "), f"{block.where}: a console block starts with a command: '$ blocklayout ...'"
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block, if it is of a kind that runs."""
    if block.kind == "python":
        run_python(block, names)
    elif block.kind == "pycon":
        run_pycon(block, names)
    elif block.kind == "console":
        run_console(block)
