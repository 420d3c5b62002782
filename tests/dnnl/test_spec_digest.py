"""The key of a cost: the same for equal Specs in every process, and for no others."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from blocklayout import dnnl
from blocklayout.dnnl import Attr, Binary, Eltwise, MemoryDesc, Spec, Sum
from blocklayout.dnnl.spec import DIGEST_NBYTES, spec_digest
from tests.dnnl.conftest import RunPython

CODE = """
from blocklayout import dnnl
from blocklayout.dnnl.spec import spec_digest
desc = dnnl.MemoryDesc((2, 17, 4, 4), "f32", "nhwc")
spec = dnnl.eltwise(desc, algorithm="clip", alpha=0, beta=6, n_threads=1)
print(spec_digest(spec).hex())
"""


def relu(tag: str = "nhwc", **changes: Any) -> Spec:
    return dnnl.eltwise(MemoryDesc((2, 17, 4, 4), "f32", tag), algorithm="relu", n_threads=1).replace(**changes)


OTHERS: dict[str, Any] = {
    "kind": "softmax",
    "descs": relu("nchw").descs,
    "algorithm": "eltwise_tanh",
    "prop_kind": "forward_training",
    "params": (("alpha", 0.5),),
    "attr": Attr(post_ops=(Sum(),)),
    "n_threads": 2,
    "impl": "ref:any",
}


@pytest.mark.parametrize("field", Spec.__struct_fields__)
def test_every_field_has_a_say(field: str) -> None:
    assert spec_digest(relu(**{field: OTHERS[field]})) != spec_digest(relu())


def test_the_spelling_of_a_layout_has_none() -> None:
    spec_digest.cache_clear()
    first = spec_digest(relu("nhwc"))
    spec_digest.cache_clear()
    assert spec_digest(relu("acdb")) == first


@pytest.mark.parametrize("post_op", [Sum(0.5), Eltwise("relu", 0.1), Binary("add", MemoryDesc((1, 17, 1, 1)))])
def test_post_ops_have_a_say(post_op: dnnl.PostOp) -> None:
    spec = relu(attr=Attr(post_ops=(post_op,)))
    assert spec_digest(spec) != spec_digest(relu())
    assert spec_digest(pickle.loads(pickle.dumps(spec))) == spec_digest(spec)


def test_equal_numbers_of_other_types_are_alike() -> None:
    assert spec_digest(relu(params=(("alpha", 1),))) == spec_digest(relu(params=(("alpha", 1.0),)))
    spec_digest.cache_clear()
    negative = spec_digest(relu(params=(("alpha", -0.0),)))
    spec_digest.cache_clear()
    assert negative == spec_digest(relu(params=(("alpha", 0),)))


def test_it_is_the_same_in_every_process(run_python: RunPython) -> None:
    digests = {run_python(CODE, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(digests) == 1
    assert len(bytes.fromhex(digests.pop())) == DIGEST_NBYTES
