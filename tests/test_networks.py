"""Whole ImageNet networks, which nobody here wrote, in every policy and at smaller instruction sets."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.plan import POLICIES
from blocklayout.zoo import light

FULL_SIZE = [pytest.param(name, marks=pytest.mark.full_size) for name in light.NAMES if name != "squeezenet"]
NETWORKS = ["squeezenet", *FULL_SIZE]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_policy_agrees_with_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = light.light_model(name)
    feed = light.random_inputs(model)
    contents = model.SerializeToString()
    expected = onnxruntime.InferenceSession(contents).run(None, feed)[0]
    for policy in POLICIES:
        session = bl.load(contents, layout=policy)
        error = np.abs(session.run(None, feed)[0] - expected).max() / np.abs(expected).max()
        assert error < 1e-5, policy
        assert session.plan.reference_steps == ()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_publishers_own_outputs_come_out(name: str) -> None:
    case = light.smoke_case(name)
    session = bl.load(case.model)
    outputs = session.run(list(case.outputs), case.inputs)
    for output, expected in zip(outputs, case.outputs.values(), strict=True):
        np.testing.assert_allclose(output, expected, rtol=2e-3, atol=1e-6)


SCRIPT = """
import json, sys
import numpy as np
import blocklayout as bl
from blocklayout.plan import POLICIES
from tests import nets
model = nets.residual()
feed = {"image": nets.random_input((2, 3, 14, 14))}
sums = {}
for policy in POLICIES:
    session = bl.load(model, layout=policy, threads=2)
    output = session.run(None, feed)[0]
    assert session.plan.reference_steps == ()
    sums[policy] = output.tolist()
print(json.dumps([bl.dnnl.isa(), sums]))
"""


@pytest.mark.parametrize("isa", ["SSE41", "AVX", "AVX2", "AVX512_CORE"])
def test_smaller_instruction_sets_compute_the_same(isa: str, tree_environ: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=tree_environ | {"ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    ran_as, outputs = json.loads(result.stdout)
    assert not ran_as.startswith(("avx512", "avx2")) or isa in ("AVX2", "AVX512_CORE")
    reference = np.array(next(iter(outputs.values())))
    for values in outputs.values():
        np.testing.assert_allclose(np.array(values), reference, rtol=1e-4, atol=1e-6)
