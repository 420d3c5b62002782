"""Load a model into a session, or save one: the composition root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from blocklayout import dnnl
from blocklayout.errors import ModelError, PlanError
from blocklayout.garbage import nothing_collected
from blocklayout.ir import Demands
from blocklayout.loading.options import Options, PlanningOptions
from blocklayout.loading.saved_plan import warn_of_misfit
from blocklayout.loading.saved_session import is_saved_session, load_session
from blocklayout.loading.zoo_names import source_named
from blocklayout.plan.request import TUNE_SECONDS, TuneMode
from blocklayout.runtime import MAX_PLANS
from blocklayout.session import Session
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike
    from onnx import ModelProto
    from torch.export import ExportedProgram

    from blocklayout.ir import Asked
    from blocklayout.loading.options import Progress
    from blocklayout.model import Builder, Graph, OnnxModel
    from blocklayout.plan import LossMode, Plan
    from blocklayout.plan.policies import PolicyName
    from blocklayout.plan.request import ComputedDtype
    from blocklayout.value_checks import CheckMode

Source: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | Builder | Graph | OnnxModel | ExportedProgram"
"""Types a model can be loaded from; ``Graph`` and ``OnnxModel`` come from :mod:`blocklayout.model`, the last one from
:mod:`torch.export`."""


class LoadOptions(PlanningOptions, total=False):
    """Types of all keywords of :func:`load`."""

    dtype: ComputedDtype | DTypeLike | None
    threads: int | None
    shapes: Mapping[str, Sequence[int | tuple[int, int]]] | None
    io_layout: Mapping[str, str] | None
    plan: Plan | str | os.PathLike[str] | None
    original: Source | None


def load(  # noqa: PLR0913 - one argument for each thing a user decides, most of them rarely
    source: Source,
    *,
    dtype: ComputedDtype | DTypeLike | None = None,
    layout: PolicyName | str | None = None,
    threads: int | None = None,
    streams: int = 1,
    max_waiting: int | None = None,
    batching: tuple[int, float] | None = None,
    shapes: Mapping[str, Sequence[int | tuple[int, int]]] | None = None,
    io_layout: Mapping[str, str] | None = None,
    pin: Asked | None = None,
    expect: Asked | None = None,
    precision: Asked | None = None,
    on_layout_loss: LossMode | None = None,
    tune: TuneMode = "cached",
    tune_seconds: float = TUNE_SECONDS,
    max_plans: int = MAX_PLANS,
    plan: Plan | str | os.PathLike[str] | None = None,
    on_misfit: Literal["raise", "replan"] = "raise",
    denormals: Literal["flush", "keep"] = "flush",
    recipes: Mapping[str, bool] | None = None,
    check: CheckMode | None = None,
    verify: bool = True,
    mapped: bool = True,
    original: Source | None = None,
    progress: Progress | None = None,
) -> Session:
    """Load a model and choose a layout for each of its tensors.

    Args:
        source: Path of an ONNX file, its bytes, a ``ModelProto``, a Builder, or a ``torch.export`` program; path of a
            file that :meth:`Session.save` wrote; or name of a network of :mod:`blocklayout.zoo`: ``zoo:resnet50``.
        dtype: Data type of the activations inside: ``f32`` (the default), ``bf16`` or ``f16``, by name or as numpy's
            and ml_dtypes' types. Where no kernel computes in the narrow ones, or one in f32 is faster, it is f32.
            Inputs and outputs keep the types the model declares.
        layout: ``auto`` (the default: by cost, over the whole graph), ``any`` (each primitive's own favourite),
            ``blocked``, ``nhwc``, ``plain``, ``per-op`` (reorder around every primitive), or a
            oneDNN tag such as ``nChw8c``.
        threads: Threads of all runs that go on at a time; by default as many as this process may use. They are a
            team of our own, or libgomp's: ``blocklayout --version`` says which.
        streams: How many runs go on at a time, for more of them in a second where single ones may take longer. Each
            stream has an equal part of ``threads`` (the rest stays idle), a share of the CPUs, and its own
            memory for activations; weights are shared. See ``Session.submit``.
        max_waiting: How many submitted runs may wait for a stream; one more is a ``QueueFullError``. Any number if
            ``None``.
        batching: The largest batch, and for how many milliseconds the first of one waits for others where a stream is
            free: submitted feeds of one row each (the first extent is 1, or missing) then run together, and each future
            gets its own row. A model whose rows cannot be proven to be computed apart from each other is refused.
        shapes: Extents of the inputs, by name, as the caller's arrays have them. With them, or where the
            model fixes all extents, the plan is made now; else at the first run of each set of shapes. Where
            extents also follow from the contents of small inputs (a Reshape's target), it is made at the first
            run of each such content. An extent may be a range, its least and its most:
            ``{"x": (1, 3, (32, 640), (32, 640))}``. Then other extents are refused, numbers included; the plan for
            the largest is made now, those for others take its layouts and run in its memory.
        io_layout: Formats of inputs and outputs, by name: the order, or the blocks, in which the caller holds them.
            With ``{"x": "nhwc"}`` the array fed to ``x`` has the shape (N, H, W, C), and nothing is
            transposed at the border. Outputs in blocks come as Tensors. ``any`` leaves the format to the plan,
            whose ``formats`` tell it: such an input may be fed in that without a reorder, as a Tensor or with
            strides, and such an output is a Tensor. By default row-major, or a ``torch.export`` program's order of
            dimensions.
        pin: Formats that kernels must write, by the name of a kernel, of a node of the model or of a value:
            ``{"conv_3": "nChw8c"}``; by a pattern of names: ``{"layer1.*": "nhwc"}``; by operator type:
            ``{"Conv": "nhwc"}``. A name precedes a pattern, a pattern an operator type; patterns and types pass over
            kernels of another rank. Or a function that takes each kernel
            (:class:`~blocklayout.ir.KernelInfo`) and returns a format or ``None``. The rest of the network is chosen
            around them. They precede those that the model itself states; ``None`` as a format takes one back.
        expect: Formats that values must come in, selected likewise; the plan is refused where one does not.
        precision: Data types that kernels must be computed in, selected likewise: ``{"fc": "f32"}`` in a network in
            ``bf16``. Values that they read in another type are converted by reorders. Patterns and types pass over
            views, and nodes that ``onnx.reference`` computes.
        on_layout_loss: ``warn`` or ``raise`` where an operator drops a run of blocked or channels-last layouts
            to plain; the message names it, and the shapes, strides and types of its inputs.
        tune: Where the costs come from that layouts are chosen by. ``cached``: times that were measured on this
            machine before, else a model. The first load of a model then runs the best uniform policy and the likeliest
            plans whole, in turn, and takes the fastest, which is remembered.
            ``model``: the same without times of this machine, and nothing is run.
            ``measure``: times that matter are measured now, and kept for later; then the likeliest plans are run for as
            long as it takes.
        tune_seconds: How long to measure at most, the times that matter most first.
        max_plans: Plans that are kept, one per set of input shapes; the one that ran least lately makes room.
            From one more on, plans do without primitives that the library never wholly frees, unless all
            others are twice as slow: then memory stays flat however many shapes come.
        plan: A plan made before, or the file :meth:`Plan.save` wrote: nothing is chosen then for the extents it was
            made for. ``dtype``, ``layout``, ``threads`` and ``io_layout`` are the plan's where they are not given.
        on_misfit: The treatment of a plan that is damaged, of another model, library or machine, or against the
            other arguments: ``raise``, or ``replan`` with a warning, as if none had been given.
        denormals: ``flush``: numbers below the smallest normal one count as zero during a run, since arithmetic on them
            may be a hundred times slower. ``keep``: they stay, as they do where no compiler built the
            executor (see ``Session.executor``).
        recipes: Code of our own for convolutions, used where it is cheaper: ``False`` for what is to be left to the
            library. ``winograd`` makes errors of some 1e-5 of the largest value, where others make some 1e-6, and in
            bf16 may round once more where a normalisation or sum that it includes would have rounded;
            ``depthwise``, ``grouped`` and ``direct`` round as the library does.
        check: ``padding``: after each step of a run padding is proven zero and values finite; the first tensor that
            is not so, with its step and index, is a ``CheckError``. ``padding-only``: values may be infinite or NaN.
            See :func:`blocklayout.checking`.
        verify: Whether to compare the weights of a saved session with their checksums, which reads them all.
        mapped: Whether the weights of a saved session are mapped, so that processes share them, or read. Only where
            they are read may the file be altered in place while the session lives.
        original: The model that a saved session was made of; loaded in its place where it does not fit, and
            ``on_misfit`` is ``replan``.
        progress: Called with a few words before each stage that may take a while.

    Returns:
        A session, with onnxruntime's ``run``.

    Raises:
        ModelError: Not an ONNX file, a graph against its operators' specifications, or a damaged saved session.
        UnsupportedError: An operator, data type or platform that cannot run here, or ``batching`` of a model that mixes
            rows.
        InputError: An option that is none of those there are, or of another type, or ``io_layout`` names neither
            input nor output.
        LayoutError: ``io_layout`` names a format that does not exist, or has another rank.
        PlanError: No such policy or data type; a pin that nothing offers, an expectation that is not met, a run
            of layouts that is not to be lost, a name in one of these that nothing
            has, or ``plan`` does not fit.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder
        >>> b = Builder()
        >>> x = b.input("x", (1, 3, 8, 8))
        >>> b.output("y", x.conv(np.ones((17, 3, 3, 3), np.float32), pads=1).relu())
        >>> load(b)(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 17, 8, 8)
    """
    if type(source).__module__.startswith("torch.export"):
        from blocklayout.torch.parts import exported_source

        source, formats = exported_source(source)
        io_layout = formats if io_layout is None else io_layout
    options = Options.of(
        dtype=dtype,
        layout=layout,
        threads=threads,
        streams=streams,
        max_waiting=max_waiting,
        batching=batching,
        shapes=shapes,
        io_layout=io_layout,
        pin=pin,
        expect=expect,
        precision=precision,
        on_layout_loss=on_layout_loss,
        tune=tune,
        tune_seconds=tune_seconds,
        max_plans=max_plans,
        plan=plan,
        on_misfit=on_misfit,
        denormals=denormals,
        recipes=recipes,
        check=check,
        verify=verify,
        mapped=mapped,
        progress=progress,
    )
    source = source_named(source, shapes, io_layout)
    if is_saved_session(source):
        options.tell("reading the session")
        try:
            return load_session(source, options)
        except (ModelError, PlanError) as error:
            if on_misfit == "raise" or original is None:
                raise
            warn_of_misfit(error)
            source = source_named(original, shapes, io_layout)
    with nothing_collected():
        from blocklayout.loading.from_model import load_model  # loading a saved session needs none of it

        session = load_model(source, options)
    is_half = any(info.dtype == "f16" for info in (*session.get_inputs(), *session.get_outputs()))
    if dtype is None and is_half:
        possible = dnnl.missing_isa("f16") or "computes in it"
        message = f"the model is declared in f16 and computed in f32, to which all is converted; dtype='f16' {possible}"
        warnings.warn(message, stacklevel=2)
    return session


def save(
    source: Builder | Tensor | Mapping[str, ArrayLike | Tensor],
    path: str | os.PathLike[str],
    *,
    pin: Mapping[str, str | None] | None = None,
    expect: Mapping[str, str | None] | None = None,
    precision: Mapping[str, str | None] | None = None,
) -> None:
    """Save the model of a Builder as an ONNX file that other runtimes read, or Tensors with their formats.

    A model's file also states the formats that the builder's values must have. :func:`load` sees to it; other runtimes
    pass over it.

    Args:
        source: A Builder, a Tensor, or Tensors by name: these become a safetensors file, which :func:`load_tensors`
            reads; other tools read values and extents from it.
        path: Of the file.
        pin: Formats that the file states besides; selected as for :func:`load`, but not by functions.
        expect: Likewise.
        precision: Data types, likewise.

    Raises:
        InputError: A name that no tensor can have in a file, or a value that is no tensor.
        LayoutError: Blocks of more than 4096 elements, among Tensors by name.
        ModelError: The model is incomplete or against its operators' specifications, or the file cannot be written.
        PlanError: ``pin``, ``expect`` or ``precision`` select nothing, or kernels that cannot be so.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> import tempfile
        >>> from pathlib import Path
        >>> b = bl.Builder()
        >>> x = b.input("x", (1, 16, 8, 8))
        >>> b.output("y", x.conv(np.ones((16, 16, 3, 3), np.float32), pads=1, name="conv").relu())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bl.save(b, Path(folder, "chain.onnx"))
        ...     bl.load(Path(folder, "chain.onnx")).get_outputs()[0].shape
        (1, 16, 8, 8)
    """
    demands = Demands.of(pin, expect, precision)
    if demands and isinstance(source, Tensor | Mapping):
        raise PlanError("pin, expect and precision are for models: Tensors are saved in the layouts they have")
    if isinstance(source, Tensor):
        source.save(path)
    elif isinstance(source, Mapping):
        from blocklayout.tensor.files import save_all

        save_all(source, path)
    else:
        from blocklayout import model

        model.write(model.stating(source.to_graph(), demands) if demands else source, path)


def load_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or the weights of an ONNX file, by name, in the formats they were saved in.

    Those of another tool's file are row-major.

    Raises:
        ModelError: The file cannot be read, is damaged, or holds a tensor that no Tensor can be.
        UnsupportedError: An ONNX file that cannot run here.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import blocklayout as bl
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "state.safetensors")
        ...     bl.save({"w": bl.zeros((32, 16, 3, 3), memory_format="OIhw8i8o"), "b": bl.zeros((32,))}, path)
        ...     bl.load_tensors(path)
        {'w': Tensor(f32 32x16x3x3 OIhw8i8o), 'b': Tensor(f32 32 a)}
    """
    if is_saved_session(path):  # it begins as a safetensors file
        from blocklayout.tensor.files import load_all

        return load_all(path)
    from blocklayout import model

    return model.tensors_of(path)
