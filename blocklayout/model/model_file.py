"""An ONNX file whose contents are held only while they are needed."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from blocklayout.errors import ModelError
from blocklayout.model.onnx_read import Declaration, OnnxModel, open_contents, refuse_missing
from blocklayout.model.origins import FileBytes, Part, origins_of
from blocklayout.regular_file import open_regular
from blocklayout.resource_limits import check_nbytes
from blocklayout.side_by_side import side_by_side

_CHUNK_NBYTES = 4 << 20

_Stamp = tuple[int, int, int]
"""Number of a file, the time of its last change, and its size."""


class ModelFile:
    """An ONNX file: its bytes are read now, and taken out of protobuf where they are needed.

    Its weights may be let go, and are then read again. The file stays open: under its name there may be another one
    later, or none. It must not be altered in place.

    Raises:
        ModelError: There is no such file, or it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with refuse_missing(self.path), open_regular(self.path) as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = _stamp(os.fstat(self._descriptor))
        self._contents: memoryview | None = self._read()
        self._model: OnnxModel | None = None
        self._signature: Declaration | None = None
        self._emptied: tuple[OnnxModel, Mapping[str, Part | np.ndarray]] | None = None
        self._mapped: Mapping[Path, _Stamp] = {}
        self.is_whole = False
        """Whether no weights lie in other files; known once its network was looked at."""

    @property
    def contents(self) -> memoryview:
        """All bytes of the file, read again if they were let go.

        Raises:
            ModelError: The file was altered meanwhile.
        """
        if self._contents is None:
            if _stamp(os.fstat(self._descriptor)) != self._stamp:
                why = "another plan needs its weights: load it anew"
                raise ModelError(f"{self.path} was altered since it was loaded, and {why}")
            self._contents = self._read()
        return self._contents

    @property
    def model(self) -> OnnxModel:
        """The network and its weights, checked; they take the place of the file's bytes.

        Weights in other files are mapped. Where these were truncated since, to look at them would end the process.

        Raises:
            ModelError: It is damaged, not ONNX, against ONNX's specification, was altered meanwhile, or its
                signature is not the known one.
            UnsupportedError: Valid ONNX that cannot run here.
        """
        if self._model is None and self._emptied is not None:
            (network, held), file = self._emptied, self._taken()
            constants = {name: each.array(file) if isinstance(each, Part) else each for name, each in held.items()}
            self._model = replace(network, constants=constants)
        elif self._model is None:
            self._model = open_contents(self._taken(), self.path)
            if self._signature not in (None, self._model.signature):
                raise ModelError(f"{self.path} declares other inputs and outputs than the plan store says: delete that")
            if self._signature is None:
                self.know(self._model.signature)
            self.is_whole = not self._model.has_external_data
            self._mapped = {path: _stamp(path.stat()) for path in _mapped_files(self._model.constants.values())}
        for path, stamp in self._mapped.items():
            if _was_altered(path, stamp):
                raise ModelError(f"{path} was altered since {self.path} was loaded, whose weights it has: load it anew")
        return self._model

    @property
    def signature(self) -> Declaration:
        """The inputs and outputs that it declares; errors are those of :attr:`model`."""
        return self._signature or self.model.signature

    def know(self, signature: Declaration) -> None:
        """Set the declaration, read or known from another file of the same bytes; warns as that does."""
        self._signature = signature
        signature.warn()

    def digest(self, n_threads: int) -> str:
        """Of all its bytes, in hexadecimal; computed by several threads at once."""
        contents = self.contents
        chunks: dict[int, bytes] = {}

        def digest_chunk(start: int) -> None:
            chunks[start] = sha256(contents[start : start + _CHUNK_NBYTES]).digest()

        with side_by_side(digest_chunk, range(0, len(contents), _CHUNK_NBYTES), n_threads):
            pass
        return sha256(b"".join(chunks[start] for start in sorted(chunks))).hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that are held now."""
        if self._model is None:
            held = () if self._emptied is None else self._emptied[1].values()
            return len(self._contents or b"") + sum(each.nbytes for each in held if isinstance(each, np.ndarray))
        return sum(array.nbytes for array in self._model.constants.values())

    def let_go(self) -> None:
        """Let go of weights, but those mapped from other files; the network stays, and where its weights lie."""
        self._contents = None
        if self._model is None or not self.is_whole:
            return
        constants = self._model.constants
        if self._emptied is None and (origins := origins_of(constants)) is not None:
            # of constants that do not lie in the file, which are small, themselves are kept
            held = {name: each if isinstance(each, Part) else constants[name] for name, each in origins.items()}
            self._emptied = (replace(self._model, constants={}), held)
        self._model = None

    def _taken(self) -> memoryview:
        """The bytes, which are not held here any more: protobuf copies part of them."""
        contents, self._contents = self.contents, None
        return contents

    def _read(self) -> memoryview:
        """All of the file, read: of a mapping, reading a part that was truncated meanwhile would end the process."""
        with refuse_missing(self.path), os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            nbytes = os.fstat(self._descriptor).st_size
            check_nbytes(nbytes, self.path)
            contents = FileBytes(nbytes, np.uint8)  # zeros take time, too
            n_read = file.readinto(contents.data)
            return contents.data[:n_read] if n_read else memoryview(file.read())


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _mapped_files(arrays: Iterable[np.ndarray]) -> set[Path]:
    """Paths of the files that arrays are mapped from."""
    found = set()
    for array in arrays:
        owner: object = array
        while isinstance(owner, np.ndarray):
            if isinstance(owner, np.memmap) and owner.filename:
                found.add(Path(owner.filename))
            owner = owner.base
    return found


def _was_altered(path: Path, stamp: _Stamp) -> bool:
    """Whether a file that is mapped was: not so where another one has taken its name, or none."""
    try:
        now = _stamp(path.stat())
    except OSError:
        return False
    return now != stamp and now[0] == stamp[0]
