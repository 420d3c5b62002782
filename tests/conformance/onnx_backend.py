"""ONNX's backend interface over :func:`blocklayout.load`: it is driven by the ``onnx`` package's own test suite."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, helper, shape_inference
from onnx.backend.base import Backend, BackendRep

from blocklayout.api import load
from blocklayout.errors import InputError, PlainKernelWarning, UnsupportedError
from blocklayout.model.types import from_numpy, type_proto

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto

    from blocklayout.session import Session


class NotRunnableError(UnsupportedError, unittest.SkipTest):
    """Valid, but not runnable here; a test runner takes it for a skip, as ONNX's asks for."""


class PreparedModel(BackendRep):
    """A session behind the interface that ONNX's runner knows.

    Attributes:
        session: Where the plans are.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """Run once.

        Args:
            inputs: Arrays in the order of the model's inputs, or by name; trailing ones may have defaults.
            kwargs: Nothing: the interface has no options that apply.

        Raises:
            NotRunnableError: Valid, but not runnable here.
            InputError: More arrays than inputs, or arrays that do not fit.
        """
        _refuse_options(kwargs)
        feed = inputs if isinstance(inputs, Mapping) else self._by_name(inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlainKernelWarning)
            try:
                return tuple(self.session.run(None, feed))
            except UnsupportedError as error:
                raise NotRunnableError(str(error)) from error

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        names = [info.name for info in self.session.get_inputs()]
        if len(arrays) > len(names):
            raise InputError(f"the model takes {len(names)} inputs ({', '.join(names)}), got {len(arrays)}")
        return dict(zip(names, arrays, strict=False))


class BlockLayoutBackend(Backend):
    """Loads models and runs them; ``device`` is ``CPU``."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is the CPU."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be loaded; its plan, made for the extents of the first run, may still fail."""
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """A model ready to run.

        Args:
            model: The model.
            device: ``CPU``.
            kwargs: Those of :func:`blocklayout.load`, such as ``layout``.

        Raises:
            NotRunnableError: Valid, but not runnable here.
            ModelError: Not a valid model.
        """
        if not cls.supports_device(device):
            raise NotRunnableError(f"device {device!r}: there is only 'CPU'")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return PreparedModel(load(model, **kwargs))
            except UnsupportedError as error:
                raise NotRunnableError(str(error)) from error

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[np.ndarray, ...]:
        """Prepare a model and run it once; see :meth:`prepare` and :meth:`PreparedModel.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Sequence[np.ndarray], device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[np.ndarray, ...]:
        """Run a single node of the newest operator set, its input types taken from the arrays.

        Args:
            node: The node.
            inputs: Arrays for its inputs that are there, in order.
            device: ``CPU``.
            outputs_info: Not needed: types and extents are inferred.
            kwargs: Those of :func:`blocklayout.load`.
        """
        del outputs_info
        arrays = [np.asarray(array) for array in inputs]
        names = [name for name in node.input if name]
        infos = [_info(name, array) for name, array in zip(names, arrays, strict=True)]
        graph = helper.make_graph([node], "node", infos, [])
        for name in filter(None, node.output):
            graph.output.add(name=name)
        model = shape_inference.infer_shapes(helper.make_model(graph))
        return cls.run_model(model, arrays, device, **kwargs)


def _info(name: str, array: np.ndarray) -> ValueInfoProto:
    from onnx import ValueInfoProto

    return ValueInfoProto(name=name, type=type_proto(from_numpy(array.dtype, f"input {name!r}"), array.shape))


def _refuse_options(kwargs: Mapping[str, Any]) -> None:
    if kwargs:
        raise InputError(f"run takes no option {next(iter(kwargs))!r}; give load's options to prepare")


supports_device = BlockLayoutBackend.supports_device
is_compatible = BlockLayoutBackend.is_compatible
prepare = BlockLayoutBackend.prepare
run_model = BlockLayoutBackend.run_model
run_node = BlockLayoutBackend.run_node
