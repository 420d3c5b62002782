"""Blocks of a network, by names and by the structure of its graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.show.blocks import kernel_paths, name_path

if TYPE_CHECKING:
    from blocklayout.model.builder import BuildValue
    from blocklayout.plan.choices import KernelChoice

WEIGHTS = np.ones((8, 8, 3, 3), np.float32)


def paths_of(b: bl.Builder) -> tuple[str, dict[str, tuple[str, ...]]]:
    with bl.load(b, tune="model", layout="nhwc") as session:
        choices = session.plan.choices
    by, paths = kernel_paths(choices)
    return by, {choice.kernel: path for choice, path in zip(choices, paths, strict=True)}


def residual(names: list[str], n_blocks: int = 2) -> bl.Builder:
    """A stem, residual blocks, a pooling and one more block; each kernel takes the next of some names."""
    b = bl.Builder()
    left = iter(names)

    def conv(x: BuildValue) -> BuildValue:
        return x.conv(WEIGHTS, pads=1, name=next(left))

    x = conv(b.input("x", (1, 8, 16, 16)))
    for _ in range(n_blocks):
        x = conv(conv(x).max_pool(3, 1, pads=1)) + x
    x = x.max_pool(2, 2, name=next(left))
    b.output("y", conv(conv(x).max_pool(3, 1, pads=1)) + x)
    return b


def test_names_are_paths_where_kernels_of_one_beginning_hang_together() -> None:
    names = ["stem", "layer1.0.a", "layer1.0.b", "layer1.1.a", "layer1.1.b", "pool", "layer2.0.a", "layer2.0.b"]
    by, paths = paths_of(residual(names))
    assert by == "names"
    assert (paths["layer1.0.a"], paths["layer1.1.b"], paths["layer2.0.a"]) == (
        ("layer1", "0"),
        ("layer1", "1"),
        ("layer2", "0"),
    )
    assert paths["stem"] == ()


def test_kernels_without_a_path_are_in_the_block_around_them() -> None:
    names = ["stem", "layer1.0.a", "layer1.0.b", "layer1.1.a", "layer1.1.b", "pool", "layer2.0.a", "layer2.0.b"]
    _, paths = paths_of(residual(names))
    assert [path for name, path in paths.items() if name.startswith("maxpool")] == [
        *(("layer1", "0"), ("layer1", "1"), ("layer2", "0"))
    ]


SERIAL = [f"p2o.Conv.{number}" for number in range(5)] + ["p2o.MaxPool.0", "p2o.Conv.5", "p2o.Conv.6"]
SCATTERED = [f"{kind}.x{number}" for number in range(3) for kind in ("one", "two", "three")]
"""No two of a kind are neighbours."""


@pytest.mark.parametrize("names", [SERIAL, SCATTERED, [f"node_{number}" for number in range(8)]])
def test_other_names_leave_blocks_to_the_structure(names: list[str]) -> None:
    by, paths = paths_of(residual(names))
    assert by == "structure"
    first, second, last = (paths[names[at]] for at in (1, 3, 6))
    assert [first, second, last] == [
        ("16\N{MULTIPLICATION SIGN}16", "part 1"),
        ("16\N{MULTIPLICATION SIGN}16", "part 2"),
        ("8\N{MULTIPLICATION SIGN}8", "part 3"),
    ]
    assert paths[names[0]] == ("16\N{MULTIPLICATION SIGN}16",)
    assert paths[names[2]] == first


@pytest.mark.parametrize("name", ["deep.{}.{}.conv", "flat_{}"])
def test_a_chain_of_thousands_of_kernels_has_paths(name: str) -> None:
    def choice(number: int) -> KernelChoice:
        chosen = SimpleNamespace(dst=bl.MemoryDesc((1, 8, 4, 4), "f32", "nchw"))
        named = name.format(number // 100, number // 10)
        return cast(
            "KernelChoice", SimpleNamespace(kernel=named, reads=(str(number - 1),), writes=str(number), chosen=chosen)
        )

    by, paths = kernel_paths([choice(number) for number in range(5000)])
    assert by == ("names" if "deep" in name else "structure")
    assert paths[4321] == (("deep.43", "432") if "deep" in name else ("4\N{MULTIPLICATION SIGN}4",))


def test_serial_numbers_of_exporters_are_no_path() -> None:
    assert name_path("Conv.0") == name_path("conv_17") == name_path("") == ()
    assert name_path("features.0") == ("features",)
    assert name_path("model.Conv.conv") == ("model", "Conv")
