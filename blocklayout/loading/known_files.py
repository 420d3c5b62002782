"""Model files that were loaded before: their bytes and a remembered plan make the same session again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout import model
from blocklayout.errors import PlanError
from blocklayout.ir import Demanded
from blocklayout.model.onnx_read import Declaration
from blocklayout.model.origins import Origin, origins_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from blocklayout.plan import Plan, Pricing, Request
    from blocklayout.runtime.plan_book import Shapes


def made_of(model_name: str, program: str) -> str:
    """The text by which a plan is remembered: its model's name, and the digest of its program."""
    return f"{model_name} {program}"


class KnownPlan(Struct, frozen=True):
    """A plan of a file, and how everything it needs follows from the file's bytes.

    Attributes:
        plan: The key by which the plan is recalled, made of its model and program.
        constants: The origins of those that it packs, by name.
        outputs: The origins of those that nothing computes.
        demanded: The demands on its kernels.
    """

    plan: str
    constants: dict[str, Origin]
    outputs: dict[str, Origin]
    demanded: Demanded


class FileMemory(Struct, frozen=True):
    """Remembers a file from process to process, as it is loaded with certain arguments.

    Attributes:
        demands: The key of its caller's demands on kernels.
        digest: Of the file's bytes: another file that holds the same is the same.
    """

    file: model.ModelFile
    pricing: Pricing
    request: Request
    demands: str
    digest: str

    @classmethod
    def of(cls, file: model.ModelFile, pricing: Pricing, request: Request, demands: str) -> FileMemory:
        """That of a file; where it was loaded before, its network is not looked at for its signature."""
        memory = cls(file, pricing, request, demands, file.digest(pricing.n_threads))
        signature = pricing.recall_as(Declaration, memory._about("signature"), request)
        if signature is not None:
            file.know(signature)
        return memory

    def recall(self, shapes: Shapes) -> KnownPlan | None:
        """The plan that it had for these extents of all inputs, if any is known."""
        return self.pricing.recall_as(KnownPlan, self._about(repr(shapes)), self.request, self._check)

    def remember(
        self,
        shapes: Shapes,
        plan: Plan,
        constants: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        demanded: Demanded,
    ) -> None:
        """Keep all that makes a plan for extents of all inputs ready again, if its constants follow from the file.

        The extents alone decide the plan. ``constants`` are those that it packs, perhaps among others, ``outputs``
        those that nothing computes, ``demanded`` the demands on its kernels.
        """
        of_constants = origins_of({item.constant: constants[item.constant] for item in plan.constants})
        of_outputs = origins_of(outputs)
        is_registered = any(step.spec.kind == "registered" for step in plan.steps)  # by a class that may change
        if of_constants is None or of_outputs is None or is_registered or not self.file.is_whole:
            return
        known = KnownPlan(made_of(plan.model, plan.program), of_constants, of_outputs, demanded)
        self.pricing.keep(self.file.signature, self._about("signature"), self.request)
        self.pricing.keep(known, self._about(repr(shapes)), self.request)

    def _check(self, known: KnownPlan) -> None:
        nbytes = len(self.file.contents)
        strange = [name for name, each in (known.constants | known.outputs).items() if not each.lies_in(nbytes)]
        if strange:
            raise PlanError(f"{strange[0]} does not lie in {self.file.path}")

    def about_parts(self, shapes: Shapes) -> str:
        """By which it is remembered in how many parts rows of these extents are run."""
        return self._about(f"{shapes!r} in parts")

    def _about(self, what: str) -> str:
        return f"file {self.digest} {self.demands} {what}"
