"""The models of a server, by name: loaded, unloaded, and replaced while they serve."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from blocklayout.errors import BlockLayoutError, ModelError, UnsupportedError, did_you_mean
from blocklayout.http.messages import VERSION, IndexEntry, ModelMetadata, RefusalError
from blocklayout.http.tensors import metadata
from blocklayout.served import Served
from blocklayout.show.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blocklayout.api import Source
    from blocklayout.runtime import InputInfo, OutputInfo
    from blocklayout.session import Session

_log = logging.getLogger(__name__)


class Model:
    """A model of the repository; it keeps its name while it comes and goes.

    Attributes:
        name: Its name.
        served: The sessions that answer requests; ``None`` while it is unloaded.
        state: As the protocol names it.
        reason: Why it is not there.
        brief: The extents of the last feed, if its run was so short that the event loop can wait for one like it.
    """

    def __init__(self, name: str, source: Source, options: Mapping[str, Any]) -> None:
        """Load nothing yet."""
        self.name = name
        self.served: Served | None = None
        self.state: Literal["READY", "LOADING", "UNAVAILABLE"] = "UNAVAILABLE"
        self.reason = "not loaded"
        self.brief: list[tuple[int, ...]] | None = None
        self._source = source
        self._options = options
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load it, or have what its file holds now take over; where that fails, it goes on as it was."""
        with self._lock:
            start = time.monotonic()
            if self.served is not None:
                self.served.replace(self._source)
            else:
                self.state, self.reason = "LOADING", "it is being loaded"
                try:
                    self.served = self._checked(Served(self._source, **self._options))
                except BaseException as error:
                    self.state, self.reason = "UNAVAILABLE", str(error)
                    raise
            self.state, self.reason, self.brief = "READY", "", None
            seconds = round(time.monotonic() - start, 3)
            _log.info("model loaded", extra={"fields": {"model": self.name, "seconds": seconds}})

    def unload(self) -> None:
        """Finish what it has taken, and free it."""
        with self._lock:
            served, self.served = self.served, None
            self.state, self.reason = "UNAVAILABLE", "unloaded"
            if served is not None:
                served.close()
                _log.info("model unloaded", extra={"fields": {"model": self.name}})

    def entry(self) -> IndexEntry:
        """Its line of the index."""
        return IndexEntry(name=self.name, state=self.state, reason=self.reason)

    def metadata(self) -> ModelMetadata:
        """Its inputs and outputs; a RefusalError where it does not serve."""
        session = self.serving().session
        inputs, outputs = ([metadata(info) for info in side] for side in _border(session))
        return ModelMetadata(name=self.name, inputs=inputs, outputs=outputs)

    def serving(self) -> Served:
        """The sessions that answer its requests; a RefusalError where it is not loaded."""
        if self.served is None:
            how = f"POST /v2/repository/models/{self.name}/load has it loaded"
            raise RefusalError(503, f"model {self.name!r} is not there: {self.reason}; {how}")
        return self.served

    def page(self) -> str:
        """The page of its layouts, by the plan that ran last; a RefusalError before it has one, or does not serve."""
        session = self.serving().session
        plans = session.plans
        if not plans and session.pieces is None:
            raise RefusalError(404, f"model {self.name!r} has no plan before its first request: extents are free")
        is_one = session.pieces is not None or len(plans) == 1
        report = session.report() if is_one else Report.of(plans[-1], plans[-1].machine())
        return report.from_source(str(self._source)).to_html()

    def _checked(self, served: Served) -> Served:
        """The same, if the protocol can express its inputs and outputs; else it is closed."""
        for info in (info for side in _border(served.session) for info in side):
            if info.container or info.is_blocked or info.is_free:
                served.close()
                kind = info.container or f"in the format {info.border}"
                raise UnsupportedError(f"{info.name!r} is {kind}: the protocol has row-major tensors alone")
        return served


class Repository:
    """All models that there are, each with the same options of :func:`blocklayout.load`."""

    def __init__(self, sources: Mapping[str, Source], **options: Any) -> None:
        """Know the models, by name; load none."""
        self._models = {name: Model(name, source, options) for name, source in sources.items()}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def index(self, *, only_ready: bool) -> list[dict[str, Any]]:
        """The models' lines of the index."""
        entries = [model.entry() for model in self]
        return [each.model_dump() for each in entries if each.state == "READY" or not only_ready]

    def find(self, name: str, version: str = VERSION) -> Model:
        """A model; a RefusalError where there is none of this name and version."""
        if name not in self._models:
            known = ", ".join(self._models)
            raise RefusalError(404, f"no model {name!r}; there are {known}{did_you_mean(name, self._models)}")
        if version != VERSION:
            raise RefusalError(404, f"model {name!r} has version {VERSION}, not {version!r:.40}")
        return self._models[name]

    def load_anew(self, name: str, parameters: Sequence[str]) -> None:
        """Load a model, or have what its file holds now take over; a RefusalError of parameters for that."""
        if parameters:
            rule = "a model is loaded from the file and with the options that the server was started with"
            raise RefusalError(400, f"parameters.{min(parameters)}: {rule}")
        self.find(name).load()

    def load(self) -> None:
        """Load all; a ModelError that names the model where one cannot be."""
        for model in self:
            try:
                model.load()
            except BlockLayoutError as error:
                raise ModelError(f"model {model.name!r}: {error}") from error

    def close(self) -> None:
        """Unload all."""
        for model in self:
            model.unload()


def _border(session: Session) -> tuple[list[InputInfo], list[OutputInfo]]:
    return session.get_inputs(), session.get_outputs()
