"""Sessions from files: checked against this machine, and against what their user asks for."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from blocklayout.errors import BlockLayoutError, ModelError, PlanError
from blocklayout.plan.saving.fitting import check_here, check_wishes
from blocklayout.runtime import ReadyPlan, Session
from blocklayout.runtime.inputs import InputInfo, OutputInfo
from blocklayout.runtime.session_file import PlanRecord, SessionRecord, read_session
from blocklayout.runtime.streams import Streams
from blocklayout.tensor.tensor_file import TensorFile, is_tensor_file

if TYPE_CHECKING:
    from blocklayout.kernels import Compute, HostSpec
    from blocklayout.plan import Request
    from blocklayout.plan.saving.terms import Terms
    from blocklayout.runtime.plan_key import Contents, Shapes


def is_saved_session(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it is the path of a file that :meth:`Session.save` wrote; what cannot be read is for others to refuse."""
    if not isinstance(source, str | os.PathLike):
        return False
    try:
        return is_tensor_file(Path(source))
    except (OSError, ValueError):
        return False


def load_session(
    path: str | os.PathLike[str],
    terms: Terms,
    wishes: Request,
    *,
    max_plans: int,
    keeps_denormals: bool,
    verify: bool,
) -> Session:
    """The session that a file holds. Neither the model nor ``onnx`` is needed.

    Args:
        path: The file.
        terms: What is said of its plans; ``None`` where nothing.
        wishes: Pins and expectations.
        max_plans: Plans that are kept, or as many as the file has.
        keeps_denormals: As for :func:`~blocklayout.load`.
        verify: Whether to compare the weights with their checksums.

    Raises:
        ModelError: The file is damaged, or of another version.
        PlanError: It is for another library or machine, or not what is asked for.
    """
    try:
        record, file = read_session(Path(path))
        with file.verifying() if verify else nullcontext():
            return _session_of(record, file, terms, wishes, max_plans=max_plans, keeps_denormals=keeps_denormals)
    except OSError as error:
        raise ModelError(f"no session can be read from {path}: {error.strerror or error}") from error
    except (ModelError, PlanError) as error:
        raise type(error)(f"{path}: {error}") from error
    except BlockLayoutError as error:
        raise PlanError(f"{path}: the plan cannot run: {error}") from error


def _session_of(
    record: SessionRecord,
    file: TensorFile,
    terms: Terms,
    wishes: Request,
    *,
    max_plans: int,
    keeps_denormals: bool,
) -> Session:
    plans = []
    for each in record.plans:
        check_here(each.plan, terms.threads, terms.streams)
        terms.check(each.plan)
        check_wishes(each.plan, wishes)
        _check_names(each, record)
        plans.append((each.shapes, each.ready(file.tensors, _compute_of, keeps_denormals=keeps_denormals)))
    return Session(
        [info.read_as(InputInfo) for info in record.inputs],
        [info.read_as(OutputInfo) for info in record.outputs],
        _no_plan,
        defaults=[info.read_as(InputInfo) for info in record.defaults],
        max_plans=max(max_plans, len(plans)),
        plans=plans,
        streams=Streams(terms.streams, max((plan.plan.n_threads for plan in record.plans), default=1)),
    )


def _check_names(plan: PlanRecord, record: SessionRecord) -> None:
    """Refuse a plan that is not one of the session's inputs and outputs."""
    inputs = {info.name for info in (*record.inputs, *record.defaults)}
    fed = {name for name, _ in plan.shapes} | {entry.input for entry in plan.plan.entries} | {*plan.contents}
    given = {result.name for result in plan.plan.results if result.buffer is not None} | {*plan.constants}
    strange = (fed - inputs) | ({info.name for info in record.outputs} - given)
    if strange:
        raise PlanError(f"the plan is not one of this session: inputs or outputs differ ({', '.join(sorted(strange))})")


def _compute_of(spec: HostSpec) -> Compute:
    from blocklayout.model import compute_of  # only where a plan has such steps, since it needs onnx

    return compute_of(spec)


def _no_plan(shapes: Shapes, contents: Contents) -> ReadyPlan:
    """Plans are made of models."""
    del contents
    extents = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'a scalar'}" for name, shape in shapes)
    raise PlanError(f"the saved session has no plan for {extents}: load the model itself to have one made")
