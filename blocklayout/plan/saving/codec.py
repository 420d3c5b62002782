"""Plans to JSON and back, every field checked by pydantic, which is loaded at the first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from blocklayout.dnnl import Spec
from blocklayout.errors import BlockLayoutError, PlanError
from blocklayout.kernels import HostSpec

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

    from blocklayout.plan.plan import Plan


class OwnDict:
    """Marks a field whose type has ``to_dict`` and ``from_dict`` of its own."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema pydantic asks for."""
        from pydantic_core import core_schema

        del handler
        written = core_schema.plain_serializer_function_ser_schema(source.to_dict)
        return core_schema.no_info_plain_validator_function(_reader(source.from_dict), serialization=written)


class Finite:
    """Marks a number that is neither infinite nor NaN."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema pydantic asks for."""
        from pydantic_core import core_schema

        del source, handler
        return core_schema.float_schema(allow_inf_nan=False, strict=True)


class EitherSpec:
    """Marks a field that holds a Spec or a HostSpec; the latter's dictionary has the key ``host``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema pydantic asks for."""
        from pydantic_core import core_schema

        del source, handler
        written = core_schema.plain_serializer_function_ser_schema(lambda spec: spec.to_dict())
        return core_schema.no_info_plain_validator_function(_reader(_spec_from_dict), serialization=written)


def _reader(from_dict: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``from_dict`` whose refusals pydantic attributes to the field: it does so with ValueErrors alone."""

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise ValueError(f"an object is wanted, not {data!r:.60}")  # noqa: TRY004 - see above
        try:
            return from_dict(data)
        except (BlockLayoutError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from error

    return read


def _spec_from_dict(data: Mapping[str, Any]) -> Spec | HostSpec:
    if "host" in data:
        return HostSpec.from_dict(data)
    return Spec.from_dict(data)


def plan_to_json(plan: Plan, indent: int | None) -> str:
    """The plan as JSON text."""
    return _adapter().dump_json(plan, indent=indent).decode()


def plan_from_json(text: str | bytes) -> Plan:
    """The plan that :func:`plan_to_json` was given.

    Raises:
        PlanError: The message names the field and what is wrong with it.
    """
    from pydantic import ValidationError

    try:
        return _adapter().validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the text"
        raise PlanError(f"not a plan of this version: {where}: {first['msg']}") from None


@cache
def _adapter() -> TypeAdapter[Plan]:
    from pydantic import TypeAdapter

    from blocklayout.plan.plan import Plan

    return TypeAdapter(Plan)
