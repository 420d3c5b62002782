"""Model files that were loaded before: their bytes and a remembered plan make the same session again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from blocklayout import model
from blocklayout.model.onnx_read import Signature
from blocklayout.model.origins import Origin, origins_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from blocklayout.plan import Pricing, Request
    from blocklayout.runtime.made_for import Shapes

_Known = TypeVar("_Known", bound=Struct)


class KnownPlan(Struct, frozen=True):
    """What has to be known of a file to run it, for certain extents, without looking at its network.

    Attributes:
        plan: The key of the plan.
        constants: How those that it packs follow from the file.
        outputs: Likewise the outputs that nothing computes.
    """

    plan: str
    constants: dict[str, Origin]
    outputs: dict[str, Origin]


class FileMemory(Struct, frozen=True):
    """Remembers a file from process to process, as it is loaded with certain arguments.

    Attributes:
        file: The file.
        pricing: Where its plans come from.
        request: What is asked of them.
        digest: Of what the file holds, which decides, and not where it lies.
    """

    file: model.ModelFile
    pricing: Pricing
    request: Request
    digest: str

    @classmethod
    def of(cls, file: model.ModelFile, pricing: Pricing, request: Request) -> FileMemory:
        """That of a file; where it was loaded before, its network is not looked at for its signature."""
        memory = cls(file, pricing, request, file.digest(pricing.n_threads))
        signature = memory._recall(Signature, "signature")
        if signature is not None:
            file.know(signature)
        return memory

    def recall(self, shapes: Shapes) -> KnownPlan | None:
        """What is known of the plan for these extents of all inputs."""
        return self._recall(KnownPlan, repr(shapes))

    def remember(
        self, shapes: Shapes, plan: str, constants: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> None:
        """Keep what makes a plan ready again, if its constants follow from the file.

        Args:
            shapes: Logical extents of all inputs, which alone decide the plan.
            plan: Its key.
            constants: Those that it packs.
            outputs: Those that nothing computes.
        """
        of_constants, of_outputs = origins_of(constants), origins_of(outputs)
        if of_constants is None or of_outputs is None or not self.file.is_whole:
            return
        self._keep("signature", self.file.signature)
        self._keep(repr(shapes), KnownPlan(plan, of_constants, of_outputs))

    def _keep(self, what: str, kept: Struct) -> None:
        key = self._key(what)
        if key is not None:
            self.pricing.keep(key, kept)

    def _recall(self, kind: type[_Known], what: str) -> _Known | None:
        key = self._key(what)
        return None if key is None else self.pricing.recall_as(kind, key)

    def _key(self, what: str) -> str | None:
        return self.pricing.key(f"file {self.digest} {what}", self.request)
