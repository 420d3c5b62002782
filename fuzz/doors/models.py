"""ONNX files: small networks, and models of the onnx package's own tests, changed field by field."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto, defs

import blocklayout as bl
from fuzz.choices import WORDS, Choices
from fuzz.doors._feeding import run

SUMMARY = "ONNX files"
SHARE = 4
NBYTES, SECONDS = 256 << 20, 5.0

MAX_SEED_NBYTES = 4000
LOCATIONS = (
    "data.bin",
    "../outside",
    "link",
    "sub/../../outside",
    "/etc/hostname",
    "",
    ".",
    "\0",
    "loop",
    "data.bin/x",
)

_MESSAGE, _STRING, _BYTES = 11, 9, 12  # of protobuf's kinds of fields
_FLOATING = (1, 2)


class OutsideError(Exception):
    """A file was opened that is not beside the model."""


def seeds(folder: Path) -> list[bytes]:
    """The models to change, kept in a folder."""
    if not folder.exists():
        # apart, since it imports what a load does without, and takes seconds
        subprocess.run([sys.executable, "-m", "fuzz.doors._seeds", folder, str(MAX_SEED_NBYTES)], check=True)
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    models = seeds(folder.parent / "seeds")
    op_types = sorted({schema.name for schema in defs.get_all_schemas()})
    home = folder / "model"
    home.mkdir(exist_ok=True)
    (home / "data.bin").write_bytes(bytes(range(256)) * 64)
    (folder / "outside").write_bytes(bytes(4096))
    for name, target in (("link", "../outside"), ("loop", "loop")):
        if not (home / name).is_symlink():
            (home / name).symlink_to(target)
    _watch((str(folder / "outside"), "/etc/hostname"))
    path = home / "given.onnx"

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        content = models[choices.below(len(models))]
        if choices.chance(8):
            content = choices.spoilt(content)
        else:
            proto = ModelProto.FromString(content)
            for _ in range(1 + choices.below(4)):
                change(proto, choices, op_types)
            content = proto.SerializeToString()
        (folder / "given.onnx").write_bytes(content)
        path.write_bytes(content)
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            options: dict[str, Any] = {"layout": choices.pick(("auto", "nhwc", "any", "blocked", "plain"))}
            source = content if choices.chance(4) else path
            run(bl.load(source, tune="model", threads=1 + choices.below(2), **options), choices)

    return attempt


def _watch(forbidden: tuple[str, ...]) -> None:
    """Raise where one of these files is opened, by whatever name."""

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and os.path.realpath(args[0]) in forbidden:
            raise OutsideError(args[0])

    sys.addaudithook(look)


def change(proto: ModelProto, choices: Choices, op_types: list[str]) -> None:
    """Change one thing of a model."""
    nodes = [each for each in _messages(proto) if each.DESCRIPTOR.name == "NodeProto"]
    kind = choices.below(8)
    if kind == 0 and nodes:
        choices.pick(nodes).op_type = choices.pick(op_types)
    elif kind == 1 and nodes:
        _rewire(choices.pick(nodes), nodes, choices)
    elif kind == 2:
        _displace(choices.pick([*proto.graph.initializer] or [TensorProto()]), choices)
    else:
        _change_field(choices.pick([*_messages(proto)]), choices)


def _messages(message: Any) -> Iterator[Any]:
    """A message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == _MESSAGE:
            for each in value if field.is_repeated else (value,):
                yield from _messages(each)


def _rewire(node: Any, nodes: list[Any], choices: Choices) -> None:
    names = sorted({name for each in nodes for name in (*each.input, *each.output)})
    if not names:
        return
    ends = node.output if choices.chance(4) else node.input
    if ends and not choices.chance(6):
        ends[choices.below(len(ends))] = choices.pick(names)
    else:
        ends.append(choices.pick(names))


def _displace(tensor: Any, choices: Choices) -> None:
    """Put an initializer's data into another file."""
    nbytes = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": choices.pick(LOCATIONS)}
    if choices.chance(2):
        entries["offset"] = str(choices.pick((0, 64, 1, choices.integer(), "x")))
    if choices.chance(2):
        entries["length"] = str(choices.pick((nbytes, choices.integer(), "")))
    for key, value in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def _change_field(message: Any, choices: Choices) -> None:
    field = choices.pick(message.DESCRIPTOR.fields)
    there = [found for found, _ in message.ListFields()]
    if there and not choices.chance(6):
        field = choices.pick(there)
    if field.is_repeated:
        _change_list(getattr(message, field.name), field, choices)
    elif field.type == _MESSAGE:
        if choices.chance(3):
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
            _change_field(getattr(message, field.name), choices)
    else:
        _set(message, field, choices)


def _change_list(values: Any, field: Any, choices: Choices) -> None:
    at = choices.below(len(values) or 1)
    kind = choices.below(6)
    if values and kind == 0:
        del values[at]
    elif values and kind == 1:
        other = values[at]
        values.append(other)
    elif field.type == _MESSAGE:
        if values and kind > 2:
            _change_field(values[at], choices)
        else:
            _change_field(values.add(), choices)
    elif values and kind > 2:
        values[at] = _scalar(values[at], field, choices)
    else:
        values.append(_scalar(None, field, choices))


def _set(message: Any, field: Any, choices: Choices) -> None:
    setattr(message, field.name, _scalar(getattr(message, field.name), field, choices))


def _scalar(before: Any, field: Any, choices: Choices) -> Any:
    """A value for a field that holds no message."""
    if field.type == _STRING:
        return (
            choices.pick([word for word in WORDS if word.isprintable()])
            if before is None or choices.chance(2)
            else (choices.spoilt_text(before).encode("utf-8", "replace").decode())
        )
    if field.type == _BYTES:
        return choices.spoilt(before or b"\0\0\0\0")
    if field.type in _FLOATING:
        return choices.number()
    if field.enum_type is not None:
        return choices.pick([each.number for each in field.enum_type.values])
    wide = field.type in (3, 4, 6, 16, 18)
    found = choices.integer() if before is None or choices.chance(2) else before + choices.pick((1, -1, 2, -2, before))
    unsigned = field.type in (4, 13)
    limit = 2 ** (63 if wide else 31)
    return found % (2 * limit) if unsigned else (found + limit) % (2 * limit) - limit
