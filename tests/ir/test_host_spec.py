"""Steps that numpy computes: what they say of themselves, and what they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocklayout.encoding import MisfitError, from_data, from_json, to_data, to_json
from blocklayout.errors import InvalidArgumentsError, PlanError
from blocklayout.ir import HostSpec, copy_spec, zero_padding_step
from blocklayout.layout import MemoryDesc
from blocklayout.runtime.host import HostExecution, HostMemory, host_function

PLAIN = HostSpec("plain", (("src_0", MemoryDesc((2, 3), "s64")), ("dst", MemoryDesc((2, 3), "bool"))), "Not", "AAAA")


@pytest.mark.parametrize(
    "spec",
    [PLAIN, copy_spec(MemoryDesc((2, 3), "s64"), MemoryDesc((2, 3), "s64", "ba"))],
    ids=lambda spec: str(spec.kind),
)
def test_it_survives_json(spec: HostSpec) -> None:
    assert from_json(HostSpec, to_json(spec)) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "magic"}, "kind: Invalid enum value"),
        ({"label": 3}, "label: Expected `str`"),
        ({"descs": 3}, "descs: Expected `array`"),
        ({"more": 1}, "unknown field `more`"),
        ({"descs": [["dst", {"dims": [2], "dtype": "s7"}]]}, r"descs\.0\.1: "),
        ({"descs": [["dst", {"dims": [2], "dtype": "f32", "tag": "q"}]]}, "no format tag 'q'"),
    ],
)
def test_what_is_no_host_step_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MisfitError, match=message):
        from_data(HostSpec, to_data(PLAIN) | change)


def test_an_argument_it_does_not_have_is_named() -> None:
    with pytest.raises(InvalidArgumentsError, match="no argument 'weights'"):
        PLAIN.memory_desc("weights")


def test_a_plain_step_needs_somebody_to_run_it() -> None:
    with pytest.raises(PlanError, match="nothing to run it"):
        host_function(PLAIN, None)


TAGS = ("nChw8c", "nChw16c", "NChw16n16c", "aBcd16b", "ABcd4a4b", "ABcd16b16a", "ABcd4b16a4b", "nhwc")


@given(st.tuples(*[st.integers(1, 35)] * 2, *[st.integers(1, 3)] * 2), st.sampled_from(TAGS))
def test_zeros_go_to_the_padding_and_nowhere_else(dims: tuple[int, ...], tag: str) -> None:
    desc = MemoryDesc(dims, "f32", tag)
    raw = np.full(desc.nbytes // 4, np.nan, np.float32)
    raw[desc.offsets()] = np.arange(1, desc.n_elements + 1, dtype=np.float32).reshape(dims)
    step = zero_padding_step(desc)
    assert isinstance(step.spec, HostSpec)
    HostExecution(host_function(step.spec, None), {"dst": HostMemory(desc, raw.view(np.uint8))}).run()
    np.testing.assert_array_equal(raw, desc.pack(desc.unpack(raw)))
    assert not np.isnan(raw).any()


@given(st.permutations(range(3)), st.permutations(range(3)))
def test_a_copy_changes_strides_and_no_value(before: list[int], after: list[int]) -> None:
    tags = ["".join("abc"[axis] for axis in order) for order in (before, after)]
    src, dst = (MemoryDesc((2, 3, 4), "s64", tag) for tag in tags)
    values = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    target = np.empty(24, np.int64)
    memories = {"src": HostMemory(src, src.pack(values)), "dst": HostMemory(dst, target)}
    HostExecution(host_function(copy_spec(src, dst), None), memories).run()
    np.testing.assert_array_equal(dst.unpack(target), values)
