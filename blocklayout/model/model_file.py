"""An ONNX file whose contents are held only while they are needed."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import numpy as np

from blocklayout.errors import ModelError
from blocklayout.model.onnx_read import OnnxModel, open_contents, refuse_missing


class ModelFile:
    """An ONNX file, read and checked; its weights may be let go, and are then read again where they are needed.

    The file stays open: under its name there may be another one later, or none. It must not be altered in place.

    Raises:
        ModelError: No such file, damaged, not ONNX, or against ONNX's specification.
        UnsupportedError: Valid ONNX that cannot run here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with refuse_missing(self.path):
            self._descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._stamp_now()
        self._model: OnnxModel | None = self._read()

    @property
    def model(self) -> OnnxModel:
        """What the file holds, read again if it was let go.

        Raises:
            ModelError: The file was altered meanwhile.
        """
        if self._model is None:
            if self._stamp_now() != self._stamp:
                raise ModelError(
                    f"{self.path} was altered since it was loaded, and another plan needs its weights: load it anew"
                )
            self._model = self._read()
        return self._model

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that are held now."""
        return sum(array.nbytes for array in self._model.constants.values()) if self._model is not None else 0

    def let_go(self) -> None:
        """Hold the weights no longer, unless they lie in files of their own: those are mapped, and cost nothing."""
        if self._model is not None and not self._model.has_external_data:
            self._model = None

    def _read(self) -> OnnxModel:
        return open_contents(self._contents(), self.path)

    def _contents(self) -> bytes | memoryview:
        """All of the file, read: of a mapping, reading what was truncated meanwhile would end the process."""
        with refuse_missing(self.path), os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            contents = np.empty(os.fstat(self._descriptor).st_size, np.uint8).data  # zeros take time, too
            n_read = file.readinto(contents)
            return contents[:n_read] if n_read else file.read()

    def _stamp_now(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_mtime_ns, status.st_size
