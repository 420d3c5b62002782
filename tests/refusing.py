"""A library that offers implementations and then refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from blocklayout.dnnl import Spec, execution, handles, known_bugs, primitive, resolution
from blocklayout.dnnl.memory import Memory
from blocklayout.errors import UnimplementedError
from tests.dnnl.caches import clear_primitives

_UNIMPLEMENTED = 3
_NO_ARGUMENT = 9999


@dataclass
class Refusing:
    """What is refused.

    Attributes:
        met: The Specs that were refused, in order.
    """

    monkeypatch: pytest.MonkeyPatch
    met: list[Spec] = field(default_factory=list)

    def create(self, is_refused: Callable[[Spec], bool]) -> None:
        """Have the library create none of these."""
        really = handles.create
        clear_primitives()

        def create(*arguments: Any, subject: Spec) -> Any:
            if is_refused(subject):
                self.met.append(subject)
                raise UnimplementedError(f"dnnl_primitive_create for {subject}: a fake", _UNIMPLEMENTED)
            return really(*arguments, subject=subject)

        self.monkeypatch.setattr(primitive, "create", create)

    def run(self, is_refused: Callable[[Spec], bool]) -> None:
        """Have the library run none of these: it misses an argument."""
        really = execution._c_args

        def c_args(spec: Spec, memories: dict[str, Memory]) -> Any:
            made = really(spec, memories)
            if is_refused(spec):
                self.met.append(spec)
                made[0].arg = _NO_ARGUMENT
            return made

        self.monkeypatch.setattr(execution, "_c_args", c_args)

    @staticmethod
    def forget() -> None:
        """Know of no refusal, as another process does."""
        known_bugs._refused.clear()
        for known in (resolution.has_optimised, resolution._ask, resolution._ask_optimised):
            known.cache_clear()
