"""Writes the pages of ``reference/generated`` before a build: public names, by kind and module, and the commands."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blocklayout as bl
from blocklayout.cli import COMMANDS, make_parser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from sphinx.application import Sphinx

KINDS = {
    "sessions": (
        "Models, sessions and plans",
        "Names that load, run, save and explain a model.",
    ),
    "tensors": ("Tensors", "Arrays with a memory format, and what describes it."),
    "operators": (
        "Operators on Tensors",
        (
            "Each is a method too, of Tensors and of a Builder's values, and a name of ``blocklayout.eager``. "
            "Results have the first operand's memory format."
        ),
    ),
    "gradients": ("Gradients", "Of operators on Tensors, one by one; also in ``blocklayout.eager.backward``."),
    "errors": ("Errors and warnings", "All of them are names of ``blocklayout``; each message names the remedy."),
}
"""Page, title and first paragraph of the names of ``blocklayout``."""

MODULES = ("dnnl", "layout", "optim", "serve", "zoo", "torch", "ray")
"""Other public modules."""

FORMATS = ("channels_first", "channels_last", "contiguous_format", "preserve_format")
"""Names that are values and stand with Tensors."""


def kind_of(name: str) -> str:
    """The page of a name of ``blocklayout``."""
    thing = getattr(bl, name)
    home = getattr(thing, "__module__", "") or ""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return "errors"
    if home.startswith(("blocklayout.eager.backward", "blocklayout.eager.gradients")):
        return "gradients"
    if home.startswith("blocklayout.eager") and name != "candidates":
        return "operators"
    if home.startswith(("blocklayout.tensor", "blocklayout.layout")) and not home.startswith("blocklayout.layout_"):
        return "tensors"
    return "tensors" if name in FORMATS else "sessions"


def public_in(module: ModuleType) -> Iterable[str]:
    """Its ``__all__``, or what it defines."""
    defined = (name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__)
    return getattr(module, "__all__", None) or [name for name in defined if not name.startswith("_")]


def public_names() -> dict[str, list[str]]:
    """Every public name, by page: dotted, as a user writes it after ``import blocklayout``."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in bl._public_names():  # noqa: SLF001 - with an __all__, help(bl) would print every class in full
        if name != "__version__" and not inspect.ismodule(getattr(bl, name)):
            found[kind_of(name)].append(f"blocklayout.{name}")
    for module in MODULES:
        home = importlib.import_module(f"blocklayout.{module}")
        names = [
            name for name in public_in(home) if hasattr(home, name)
        ]  # layers within PyTorch are there with it alone
        found[module] = [f"blocklayout.{module}.{name}" for name in sorted(names, key=str.lower)]
    return found


def resolved(dotted: str) -> Any:
    """The object of a dotted name."""
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def directive(dotted: str, seen: dict[int, str]) -> Iterator[str]:
    """The lines that document a name; where the object has another one that is documented already, a link to that."""
    thing = resolved(dotted)
    first = seen.setdefault(id(thing), dotted)
    if first != dotted:
        yield from (f"``{dotted}`` is :py:obj:`{first}`.", "")
        return
    kind = "autoclass" if inspect.isclass(thing) else "autofunction" if callable(thing) else "autodata"
    yield f".. {kind}:: {dotted}"
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        yield from ("   :no-members:", "   :show-inheritance:")
    if thing is bl.Tensor:
        operators = [name for name in vars(bl.Tensor) if hasattr(bl, name)]
        yield f"   :exclude-members: {', '.join(operators)}"
    yield ""


def page(title: str, paragraph: str, lines: Iterable[str]) -> str:
    """The text of a page in reStructuredText."""
    return "\n".join([title, "=" * len(title), "", paragraph, "", *lines])


def command_lines() -> Iterator[str]:
    """The help of each command, as a terminal of 80 columns shows it."""
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}
    parsers = make_parser()._subparsers._group_actions[0].choices  # noqa: SLF001 - argparse lists them nowhere else
    for name, summary in COMMANDS.items():
        importlib.import_module(f"blocklayout.commands.{name}").add_options(parsers[name])
        title = f"blocklayout {name}"
        yield from [title, "-" * len(title), "", summary, "", ".. code-block:: text", ""]
        yield from (f"   {line}".rstrip() for line in parsers[name].format_help().splitlines())
        yield ""


def pages() -> Iterator[tuple[str, str]]:
    """Names and texts of all pages."""
    seen: dict[int, str] = {}
    for name, dotted in public_names().items():
        if name in KINDS:
            title, paragraph = KINDS[name]
        else:
            title = f"blocklayout.{name}"
            paragraph = f".. automodule:: {title}\n   :no-members:"
        yield name, page(title, paragraph, (line for each in dotted for line in directive(each, seen)))
    yield "commands", page("The command line", "As ``blocklayout COMMAND --help`` shows it.", command_lines())


def write_pages(app: Sphinx) -> None:
    """Write those that changed, and remove those that are no longer written."""
    folder = Path(app.srcdir, "reference", "generated")
    folder.mkdir(exist_ok=True)
    texts = {f"{name}.rst": text for name, text in pages()}
    for path in folder.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
