"""The models that are changed, as files: ``python -m fuzz.doors._seeds FOLDER NBYTES``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from onnx.backend.test import data
from onnx.backend.test.case.node import collect_testcases

import blocklayout as bl
from fuzz.doors import _networks

N_COPIES = 20
"""Of each network of ours, so that models of several nodes are taken as often as those of one."""


def main(folder: Path, most: int) -> None:
    """Write the models of at most so many bytes to a folder, which is there when all of them are."""
    warnings.simplefilter("ignore")
    beside = folder.with_name(f"{folder.name}.part")
    beside.mkdir(parents=True)
    for number, build in enumerate(_networks.ALL):
        bl.save(build(), beside / f"network{number}")
        content = (beside / f"network{number}").read_bytes()
        for copy in range(1, N_COPIES):
            (beside / f"network{number}.{copy}").write_bytes(content)
    for name, content in _of_onnx():
        if 0 < len(content) <= most:
            (beside / name).write_bytes(content)
    beside.rename(folder)


def _of_onnx() -> Iterator[tuple[str, bytes]]:
    """The models of the onnx package's own tests: of one node each, and exported ones."""
    for case in collect_testcases(None):
        if case.model is not None:
            yield case.name, case.model.SerializeToString()
    for home in data.__path__:
        for path in sorted(Path(home).glob("*/*/model.onnx")):
            yield f"{path.parts[-3]}-{path.parts[-2]}", path.read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
