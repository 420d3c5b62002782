"""``"blocked"``: the blocks of channels that this machine's kernels want, as a memory format."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from tests.tensor.tensors import numbered

BLOCK = 16 if bl.dnnl.has_isa("avx512_core") else 8
TAGS = {3: f"nCw{BLOCK}c", 4: f"nChw{BLOCK}c", 5: f"nCdhw{BLOCK}c"}
SHAPES = {3: (2, 17, 5), 4: (2, 17, 5, 4), 5: (2, 17, 3, 2, 2)}


@pytest.mark.parametrize("ndims", TAGS)
def test_blocked_is_a_format_wherever_one_is_asked_for(ndims: int) -> None:
    x = numbered(SHAPES[ndims])
    array = x.numpy()
    made = [
        x.to("blocked"),
        x.to(memory_format="blocked", dtype="bf16"),
        x.contiguous("blocked"),
        x.clone("blocked"),
        x.reorder("blocked"),
        bl.reorder(x, "blocked"),
        bl.reorder(array, "blocked"),
        bl.from_array(array, "blocked"),
    ]
    for each in made:
        assert (each.memory_format, each.desc.tag) == (TAGS[ndims], TAGS[ndims])
        np.testing.assert_array_equal(each.numpy().astype(np.float32), array)
    for each in (bl.zeros(x.shape, "f32", "blocked"), bl.ones_like(array, memory_format="blocked")):
        assert each.memory_format == TAGS[ndims]
    assert made[0].is_contiguous("blocked")
    assert not x.is_contiguous("blocked")
    assert repr(made[0]) == f"Tensor(f32 {'x'.join(map(str, x.shape))} {TAGS[ndims]})"
    assert made[0].to("blocked") is made[0]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
def test_a_convolution_takes_it_for_its_result() -> None:
    x, weights = numbered((1, 3, 8, 8)), bl.full((32, 3, 3, 3), 0.5)
    y = bl.conv(x, weights, pads=1, memory_format="blocked")
    assert y.memory_format == TAGS[4]
    np.testing.assert_allclose(y.numpy(), bl.conv(x, weights, pads=1).numpy(), rtol=1e-5)
    packed = bl.conv_weights(x, weights, pads=1, memory_format="blocked")
    assert bl.conv(x, packed, pads=1, memory_format="blocked").memory_format == TAGS[4]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 3, 4, 5, 6)])
def test_other_ranks_have_no_such_format(shape: tuple[int, ...]) -> None:
    match = rf"blocked exists for 3 to 5 dimensions, not for {len(shape)}; give a tag such as aB16b"
    with pytest.raises(bl.LayoutError, match=match):
        bl.zeros(shape, memory_format="blocked")
    with pytest.raises(bl.LayoutError, match=match):
        bl.zeros(shape).to("blocked")


def test_it_is_what_the_policy_of_that_name_plans() -> None:
    b = bl.Builder()
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((32, 32, 3, 3)).astype(np.float32)
    b.output("y", b.input("x", (1, 32, 8, 8)).conv(weights, pads=1).relu())
    y = bl.load(b, layout="blocked", io_layout={"y": "any"}, tune="model")(np.ones((1, 32, 8, 8), np.float32))
    assert isinstance(y, bl.Tensor)
    assert y.desc.format_tag == bl.zeros(y.shape, memory_format="blocked").desc.format_tag
