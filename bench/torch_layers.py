"""How much faster is one layer of a PyTorch model by our kernels than eagerly, in inference and in a training step?

Convolutions of ResNet-50, channels-last, on random data, in one process and in turn: by PyTorch, and by a layer that
``bl.torch.Conv2d.of`` makes of the same module. *relu* has a ReLU behind it, a part of our layer. *training* is
forward, backward by all inputs and parameters, and a step of SGD. Shown are medians of the rounds in milliseconds, and
the median of the ratios in the same round.

    OMP_WAIT_POLICY=passive python bench/torch_layers.py --rounds 9
    python bench/torch_layers.py --layers 64x64x1x14 --batches 1 --rounds 1

PyTorch's threads are as many as ours: those that this process may use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch
from torch import nn

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.commands.options import extents, positive, words
from blocklayout.show.output import print_table
from blocklayout.timing import time_in_turn

LAYERS = "64x64x1x56,64x64x3x56,256x64x1x56,128x128x3x28,256x256x3x14,512x512x3x7,512x2048x1x7"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=words, default=words(LAYERS), help="CHANNELSxOUTPUTSxKERNELxIMAGE,...")
    parser.add_argument("--batches", type=words, default=("1", "16"), help="images of a batch (default: 1,16)")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each (default: 5)")
    args = parser.parse_args(argv)
    torch.set_num_threads(dnnl.default_threads())
    rows = []
    for n in map(int, args.batches):
        for layer in args.layers:
            for what, (theirs, ours) in runs(n, extents(layer)):
                times = time_in_turn([theirs, ours], args.rounds)
                ratio = median(a / b for a, b in zip(*times, strict=True))
                rows.append([f"{n} x {layer}", what, *(f"{median(each) / 1e6:.3f}" for each in times), f"{ratio:.2f}"])
    print_table(["layer", "", "PyTorch", "ours", "ratio"], rows, text_columns=(0, 1))
    return 0


def runs(n: int, layer: Sequence[int]) -> Iterator[tuple[str, tuple[Callable[[], object], Callable[[], object]]]]:
    """What is measured of a layer: its name, PyTorch's way, and ours."""
    channels, outputs, kernel, image = layer
    theirs = nn.Conv2d(channels, outputs, kernel, padding=kernel // 2).to(memory_format=torch.channels_last)
    x = torch.randn(n, channels, image, image).to(memory_format=torch.channels_last)
    ours, fused = bl.torch.Conv2d.of(theirs), bl.torch.Conv2d.of(theirs, "relu")
    rectified = nn.Sequential(theirs, nn.ReLU())

    def inferred(model: Any) -> Callable[[], object]:
        return torch.inference_mode()(lambda: model(x))

    yield "inference", (inferred(theirs), inferred(ours))
    yield "inference, relu", (inferred(rectified), inferred(fused))
    recorded = x.clone().requires_grad_()
    grad, optimizer = torch.randn_like(theirs(x)), torch.optim.SGD(theirs.parameters(), 1e-9)

    def step(model: Any) -> Callable[[], object]:
        def run() -> None:
            optimizer.zero_grad()
            model(recorded).backward(grad)
            optimizer.step()

        return run

    yield "training", (step(theirs), step(ours))


if __name__ == "__main__":
    sys.exit(main())
