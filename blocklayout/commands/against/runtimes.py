"""The runtimes that are compared, and how each is set to run a model on so many threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module, util
from typing import Any, Literal, NamedTuple, TypeAlias

from blocklayout.commands.against import pytorch
from blocklayout.errors import InputError

Arrays = Mapping[str, Any]
Run = Callable[[Arrays], list[Any]]
"""Runs a model once on arrays by input; returns arrays in the order of its outputs."""

OURS = "blocklayout"
SAVED = "blocklayout (saved)"
"""Ours again, loading a file that ``session.save`` wrote beforehand."""

TORCH_DOOR = "torch-blocklayout"
"""Ours as the backend of ``torch.compile``, on the module that PyTorch's other contenders run."""

OUR_NAMES = (OURS, SAVED)

PeerName: TypeAlias = Literal["onnxruntime", "openvino", "torch", "torch-inductor", "torch-blocklayout", "all"]
"""Names of other runtimes; ``all`` are those that are installed."""

N_RUNS = 32
"""Runs that are timed together for throughput, from when the first is submitted until the last is done."""

_STREAMS = " x"


class Runtime(NamedTuple):
    """A runtime; a tuple, so that a process which measures a peer imports nothing that takes time.

    Attributes:
        open: Given the module, loads an ONNX file for so many threads and a data type.
        dtypes: Data types of activations that it can be asked for.
        needs: Modules it takes beside its own, installed by the names they are imported by.
        ready: Given the module, imports its reader of ONNX files.
        is_saved: Whether it loads a saved session in place of the ONNX file.
    """

    name: str
    module: str
    distribution: str
    open: Callable[[Any, str, int, str], Run]
    dtypes: tuple[str, ...] = ("f32", "bf16")
    needs: tuple[str, ...] = ()
    ready: Callable[[Any], None] | None = None
    is_saved: bool = False

    def start(self) -> Any:
        """Import it, with its reader of models; returns the module."""
        module = import_module(self.module)
        if self.ready is not None:
            self.ready(module)
        return module

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported."""
        return all(util.find_spec(module) is not None for module in (self.module, *self.needs))

    @property
    def version(self) -> str:
        """Of the installed one."""
        from importlib import metadata

        return metadata.version(self.distribution)


def _open_ours(module: Any, path: str, n_threads: int, dtype: str) -> Run:
    session = module.load(path, threads=n_threads, dtype=dtype)
    return lambda feeds: list(session.run(None, feeds))


def _open_onnxruntime(module: Any, path: str, n_threads: int, dtype: str) -> Run:
    del dtype
    options = module.SessionOptions()
    options.intra_op_num_threads = n_threads
    session = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, feeds))


def _open_our_streams(n_streams: int, module: Any, path: str, n_threads: int, dtype: str) -> Run:
    session = module.load(path, threads=n_threads, streams=n_streams, dtype=dtype)

    def run(feeds: Arrays) -> list[Any]:
        futures = [session.submit(feeds) for _ in range(N_RUNS)]
        return [list(future.result()) for future in futures][-1]

    return run


def _compiled_by_openvino(module: Any, path: str, n_threads: int, dtype: str, hint: str) -> Any:
    settings = {"PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": n_threads, "INFERENCE_PRECISION_HINT": dtype}
    return module.Core().compile_model(path, "CPU", settings)


def _open_openvino_streams(module: Any, path: str, n_threads: int, dtype: str) -> Run:
    queue = module.AsyncInferQueue(_compiled_by_openvino(module, path, n_threads, dtype, "THROUGHPUT"))
    last: list[Any] = []

    def keep(request: Any, _: object) -> None:
        last[:] = [tensor.data.copy() for tensor in request.output_tensors]  # the next run writes there

    queue.set_callback(keep)

    def run(feeds: Arrays) -> list[Any]:
        for _ in range(N_RUNS):
            queue.start_async(dict(feeds), share_inputs=True)
        queue.wait_all()
        return list(last)

    return run


def _open_openvino(module: Any, path: str, n_threads: int, dtype: str) -> Run:
    compiled = _compiled_by_openvino(module, path, n_threads, dtype, "LATENCY")
    request = compiled.create_infer_request()
    outputs = list(compiled.outputs)

    def run(feeds: Arrays) -> list[Any]:
        results = request.infer(dict(feeds))
        return [results[output] for output in outputs]

    return run


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime(OURS, "blocklayout", "blocklayout", _open_ours),
        Runtime(SAVED, "blocklayout", "blocklayout", _open_ours, is_saved=True),
        Runtime("onnxruntime", "onnxruntime", "onnxruntime", _open_onnxruntime, ("f32",)),
        Runtime("openvino", "openvino", "openvino", _open_openvino),
        *(
            Runtime(name, "torch", "torch", opened, dtypes, needs=pytorch.NEEDS, ready=pytorch.import_converter)
            for name, opened, dtypes in (
                ("torch", pytorch.open_eager, ("f32", "bf16")),
                ("torch-inductor", pytorch.open_compiled, ("f32", "bf16")),
                (TORCH_DOOR, pytorch.open_ours, ("f32",)),
            )
        ),
    )
}


def ours_in_streams(n_streams: int) -> Runtime:
    """Ours, with so many runs at a time; a run is :data:`N_RUNS` of them."""
    return RUNTIMES[OURS]._replace(name=f"{OURS}{_STREAMS}{n_streams}", open=partial(_open_our_streams, n_streams))


def openvino_by_hint() -> Runtime:
    """OpenVINO with its hint for throughput, which chooses the number of streams; a run is likewise many."""
    return RUNTIMES["openvino"]._replace(name=f"openvino{_STREAMS}?", open=_open_openvino_streams)


def runtime_named(name: str) -> Runtime:
    """The runtime of that name: one of ``RUNTIMES``, or one in streams."""
    plain, is_streamed, streams = name.partition(_STREAMS)
    if not is_streamed:
        return RUNTIMES[plain]
    return ours_in_streams(int(streams)) if plain == OURS else openvino_by_hint()


def chosen_runtimes(names: Sequence[str], dtype: str) -> list[Runtime]:
    """Ours, from the model and from a saved session, and those that are asked for.

    ``all`` are the installed ones of others that compute in this data type of activations. An InputError where there is
    none of a name, it is not installed, or cannot be asked for the data type.
    """
    ours = [RUNTIMES[name] for name in OUR_NAMES]
    peers = [runtime for runtime in RUNTIMES.values() if runtime.name not in OUR_NAMES]
    if "all" in names:
        others = [peer for peer in peers if peer.name != TORCH_DOOR]
        return [*ours, *(peer for peer in others if peer.is_installed and dtype in peer.dtypes)]
    chosen = []
    for name in dict.fromkeys(names):
        peer = next((peer for peer in peers if peer.name == name), None)
        if peer is None:
            raise InputError(f"no runtime {name!r}; there are {', '.join(peer.name for peer in peers)}, or all")
        if not peer.is_installed:
            raise InputError(f"{name} is not installed: pip install {' '.join((peer.distribution, *peer.needs))}")
        if dtype not in peer.dtypes:
            raise InputError(f"{name} cannot be asked for {dtype}, but for {', '.join(peer.dtypes)}")
        chosen.append(peer)
    return [*ours, *chosen]
