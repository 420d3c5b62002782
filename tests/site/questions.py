"""What users of onnxruntime, OpenVINO and oneDNN ask in public threads, and the page that answers it here."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """A public thread.

    Attributes:
        query: What its author would type into the site's search.
        page: The page that answers it, below ``docs/how-to``.
    """

    title: str
    url: str
    query: str
    page: str


ORT = "https://github.com/microsoft/onnxruntime/issues"
OPENVINO = "https://github.com/openvinotoolkit/openvino/issues"
ONEDNN = "https://github.com/uxlfoundation/oneDNN/issues"

QUESTIONS = [
    Question("[C++] How to limit the cpu num to 1", f"{ORT}/2177", "limit threads", "threads-and-streams"),
    Question("Is InferenceSession.Run thread-safe?", f"{ORT}/114", "thread safe", "threads-and-streams"),
    Question(
        "what is the difference between throughput and latency.",
        f"{OPENVINO}/16038",
        "throughput latency",
        "threads-and-streams",
    ),
    Question("Support BFloat16 ?", f"{ORT}/13001", "bfloat16", "bf16"),
    Question(
        "memory keep increasing with dynamic input shape of network",
        f"{ORT}/5796",
        "dynamic shape memory",
        "free-shapes",
    ),
    Question(
        "[Performance] Inference session creation takes too long", f"{ORT}/19022", "session creation", "save-and-load"
    ),
    Question(
        "Please consider to remove OV model cache enabling for model compiling",
        "https://github.com/huggingface/optimum-intel/issues/347",
        "model cache",
        "save-and-load",
    ),
    Question(
        "why there is so many Reorder layers when i use openvino to infer",
        f"{OPENVINO}/172",
        "many reorder layers",
        "debug-a-slow-layer",
    ),
    Question("why the reorder cost a lot time?", f"{ONEDNN}/1847", "reorder time", "debug-a-slow-layer"),
    Question(
        "which format should i choose for convolution?", f"{ONEDNN}/156", "choose format convolution", "pin-a-layout"
    ),
    Question(
        "How to convert ONNX format NCHW to NHWC",
        "https://github.com/onnx/onnx/issues/5950",
        "convert onnx nhwc",
        "export-layouts",
    ),
    Question("How can I implement custom operators in python?", f"{ORT}/19820", "custom operator", "custom-operator"),
    Question(
        "Does it have any tools to measure time of each layer?", f"{ORT}/9388", "time each layer", "debug-a-slow-layer"
    ),
    Question(
        "[Performance] INT8 quantized model run slower than FP32 model", f"{ORT}/20052", "int8 slower", "quantise"
    ),
    Question("bad accuracy on own quantized(INT8) yolov3 model", f"{ORT}/9598", "quantized accuracy", "quantise"),
    Question("Batch mode inference for onnxruntime server", f"{ORT}/7821", "batch server", "serve"),
    Question("Occasional NaN results during inference", f"{ORT}/19851", "NaN results", "check-values"),
    Question(
        "Vanilla LeViT model run with ORT is slower than PyTorch (seems even slower for large batch size)",
        f"{ORT}/12522",
        "slower than pytorch",
        "compare-runtimes",
    ),
    Question("Visualizing the net", f"{ONEDNN}/1077", "visualize network", "look-at-a-network"),
    Question(
        "Fuzzed model takes down the runtime with a SIGSEGV", f"{ORT}/4585", "untrusted model", "untrusted-models"
    ),
]
