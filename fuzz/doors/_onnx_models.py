"""The small models of the onnx package's own tests, as files: ``python -m fuzz.doors._onnx_models FOLDER NBYTES``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from onnx.backend.test.case.node import collect_testcases


def main(folder: Path, most: int) -> None:
    """Write those of at most so many bytes to a folder, which is there when all of them are."""
    warnings.simplefilter("ignore")
    beside = folder.with_name(f"{folder.name}.part")
    beside.mkdir(parents=True)
    for case in collect_testcases(None):
        content = case.model.SerializeToString() if case.model is not None else b""
        if 0 < len(content) <= most:
            (beside / f"{case.name}.onnx").write_bytes(content)
    beside.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
