"""Whole ImageNet networks, which nobody here wrote, in every policy and at smaller instruction sets."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import blocklayout as bl
from bench import light
from blocklayout.plan import POLICIES

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
import sys
import numpy as np
from onnx.reference import ReferenceEvaluator
import blocklayout as bl
from blocklayout.plan import POLICIES
from tests import nets
for model in (nets.residual(), nets.residual(channels=17, batch=3), nets.chain()):
    feed = nets.feed_of(bl.load(model))
    [expected] = ReferenceEvaluator(model.to_onnx()).run(None, feed)
    for policy in POLICIES:
        session = bl.load(model, layout=policy, threads=2)
        error = np.abs(session.run(None, feed)[0] - expected).max() / np.abs(expected).max()
        assert error < 1e-5, (policy, error)
        assert session.plan.reference_steps == ()
print(bl.dnnl.isa())
"""


@pytest.mark.parametrize("isa", ["SSE41", pytest.param("AVX", marks=pytest.mark.full_size), "AVX2", "AVX512_CORE"])
def test_smaller_instruction_sets_compute_the_reference(isa: str, tree_environ: dict[str, str]) -> None:
    if isa.lower() == bl.dnnl.isa() or not bl.dnnl.has_isa(isa.lower()):
        pytest.skip(f"it would run {bl.dnnl.isa()}, and tests/plan/test_invariants.py does")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=tree_environ | {"ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().upper() == isa
