"""Settings of the server: flags precede environment variables, these the TOML file, and that the defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import (
    ByteSize,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings.exceptions import SettingsError

from blocklayout.errors import InputError, did_you_mean
from blocklayout.http.messages import faults
from blocklayout.zoo import ZOO

PREFIX = "BLOCKLAYOUT_SERVE_"
"""Of environment variables: ``BLOCKLAYOUT_SERVE_MAX_WAITING`` is ``max_waiting``."""

Names = Annotated[list[str], NoDecode]


class Settings(BaseSettings):
    """Models, address and bounds of a server. Field names are those of flags, variables and the file.

    Example:
        >>> settings = Settings.read(models="zoo:resnet50,small.onnx", port="0")
        >>> settings.sources
        {'resnet50': 'zoo:resnet50', 'small': 'small.onnx'}
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    models: Names = Field(min_length=1, description="ONNX files, saved sessions, or zoo:resnet50 and its like")
    name: Names = Field([], description="a model's name, in the order of models (default: its file's without ending)")
    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for all of this machine's")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 for one that is free")
    grpc_port: int | None = Field(
        None, ge=0, le=65535, description="port for gRPC, if any (extra grpc); 0 for a free one"
    )
    dtype: Literal["f32", "bf16", "f16"] | None = Field(None, description="data type of the activations inside")
    layout: str | None = Field(None, description="a policy such as auto, or a oneDNN tag")
    tune: Literal["cached", "model", "measure"] = Field("cached", description="where costs come from, as in bl.load")
    threads: PositiveInt | None = Field(None, description="threads of each model (default: as many as CPUs)")
    streams: PositiveInt = Field(1, description="runs of each model at a time, which share its threads")
    max_batch: PositiveInt = Field(1, description="requests of one row each that run together; 1 joins none")
    max_delay_ms: NonNegativeFloat = Field(2.0, description="how long the first of a batch waits for others")
    max_waiting: PositiveInt = Field(64, description="requests that may wait for each model; one more is a 503")
    max_requests: PositiveInt = Field(256, description="requests that may be read, wait and run; one more is a 503")
    max_body: ByteSize = Field(ByteSize(64 << 20), description="bytes of a request, such as 64MiB; more is a 413")
    timeout: PositiveFloat | None = Field(None, description="seconds after which a request is a 504 (default: none)")
    read_timeout: PositiveFloat = Field(30.0, description="seconds in which a request must have come, else a 408")
    drain_timeout: PositiveInt = Field(30, description="seconds to finish what was accepted, on SIGTERM")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="debug has every request")

    _file: ClassVar[Path | None] = None

    @classmethod
    def read(cls, file: str | os.PathLike[str] | None = None, **flags: Any) -> Self:
        """The settings of flags, environment and file.

        Raises:
            InputError: A setting that there is not, or a value that it cannot have.
        """
        of_file = type(cls.__name__, (cls,), {"__module__": cls.__module__, "_file": _checked(file)})
        known = [f"{PREFIX}{field.upper()}" for field in cls.model_fields]
        unknown = [name for name in os.environ if name.startswith(PREFIX) and name.upper() not in known]
        if unknown:
            raise InputError(f"{unknown[0]}: no such setting{did_you_mean(unknown[0], known)}")
        try:
            return cast("Self", of_file(**flags))
        except ValidationError as error:
            raise InputError(f"setting {faults(error)}") from None
        except (SettingsError, ValueError) as error:  # of tomllib
            raise InputError(f"{file or 'settings'}: {error}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, cls._file)

    @field_validator("models", "name", mode="before")
    @classmethod
    def split(cls, given: Any) -> Any:
        """Names with commas between them, as an environment variable has several."""
        return [each.strip() for each in given.split(",")] if isinstance(given, str) else given

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Each model has a name of its own, which a path can hold."""
        if self.name and len(self.name) != len(self.models):
            raise ValueError(f"name: {len(self.name)} of them for {len(self.models)} models")
        names = self.name or [_stem(model) for model in self.models]
        for each in names:
            if names.count(each) > 1 or not each or "/" in each:
                raise ValueError(f"name: {each!r} is empty, there twice, or has a slash: give one for each model")
        return self

    @property
    def sources(self) -> dict[str, str]:
        """Files or networks of the zoo, by model name."""
        return dict(zip(self.name or [_stem(model) for model in self.models], self.models, strict=True))

    @property
    def load_options(self) -> dict[str, Any]:
        """Options of :func:`blocklayout.load`."""
        same = self.model_dump(include={"dtype", "layout", "tune", "threads", "streams", "max_waiting"})
        return same | {"batching": (self.max_batch, self.max_delay_ms) if self.max_batch > 1 else None}


def _checked(file: str | os.PathLike[str] | None) -> Path | None:
    """The file, which must be there: pydantic passes over one that is not."""
    if file is not None and not Path(file).is_file():
        raise InputError(f"--config {file}: no such file")
    return None if file is None else Path(file)


def _stem(source: str) -> str:
    return source.removeprefix(ZOO) if source.startswith(ZOO) else Path(source).stem
