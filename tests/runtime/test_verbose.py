"""The plan against what oneDNN itself says it executed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import blocklayout as bl
from tests import nets
session = bl.load(getattr(nets, sys.argv[1])(), layout=sys.argv[2])
feed = {info.name: nets.random_input(info.shape) for info in session.get_inputs()}
session.run(None, feed)
print("RUN")
sys.stdout.flush()
session.run(None, feed)
print("END")
sys.stdout.flush()
plan = session.plan
rows = [("reorder", "") for entry in plan.entries if entry.is_reorder]
rows += [(step.spec.kind, step.spec.impl) for step in plan.steps]
print("PLAN" + json.dumps(rows))
"""


@pytest.mark.parametrize("net", ["chain", "residual"])
@pytest.mark.parametrize("policy", ["auto", "any", "blocked", "nhwc", "plain", "per-op"])
def test_every_step_of_the_plan_is_what_the_library_executes(
    net: str, policy: str, tree_environ: dict[str, str]
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, net, policy],
        env=tree_environ | {"ONEDNN_VERBOSE": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = result.stdout.splitlines()
    executed = [_kind_and_impl(line) for line in lines[lines.index("RUN") + 1 : lines.index("END")] if ",exec," in line]
    planned = json.loads(next(line for line in lines if line.startswith("PLAN")).removeprefix("PLAN"))
    assert len(executed) == len(planned)
    for (kind, impl), (planned_kind, planned_impl) in zip(executed, planned, strict=True):
        assert kind == planned_kind
        assert impl == planned_impl or not planned_impl


def _kind_and_impl(line: str) -> tuple[str, str]:
    """``onednn_verbose,exec,cpu,convolution,jit:avx2,...`` -> ``("convolution", "jit:avx2")``."""
    fields = line.split(",")
    start = fields.index("exec")
    return fields[start + 2], fields[start + 3]
