"""Generated: ``pytest tests/structure --update-golden`` writes it."""

from blocklayout.model.build_value import BuildValue as BuildValue
from blocklayout.model.builder import Builder as Builder
from blocklayout.model.graph import Graph as Graph
from blocklayout.model.graph import Node as Node
from blocklayout.model.lowering import lower as lower
from blocklayout.model.model_file import ModelFile as ModelFile
from blocklayout.model.onnx_read import InputInfo as InputInfo
from blocklayout.model.onnx_read import OnnxModel as OnnxModel
from blocklayout.model.onnx_write import stating as stating
from blocklayout.model.onnx_write import to_model as to_model
from blocklayout.model.onnx_write import write as write
from blocklayout.model.passes import legalize as legalize
from blocklayout.model.passes import simplify as simplify
from blocklayout.model.reading import demands as demands
from blocklayout.model.reading import free_extents as free_extents
from blocklayout.model.reading import keep_model as keep_model
from blocklayout.model.reading import open_model as open_model
from blocklayout.model.reading import read as read
from blocklayout.model.reading import read_fed as read_fed
from blocklayout.model.reading import signature as signature
from blocklayout.model.reading import tensors_of as tensors_of
from blocklayout.model.reading import weights_nbytes as weights_nbytes
from blocklayout.model.reference import compute_of as compute_of

__all__: list[str]
